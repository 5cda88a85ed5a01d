"""E7: is a timed block as long as it says, and how much does the harness add?

A spin of known length is timed by the whole harness: calls wait, on a clock other than the harness's, for deadlines
that lie a fixed time apart, so that a block of ``n`` calls lasts ``n`` times that and no overhead of a call adds up.
What the spin saw on its own clock is the truth; a process that is suspended meanwhile is late on both clocks.

What the harness adds is looked for in two places: in a block, against a bare loop of the same calls in the same round,
and around the blocks, as the share of the whole measurement that lies outside of every timed block.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, ClassVar

from bench.calls import make_step
from bench.clocks import Block, PerfCounterClock, overhead_ns
from bench.fresh_call import in_fresh_process
from bench.implementation import implementations
from bench.inputs import make_inputs, place_inputs
from bench.problem import Problem
from bench.soundness import Context, Finding, Observation, experiments
from bench.timing import SamplingPlan, interleave
from bench.verdicts import LOOKS, decide, process_estimate

SPINS_NS = {"10 us": 10_000, "100 us": 100_000, "1 ms": 1_000_000, "10 ms": 10_000_000, "100 ms": 100_000_000}
MAX_BIAS = 0.005
"""Of a block, against the spin's own clock."""
MAX_ADDED = 0.02
"""Of a block, against a bare loop."""
PLAN = SamplingPlan(budget_ns=1_000_000_000, min_rounds=20, max_rounds=400)
CALLABLE, SEQLEN = "sdpa_flash", 128
"""What the bare loop and the harness call: about 0.15 ms."""
CALLS = 8
"""In a block of it."""

other_clock_ns: Callable[[], int] = partial(
    time.clock_gettime_ns, getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC)
)
"""A clock that ``perf_counter_ns`` does not use: on Linux the hardware's counter as it is, not steered by NTP."""


@experiments.register("e07_timer")
class Timer:
    """Truth of the clock, and its cost."""

    name: ClassVar[str] = "e07_timer"
    title: ClassVar[str] = "Does a timed block last as long as it says?"
    target: ClassVar[str] = "bias below 0.5 % from 10 us to 100 ms; the harness adds at most 2 % to a timed block"
    reads: ClassVar[str] = "e07_timer"

    def units(self, quick: bool) -> list[str]:
        spins, processes = (["10 us", "1 ms"], 1) if quick else (list(SPINS_NS), 3)
        added = [f"added/{process}" for process in range(3 if quick else LOOKS[0])]
        return [f"{spin}/{process}" for process in range(processes) for spin in spins] + added

    def observe(self, unit: str, context: Context) -> Observation:
        measure = time_added if unit.startswith("added/") else time_spin
        found: Observation = in_fresh_process(
            measure, unit.split("/")[0], zlib.crc32(unit.encode()), log=context.folder / "timer.log"
        )
        return found

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        spins: dict[str, list[Observation]] = {}
        for unit, found in observations.items():
            spins.setdefault(unit.split("/")[0], []).append(found)
        added = spins.pop("added", [])
        rows = [_spin_row(spin, spins[spin]) for spin in SPINS_NS if spin in spins]
        if not rows or not added:
            return Finding(None, "too little was timed: the spins and the bare loop are both needed", rows)
        in_block = decide([process_estimate(one["bare_ns"], one["harness_ns"]) for one in added])
        outside = median(one["outside"] for one in added)
        worst = max(rows, key=lambda row: abs(row["bias"]))
        found_text = (
            f"largest bias {worst['bias']:+.3%} ({worst['block']}); the clock ticks every {rows[0]['tick_ns']} ns, an "
            f"empty block reads {rows[0]['empty_block_ns']} ns; a block is {in_block.ratio - 1:+.2%} "
            f"[{in_block.lo - 1:+.2%}, {in_block.hi - 1:+.2%}] longer than a bare loop over {in_block.processes} "
            f"processes, and {outside:.2%} of the time goes by between blocks"
        )
        met = abs(worst["bias"]) < MAX_BIAS and in_block.ratio - 1 <= MAX_ADDED
        return Finding(met, found_text, rows)


