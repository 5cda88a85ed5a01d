"""The sampling plan, verified warm-up, interleaved rounds and isolated blocks.

A *block* is a few calls timed together; a *round* is one block of every arm (an implementation, usually), in random
order. Interleaving is what makes a shared machine measurable: whatever slows the machine down for a while slows down
all arms of a round alike, so ratios stay (``docs/methodology.md``).

Nothing here knows about torch; clocks (:mod:`bench.clocks`) and random order are passed in, so tests use a fake clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from bench.clocks import Block, Clock

Attempt = Callable[[str, Callable[[], Block]], Block | None]
"""Runs a timed block for a named arm; None if it failed, after which that arm is left out."""

FEW_ROUNDS = 20
"""Below this, random order may by chance favour one arm: the order of every second round is reversed instead."""
STEADY_BLOCKS = 20
"""Blocks whose two halves are compared before an arm counts as warm."""
STEADY_LIMIT = 0.03
"""Largest relative difference of the medians of the two halves, where it is more than noise."""


@dataclass(frozen=True, kw_only=True)
class SamplingPlan:
    """How much to measure. Times in nanoseconds."""

    min_block_ns: int = 500_000
    """A block is at least this long, or one call;"""
    overheads_per_block: int = 200
    """and at least as long as this many empty blocks, so that the clock's own cost is below half a percent."""
    max_calls: int = 1000
    """Calls in one block at most, however fast they are."""
    warmup_ns: int = 30_000_000
    """Warm-up of each arm lasts at least this long, or ``max_calls`` calls,"""
    warmup_calls: int = 2
    """and at least this many calls."""
    longest_warmup_ns: int = 0
    """Where the warm-up is verified: give up after this long. 0 does not verify it."""
    budget_ns: int = 1_000_000_000
    """Rounds are added until they have taken this long,"""
    arm_budget_ns: int = 0
    """and this long for each arm,"""
    min_rounds: int = 6
    """but there are at least these: six give a distribution-free 96.9 % interval for the median,"""
    max_rounds: int = 60
    """and at most these."""
    isolated_blocks: int = 0
    """Blocks of each arm on its own, after the rounds."""
    processes: tuple[int, ...] = (1,)
    """Fresh processes at each look; a later look is taken only where the one before left something undecided."""


FULL = SamplingPlan(
    warmup_calls=10,
    warmup_ns=100_000_000,
    longest_warmup_ns=2_000_000_000,
    budget_ns=0,
    arm_budget_ns=200_000_000,
    min_rounds=60,
    max_rounds=400,
    isolated_blocks=20,
    processes=(6, 12),
)
"""The protocol behind every verdict: see "Measuring" in ``docs/methodology.md``."""


@dataclass
class Samples:
    """What was measured of one arm."""

    calls: int
    """Calls in a block."""
    ns: list[int] = field(default_factory=list)
    """Duration of each block, in the order of the rounds."""
    cpu_ns: list[int] = field(default_factory=list)
    """CPU time of the calling thread within each; empty where the clock has none."""
    positions: list[int] = field(default_factory=list)
    """Place within its round, from 0."""
    isolated_ns: list[int] = field(default_factory=list)
    """Blocks of this arm alone, after the rounds."""
    steady: bool = True
    """False if the warm-up was verified and never became steady."""
    discarded: int = 0
    """Rounds that the guard refused; of all arms alike."""
    discard_reason: str | None = None
    """What it said last."""
    throttle_doubt: str | None = None
    """What the sensors make doubtful about the rounds that were kept."""
    total_ns: int = 0
    """Warm-up and blocks together."""

    def add(self, block: Block, position: int) -> None:
        """Take one block of a round."""
        self.ns.append(block.ns)
        self.positions.append(position)
        if block.cpu_ns is not None:
            self.cpu_ns.append(block.cpu_ns)

    def drop(self) -> None:
        """Take back the block of the last round."""
        for values in (self.ns, self.positions, self.cpu_ns):
            if values:
                values.pop()


