"""Public cases O30 and O31: a failure keeps no tensor alive, aborts no run and is no zero in an average.

Whole runs with implementations that fail are in ``tests/bench/test_failures.py``.
"""

from __future__ import annotations

import gc
import math
import weakref
from statistics import fmean
from types import SimpleNamespace

import pytest
import torch

from bench import cli, runner
from bench.analysis import frame, geometric_mean
from bench.case import Case
from bench.cell import Cell
from bench.comparison import compare
from bench.errors import NothingSelectedError
from bench.implementation import implementations
from bench.problem import Problem
from bench.report.cells import reasons, status_counts
from bench.results import RunWriter
from bench.rung import Rung
from bench.standings import rank
from bench.tables import frame_rows


def attempt(action):
    """What the one place that catches everything makes of ``action``."""
    case = Case(Problem(seqlen=8), "naive")
    rung = Rung(SimpleNamespace(device="cpu", announce=lambda index: None), 0, [case])
    return rung._attempt(Cell(0, case, implementations.get("naive")), action)


def simply(large):
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")


def as_python(large):
    raise MemoryError


def while_handling_another(large):
    try:
        simply(large)
    except RuntimeError as error:
        raise torch.OutOfMemoryError("CUDA out of memory") from error


def with_the_tensor_inside(large):
    raise MemoryError("too large", large)


def in_a_group(large):
    try:
        simply(large)
    except RuntimeError as error:
        raise ExceptionGroup("out of memory", [error, MemoryError(large)]) from None


def in_a_backward_pass(large):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(context, tensor):
            context.save_for_backward(tensor)
            return tensor.sum()

        @staticmethod
        def backward(context, gradient):
            raise MemoryError(context.saved_tensors[0].shape)

    Fails.apply(large.requires_grad_()).backward()


@pytest.mark.parametrize(
    "fail", [simply, as_python, while_handling_another, with_the_tensor_inside, in_a_group, in_a_backward_pass]
)
def test_o30_tensors_of_a_failure_are_freed(fail):
    """Only its words are stored; the tensor is gone before the next case starts."""
    held = []

    def action():
        large = torch.zeros(1 << 20)
        held.append(weakref.ref(large))
        fail(large)

    status, reason = attempt(action)
    assert held[0]() is None
    assert status == "out_of_memory"
    assert isinstance(reason, str)


def test_o30_an_exception_that_is_kept_keeps_the_tensor():
    """The fault itself: what the test above would see if the exception were stored."""

    def action():
        large = torch.zeros(1 << 20)
        held.append(weakref.ref(large))
        simply(large)

    held, kept = [], []
    try:
        action()
    except RuntimeError as error:
        kept.append(error)
    gc.collect()
    assert held[0]() is not None
    kept.clear()
    gc.collect()
    assert held[0]() is None


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("name"), AssertionError(), StopIteration(), OSError(5, "x")]
)
def test_o30_other_exceptions_are_errors_with_their_words(error):
    def action():
        raise error

    assert attempt(action) == ("error", f"{type(error).__name__}: {error}")


def three(make_record):
    """10 ms, 20 ms and an exception."""
    return [
        make_record("ok", latency_ms=10.0, problem=Problem(seqlen=64)),
        make_record("ok", latency_ms=20.0, problem=Problem(seqlen=128)),
        make_record("error", reason="RuntimeError: planted", problem=Problem(seqlen=256)),
    ]


def test_o31_a_failed_case_is_no_zero(make_record, make_run):
    table = frame([make_run(three(make_record))])
    measured = table["latency_ms"].dropna().tolist()
    assert table["latency_ms"].mean() == fmean(measured) == 15.0
    assert geometric_mean(measured) == pytest.approx(math.sqrt(200))
    rows = frame_rows(table, "json")
    assert rows[2]["latency_ms"] is None
    assert status_counts(rows) == (["ok", "error"], [("naive", [2, 1])])
    assert reasons(rows) == [("naive", "error", "RuntimeError: planted", 1)]


def test_o31_ratios_are_taken_over_what_both_sides_completed(make_record, make_run):
    """The failed length of one implementation does not count for the other, in a ranking and between two runs."""
    records = three(make_record)
    other = [
        make_record("ok", latency_ms=factor * 10.0, implementation="sdpa_math", problem=record.problem)
        for factor, record in zip((2.0, 4.0, 1000.0), records, strict=True)
    ]
    standings = {standing.implementation: standing for standing in rank([make_run(records + other)])}
    assert standings["sdpa_math"].ratio == pytest.approx(2.0)
    assert standings["sdpa_math"].cells == 2
    later = [make_record("ok", latency_ms=15.0, problem=record.problem) for record in records]
    changes = compare(make_run(records), make_run(later, run_id="later"))
    assert [change.latency_ratio for change in changes] == [pytest.approx(1.5), pytest.approx(0.75), None]


@pytest.mark.parametrize("status", ["error", "crashed", "timeout", "incorrect"])
def test_o31_a_run_in_which_all_fail_has_no_average_and_is_no_success(
    make_record, make_run, make_header, tmp_path, monkeypatch, status
):
    records = [make_record(status, problem=Problem(seqlen=64 * n)) for n in (1, 2)]
    with pytest.raises(NothingSelectedError) as caught:
        rank([make_run(records)])
    assert caught.value.exit_code == 5
    with pytest.raises(ValueError, match="geometric mean must be taken of positive numbers"):
        geometric_mean(frame([make_run(records)])["latency_ms"].dropna().tolist())

    def stored(request, listener):
        with RunWriter(request.output, "run") as writer:
            writer.write(make_header("run", cells=2))
            for record in records:
                writer.write(record)
        return writer.path

    monkeypatch.setattr(runner, "run", stored)
    with pytest.raises(SystemExit) as ended:
        cli.main(["measure", "--sweep", "smoke", "-o", str(tmp_path)])
    assert ended.value.code == 1
