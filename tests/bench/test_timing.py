"""Timing with a fake clock: what is called, how often, in which order, and what is divided by what."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from bench.timing import CudaEventClock, PerfCounterClock, SamplingPlan, interleave

MS = 1_000_000


@dataclass
class FakeClock:
    """Each named run costs what ``cost`` says; the first call of a run may cost more."""

    cost: dict[str, int]
    first: dict[str, int] = field(default_factory=dict)
    log: list[tuple[str, int]] = field(default_factory=list)
    name = "fake"

    def time_block(self, run, calls):
        total = 0
        for _ in range(calls):
            name = run()
            seen = any(entry[0] == name for entry in self.log)
            total += self.cost[name] if seen else self.first.get(name, self.cost[name])
            self.log.append((name, 1))
        return total


def direct(name, block):
    return block()


def runs_of(*names):
    return {name: (lambda name=name: name) for name in names}


def per_call(samples):
    return {ns / samples.calls for ns in samples.ns}


@pytest.mark.parametrize("cost_ms", [0.01, 1.0, 20.0])
def test_latency_is_per_call_whatever_the_block(cost_ms):
    clock = FakeClock({"a": round(cost_ms * MS)})
    samples = interleave(runs_of("a"), clock, SamplingPlan(), random.Random(0), direct)["a"]
    assert per_call(samples) == {cost_ms * MS}
    assert samples.calls == max(1, round(0.5 / cost_ms))


def test_first_call_never_reaches_the_samples():
    """A first call of 500 ms and later ones of 1 ms give 1 ms; the mean of ten without warm-up would be 50.9 ms."""
    clock = FakeClock({"a": MS}, first={"a": 500 * MS})
    samples = interleave(runs_of("a"), clock, SamplingPlan(), random.Random(0), direct)["a"]
    assert per_call(samples) == {MS}


@pytest.mark.parametrize("reading", [0, 50])
def test_a_clock_too_coarse_for_one_call_gives_finite_blocks(reading):
    plan = SamplingPlan(max_calls=100)
    samples = interleave(runs_of("a"), FakeClock({"a": reading}), plan, random.Random(0), direct)["a"]
    assert samples.calls == 100
    assert len(samples.ns) == plan.max_rounds


def test_every_round_has_one_block_of_each_in_changing_order():
    clock = FakeClock({"a": 20 * MS, "b": 30 * MS, "c": 40 * MS})
    plan = SamplingPlan(warmup_calls=1, warmup_ns=0, min_rounds=12, budget_ns=0)
    interleave(runs_of("a", "b", "c"), clock, plan, random.Random(0), direct)
    names = [name for name, _ in clock.log][3:]
    rounds = [tuple(names[i : i + 3]) for i in range(0, len(names), 3)]
    assert len(rounds) == 12
    assert all(set(r) == {"a", "b", "c"} for r in rounds)
    assert len(set(rounds)) > 2


def test_rounds_follow_the_budget_between_their_bounds():
    def rounds(cost_ms):
        clock = FakeClock({"a": cost_ms * MS})
        plan = SamplingPlan(budget_ns=1000 * MS, min_rounds=6, max_rounds=60)
        return len(interleave(runs_of("a"), clock, plan, random.Random(0), direct)["a"].ns)

    assert rounds(1) == 60
    assert rounds(50) == 20
    assert rounds(1000) == 6


def test_an_implementation_that_fails_leaves_the_others_alone():
    clock = FakeClock({"a": 20 * MS, "b": 20 * MS})
    failing = {"count": 0}

    def attempt(name, block):
        if name == "a":
            failing["count"] += 1
            if failing["count"] > 4:
                return None
        return block()

    samples = interleave(runs_of("a", "b"), clock, SamplingPlan(), random.Random(0), attempt)
    assert set(samples) == {"b"}
    assert len(samples["b"].ns) >= 6


def test_nothing_to_time_ends_at_once():
    assert interleave({}, FakeClock({}), SamplingPlan(), random.Random(0), direct) == {}


class FakeDevice:
    """Launching returns at once; the work takes 20 ms of device time and is done at the next synchronisation."""

    def __init__(self):
        self.now_ms = self.queued_ms = 0.0

    def launch(self):
        self.queued_ms += 20.0

    def synchronize(self):
        self.now_ms += self.queued_ms
        self.queued_ms = 0.0

    def event(self):
        device = self

        class Event:
            def record(self):
                self.at_ms = device.now_ms + device.queued_ms

            def elapsed_time(self, stop):
                assert device.queued_ms == 0, "read before the work was done"
                return stop.at_ms - self.at_ms

        return Event()


@pytest.mark.parametrize("calls", [1, 10, 50])
def test_cuda_events_time_the_work_not_the_launch(calls):
    device = FakeDevice()
    device.launch()  # work of somebody else that is still queued
    clock = CudaEventClock(lambda: (device.event(), device.event()), device.synchronize)
    assert clock.time_block(device.launch, calls) == calls * 20 * MS


def test_an_error_of_queued_work_surfaces_at_its_own_block():
    device = FakeDevice()
    broken = {"launched": False}

    def synchronize():
        device.synchronize()
        if broken["launched"]:
            raise RuntimeError("device-side failure")

    def launch():
        device.launch()
        broken["launched"] = True

    clock = CudaEventClock(lambda: (device.event(), device.event()), synchronize)
    with pytest.raises(RuntimeError, match="device-side"):
        clock.time_block(launch, 1)


def test_wall_clock_counts_every_call_and_restores_the_collector():
    import gc

    calls = []
    elapsed = PerfCounterClock().time_block(lambda: calls.append(gc.isenabled()), 5)
    assert calls == [False] * 5
    assert elapsed > 0
    assert gc.isenabled()
