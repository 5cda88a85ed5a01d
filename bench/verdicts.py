"""The decision rule: is B slower than A, faster, the same, or can nobody tell?

The unit of inference is the process. Within a process, blocks of A and B alternate in random order, and the process's
estimate is the median over its rounds of ``log(B / A)``: whatever slows the machine down for a while hits both halves
of a round. Across processes the estimate is the median, and the interval is made of order statistics, whose coverage
is exact whatever the distribution. A first look at six processes leaves undecided cases to a second look at twelve;
the chance that an interval misses on one given side is 1/64 and 13/4096, so both looks together miss on that side with
at most 1.9 %. To be called REGRESSED the whole interval must lie beyond the margin, which is far rarer.

Source: ``docs/methodology.md``, "Decisions". Intervals: David and Nagaraja, Order Statistics (2003), section 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from operator import truediv
from statistics import median
from typing import Literal

from bench.record import Measurement, by_process

Verdict = Literal["REGRESSED", "IMPROVED", "UNCHANGED", "UNCLEAR"]

MARGIN = 0.03
"""Changes within plus or minus this are of no interest, unless a caller says otherwise."""
LOOKS = (6, 12)
"""Processes at the first look and, where that left it UNCLEAR, at the second."""
LATER_TAIL = 0.01
"""With more than six processes, the chance to miss on one side is at most this."""


@dataclass(frozen=True)
class Comparison:
    """B against A. Ratios are of time: above 1, B is slower."""

    verdict: Verdict
    ratio: float
    """Median over processes."""
    lo: float
    hi: float
    coverage: float
    """Exact probability that the interval holds the median over all processes that could have run."""
    processes: int
    margin: float
    p_value: float
    """Two-sided sign test over processes against a ratio of 1: exact."""


def process_estimate(a_ns: Sequence[float], b_ns: Sequence[float]) -> float:
    """Median over rounds of ``log(B / A)``, for the rounds of one process.

    Args:
        a_ns: duration of A's block in each round.
        b_ns: duration of B's block in the same round, with as many calls.

    Raises:
        ValueError: if there is no round, the counts differ, or a duration is not positive.
    """
    if not a_ns or len(a_ns) != len(b_ns) or min(*a_ns, *b_ns) <= 0:
        raise ValueError(
            f"rounds must be pairs of positive durations, got {len(a_ns)} and {len(b_ns)} of at least "
            f"{min([*a_ns, *b_ns], default=0)} ns."
        )
    ratios = sorted(map(truediv, b_ns, a_ns))
    half = len(ratios) // 2  # the logarithm keeps their order: those in the middle will do
    return median(math.log(ratio) for ratio in ratios[half - 1 + len(ratios) % 2 : half + 1])


def paired_estimates(a: Measurement, b: Measurement) -> list[float]:
    """One estimate of ``log(B / A)``, of time per call, for each process that measured both in the same rounds."""
    mine, its = by_process(a), by_process(b)
    # Two runs or a failed arm leave different counts: then nothing was paired.
    shared = [process for process in mine if len(mine[process]) == len(its.get(process, ()))]
    return [
        process_estimate(
            [ns / a.calls_per_sample for ns in mine[process]], [ns / b.calls_per_sample for ns in its[process]]
        )
        for process in shared
    ]


def interval_ranks(processes: int) -> tuple[int, float]:
    """How many of the smallest and of the largest estimates the interval leaves out, and its coverage.

    Up to six processes: none. More: as many as keep the chance of a miss on one side at or below
    :data:`LATER_TAIL`. Twelve: one on each side, 99.4 %; 24: five, 99.3 %.
    """
    left_out, tail = 0, math.ldexp(1.0, -processes)
    while processes > LOOKS[0] and 2 * left_out + 2 < processes:
        wider = tail + math.ldexp(comb(processes, left_out + 1), -processes)
        if wider > LATER_TAIL:
            break
        left_out, tail = left_out + 1, wider
    return left_out, max(0.0, 1 - 2 * tail)


def interval_verdict(lo: float, hi: float, margin: float) -> Verdict:
    """What an interval of the logarithm of B over A says."""
    edge = math.log1p(margin)
    if lo > edge:
        return "REGRESSED"
    if hi < -edge:
        return "IMPROVED"
    return "UNCHANGED" if -edge < lo and hi < edge else "UNCLEAR"


def decide(estimates: Sequence[float], margin: float = MARGIN, looks: Sequence[int] = LOOKS) -> Comparison:
    """Judge the estimates of several processes.

    Args:
        estimates: one :func:`process_estimate` per process.
        margin: changes within it do not matter; 0.03 is 3 %.
        looks: fewer processes than the first look never decide anything.

    Raises:
        ValueError: if there is no estimate.
    """
    if not estimates:
        raise ValueError("estimates must come from at least one process, got none.")
    ordered = sorted(estimates)
    left_out, coverage = interval_ranks(len(ordered))
    lo, hi = ordered[left_out], ordered[-1 - left_out]
    return Comparison(
        verdict=interval_verdict(lo, hi, margin) if len(ordered) >= looks[0] else "UNCLEAR",
        ratio=math.exp(median(ordered)),
        lo=math.exp(lo),
        hi=math.exp(hi),
        coverage=coverage,
        processes=len(ordered),
        margin=margin,
        p_value=sign_test(ordered),
    )


def two_looks(estimates: Sequence[float], margin: float = MARGIN, looks: Sequence[int] = LOOKS) -> Comparison:
    """Judge at the first look; only if that is UNCLEAR, judge again with the processes of the later looks.

    ``estimates`` may hold fewer than the last look wants: then all there are.
    """
    comparison = decide(estimates[: looks[0]], margin, looks)
    for count in looks[1:]:
        if comparison.verdict != "UNCLEAR" or len(estimates) <= comparison.processes:
            break
        comparison = decide(estimates[:count], margin, looks)
    return comparison


def confirmed(first: Comparison, again: Comparison) -> bool:
    """Whether fresh processes say the same as the first ones did. Only a confirmed change counts."""
    return first.verdict in ("REGRESSED", "IMPROVED") and first.verdict == again.verdict


def sign_test(estimates: Iterable[float]) -> float:
    """Two-sided exact p-value of the sign test against 0; ties are left out. 1.0 if nothing is left."""
    signs = [value > 0 for value in estimates if value != 0]
    count, rarer = len(signs), min(sum(signs), len(signs) - sum(signs))
    if count == 0:
        return 1.0
    return min(1.0, math.ldexp(sum(comb(count, i) for i in range(rarer + 1)), 1 - count))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p-values of a family of cases.

    Source: Holm, A simple sequentially rejective multiple test procedure (1979).
    """
    adjusted: dict[str, float] = {}
    floor = 0.0
    for position, name in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        floor = max(floor, min(1.0, (len(p_values) - position) * p_values[name]))
        adjusted[name] = floor
    return adjusted


def calibrated_margin(ratios: Iterable[float], least: float = MARGIN) -> float:
    """The margin for a machine, from ratios of identical code measured on it.

    The larger of ``least`` and twice the 99 % quantile of ``|log ratio|``.
    """
    sizes = sorted(abs(math.log(ratio)) for ratio in ratios)
    if not sizes:
        return least
    return max(least, math.expm1(2 * sizes[min(len(sizes) - 1, math.ceil(0.99 * len(sizes)) - 1)]))
