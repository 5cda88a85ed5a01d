"""Claim 6: dividing scores by ``sqrt(d_k)`` keeps their variance at 1, and promises nothing beyond its assumptions.

With independent entries of mean 0 and variance 1, a score ``q . k`` is a sum of ``d_k`` independent products of
variance 1: its variance is ``d_k``. With ``k = q`` and normal entries it is chi-squared instead: mean ``d_k`` and
variance ``2 * d_k``, so scaled scores of a position with itself have mean ``sqrt(d_k)`` and variance 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import sqrt
from typing import ClassVar

from bench.claims import Answer, Drawing, Hearing, Needs, Scope, Verdict, claims
from bench.claims._regions import Interval, placed, worst
from bench.claims._scores_figure import DEVIATIONS, Row, scores_figure
from bench.units import significant

SOURCE = "score_variance"
MARGIN = 0.05
"""A moment this close to the theory's, relative to it, counts as equal."""
LEAST_WIDTHS, LEAST_SPAN = 5, 64
"""Fewer widths, or closer ones, show no trend."""


@claims.register("scaled_scores")
class ScaledScores:
    """Moments within a margin, and trends over the widths."""

    name: ClassVar[str] = "scaled_scores"
    order: ClassVar[int] = 6
    statement: ClassVar[str] = (
        "Scaling by 1/√d_k keeps the variance of scores at 1; without it entropy falls as d_k grows and softmax's "
        "largest derivative shrinks once rows are sharp; it guarantees nothing: with k = q the scaled mean is √d_k, "
        "the variance 2."
    )
    rule: ClassVar[str] = (
        f"Moments: CONFIRMED if at every width the 99 % interval lies within {MARGIN:.0%} of the theory's value, "
        "REFUTED if one lies outside. Trends: CONFIRMED if every step to the next width is a clear fall (for the "
        "derivative from its largest value on, to below that of scaled scores), REFUTED if one is a clear rise; "
        f"INCONCLUSIVE otherwise, and with fewer than {LEAST_WIDTHS} widths over {LEAST_SPAN}x."
    )

    def needs(self, scope: Scope) -> Needs:
        """One demonstration."""
        return Needs(demonstrations=(SOURCE,))

    def judge(self, hearing: Hearing) -> list[Answer]:
        """Moments of independent and of equal vectors, then entropy and derivative."""
        rows = _rows(hearing)
        if not rows:
            return []
        return [_independent(rows), _same(rows), _entropy(rows), _scaled_entropy(rows), _derivative(rows)]

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Variance, entropy and derivative against the width."""
        rows = _rows(hearing)
        return [scores_figure(rows, answers)] if len(rows) > 1 else []


def interval(row: Row, name: str, unit: float = 1.0) -> Interval:
    """99 % interval of a mean over blocks, in multiples of ``unit``."""
    half = DEVIATIONS * row[f"{name}_se"]
    return (row[name] - half) / unit, (row[name] + half) / unit


def _rows(hearing: Hearing) -> list[Row]:
    return sorted(hearing.demonstration(SOURCE), key=lambda row: row["head_dim"])


def _independent(rows: Sequence[Row]) -> Answer:
    scaled = [interval(row, "scaled_variance") for row in rows]
    unscaled = [interval(row, "unscaled_variance", row["head_dim"]) for row in rows]
    found = f"scaled variance {_span(scaled)}, unscaled {_span(unscaled)} times d_k ({_widths(rows)})"
    return _moments("variance, q and k independent", rows, found, {"scaled variance": scaled, "over d_k": unscaled})


def _same(rows: Sequence[Row]) -> Answer:
    mean = [interval(row, "same_mean", sqrt(row["head_dim"])) for row in rows]
    variance = [interval(row, "same_variance", 2) for row in rows]
    found = f"scaled mean {_span(mean)} times √d_k, variance {_span(variance)} times 2 ({_widths(rows)})"
    return _moments("mean and variance, k = q", rows, found, {"mean over √d_k": mean, "variance over 2": variance})


def _moments(subject: str, rows: Sequence[Row], found: str, ratios: Mapping[str, Sequence[Interval]]) -> Answer:
    """Every ratio to the theory's value has to be 1."""
    region = (1 - MARGIN, 1 + MARGIN)
    placings = [
        (placed(one, region), f"{name} {_shown(one)} at d_k {row['head_dim']}")
        for name, intervals in ratios.items()
        for row, one in zip(rows, intervals, strict=True)
    ]
    verdict = worst(said for said, _ in placings)
    where = "within" if verdict == "CONFIRMED" else "outside" if verdict == "REFUTED" else "across the edge of"
    cases = [text for said, text in placings if said == verdict]
    reason = f"every 99 % interval lies within {MARGIN:.0%} of the theory's value"
    if verdict != "CONFIRMED":
        reason = f"{cases[0]} lies {where} 1 ± {MARGIN:g}" + (f", and {len(cases) - 1} more" if cases[1:] else "")
    return _answer(subject, rows, verdict, found, reason)


