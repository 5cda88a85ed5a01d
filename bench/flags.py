"""Doubts that a measured cell carries: each a name and what was seen. The status stays ``ok``.

Limits are reasoned in ``docs/methodology.md``, "Flags". Samples are never deleted for being far out; a flag says that
they spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from bench.header import Ceilings
from bench.problem import Problem
from bench.record import Flag
from bench.timing import Samples
from bench.units import ns_to_s

UNSTABLE_SPREAD = 0.25
"""Interquartile range over median from which a cell is flagged ``unstable``."""
IMPOSSIBLE_MARGIN = 1.05
"""A call must beat a measured ceiling by more than this to be called impossible."""
ISOLATED_LIMIT = 0.10
"""Largest relative difference between isolated and interleaved blocks."""
CONTENDED_LIMIT = 2.0
"""Wall time over the calling thread's CPU time from which others held the cores. On an idle machine with two threads
that sleep while they wait for one another it stays below 1.3."""
ORDER_LIMIT = 0.05
"""Largest relative difference between blocks that came first in their round and the others."""
ORDER_BLOCKS = 10
"""Blocks of each kind that it takes to see an effect of order."""
DISCARD_SHARE = 0.2
"""Share of discarded rounds from which a cell is ``throttled``."""


def sample_flags(samples: Samples) -> tuple[Flag, ...]:
    """Doubts that the samples of one process raise."""
    doubts = (
        _unstable(samples.ns),
        _not_steady(samples),
        _contended(samples),
        _interference(samples),
        _order_effect(samples),
        _throttled(samples),
    )
    return tuple(flag for flag in doubts if flag is not None)


def few_samples_flag(processes: int, wanted: int) -> tuple[Flag, ...]:
    """The flag ``few_samples`` if fewer processes measured than the first look wants."""
    if processes >= wanted:
        return ()
    return (Flag(name="few_samples", reason=f"{processes} of the {wanted} processes that a verdict needs"),)


def impossible_flag(problem: Problem, seconds: float, ceilings: Ceilings | None) -> tuple[Flag, ...]:
    """The flag ``impossible`` if a call of ``seconds`` beats a measured ceiling by more than the margin."""
    if ceilings is None:
        return ()
    rate, moved = ceilings.flop_per_s.get(problem.dtype), problem.least_bytes
    if rate is not None and problem.flop > IMPOSSIBLE_MARGIN * rate * seconds:
        reason = (
            f"{problem.flop:.3g} FLOP in {seconds:.3g} s beat the measured matrix-product rate of {rate:.3g} FLOP/s"
        )
    elif moved > IMPOSSIBLE_MARGIN * ceilings.bytes_per_s * seconds:
        reason = f"{moved:.3g} bytes in {seconds:.3g} s beat the measured bandwidth of {ceilings.bytes_per_s:.3g} B/s"
    else:
        return ()
    return (Flag(name="impossible", reason=reason),)


def merged_flags(by_process: Sequence[Iterable[Flag]]) -> tuple[Flag, ...]:
    """Doubts of several processes: those that more than half of them share; ``impossible`` from any."""
    seen: dict[str, list[Flag]] = {}
    for flags in by_process:
        for flag in flags:
            seen.setdefault(flag.name, []).append(flag)
    total = len(by_process)
    return tuple(
        flags[0]
        if total == 1
        else flags[0].model_copy(update={"reason": f"in {len(flags)} of {total} processes; in one: {flags[0].reason}"})
        for flags in seen.values()
        if 2 * len(flags) > total or flags[0].name == "impossible"
    )


def seconds_per_call(samples: Samples) -> float:
    """Median latency."""
    return ns_to_s(median(samples.ns)) / samples.calls


def _unstable(samples_ns: Sequence[int]) -> Flag | None:
    ordered = sorted(samples_ns)
    quarter, middle = len(ordered) // 4, ordered[len(ordered) // 2]
    if middle == 0:
        return Flag(name="unstable", reason="the clock read 0 for half of the blocks")
    spread = (ordered[-1 - quarter] - ordered[quarter]) / middle
    if spread <= UNSTABLE_SPREAD:
        return None
    return Flag(name="unstable", reason=f"the middle half of the samples spreads over {spread:.0%} of the median")


def _not_steady(samples: Samples) -> Flag | None:
    if samples.steady:
        return None
    return Flag(name="not_steady", reason="blocks were still getting faster or slower when the warm-up had to end")


def _contended(samples: Samples) -> Flag | None:
    shares = [wall / cpu for wall, cpu in zip(samples.ns, samples.cpu_ns, strict=False) if cpu > 0]
    if not shares or median(shares) <= CONTENDED_LIMIT:
        return None
    return Flag(name="contended", reason=f"wall time was {median(shares):.1f}x the calling thread's CPU time")


def _interference(samples: Samples) -> Flag | None:
    if not samples.isolated_ns or not median(samples.isolated_ns) or not samples.ns:
        return None
    ratio = median(samples.ns) / median(samples.isolated_ns)
    if abs(ratio - 1) <= ISOLATED_LIMIT:
        return None
    return Flag(name="interference", reason=f"blocks between others took {ratio:.2f}x what blocks on their own took")


def _order_effect(samples: Samples) -> Flag | None:
    first = sorted(ns for ns, place in zip(samples.ns, samples.positions, strict=False) if place == 0)
    later = sorted(ns for ns, place in zip(samples.ns, samples.positions, strict=False) if place > 0)
    if min(len(first), len(later)) < ORDER_BLOCKS or median(later) == 0:
        return None
    ratio = median(first) / median(later)
    cut, other = len(first) // 4, len(later) // 4
    apart = first[cut] > later[-1 - other] or later[other] > first[-1 - cut]
    if abs(ratio - 1) <= ORDER_LIMIT or not apart:
        return None
    return Flag(name="order_effect", reason=f"blocks that began a round took {ratio:.2f}x what later ones took")


def _throttled(samples: Samples) -> Flag | None:
    total = samples.discarded + len(samples.ns)
    reason = samples.throttle_doubt
    if samples.discarded > DISCARD_SHARE * total:
        reason = f"{samples.discarded} of {total} rounds were discarded: {samples.discard_reason}"
    return None if reason is None else Flag(name="throttled", reason=reason)
