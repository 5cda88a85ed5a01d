"""The decision rule for two states of the code that were not measured in the same processes.

Of each state there is one estimate per process: the logarithm of a time over that of a control measured in the same
rounds. The change is estimated by the median of all differences between an estimate of the one and one of the other
(Hodges and Lehmann), and its interval consists of two of these differences, whose ranks follow from the exact
distribution of the rank sum: whatever the distribution is, as long as a change shifts it. Margin and verdicts are those
of :mod:`bench.verdicts`, and so are the two looks.

Source: Hollander, Wolfe and Chicken, Nonparametric Statistical Methods (2013), sections 4.1 to 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import median

from bench.verdicts import LATER_TAIL, LOOKS, MARGIN, Comparison, calibrated_margin, interval_verdict


@cache
def rank_sum_counts(first: int, second: int) -> tuple[int, ...]:
    """In how many of all orders of ``first + second`` values exactly ``u`` pairs are out of order, by ``u``."""
    if first == 0 or second == 0:
        return (1,)
    counts = [0] * (first * second + 1)
    # The largest value is of the first group, and out of order with all of the second, or it is not.
    for offset, part in ((second, rank_sum_counts(first - 1, second)), (0, rank_sum_counts(first, second - 1))):
        for index, count in enumerate(part):
            counts[index + offset] += count
    return tuple(counts)


@cache
def shift_ranks(first: int, second: int) -> tuple[int, float]:
    """How many of the smallest and of the largest differences the interval leaves out, and its coverage.

    As many as keep the chance of a miss on one side at or below :data:`bench.verdicts.LATER_TAIL`; none if not even
    that is below it.
    """
    counts, orders = rank_sum_counts(first, second), math.comb(first + second, first)
    left_out, tail = 0, counts[0] / orders
    while 2 * (left_out + 1) < first * second and tail + counts[left_out + 1] / orders <= LATER_TAIL:
        left_out += 1
        tail += counts[left_out] / orders
    return left_out, max(0.0, 1 - 2 * tail)


def decide_shift(before: Sequence[float], after: Sequence[float], margin: float = MARGIN) -> Comparison:
    """Judge how far ``after`` lies from ``before``.

    Args:
        before: one logarithm of a ratio per process.
        after: those of other processes.
        margin: changes within it do not matter; 0.03 is 3 %.

    Raises:
        ValueError: if one of them is empty.
    """
    if not before or not after:
        raise ValueError(f"estimates must come from at least one process each, got {len(before)} and {len(after)}.")
    differences = sorted(new - old for old in before for new in after)
    left_out, coverage = shift_ranks(len(before), len(after))
    lo, hi = differences[left_out], differences[-1 - left_out]
    enough = min(len(before), len(after)) >= LOOKS[0]
    return Comparison(
        verdict=interval_verdict(lo, hi, margin) if enough else "UNCLEAR",
        ratio=math.exp(median(differences)),
        lo=math.exp(lo),
        hi=math.exp(hi),
        coverage=coverage,
        processes=len(after),
        margin=margin,
        p_value=rank_sum_test(before, after),
    )


def two_look_shift(before: Sequence[float], after: Sequence[float], margin: float = MARGIN) -> Comparison:
    """Judge at the first look; only if that is UNCLEAR, judge again with all that there is of ``after``."""
    first = decide_shift(before, after[: LOOKS[0]], margin)
    return decide_shift(before, after[: LOOKS[-1]], margin) if first.verdict == "UNCLEAR" else first


def rank_sum_test(before: Sequence[float], after: Sequence[float]) -> float:
    """Two-sided exact p-value of the rank-sum test; a tie counts as the rarer order."""
    above = sum(new > old for old in before for new in after)
    below = sum(new < old for old in before for new in after)
    counts = rank_sum_counts(len(before), len(after))
    extreme = len(counts) - 1 - max(above, below)
    return min(1.0, 2 * sum(counts[: extreme + 1]) / math.comb(len(before) + len(after), len(before)))


def margin_from_halves(samples: Sequence[Sequence[float]], least: float = MARGIN) -> float:
    """The margin for a machine, from what two halves of the processes of the same code say of each other.

    Args:
        samples: for each cell one logarithm of a ratio per process.
        least: the margin of a machine without noise.
    """
    halves = [(one[::2], one[1::2]) for one in samples if len(one) >= LOOKS[0]]
    shifts = [median(b - a for a in first for b in second) for first, second in halves]
    return calibrated_margin([math.exp(shift) for shift in shifts], least)
