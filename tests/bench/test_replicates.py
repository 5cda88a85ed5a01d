"""Several processes of one problem, with processes played by a function: who is asked how often, what comes of it."""

from __future__ import annotations

import random

import pytest

from bench.case import Case
from bench.cell import make_record
from bench.problem import Problem
from bench.record import Agreement, Measurement
from bench.replicates import replicate

PROBLEM = Problem(seqlen=8)
AGREES = Agreement(passed=True, tensors={})


class Processes:
    """Plays fresh processes: ``cost`` maps a name to the nanoseconds of its call, or to a status."""

    def __init__(self, cost, noise=0.0, fails=None):
        self.cost, self.noise, self.fails = cost, noise, fails or {}
        self.asked = []

    def __call__(self, cases, calls, number):
        assert number == len(self.asked)
        self.asked.append(([case.implementation for case in cases], calls))
        rng = random.Random(number)
        for case in cases:
            name = case.implementation
            failed = self.fails.get((name, number))
            if failed:
                yield make_record(case, "cpu", "1", *failed)
                continue
            ns = round(self.cost[name] * (1 + self.noise * rng.uniform(-1, 1)))
            yield make_record(
                case,
                "cpu",
                "1",
                "ok",
                None,
                agreement=AGREES,
                measurement=Measurement(
                    samples_ns=(ns,) * 6,
                    calls_per_sample=1 if calls is None else calls[case.problem.key, name],
                    processes=(number,) * 6,
                    clock="perf_counter",
                    first_call_ns=1,
                    prepare_ns=1,
                    memory=None,
                ),
            )


def outcome(processes, looks=(6, 12), stopped=lambda: False, names=("a", "b")):
    cases = [Case(PROBLEM, name) for name in names]
    records = list(replicate(cases, processes, looks, stopped))
    assert sorted(r.implementation for r in records) == sorted({r.implementation for r in records})
    return {r.implementation: r for r in records}


def test_a_clear_order_ends_at_the_first_look():
    processes = Processes({"a": 1000, "b": 2000})
    records = outcome(processes)
    assert len(processes.asked) == 6
    assert len(set(records["a"].measurement.processes)) == 6
    assert processes.asked[0][1] is None, "the first process verifies and calibrates"
    assert all(calls == {(PROBLEM.key, "a"): 1, (PROBLEM.key, "b"): 1} for _, calls in processes.asked[1:])


def test_equals_end_at_the_first_look_too_since_unchanged_is_an_answer():
    assert len(set(outcome(Processes({"a": 1000, "b": 1000}))["a"].measurement.processes)) == 6


def test_an_unclear_order_is_looked_at_again_with_twice_the_processes():
    processes = Processes({"a": 1000, "b": 1030}, noise=0.05)
    records = outcome(processes)
    assert len(processes.asked) == 12
    assert len(set(records["b"].measurement.processes)) == 12


def test_a_case_that_was_not_timed_has_its_record_at_once_and_is_not_asked_again():
    processes = Processes({"a": 1000, "b": 2000}, fails={("b", 0): ("unsupported", "no")})
    records = outcome(processes)
    assert records["b"].status == "unsupported"
    assert all(names == ["a"] for names, _ in processes.asked[1:])


def test_a_failure_in_a_later_process_costs_that_case_alone_and_says_where():
    processes = Processes({"a": 1000, "b": 2000}, fails={("b", 3): ("crashed", "ended by SIGSEGV")})
    records = outcome(processes)
    assert records["b"].status == "crashed"
    assert "in process 4; 3 before it measured" in records["b"].reason
    assert len(set(records["a"].measurement.processes)) == 6


@pytest.mark.parametrize("after", [1, 3])
def test_a_stop_keeps_what_was_measured_and_flags_it(after):
    processes = Processes({"a": 1000, "b": 2000})
    records = outcome(processes, stopped=lambda: len(processes.asked) >= after)
    assert len(set(records["a"].measurement.processes)) == after
    assert [flag.name for flag in records["a"].flags] == ["few_samples"]


def test_nothing_from_the_first_process_means_nothing_at_all():
    assert list(replicate([Case(PROBLEM, "a")], lambda cases, calls, number: [], (6, 12), lambda: True)) == []


def test_a_later_process_that_cannot_or_is_wrong_keeps_no_agreement_that_contradicts_it():
    unsupported = Processes({"a": 1000, "b": 2000}, fails={("b", 2): ("unsupported", "the library gave up")})
    assert outcome(unsupported)["b"].agreement is None
    stale = Processes({"a": 1000, "b": 2000})

    def wrong(cases, calls, number):
        for record in Processes.__call__(stale, cases, calls, number):
            if record.implementation == "b" and number == 2:
                failed = AGREES.model_copy(update={"passed": False})
                yield make_record(cases[1], "cpu", "1", "incorrect", "stale", agreement=failed)
            else:
                yield record

    records = {r.implementation: r for r in replicate([Case(PROBLEM, n) for n in "ab"], wrong, (6, 12), lambda: False)}
    assert records["b"].status == "incorrect"
    assert records["b"].agreement.passed is False


def test_a_ladder_is_climbed_whole_by_every_process():
    longer = Problem(**PROBLEM.model_dump() | {"seqlen_q": 512, "seqlen_k": 512})
    cases = [Case(problem, name) for problem in (PROBLEM, longer) for name in "ab"]
    processes = Processes({"a": 1000, "b": 2000}, fails={("b", 2): ("crashed", "ended by SIGSEGV")})
    records = list(replicate(cases, processes, (5,), lambda: False))
    assert [names for names, _ in processes.asked] == [["a", "b"] * 2] * 3 + [["a", "a"]] * 2
    assert len(records) == 4
    assert {(r.problem.key, r.implementation): r.status for r in records} == {
        (problem.key, name): "ok" if name == "a" else "crashed" for problem in (PROBLEM, longer) for name in "ab"
    }
    assert all(len(set(r.measurement.processes)) == 5 for r in records if r.status == "ok")
