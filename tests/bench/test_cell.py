"""Flags of a measured cell: unstable samples, and rows faster than the machine allows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench.ceilings import measure_ceilings
from bench.cell import impossible_flag, make_record, stability_flags
from bench.problem import Problem
from bench.record import Ceilings
from bench.sweep import Case

CEILINGS = Ceilings(flop_per_s={"float32": 1e11}, bytes_per_s=1e10)


def test_steady_samples_raise_no_flag_and_scattered_ones_do():
    assert stability_flags([100, 101, 102, 103, 104, 105]) == ()
    (flag,) = stability_flags([100, 100, 100, 150, 160, 170])
    assert flag.name == "unstable"
    (flag,) = stability_flags([0, 0, 0, 0, 5, 5])
    assert "read 0" in flag.reason


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


def test_ceilings_of_this_machine_are_positive_and_order_dtypes_as_measured():
    ceilings = measure_ceilings("cpu", ["float32", "bfloat16"])
    assert set(ceilings.flop_per_s) == {"float32", "bfloat16"}
    assert min(*ceilings.flop_per_s.values(), ceilings.bytes_per_s) > 1e6


def test_a_ceiling_taken_in_a_busy_moment_is_measured_again_before_a_row_is_called_impossible(monkeypatch):
    import bench.rung
    from bench.rung import Rung
    from bench.timing import Samples

    problem = Problem(seqlen=1024)
    seconds = problem.flop / 1e11
    busy = Ceilings(flop_per_s={"float32": 2e10}, bytes_per_s=1e9)
    monkeypatch.setattr(
        bench.rung, "measure_ceilings", lambda device, dtypes: Ceilings(flop_per_s={"float32": 2e11}, bytes_per_s=1e12)
    )
    setting = SimpleNamespace(device="cpu", ceilings=busy)
    rung = Rung(setting, 0, [Case(problem, "naive")])
    rung._doubt_ceilings(Samples(calls=1, ns=[round(seconds * 1e9)] * 6))
    assert setting.ceilings.flop_per_s == {"float32": 2e11}
    rung._doubt_ceilings(Samples(calls=1, ns=[round(seconds * 1e8)] * 6))
    assert impossible_flag(problem, seconds / 10, setting.ceilings)[0].name == "impossible"


def test_long_reasons_are_cut_and_say_so():
    record = make_record(Case(Problem(seqlen=8), "naive"), "cpu", None, "error", "x" * 10_000)
    assert len(record.reason) < 700
    assert record.reason.endswith("[cut]")