def interleave(
    runs: Mapping[str, Callable[[], object]],
    clock: Clock,
    plan: SamplingPlan,
    rng: random.Random,
    attempt: Attempt,
    *,
    overhead_ns: int = 0,
    calls: Mapping[str, int] | None = None,
    together: tuple[tuple[str, ...], ...] = (),
    multiple: int = 1,
    guard: Callable[[], str | None] = lambda: None,
) -> dict[str, Samples]:
    """Warm up and calibrate each arm, time blocks of all of them in rounds of random order, then each alone.

    Args:
        runs: zero-argument callables by name of the arm.
        clock: what times a block.
        plan: how much to measure.
        rng: the order within each round.
        attempt: guards each block; an arm whose block fails is left out from then on.
        overhead_ns: what an empty block takes (:func:`bench.clocks.overhead_ns`).
        calls: how many calls make a block of an arm, where that was settled before (in another process).
        together: groups of arms that get the same number of calls in a block, because they will be compared.
        multiple: the calls of a block are a multiple of this.
        guard: asked after each round; the reason why the round does not count, or None.

    Returns:
        Samples of the arms that never failed; every one has the same number of rounds.
    """
    samples: dict[str, Samples] = {}
    for name in list(runs):  # a failing arm may be taken out of it meanwhile
        warmed = _warm_up(runs[name], clock, plan, partial(attempt, name), overhead_ns, (calls or {}).get(name))
        if warmed is not None:
            samples[name] = warmed
    for group in together:
        most = max((samples[name].calls for name in group if name in samples), default=1)
        for name in group:
            if name in samples:
                samples[name].calls = multiple * math.ceil(most / multiple)
    _rounds(samples, runs, clock, plan, rng, attempt, guard)
    for name in list(samples):
        for _ in range(plan.isolated_blocks):
            block = attempt(name, partial(clock.time_block, runs[name], samples[name].calls))
            if block is None:
                del samples[name]
                break
            samples[name].isolated_ns.append(block.ns)
            samples[name].total_ns += block.ns
    return samples


def _rounds(
    samples: dict[str, Samples],
    runs: Mapping[str, Callable[[], object]],
    clock: Clock,
    plan: SamplingPlan,
    rng: random.Random,
    attempt: Attempt,
    guard: Callable[[], str | None],
) -> None:
    """Fill ``samples`` round by round; an arm that fails leaves them."""
    budget = max(plan.budget_ns, plan.arm_budget_ns * len(samples))
    rounds = tried = spent = 0
    order: list[str] = []
    while samples and tried < plan.max_rounds and (rounds < plan.min_rounds or spent < budget):
        expected = max(plan.min_rounds, budget * tried / max(1, spent))  # at this pace
        if tried % 2 and expected < FEW_ROUNDS:
            order = [name for name in reversed(order) if name in samples]
        else:
            order = list(samples)
            rng.shuffle(order)
        for position, name in enumerate(order):
            block = attempt(name, partial(clock.time_block, runs[name], samples[name].calls))
            if block is None:
                del samples[name]
                continue
            samples[name].add(block, position)
            samples[name].total_ns += block.ns
            spent += block.ns
        tried += 1
        refused = guard()
        for one in samples.values():
            if refused is not None:
                one.drop()
                one.discarded, one.discard_reason = one.discarded + 1, refused
        rounds += refused is None


def _warm_up(
    run: Callable[[], object],
    clock: Clock,
    plan: SamplingPlan,
    attempt: Callable[[Callable[[], Block]], Block | None],
    overhead_ns: int,
    calls: int | None,
) -> Samples | None:
    """Call until warm, choose how many calls make a block unless ``calls`` says, and see that blocks are steady."""
    spent = 0
    times: list[int] = []
    while len(times) < plan.warmup_calls or (spent < plan.warmup_ns and len(times) < plan.max_calls):
        block = attempt(partial(clock.time_block, run, 1))
        if block is None:
            return None
        times.append(block.ns)
        spent += block.ns
    # The later half is warm; a clock too coarse to see one call reads 0, and the cap keeps the block finite.
    one_call_ns = max(1.0, median(times[len(times) // 2 :]))
    wanted = max(plan.min_block_ns, plan.overheads_per_block * overhead_ns)
    fitting = min(plan.max_calls, clock.most_calls, max(1, math.ceil(wanted / one_call_ns)))
    samples = Samples(calls=calls or fitting, total_ns=spent)
    blocks = STEADY_BLOCKS
    while plan.longest_warmup_ns:
        durations = []
        for _ in range(blocks):
            block = attempt(partial(clock.time_block, run, samples.calls))
            if block is None:
                return None
            durations.append(block.ns)
        samples.total_ns += sum(durations)
        samples.steady = is_steady(durations)
        if samples.steady or samples.total_ns >= plan.longest_warmup_ns:
            break
        blocks *= 2
    return samples


def is_steady(durations: list[int]) -> bool:
    """Whether the second half of the blocks is neither faster nor slower than the first, beyond 3 % and beyond noise.

    Noise: the middle eight tenths of the halves overlap. On a busy machine the medians of ten blocks differ by more
    than 3 % with nothing warming up.
    """
    middle = len(durations) // 2
    first, second = sorted(durations[:middle]), sorted(durations[middle:])
    if abs(median(second) - median(first)) < STEADY_LIMIT * median(durations):
        return True
    edge = middle // 10
    return first[edge] <= second[-1 - edge] and second[edge] <= first[-1 - edge]
