"""Where the pairs overtake the projections: a ladder of both parts, its crossing, and what predicts it.

Both parts are timed in every round, so all that is inferred comes from their ratio within a round. A band is the median
of the ratio over rounds with its order-statistic interval.

* the *crossing* is where the ratio of pairs to projections passes 1, interpolated between neighbouring lengths;
* by *FLOP* it is expected where both parts cost as many operations;
* by *rates* where both take as long, if each keeps the FLOP/s that it reached at the longest length. The FLOP ratio
  grows as T, so pairs that take r times as long at the longest length T took as long at T / r. No measurement near the
  crossing enters, which is what makes it a prediction: any other growth of either part moves the two apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from bench.analysis import median_interval
from bench.scaling import TimeFit, fit_latencies
from bench.units import tflops

PARTS = ("projections", "pairs", "whole")
FIXED = (
    "implementation",
    "device",
    "threads",
    "dtype",
    "mask",
    "batch_size",
    "num_heads",
    "head_dim",
    "head_dim_v",
    "width",
    "source_width",
)
"""What is the same along a ladder."""

Span = tuple[float, float]


class Band(NamedTuple):
    """Median of a ratio with its order-statistic interval."""

    lo: float
    middle: float
    hi: float


@dataclass(frozen=True, kw_only=True)
class PartsLadder:
    """One implementation with one pair of widths; at every length both parts and the whole."""

    fixed: Mapping[str, Any]
    """Values of :data:`FIXED`."""
    lengths: tuple[int, ...]
    """Query positions, ascending."""
    latency_ms: Mapping[str, Sequence[Sequence[float]]]
    """By part: for each length one time per round."""
    flop: Mapping[str, Sequence[int]]
    """By part: for each length."""
    reasons: tuple[str, ...] = ()
    """Why lengths are missing."""

    @property
    def widths(self) -> str:
        """Width of the queries, and of the source where it is another."""
        width, source_width = self.fixed["width"], self.fixed["source_width"]
        return f"width {width}" + ("" if source_width == width else f", source width {source_width}")

    @property
    def threads(self) -> str:
        """How many of the CPU."""
        return f"{self.fixed['threads']} thread" + ("s" if self.fixed["threads"] > 1 else "")

    @property
    def subject(self) -> str:
        """Of what the ladder is, in words."""
        it = self.fixed
        shape = f"{self.widths}, {it['num_heads']} heads of {it['head_dim']}, {it['mask']}, {it['dtype']}"
        return f"{it['implementation']}, {shape} on {it['device']}, {self.threads}"

    @cached_property
    def rounds(self) -> int:
        """In how many rounds both parts were timed, at the length that has fewest."""
        return min((len(seen) for seen in self.latency_ms["pairs"]), default=0)

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """For each length the time of the pairs over that of the projections: median over rounds with its interval."""
        both = zip(self.latency_ms["pairs"], self.latency_ms["projections"], strict=True)
        return tuple(_band([pairs / products for pairs, products in zip(*parts, strict=True)]) for parts in both)

    @cached_property
    def signs(self) -> tuple[int, ...]:
        """For each length 1 if the pairs clearly take longer, -1 if the projections do, else 0."""
        return tuple(1 if band.lo > 1 else -1 if band.hi < 1 else 0 for band in self.bands)

    @cached_property
    def crossing(self) -> float:
        """Where the median ratio passes 1 last; 0 if it is above 1 throughout, infinite if it is below."""
        passed = crossings(self.lengths, [band.middle for band in self.bands])
        return passed[-1] if passed else 0.0 if self.bands[0].middle >= 1 else math.inf

    @cached_property
    def crossing_span(self) -> Span:
        """From where the projections last clearly take longer to where the pairs first do.

        0 and infinity are off the ladder. At each length the interval holds the true ratio with 95 %, so the lengths at
        which it holds 1 hold the crossing of a ratio that grows with the length.
        """
        lows, highs = ([getattr(band, end) for band in self.bands] for end in ("lo", "hi"))
        first = max(crossings(self.lengths, highs), default=0.0 if highs[0] >= 1 else math.inf)
        last = min(crossings(self.lengths, lows), default=0.0 if lows[0] >= 1 else math.inf)
        return first, last

    @property
    def by_flop(self) -> float:
        """Where the FLOP of both parts are equal, the visible share of the pairs being that of the longest length."""
        return self.lengths[-1] * self.flop["projections"][-1] / self.flop["pairs"][-1]

    @cached_property
    def by_rates(self) -> Span:
        """Where the rates at the longest length predict the crossing, with the interval of the ratio there."""
        return self.lengths[-1] / self.bands[-1].hi, self.lengths[-1] / self.bands[-1].lo

    @cached_property
    def miss(self) -> Span:
        """Crossing over its prediction by rates; 0 and infinite where the crossing's interval leaves the ladder.

        Both come from rounds of their own, so their distances to either side add up as squares.
        Source: Zou and Donner, Construction of confidence limits about effect measures (2008), section 2.
        """
        (first, last), band = self.crossing_span, self.bands[-1]
        predicted = self.lengths[-1] / band.middle
        if not 0 < first <= self.crossing <= last < math.inf:
            return first / predicted, last / predicted
        below = math.hypot(math.log(self.crossing / first), math.log(band.middle / band.lo))
        above = math.hypot(math.log(last / self.crossing), math.log(band.hi / band.middle))
        return self.crossing / predicted * math.exp(-below), self.crossing / predicted * math.exp(above)

    def medians_ms(self, part: str) -> list[float]:
        """Median over rounds at each length."""
        return [median(values) for values in self.latency_ms[part]]

    @cached_property
    def wholes(self) -> tuple[float, ...]:
        """For each length the median of the time of the whole over the sum of both parts of the same round."""
        timed = (self.latency_ms[part] for part in PARTS)
        return tuple(
            median(whole / (products + pairs) for products, pairs, whole in zip(*parts, strict=True))
            for parts in zip(*timed, strict=True)
        )

    def gflop_per_s(self, part: str) -> float:
        """Rate at the longest length."""
        return 1000 * tflops(self.flop[part][-1], self.medians_ms(part)[-1])

    @cached_property
    def fits(self) -> dict[str, TimeFit]:
        """Laws of growth: projections against T, pairs against T squared."""
        return {
            part: fit_latencies({t: {0: ms} for t, ms in zip(self.lengths, self.medians_ms(part), strict=True)}, law)
            for part, law in (("projections", 1), ("pairs", 2))
        }


def ladders(rows: Iterable[Mapping[str, Any]]) -> list[PartsLadder]:
    """Rows of the demonstration ``projected_attention``, sorted into ladders in the order in which they come.

    A length counts where all three parts are there.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in FIXED), []).append(row)
    return [_ladder(dict(zip(FIXED, key, strict=True)), group) for key, group in groups.items()]


