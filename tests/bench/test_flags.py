"""Flags of a measured cell: each doubt is raised by its own plant, and by nothing that is sound."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from bench.case import Case
from bench.ceilings import measure_ceilings
from bench.flags import few_samples_flag, impossible_flag, merged_flags, sample_flags
from bench.header import Ceilings
from bench.problem import Problem
from bench.record import Flag
from bench.timing import Samples

CEILINGS = Ceilings(flop_per_s={"float32": 1e11}, bytes_per_s=1e10)


def sound(**changes):
    """Forty blocks around 1 ms, half of them first in their round."""
    rng = random.Random(0)
    ns = [round(1e6 * rng.uniform(0.98, 1.02)) for _ in range(40)]
    fields = {
        "calls": 1,
        "ns": ns,
        "cpu_ns": [round(0.9 * x) for x in ns],
        "positions": [i % 2 for i in range(40)],
        "isolated_ns": ns[:20],
    }
    return Samples(**{**fields, **changes})


def names(samples):
    return [flag.name for flag in sample_flags(samples)]


def test_sound_samples_raise_no_flag():
    assert names(sound()) == []
    assert names(Samples(calls=1, ns=[100, 101, 102, 103, 104, 105])) == []


@pytest.mark.parametrize(
    ("flag", "changes"),
    [
        ("unstable", {"ns": [1_000_000, 1_700_000] * 20, "isolated_ns": [], "positions": [0] * 40, "cpu_ns": []}),
        ("unstable", {"ns": [0] * 40, "isolated_ns": [], "positions": [0] * 40, "cpu_ns": []}),
        ("not_steady", {"steady": False}),
        ("contended", {"cpu_ns": [300_000] * 40}),
        ("interference", {"isolated_ns": [800_000] * 20}),
        ("interference", {"isolated_ns": [1_300_000] * 20}),
        ("order_effect", {"ns": [1_100_000, 1_000_000] * 20, "isolated_ns": []}),
        ("throttled", {"throttle_doubt": "the clock fell through the session"}),
        ("throttled", {"discarded": 11, "discard_reason": "a throttle counter advanced"}),
    ],
)
def test_each_doubt_is_named_for_its_own_plant(flag, changes):
    assert names(sound(**changes)) == [flag]


@pytest.mark.parametrize(
    "changes", [{"isolated_ns": [950_000] * 20}, {"discarded": 9}, {"ns": [1_030_000, 1_000_000] * 20}]
)
def test_what_stays_within_its_limit_raises_nothing(changes):
    assert names(sound(**changes)) == []


def test_too_few_blocks_cannot_show_an_effect_of_order():
    assert names(sound(ns=[2_000_000, 1_990_000] * 3, positions=[0, 1] * 3, isolated_ns=[], cpu_ns=[])) == []


def test_flags_of_several_processes_need_a_majority_and_impossible_needs_one():
    unstable, impossible = Flag(name="unstable", reason="spread"), Flag(name="impossible", reason="too fast")
    assert merged_flags([[unstable], [], []]) == ()
    (flag,) = merged_flags([[unstable], [unstable], []])
    assert flag.reason == "in 2 of 3 processes; in one: spread"
    assert [f.name for f in merged_flags([[impossible], [], []])] == ["impossible"]
    assert merged_flags([[unstable]]) == (unstable,)


def test_fewer_processes_than_the_first_look_is_a_flag():
    assert few_samples_flag(6, 6) == ()
    assert few_samples_flag(2, 6)[0].reason == "2 of the 6 processes that a verdict needs"


@pytest.mark.parametrize(("factor", "flags"), [(1.0, ()), (1.04, ()), (1.2, ("impossible",)), (100.0, ("impossible",))])
def test_faster_than_the_matrix_product_rate_is_impossible(factor, flags):
    problem = Problem(seqlen=1024)
    seconds = problem.flop / 1e11 / factor
    assert tuple(flag.name for flag in impossible_flag(problem, seconds, CEILINGS)) == flags


def test_faster_than_the_bandwidth_is_impossible():
    problem = Problem(seqlen_q=1, seqlen_k=1024, num_heads=1)
    seconds = problem.least_bytes / 1e10 / 2
    assert problem.flop < 1e11 * seconds
    (flag,) = impossible_flag(problem, seconds, CEILINGS)
    assert "bandwidth" in flag.reason


def test_a_reading_of_zero_is_impossible_and_not_a_division_by_zero():
    assert impossible_flag(Problem(seqlen=64), 0.0, CEILINGS)[0].name == "impossible"


def test_without_ceilings_nothing_is_claimed():
    assert impossible_flag(Problem(seqlen=64), 0.0, None) == ()
    bfloat16 = Problem(seqlen=64, dtype="bfloat16")
    assert impossible_flag(bfloat16, 1.0, CEILINGS) == ()


def test_a_ceiling_taken_in_a_busy_moment_is_measured_again_before_a_row_is_called_impossible(monkeypatch):
    import bench.rung
    from bench.rung import Rung

    problem = Problem(seqlen=1024)
    seconds = problem.flop / 1e11
    busy = Ceilings(flop_per_s={"float32": 2e10}, bytes_per_s=1e9, flop_per_s_one_thread={"float32": 1e10})
    monkeypatch.setattr(
        bench.rung,
        "measure_ceilings",
        lambda device, dtypes, **options: Ceilings(flop_per_s={"float32": 2e11}, bytes_per_s=1e12),
    )
    setting = SimpleNamespace(device="cpu", ceilings=busy)
    rung = Rung(setting, 0, [Case(problem, "naive")])
    rung._doubt_ceilings(Samples(calls=1, ns=[round(seconds * 1e9)] * 6))
    assert setting.ceilings.flop_per_s == {"float32": 2e11}
    assert setting.ceilings.flop_per_s_one_thread == {"float32": 1e10}
    rung._doubt_ceilings(Samples(calls=1, ns=[round(seconds * 1e8)] * 6))
    assert impossible_flag(problem, seconds / 10, setting.ceilings)[0].name == "impossible"


def test_ceilings_of_this_machine_are_positive():
    ceilings = measure_ceilings("cpu", ["float32", "bfloat16"], quick=True)
    assert set(ceilings.flop_per_s) == {"float32", "bfloat16"}
    assert min(*ceilings.flop_per_s.values(), ceilings.bytes_per_s) > 1e6