def _spin_row(spin: str, found: list[Observation]) -> dict[str, Any]:
    """One length of spin over all its processes."""
    biases = [ns / seen - 1 for one in found for ns, seen in zip(one["ns"], one["seen_ns"], strict=True)]
    asked = [ns / (one["calls"] * SPINS_NS[spin]) - 1 for one in found for ns in one["ns"]]
    return {
        "block": f"{found[0]['calls']} x {spin}",
        "blocks": len(biases),
        "processes": len(found),
        "bias": median(biases),
        "least": min(biases),
        "most": max(biases),
        "against what was asked for": median(asked),
        "tick_ns": median(one["tick_ns"] for one in found),
        "empty_block_ns": median(one["empty_block_ns"] for one in found),
    }


class Spin:
    """A call that ends when its deadline has passed; deadlines lie ``length_ns`` apart from the first call on."""

    def __init__(self, length_ns: int) -> None:
        self._length_ns = length_ns
        self.restart()

    def restart(self) -> None:
        """The next call is the first."""
        self._start: int | None = None
        self._deadline = self._end = 0

    @property
    def seen_ns(self) -> int:
        """From the beginning of the first call to the end of the last."""
        return self._end - (self._start or 0)

    def __call__(self) -> None:
        now = other_clock_ns()
        if self._start is None:
            self._start = self._deadline = now
        self._deadline += self._length_ns
        while now < self._deadline:
            now = other_clock_ns()
        self._end = now


def time_spin(spin: str, seed: int) -> dict[str, Any]:
    """In a fresh process: the harness times a spin.

    Returns:
        ``calls`` of a block; ``ns`` of each block by the harness, ``seen_ns`` by the spin; ``tick_ns``, the smallest
        step of the clock that was seen; ``empty_block_ns``, what a block without work reads.
    """
    run, seen = Spin(SPINS_NS[spin]), list[int]()

    def attempt(name: str, block: Callable[[], Block]) -> Block:
        run.restart()
        timed = block()
        seen.append(run.seen_ns)
        return timed

    clock = PerfCounterClock()
    empty = overhead_ns(clock)
    samples = interleave({"spin": run}, clock, PLAN, random.Random(seed), attempt, overhead_ns=empty)["spin"]
    return {
        "calls": samples.calls,
        "ns": samples.ns,
        "seen_ns": seen[-len(samples.ns) :],  # what came before is warm-up
        "tick_ns": _tick_ns(),
        "empty_block_ns": empty,
    }


def _tick_ns(reads: int = 10_000) -> int:
    """The smallest step between two readings of ``perf_counter_ns`` that differ."""
    times = [time.perf_counter_ns() for _ in range(reads)]
    return min(later - earlier for earlier, later in pairwise(times) if later > earlier)


def time_added(_: str, seed: int) -> dict[str, Any]:
    """In a fresh process: blocks of the harness and bare loops of as many calls, in rounds of random order.

    Returns:
        ``harness_ns`` and ``bare_ns`` of each round; ``outside``, the share of a measurement of one arm alone that was
        spent outside of its timed blocks, with the input negated before each as always.
    """
    problem, member = Problem(seqlen=SEQLEN), implementations.get(CALLABLE)
    inputs = place_inputs(make_inputs(problem), member.layout, "cpu")
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    clock, rng = PerfCounterClock(), random.Random(seed)
    runs: dict[str, Callable[[], object]] = {"harness": step.run, "bare": step.run}
    calls = dict.fromkeys(runs, CALLS)

    def attempt(name: str, block: Callable[[], Block]) -> Block:
        step.negate()
        return block() if name == "harness" else Block(_bare_loop(step.run, calls[name]))

    samples = interleave(runs, clock, PLAN, rng, attempt, calls=calls)
    start = time.perf_counter_ns()
    alone = interleave({"harness": step.run}, clock, PLAN, rng, attempt, overhead_ns=overhead_ns(clock))["harness"]
    wall_ns = time.perf_counter_ns() - start
    return {
        "calls": calls["harness"],
        "harness_ns": samples["harness"].ns,
        "bare_ns": samples["bare"].ns,
        "outside": 1 - alone.total_ns / wall_ns,
    }


def _bare_loop(run: Callable[[], object], calls: int) -> int:
    """The calls and nothing else, in nanoseconds."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        run()
    return time.perf_counter_ns() - start