def _entropy(rows: Sequence[Row]) -> Answer:
    verdict, reason = _fall(rows, "unscaled_entropy_nats")
    found = f"{_at(rows[0], 'unscaled_entropy_nats', ' nats')}, {_at(rows[-1], 'unscaled_entropy_nats', ' nats')}"
    return _answer("entropy without scaling", rows, verdict, found, reason)


def _scaled_entropy(rows: Sequence[Row]) -> Answer:
    """The control: what falls without scaling stays with it."""
    spans = [interval(row, "scaled_entropy_nats", rows[0]["scaled_entropy_nats"]) for row in rows]
    region = (1 - MARGIN, 1 + MARGIN)
    verdict = worst(placed(one, region) for one in spans)
    found = f"{_at(rows[0], 'scaled_entropy_nats', ' nats')}, {_at(rows[-1], 'scaled_entropy_nats', ' nats')}"
    reason = f"{_span(spans)} times that of the narrowest; within {MARGIN:.0%} counts as equal"
    return _answer("entropy stays with scaling", rows, verdict, found, reason)


def _derivative(rows: Sequence[Row]) -> Answer:
    """It has to rise before it falls where rows of many keys are flat at first: no weight is near 1/2 yet."""
    peak = max(range(len(rows)), key=lambda place: rows[place]["unscaled_derivative"])
    verdict, reason = _fall(rows[peak:], "unscaled_derivative")
    last = rows[-1]
    below = _step(interval(last, "scaled_derivative"), interval(last, "unscaled_derivative"))
    scaled = f"with scaling {_at(last, 'scaled_derivative')}"
    found = f"{_at(rows[peak], 'unscaled_derivative')}, {_at(last, 'unscaled_derivative')}; {scaled}"
    if peak == len(rows) - 1:
        return _answer("largest derivative without scaling", rows, "REFUTED", found, "it is largest at the widest")
    if below != "CONFIRMED":
        verdict, reason = worst((verdict, below)), f"{reason}; at the widest it is not clearly below that with scaling"
    return _answer("largest derivative without scaling", rows, verdict, found, reason)


def _fall(rows: Sequence[Row], name: str) -> tuple[Verdict, str]:
    """Whether each row's mean is clearly below the one before."""
    steps = [
        (_step(interval(one, name), interval(other, name)), f"d_k {one['head_dim']} to {other['head_dim']}")
        for one, other in pairwise(rows)
    ]
    verdict = worst(said for said, _ in steps)
    if verdict == "CONFIRMED":
        return verdict, f"falls at each of {len(steps)} steps, from d_k {rows[0]['head_dim']} on"
    what = "rises" if verdict == "REFUTED" else "does not clearly fall"
    return verdict, f"{what} from " + ", ".join(where for said, where in steps if said == verdict)


def _step(before: Interval, after: Interval) -> Verdict:
    """CONFIRMED for a clear fall, REFUTED for a clear rise."""
    return "CONFIRMED" if after[1] < before[0] else "REFUTED" if after[0] > before[1] else "INCONCLUSIVE"


def _answer(subject: str, rows: Sequence[Row], verdict: Verdict, found: str, reason: str) -> Answer:
    """An answer; a few widths refute, but they confirm nothing."""
    span = rows[-1]["head_dim"] / rows[0]["head_dim"]
    if verdict == "CONFIRMED" and (len(rows) < LEAST_WIDTHS or span < LEAST_SPAN):
        verdict = "INCONCLUSIVE"
        reason = f"needs {LEAST_WIDTHS} widths over {LEAST_SPAN}x, got {len(rows)} over {span:g}x"
    return Answer(subject, verdict, found, reason, (SOURCE,))


def _span(intervals: Sequence[Interval]) -> str:
    """The narrowest interval that holds all of them."""
    return _shown((min(low for low, _ in intervals), max(high for _, high in intervals)), digits=4)


def _shown(one: Interval, digits: int = 3) -> str:
    return f"[{significant(one[0], digits)}, {significant(one[1], digits)}]"


def _at(row: Row, name: str, unit: str = "") -> str:
    return f"{significant(row[name])}{unit} {_shown(interval(row, name))} at d_k {row['head_dim']}"


def _widths(rows: Sequence[Row]) -> str:
    return f"99 % intervals together, d_k {rows[0]['head_dim']} to {rows[-1]['head_dim']}"
