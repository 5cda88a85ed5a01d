import itertools

import pytest

from bench.soundness import e07_timer
from bench.soundness.e07_timer import SPINS_NS, Spin, Timer


def spin(name, bias=0.0):
    seen = 10 * SPINS_NS[name]
    return {
        "calls": 10,
        "ns": [round(seen * (1 + bias))] * 20,
        "seen_ns": [seen] * 20,
        "tick_ns": 40,
        "empty_block_ns": 200,
    }


def added(ratio=1.0, outside=0.01):
    bare = [1_000_000 + 100 * i for i in range(30)]
    return {"calls": 8, "harness_ns": [round(ns * ratio) for ns in bare], "bare_ns": bare, "outside": outside}


def observations(bias=0.0, ratio=1.0):
    spins = {f"{name}/{p}": spin(name, bias if name == "1 ms" else 0.0) for name in SPINS_NS for p in range(2)}
    return spins | {f"added/{p}": added(ratio) for p in range(6)}


def test_a_true_clock_without_cost_meets_the_target():
    finding = Timer().judge(observations(bias=0.004, ratio=1.015))
    assert finding.met is True
    assert [row["blocks"] for row in finding.rows] == [40] * len(SPINS_NS)


@pytest.mark.parametrize("bias", [0.006, -0.006])
def test_a_biased_clock_misses_it(bias):
    assert Timer().judge(observations(bias=bias)).met is False


def test_a_harness_that_adds_three_percent_to_a_block_misses_it():
    assert Timer().judge(observations(ratio=1.03)).met is False


def test_too_little_says_nothing():
    assert Timer().judge({}).met is None
    assert Timer().judge({"1 ms/0": spin("1 ms")}).met is None
    assert Timer().judge({"added/0": added()}).met is None


def test_quick_units_are_units_of_the_whole():
    assert set(Timer().units(True)) < set(Timer().units(False))


def test_deadlines_of_a_spin_do_not_add_up_overhead(monkeypatch):
    ticks = itertools.count(0, 7)  # each look at the clock takes 7 ns
    monkeypatch.setattr(e07_timer, "other_clock_ns", lambda: next(ticks))
    run = Spin(100)
    for _ in range(50):
        run()
    assert 5000 <= run.seen_ns < 5000 + 7
    run.restart()
    run()
    assert 100 <= run.seen_ns < 100 + 7


def test_the_harness_times_a_spin_block_by_block(monkeypatch):
    monkeypatch.setattr(e07_timer, "PLAN", e07_timer.SamplingPlan(warmup_ns=0, budget_ns=0, min_rounds=5, max_rounds=5))
    found = e07_timer.time_spin("10 us", 0)
    assert len(found["ns"]) == len(found["seen_ns"]) == 5
    # The spin lies inside of the block; another clock may run faster or slower by a tenth of a percent.
    assert all(seen >= found["calls"] * 10_000 for seen in found["seen_ns"])
    assert all(ns > 0.999 * seen for ns, seen in zip(found["ns"], found["seen_ns"], strict=True))
    assert found["tick_ns"] > 0 and found["empty_block_ns"] >= 0
