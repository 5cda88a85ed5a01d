"""The search for the longest length that fits: scripted without a process, then a few real processes under a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.fitting_limit import (
    FIRST_LENGTH,
    PRECISION,
    Search,
    Trial,
    _death,
    _inputs,
    summary,
    try_length,
)
from bench.inputs import make_inputs
from bench.problem import LARGEST_SIZE, Problem

FAULTY = Path(__file__).parents[1] / "plugins" / "faulty.py"


class Machine:
    """Refuses lengths above ``limit``; a call takes ``unit_s`` times the square of the length."""

    def __init__(self, limit, unit_s=1e-9, **special):
        self.limit, self.unit_s, self.special, self.tried = limit, unit_s, special, []

    def attempt(self, length, timeout_s):
        self.tried.append((length, timeout_s))
        if f"n{length}" in self.special:
            return self.special[f"n{length}"]
        if length > self.limit:
            return Trial("refused", reason="out of memory")
        seconds = self.unit_s * length**2
        return (
            Trial("fits", seconds) if seconds <= timeout_s else Trial("running", reason=f"stopped after {timeout_s} s")
        )


def search(machine, predicted, **settings):
    found = Search(machine.attempt, lambda n: n**2, **({"call_s": 30.0, "patience_s": 10.0} | settings))
    found.run(predicted)
    return found


@pytest.mark.parametrize("limit", [1, 3, 900, 1024, 5000, 8128, 300_000])
@pytest.mark.parametrize("off", [None, 0.01, 0.5, 0.97, 1.0, 1.03, 2.0, 50.0])
def test_the_limit_is_found_from_any_prediction(limit, off):
    machine = Machine(limit, unit_s=1e-12)
    found = search(machine, None if off is None else max(1, round(limit * off)))
    assert found.error is None
    assert found.longest("fits") <= limit < found.refused
    assert found.refused - found.longest("fits") <= max(1, PRECISION * limit)
    assert len({length for length, _ in machine.tried}) == len(machine.tried) < 40, "no length twice"


def test_a_right_prediction_needs_three_processes():
    machine = Machine(8128)
    search(machine, 8128)
    assert len(machine.tried) == 3
    lengths = [length for length, _ in machine.tried]
    assert lengths[0] == FIRST_LENGTH and lengths[1] < 8128 < lengths[2]


def test_nothing_fits():
    found = search(Machine(0), None)
    assert (found.longest("fits"), found.refused) == (None, 1)
    row = summary("x", 100, None, found, 1.0)
    assert (row.verified_seqlen, row.refused_seqlen, row.reason) == (None, 1, "out of memory")


def test_no_limit_ends_at_the_longest_length_there_is():
    found = search(Machine(10**12, unit_s=0.0), None)
    assert (found.passed, found.refused) == (LARGEST_SIZE, None)


def test_a_call_that_takes_too_long_is_watched_and_never_called_verified():
    machine = Machine(500_000, unit_s=1e-8)  # 2,500 s at the limit
    found = search(machine, 500_000)
    row = summary("slow", 1 << 30, 500_000, found, 60.0)
    assert row.running_seqlen < 500_000 < row.refused_seqlen
    assert row.refused_seqlen <= row.running_seqlen * (1 + PRECISION)
    assert (1e-8 * row.verified_seqlen**2) == pytest.approx(30 / 4, rel=0.01), "the longest call worth its time"
    assert "41 min" in row.reason and "stopped after 10" in row.reason and str(row.running_seqlen) in row.reason
    assert max(timeout for length, timeout in machine.tried if length > 100_000) == 10.0


def test_a_failure_that_is_not_of_memory_ends_the_search_with_its_reason():
    machine = Machine(8128, n1024=Trial("error", reason="ValueError: no"))
    found = search(machine, 8128)
    assert len(machine.tried) == 1
    row = summary("x", 100, 8128, found, 1.0)
    assert (row.verified_seqlen, row.refused_seqlen, row.reason) == (None, None, "ValueError: no")


@pytest.mark.parametrize(
    ("exitcode", "stage", "outcome"),
    [(-9, "calling", "refused"), (-11, "preparing", "refused"), (-9, "starting", "error"), (1, "calling", "error")],
)
def test_a_signal_under_the_limit_is_memory_and_other_ends_are_errors(exitcode, stage, outcome):
    trial = _death(exitcode, stage)
    assert trial.outcome == outcome and trial.reason


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_inputs_have_the_shapes_that_a_measurement_makes(layout, direction):
    problem = Problem(
        batch_size=2, num_heads_q=4, num_heads_kv=2, seqlen_q=3, seqlen_k=5, head_dim=8, head_dim_v=6, dtype="bfloat16",
        direction=direction,
    )  # fmt: skip
    drawn, made = make_inputs(problem, layout), _inputs(problem, layout, "cpu")
    for name in ("q", "k", "v", "dout"):
        one, other = getattr(drawn, name), getattr(made, name)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert (one.shape, one.dtype, one.is_contiguous()) == (other.shape, other.dtype, other.is_contiguous())
            assert float(other.float().std()) > 0.3


LIMIT = 64 << 20
"""Naive's law says 1,385 positions: 32 T^2 + 4,096 T bytes."""


def attempt(name, length, timeout_s=60.0, **fields):
    return try_length(name, Problem(seqlen=length, **fields), LIMIT, timeout_s, load=(FAULTY,))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "length", "outcome", "words"),
    [
        ("naive", 1280, "fits", ""),
        ("naive", 1400, "refused", "can't allocate memory"),
        ("naive", 100_000, "refused", "can't allocate memory"),
        ("dies", 256, "refused", "SIGKILL"),
        ("raises", 256, "error", "planted failure"),
        ("exits", 256, "error", "exit code 7"),
        ("nobody", 64, "error", "UnknownNameError"),
    ],
)
def test_a_process_under_a_limit(name, length, outcome, words):
    trial = attempt(name, length)
    assert trial.outcome == outcome
    assert words in (trial.reason or "")
    assert (trial.seconds > 0) == (outcome == "fits")


@pytest.mark.slow
def test_a_call_that_does_not_end_is_stopped():
    trial = attempt("hangs", 256, timeout_s=1.0)
    assert (trial.outcome, trial.reason) == ("running", "stopped after 1 s")
