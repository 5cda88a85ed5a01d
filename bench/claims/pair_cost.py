"""Claim 1: the pairs are what attention's time grows with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bench.claims import Answer, Drawing, Hearing, Needs, Scope, claims
from bench.claims._growth import (
    LENGTH,
    Ladder,
    cases,
    linear_ladders,
    measured,
    problem,
    square_ladders,
    that_decide,
    verdict,
)
from bench.claims._growth_figures import allocator_figure, linear_figure, scaling_figures
from bench.claims._ladders import ladder
from bench.plots import Reading

ANY_WIDTH = ("naive", "online_softmax")
"""Take values of another width than keys."""
FIXED_LENGTH = 512
"""Of queries while keys grow, and of keys while queries grow."""
WIDTHS = (32, 48, 64, 96, 144, 208, 336, 512)
"""Of keys while values stay narrow, and the other way round; multiples of what a vector register holds."""
NARROW = 16
"""The width that stays: small, so that the growing one costs more than half."""
WIDE_LENGTH = 512
"""While widths, or batch and heads, grow."""
BATCH_HEADS = ((1, 2), (2, 2), (2, 3), (2, 4), (3, 4), (4, 4), (6, 4), (8, 4))
"""Batch items and heads, whose product grows 16-fold; even, so that two cores share the work evenly."""
SEEN_SHARE = 1e-4
"""Overhead below this share of the longest latency is none."""
DEMONSTRATION = "page_faults"
"""Naive attention under both allocator settings: time and page faults per call."""


@claims.register("pair_cost")
class PairCost:
    """Offset power laws of time against each size, with an equivalence test on the exponent."""

    name: ClassVar[str] = "pair_cost"
    order: ClassVar[int] = 1
    statement: ClassVar[str] = (
        "Time grows with the pairs of queries and keys once overhead is taken out: as T², and linearly in T_q, T_k, "
        "d_k, d_v and batch × heads."
    )
    rule: ClassVar[str] = (
        "t = c0 + c1·size^p is fitted to the logarithms of the medians. CONFIRMED if the 90 % interval of p lies "
        "within ±0.15 of the exponent of the theory and the power is at least half of the longest time; REFUTED if the "
        "95 % interval lies outside; INCONCLUSIVE otherwise, if overhead is more than half, if more than a quarter of "
        "the cells were disturbed, or if page faults of the default allocator or bytes beyond the last cache explain "
        "why the growth looks steeper."
    )

    def needs(self, scope: Scope) -> Needs:
        """A square ladder, and one for each other size."""
        lengths, fixed, names = ladder(scope), FIXED_LENGTH, measured(scope)
        found = cases((problem(scope, length) for length in lengths), names)
        found += cases((problem(scope, fixed, seqlen_k=length) for length in lengths), names)
        if not scope.quick:
            heads = problem(scope, 1).num_heads_q
            found += cases((problem(scope, fixed, seqlen_q=length) for length in lengths), names)
            found += cases(
                (problem(scope, WIDE_LENGTH, head_dim=w, head_dim_v=NARROW) for w in WIDTHS), ANY_WIDTH, "d_k"
            )
            found += cases(
                (problem(scope, WIDE_LENGTH, head_dim=NARROW, head_dim_v=w) for w in WIDTHS), ANY_WIDTH, "d_v"
            )
            batches = (problem(scope, WIDE_LENGTH, batch_size=b, num_heads=h * heads) for b, h in BATCH_HEADS)
            found += cases(batches, names, "B·H")
        return Needs(tuple(dict.fromkeys(found)), demonstrations=(DEMONSTRATION,) if scope.device == "cpu" else ())

    def judge(self, hearing: Hearing) -> list[Answer]:
        """One answer for each ladder that bears on the statement."""
        reading = hearing.reading
        several = len({row["machine"] for row in reading.rows}) > 1
        return [_answer(reading, one, several) for one in _judged_ladders(reading)]

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Scaling with the fits and the trap; the linear laws; what the allocator does."""
        reading = hearing.reading
        ladders = [(one, verdict(reading, one)[0]) for one in _judged_ladders(reading)]
        fitted = [(one, said) for one, said in ladders if one.fit.exponent is not None]
        drawings = scaling_figures([(one, said) for one, said in fitted if one.axis is LENGTH])
        drawings += linear_figure([(one, said) for one, said in fitted if one.axis is not LENGTH])
        return drawings + allocator_figure(hearing.demonstration(DEMONSTRATION))


def _judged_ladders(reading: Reading) -> list[Ladder]:
    return that_decide(square_ladders(reading) + linear_ladders(reading))


def _answer(reading: Reading, one: Ladder, several: bool) -> Answer:
    said, reason = verdict(reading, one)
    fit, machine = one.fit, f", {one.rows[0]['machine']}" if several else ""
    found = f"{one.exponent} {fit.scope}"
    if fit.exponent is not None and fit.floor_ms is not None:
        plain = "" if one.axis is not LENGTH else f"; plain log-log line {one.plain_line()[0]:.2f}"
        overhead = f"{fit.floor_ms:.2g}" if fit.floor_ms > SEEN_SHARE * fit.latencies_ms[-1] else "nothing"
        found += f"; overhead {overhead} of {fit.latencies_ms[-1]:.3g} ms{plain}"
    if fit.vote and fit.vote_disagrees and said == fit.verdict:
        reason += f"; AICc disagrees and votes for {fit.vote.replace('T', one.axis.symbol)}"
    return Answer(
        f"{one.implementation} in {one.axis.symbol} ({one.constants}{machine})", said, found, reason, one.cells
    )