def crossings(lengths: Sequence[int], ratios: Sequence[float]) -> list[float]:
    """Lengths at which a positive ratio passes 1, either way, ascending; straight between the logarithms."""
    return [
        short * (long / short) ** (-math.log(before) / math.log(after / before))
        for (short, before), (long, after) in pairwise(zip(lengths, ratios, strict=True))
        if (before < 1) != (after < 1)
    ]


def _band(ratios: Sequence[float]) -> Band:
    ordered = sorted(ratios)
    low, high, _ = median_interval(len(ordered))
    return Band(ordered[low], median(ordered), ordered[high])


def _ladder(fixed: dict[str, Any], rows: Sequence[Mapping[str, Any]]) -> PartsLadder:
    seen = {(row["seqlen_q"], row["part"]): row for row in rows if row["latency_ms"]}
    lengths = sorted(t for t in {t for t, _ in seen} if all((t, part) in seen for part in PARTS))
    return PartsLadder(
        fixed=fixed,
        lengths=tuple(lengths),
        latency_ms={part: [seen[t, part]["latency_ms"] for t in lengths] for part in PARTS},
        flop={part: [seen[t, part]["flop"] for t in lengths] for part in PARTS},
        reasons=tuple(dict.fromkeys(row["reason"] for row in rows if row["reason"])),
    )
