"""Clocks, the sampling plan, and interleaved rounds.

A *block* is a few calls timed together; a *round* is one block of every implementation, in random order.
Interleaving is what makes a shared machine measurable: whatever slows the machine down for a while slows down
all implementations of a round alike, so ratios stay (``docs/methodology.md``).

Nothing here knows about torch on a CPU; clocks and random order are passed in, so tests use a fake clock.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Protocol

Attempt = Callable[[str, Callable[[], int]], int | None]
"""Runs a timed block for a named implementation; None if it failed, after which that implementation is left out."""


class Clock(Protocol):
    """Times a block of calls."""

    name: str
    """As stored in the record."""

    def time_block(self, run: Callable[[], object], calls: int) -> int:
        """Nanoseconds from before the first of ``calls`` calls until all of their work is done."""
        ...


class PerfCounterClock:
    """Wall time on the CPU, where a call returns when its work is done. The garbage collector is off meanwhile."""

    name = "perf_counter"

    def time_block(self, run: Callable[[], object], calls: int) -> int:
        enabled = gc.isenabled()
        gc.disable()
        try:
            start = time.perf_counter_ns()
            for _ in range(calls):
                run()
            return time.perf_counter_ns() - start
        finally:
            if enabled:
                gc.enable()


class CudaEventClock:
    """GPU time between two events around the calls, read after both have happened.

    Args:
        events: makes a pair of objects with ``record()`` and ``elapsed_time(other)`` in milliseconds.
        synchronize: waits until the device has done all queued work.
    """

    name = "cuda_event"

    def __init__(self, events: Callable[[], tuple[CudaEvent, CudaEvent]], synchronize: Callable[[], None]) -> None:
        self._events = events
        self._synchronize = synchronize

    def time_block(self, run: Callable[[], object], calls: int) -> int:
        start, stop = self._events()
        self._synchronize()
        start.record()
        for _ in range(calls):
            run()
        stop.record()
        self._synchronize()  # also surfaces errors of the queued work here, at this implementation
        return max(0, round(start.elapsed_time(stop) * 1e6))


class CudaEvent(Protocol):
    """The part of ``torch.cuda.Event`` that is used."""

    def record(self) -> Any:
        """Queue the event."""
        ...

    def elapsed_time(self, stop: Any) -> float:
        """Milliseconds from this event to ``stop``."""
        ...


def cuda_clock() -> CudaEventClock:
    """The clock of the current CUDA device."""
    import torch

    def event() -> CudaEvent:
        made: CudaEvent = torch.cuda.Event(enable_timing=True)
        return made

    return CudaEventClock(lambda: (event(), event()), torch.cuda.synchronize)


@dataclass(frozen=True, kw_only=True)
class SamplingPlan:
    """How much to measure. Times in nanoseconds."""

    min_block_ns: int = 500_000
    """A block is long enough that the clock's own cost is small against it."""
    max_calls: int = 1000
    """Calls in one block at most, however fast they are."""
    warmup_ns: int = 30_000_000
    """Warm-up of each implementation lasts at least this long,"""
    warmup_calls: int = 2
    """and at least this many calls."""
    budget_ns: int = 1_000_000_000
    """Rounds are added until one problem's rounds take this long,"""
    min_rounds: int = 6
    """but there are at least these: six give a distribution-free 96.9 % interval for the median,"""
    max_rounds: int = 60
    """and at most these."""


@dataclass
class Samples:
    """What was measured of one implementation."""

    calls: int
    """Calls in a block."""
    ns: list[int] = field(default_factory=list)
    """Duration of each block, in the order of the rounds."""
    total_ns: int = 0
    """Warm-up and blocks together."""


def interleave(
    runs: Mapping[str, Callable[[], object]], clock: Clock, plan: SamplingPlan, rng: random.Random, attempt: Attempt
) -> dict[str, Samples]:
    """Warm up and calibrate each implementation, then time blocks of all of them in rounds of random order.

    Args:
        runs: zero-argument callables by implementation name.
        clock: what times a block.
        plan: how much to measure.
        rng: the order within each round.
        attempt: guards each block; an implementation whose block fails is left out from then on.

    Returns:
        Samples of the implementations that never failed; every one has the same number of rounds.
    """
    samples: dict[str, Samples] = {}
    for name, run in runs.items():
        warmed = _warm_up(name, run, clock, plan, attempt)
        if warmed is not None:
            samples[name] = warmed
    rounds, spent = 0, 0
    while samples and rounds < plan.max_rounds and (rounds < plan.min_rounds or spent < plan.budget_ns):
        order = list(samples)
        rng.shuffle(order)
        for name in order:
            calls = samples[name].calls
            elapsed = attempt(name, partial(clock.time_block, runs[name], calls))
            if elapsed is None:
                del samples[name]
                continue
            samples[name].ns.append(elapsed)
            samples[name].total_ns += elapsed
            spent += elapsed
        rounds += 1
    return samples


def _warm_up(
    name: str, run: Callable[[], object], clock: Clock, plan: SamplingPlan, attempt: Attempt
) -> Samples | None:
    """Call until warm, then choose how many calls make a block."""
    spent = 0
    times: list[int] = []
    while len(times) < plan.warmup_calls or (spent < plan.warmup_ns and len(times) < plan.max_calls):
        elapsed = attempt(name, lambda: clock.time_block(run, 1))
        if elapsed is None:
            return None
        times.append(elapsed)
        spent += elapsed
    # The later half is warm; a clock too coarse to see one call reads 0, and the cap keeps the block finite.
    one_call_ns = max(1.0, median(times[len(times) // 2 :]))
    calls = min(plan.max_calls, max(1, math.ceil(plan.min_block_ns / one_call_ns)))
    return Samples(calls=calls, total_ns=spent)
