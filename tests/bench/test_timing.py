"""Timing with a fake clock: what is called, how often, in which order, and what is divided by what."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from bench.clocks import Block
from bench.timing import FULL, SamplingPlan, interleave, is_steady

MS = 1_000_000


@dataclass
class FakeClock:
    """Each named run costs what ``cost`` says; the first call of a run may cost more."""

    cost: dict[str, int]
    first: dict[str, int] = field(default_factory=dict)
    log: list[tuple[str, int]] = field(default_factory=list)
    name = "fake"
    most_calls = 1000

    def time_block(self, run, calls):
        total = 0
        for _ in range(calls):
            name = run()
            seen = any(entry[0] == name for entry in self.log)
            total += self.cost[name] if seen else self.first.get(name, self.cost[name])
            self.log.append((name, 1))
        return Block(total)


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


def test_a_warm_up_that_is_verified_goes_on_until_blocks_are_steady():
    """Calls get twice as fast after 30 ms; blocks of the rounds are all at the final speed."""

    class Settling(FakeClock):
        spent = 0

        def time_block(self, run, calls):
            total = 0
            for _ in range(calls):
                total += 2 * MS if self.spent + total < 30 * MS else MS
            self.spent += total
            return Block(total)

    plan = SamplingPlan(warmup_calls=2, warmup_ns=0, longest_warmup_ns=2000 * MS)
    samples = interleave(runs_of("a"), Settling({}), plan, random.Random(0), direct)["a"]
    assert samples.steady
    assert per_call(samples) == {MS}
    hasty = interleave(runs_of("a"), Settling({}), SamplingPlan(warmup_calls=2, warmup_ns=0), random.Random(0), direct)
    assert per_call(hasty["a"]) == {MS, 2 * MS}


def test_an_arm_that_never_becomes_steady_ends_its_warm_up_and_says_so():
    class Slowing(FakeClock):
        calls = 0

        def time_block(self, run, calls):
            self.calls += calls
            return Block(round(MS * 1.02**self.calls))

    plan = SamplingPlan(longest_warmup_ns=50 * MS, max_rounds=6)
    assert not interleave(runs_of("a"), Slowing({}), plan, random.Random(0), direct)["a"].steady


def test_noise_without_a_trend_counts_as_steady_and_a_trend_does_not():
    rng = random.Random(0)
    assert all(is_steady([round(MS * rng.lognormvariate(0, 0.5)) for _ in range(20)]) for _ in range(50))
    assert not is_steady([MS] * 10 + [2 * MS] * 10)
    assert not is_steady([2 * MS] * 10 + [MS] * 10)
    assert is_steady([MS] * 20)


def test_a_block_is_long_against_the_cost_of_the_clock():
    samples = interleave(
        runs_of("a"), FakeClock({"a": MS}), SamplingPlan(), random.Random(0), direct, overhead_ns=50_000
    )["a"]
    assert samples.calls == 10  # 200 x 50 us


def test_blocks_of_arms_that_will_be_compared_hold_the_same_calls_in_the_multiple_asked_for():
    clock = FakeClock({"a": round(0.1 * MS), "b": round(0.09 * MS), "c": round(0.25 * MS)})
    samples = interleave(
        runs_of("a", "b", "c"), clock, SamplingPlan(), random.Random(0), direct, together=(("a", "b"),), multiple=20
    )
    assert (samples["a"].calls, samples["b"].calls, samples["c"].calls) == (20, 20, 2)


def test_calls_settled_by_another_process_are_taken_over():
    samples = interleave(runs_of("a"), FakeClock({"a": MS}), SamplingPlan(), random.Random(0), direct, calls={"a": 7})
    assert samples["a"].calls == 7


def test_few_rounds_are_balanced_by_reversing_every_second_order():
    clock = FakeClock({"a": 20 * MS, "b": 20 * MS})
    plan = SamplingPlan(warmup_calls=1, warmup_ns=0, min_rounds=6, budget_ns=0)
    samples = interleave(runs_of("a", "b"), clock, plan, random.Random(0), direct)
    assert sum(samples["a"].positions) == 3
    assert [x + y for x, y in zip(samples["a"].positions, samples["b"].positions, strict=True)] == [1] * 6


def test_a_refused_round_counts_for_no_arm_and_another_takes_its_place():
    answers = iter([None, "a throttle counter advanced", None, None, "it did again", None, None, None])
    clock = FakeClock({"a": 20 * MS, "b": 20 * MS})
    plan = SamplingPlan(min_rounds=6, budget_ns=0)
    samples = interleave(runs_of("a", "b"), clock, plan, random.Random(0), direct, guard=lambda: next(answers))
    for one in samples.values():
        assert (len(one.ns), len(one.positions), one.discarded) == (6, 6, 2)
        assert one.discard_reason == "it did again"


def test_a_guard_that_refuses_everything_ends_all_the_same():
    plan = SamplingPlan(max_rounds=10)
    samples = interleave(runs_of("a"), FakeClock({"a": MS}), plan, random.Random(0), direct, guard=lambda: "too hot")
    assert (samples["a"].ns, samples["a"].discarded) == ([], 10)


def test_the_full_protocol_takes_sixty_to_four_hundred_rounds_and_isolated_blocks():
    def samples(cost_ms):
        clock = FakeClock({"a": round(cost_ms * MS), "b": round(cost_ms * MS)})
        return interleave(runs_of("a", "b"), clock, FULL, random.Random(0), direct)["a"]

    assert len(samples(0.1).ns) == 400
    assert len(samples(2).ns) == 100
    assert len(samples(20).ns) == 60
    assert samples(2).isolated_ns == [2 * MS] * 20
