"""Claim 8: products with weights grow as T, pairs as T squared, and FLOP say where the one overtakes the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from bench.claims import Answer, Drawing, Hearing, Needs, Scope, Verdict, claims
from bench.claims._crossing import PartsLadder, ladders
from bench.claims._crossing_figure import crossing_figure
from bench.scaling import MIN_LENGTHS
from bench.units import significant

SOURCE = "projected_attention"
MIN_ROUNDS = 6
"""The range of six values holds the median with 96.9 %; fewer have no 95 % interval."""
WITHIN = 1.5
"""Crossing over prediction, either way. Between a right count and one that is off by 2 (a product of the pairs left
out, a mask whose pairs are not skipped) lies 1.41 in the middle; 1.5 leaves as much room for rates that change along
the ladder, and is one step of it."""
FAR = 3.0
"""Twice that. Beyond it a change of rates is no likely explanation: those of dense arithmetic change by less than 2
along such a ladder, in the cache and out of it."""
ADDS_UP = 1.25
"""Whole over the sum of its parts, either way: beyond it they are not the parts of this whole. Copies between layouts
and caches that one part leaves warm for the next make a few percent."""
REACH = 2.0
"""The longest length over the crossing, at least: a prediction from next door is none."""


@claims.register("projections_and_pairs")
class ProjectionsAndPairs:
    """One subject for each implementation and pair of widths."""

    name: ClassVar[str] = "projections_and_pairs"
    order: ClassVar[int] = 8
    statement: ClassVar[str] = (
        "With Q = XW_Q, K = SW_K and V = SW_V counted in, these projections dominate at short lengths and grow as T; "
        "beyond one crossover the pairs dominate, which grow as T²; FLOP predict the crossover, up to the rates at "
        "which the two parts run."
    )
    rule: ClassVar[str] = (
        "CONFIRMED if the ratio of pairs to projections passes 1 once, upwards, with its whole interval within a "
        f"factor of {WITHIN:g} of the prediction from FLOP and the rates at the longest length, which is {REACH:g} "
        f"times as long or more, neither growth is refuted, and the whole is within a factor of {ADDS_UP:g} of the sum "
        f"of its parts; REFUTED if the whole interval is off by a factor of more than {FAR:g}, or if projections take "
        f"longer at the longest length though FLOP are equal {FAR:g} times below it; INCONCLUSIVE otherwise."
    )

    def needs(self, scope: Scope) -> Needs:
        """One demonstration."""
        return Needs(demonstrations=(SOURCE,))

    def judge(self, hearing: Hearing) -> list[Answer]:
        """Every ladder by its crossing."""
        return [_answer(one) for one in ladders(hearing.demonstration(SOURCE))]

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Time of the parts and of the whole by length, a panel for each ladder."""
        verdicts = {answer.subject: answer.verdict for answer in answers}
        judged = [(one, verdicts[one.subject]) for one in ladders(hearing.demonstration(SOURCE))]
        drawn = [(one, verdict) for one, verdict in judged if len(one.lengths) > 1 and one.rounds]
        return [crossing_figure(drawn)] if drawn else []


def weigh(one: PartsLadder) -> tuple[Verdict, str]:
    """Verdict on a ladder, and why."""
    if one.reasons:
        return "INCONCLUSIVE", "; ".join(one.reasons)
    if len(one.lengths) < MIN_LENGTHS or one.rounds < MIN_ROUNDS:
        need = f"{MIN_LENGTHS} lengths with {MIN_ROUNDS} rounds"
        return "INCONCLUSIVE", f"needs {need}, got {len(one.lengths)} with {one.rounds}"
    clear, longest = [sign for sign in one.signs if sign], one.lengths[-1]
    if not clear:
        return "INCONCLUSIVE", "too noisy: at no length does one part clearly take longer"
    if clear[-1] < 0:
        return _never_reached(one, longest)
    if clear != sorted(clear):
        return "INCONCLUSIVE", "the order of the two parts changes more than once: noise, or overhead at short lengths"
    if clear[0] > 0:
        said = f"pairs dominate from T={one.lengths[0]} on, by their arithmetic or by their overhead"
        return "INCONCLUSIVE", f"the crossover is not on the ladder: {said}"
    return _within(one, longest)


def _never_reached(one: PartsLadder, longest: int) -> tuple[Verdict, str]:
    """Where pairs clearly dominate at no length, or at short ones alone."""
    if one.signs[-1] < 0 and FAR * one.by_flop <= longest:
        return "REFUTED", (
            f"projections take longer at T={longest}, though pairs cost as many FLOP from T={one.by_flop:.0f} on: "
            "less is computed than was counted, or the growth is another"
        )
    return "INCONCLUSIVE", f"the crossover is not on the ladder: pairs do not clearly dominate by T={longest}"


def _within(one: PartsLadder, longest: int) -> tuple[Verdict, str]:
    """Where projections dominate first and pairs later."""
    low, high = one.miss
    missed, whole = f"crossover over prediction is {_range(one.miss)}", one.wholes[-1]
    if longest < REACH * one.crossing_span[1]:
        return "INCONCLUSIVE", f"the crossover is too near the longest length, {longest}, to be predicted from there"
    if low > FAR or high < 1 / FAR:
        return "REFUTED", f"{missed}, beyond a factor of {FAR:g}"
    if low < 1 / WITHIN or high > WITHIN:
        return "INCONCLUSIVE", f"{missed}, which reaches beyond a factor of {WITHIN:g}: noise, or rates that change"
    if not 1 / ADDS_UP <= whole <= ADDS_UP:
        return "INCONCLUSIVE", f"{missed}, but at T={longest} both in one call take {whole:.2f}x the sum of the parts"
    refuted = [f"{part} grow as {fit.text}" for part, fit in one.fits.items() if fit.verdict == "REFUTED"]
    if refuted:
        return "INCONCLUSIVE", f"{missed}, but {', '.join(refuted)}"
    return "CONFIRMED", f"{missed}, within a factor of {WITHIN:g}"


def _answer(one: PartsLadder) -> Answer:
    verdict, reason = weigh(one)
    if len(one.lengths) < 2 or not one.rounds:
        return Answer(one.subject, verdict, "nothing was timed", reason, (SOURCE,))
    grown = ", ".join(f"{part} {fit.text}" for part, fit in one.fits.items())
    rates = ", ".join(f"{part} {one.gflop_per_s(part):.1f}" for part in ("projections", "pairs"))
    found = (
        f"crossover at T = {_place(one.crossing)} [{_range(one.crossing_span)}]; predicted by FLOP {one.by_flop:.0f}, "
        f"with the rates at T = {one.lengths[-1]} ({rates} GFLOP/s) {_range(one.by_rates)}; {grown}; "
        f"both in one call {_range((min(one.wholes), max(one.wholes)))}x their sum; {one.rounds} rounds or more of one "
        "process"
    )
    return Answer(one.subject, verdict, found, reason, (SOURCE,))


def _place(length: float) -> str:
    return "below the ladder" if length == 0 else "beyond the ladder" if math.isinf(length) else f"{length:.0f}"


def _range(span: tuple[float, float]) -> str:
    """Least and most, in three significant digits; ends off the ladder in words."""
    low, high = (_place(end) if end == 0 or math.isinf(end) else significant(end) for end in span)
    return low if low == high else f"{low} to {high}"
