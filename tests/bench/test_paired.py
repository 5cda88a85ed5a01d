"""Two arms in fresh processes: real extra work is measured, failures cost their own pair, looks are as asked."""

from __future__ import annotations

import math
from statistics import median

import pytest

from bench.case import Arm, Pair, same
from bench.paired import PairTask, compare_pairs, measure_pair
from bench.problem import Problem
from bench.timing import SamplingPlan

PLAN = SamplingPlan(warmup_ns=0, budget_ns=0, arm_budget_ns=20_000_000, min_rounds=20, max_rounds=40, isolated_blocks=3)
PROBLEM = Problem(seqlen=64, num_heads=2)


def task(**changes):
    fields = {"pairs": (), "plan": PLAN, "device": "cpu", "process": 3, "seed": 0, "log": None}
    return PairTask(**{**fields, **changes})


@pytest.fixture
def counted(monkeypatch):
    """Counts the calls of both arms while they are measured in this process."""
    import random

    import bench.paired

    counts = {}
    plain = bench.paired._step

    def counting(arm, device):
        step = plain(arm, device)
        entry = counts.setdefault(len(counts), {"arm": arm, "calls": 0})

        def run():
            entry["calls"] += 1
            return step.run()

        from dataclasses import replace

        return replace(step, run=run)

    monkeypatch.setattr(bench.paired, "_step", counting)
    return lambda pair: (measure_pair(pair, task(), random.Random(0)), list(counts.values()))


def test_one_more_call_in_twenty_is_exactly_five_percent_more_calls(counted):
    pair = Pair("more", Arm(PROBLEM, "naive"), Arm(PROBLEM, "naive", repeat_every=20))
    samples, arms = counted(pair)
    assert samples.calls % 20 == 0
    calls = {arm["arm"].repeat_every: arm["calls"] for arm in arms}
    blocks = len(samples.ns["a"]) + PLAN.isolated_blocks
    warmup = calls[0] - blocks * samples.calls
    assert calls[20] >= blocks * samples.calls * 21 // 20
    assert calls[20] - blocks * samples.calls * 21 // 20 == pytest.approx(warmup, abs=0.1 * calls[20])


def test_both_arms_have_blocks_of_the_same_calls_and_as_many_rounds(counted):
    samples, _ = counted(Pair("two", Arm(PROBLEM, "naive"), Arm(PROBLEM, "sdpa_math")))
    assert len(samples.ns["a"]) == len(samples.ns["b"]) >= PLAN.min_rounds
    assert len(samples.isolated_ns["a"]) == len(samples.isolated_ns["b"]) == 3
    assert samples.estimate == median(math.log(b / a) for a, b in zip(samples.ns["a"], samples.ns["b"], strict=True))


def test_fresh_processes_measure_every_pair_and_a_failing_pair_costs_only_itself(tmp_path):
    pairs = [
        same(PROBLEM, "naive"),
        Pair("doubled", Arm(PROBLEM, "naive"), Arm(PROBLEM, "naive", repeat_every=1)),
        Pair("copied", Arm(PROBLEM, "naive"), Arm(PROBLEM, "naive", copies=50)),
        same(PROBLEM, "sdpa_cudnn"),
    ]
    results = compare_pairs(pairs, folder=tmp_path, seed=1, plan=PLAN, looks=(3,))
    doubled = results["doubled"]
    assert [one.process for one in doubled.samples] == [0, 1, 2]
    assert 0.3 < median(doubled.estimates) < 1.2, "twice the calls take about twice as long"
    assert median(results["copied"].estimates) > 0
    assert results[pairs[3].name].samples == []
    assert results[pairs[3].name].error


def test_a_process_that_dies_is_the_reason_of_the_pairs_it_did_not_get_to(tmp_path):
    from pathlib import Path

    faulty = Path(__file__).parents[1] / "plugins" / "faulty.py"
    pairs = [same(Problem(seqlen=256, num_heads=1), "dies")]
    results = compare_pairs(pairs, folder=tmp_path, seed=1, plan=PLAN, looks=(1,), load=(faulty,))
    assert "exit code -9" in results[pairs[0].name].error


@pytest.mark.parametrize("other", ["a", "b"])
def test_an_arm_that_is_never_timed_here_costs_its_pair_with_the_reason(tmp_path, other):
    from pathlib import Path

    faulty = Path(__file__).parents[1] / "plugins" / "faulty.py"
    arms = {"a": Arm(PROBLEM, "naive"), "b": Arm(PROBLEM, "naive")} | {other: Arm(PROBLEM, "stands_in")}
    pairs = [Pair("emulated", **arms), same(PROBLEM, "naive")]
    results = compare_pairs(pairs, folder=tmp_path, seed=1, plan=PLAN, looks=(1,), load=(faulty,))
    assert results["emulated"].samples == []
    assert results["emulated"].error == "Unsupported: stands_in is not timed here: it runs in an emulator"
    assert results[pairs[1].name].error is None
