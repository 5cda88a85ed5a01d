"""Records of finished cells, and of cells that several processes measured."""

from __future__ import annotations

from bench.case import Case
from bench.cell import make_record, merged_record
from bench.problem import Problem
from bench.record import Agreement, Flag, Measurement, Record


def timed(process: int, ns: list[int], flags: tuple[Flag, ...] = ()) -> Record:
    measurement = Measurement(
        samples_ns=tuple(ns),
        calls_per_sample=4,
        processes=(process,) * len(ns),
        clock="perf_counter",
        cpu_ns=tuple(ns),
        isolated_ns=(ns[0],),
        first_call_ns=1000 + process,
        prepare_ns=10,
        memory=None,
    )
    return make_record(
        Case(Problem(seqlen=8), "naive"),
        "cpu",
        "1",
        "ok",
        None,
        agreement=Agreement(passed=True, tensors={}),
        measurement=measurement,
        flags=flags,
        measure_s=1.0,
    )


def test_long_reasons_are_cut_and_say_so():
    record = make_record(Case(Problem(seqlen=8), "naive"), "cpu", None, "error", "x" * 10_000)
    assert len(record.reason) < 700
    assert record.reason.endswith("[cut]")


def test_samples_of_all_processes_stand_in_order_with_the_process_that_took_them():
    merged = merged_record([timed(0, [1, 2]), timed(1, [3, 4]), timed(5, [5, 6])], wanted=3)
    measurement = merged.measurement
    assert measurement.samples_ns == measurement.cpu_ns == (1, 2, 3, 4, 5, 6)
    assert measurement.processes == (0, 0, 1, 1, 5, 5)
    assert measurement.isolated_ns == (1, 3, 5)
    assert measurement.first_call_ns == 1000, "the first process verified it and paid for the first call"
    assert merged.measure_s == 3.0
    assert merged.flags == ()


def test_too_few_processes_and_shared_doubts_are_flagged():
    doubt = Flag(name="unstable", reason="spread")
    merged = merged_record([timed(0, [1], (doubt,)), timed(1, [2], (doubt,)), timed(2, [3])], wanted=6)
    assert [flag.name for flag in merged.flags] == ["unstable", "few_samples"]
