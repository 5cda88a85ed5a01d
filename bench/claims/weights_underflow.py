"""Claim 12: a weight that is positive in exact arithmetic is exactly 0 in floating point from some score gap on.

Where, is derived with the rows (``bench/demonstrations/underflow.py``): ``(b + 1) * ln 2`` for a dtype whose smallest
positive number is ``2**-b``, earlier where subnormal numbers are lost. ``torch.softmax`` is held to it; what an
implementation does is reported, since its exponential and its matrix product are its own affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from bench.claims import Answer, Drawing, Hearing, Needs, Scope, Verdict, claims
from bench.figure_style import grid, headline, line_entry, log_axis, printable, shared_legend, slug
from bench.plots import grouped

Row = Mapping[str, Any]

SOURCE = "underflow"
REFERENCE = "torch.softmax"
TOLERANCE = 0.001
"""Relative distance from the derived gap that still agrees with it."""
SHOWN = 120.0
"""Gaps up to here are drawn: float64 goes on to 745."""
_COLOURS = {"float64": "#000000", "float32": "#0072B2", "float16": "#D55E00", "bfloat16": "#009E73"}
_MARKS = ("o", "D", "s", "^", "v")


@claims.register("weights_underflow")
class WeightsUnderflow:
    """``torch.softmax`` by dtype, everyone else by name."""

    name: ClassVar[str] = "weights_underflow"
    order: ClassVar[int] = 12
    statement: ClassVar[str] = (
        "Positive attention weights underflow to exactly zero in floating point, from a score gap that follows from "
        "the smallest positive number of the dtype."
    )
    rule: ClassVar[str] = (
        f"CONFIRMED if everyone's weight is 0 from a finite gap on, and that of {REFERENCE} is within "
        f"{TOLERANCE:.1%} of the first number of its dtype at or above the derived gap; REFUTED if a weight never is 0 "
        f"or {REFERENCE} is further off; INCONCLUSIVE without {REFERENCE}."
    )

    def needs(self, scope: Scope) -> Needs:
        """One demonstration."""
        return Needs(demonstrations=(SOURCE,))

    def judge(self, hearing: Hearing) -> list[Answer]:
        """The reference in each dtype, then each of the others."""
        rows = _gaps(hearing)
        if not rows:
            return []
        own = grouped([row for row in rows if row["who"] == REFERENCE], "dtype")
        answers = [_reference(str(dtype), some) for (dtype,), some in own.items()]
        if not answers:
            answers = [Answer(REFERENCE, "INCONCLUSIVE", "was not measured", "nothing to hold against", (SOURCE,))]
        others = grouped([row for row in rows if row["who"] != REFERENCE], "who")
        return answers + [_reported(str(who), some) for (who,), some in others.items()]

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Weights against the gap, and everyone's gaps."""
        gaps = _gaps(hearing)
        curves = [row for row in hearing.demonstration(SOURCE) if row["kind"] == "curve"]
        return [_figure(gaps, curves, answers)] if gaps and curves else []


def _gaps(hearing: Hearing) -> list[Row]:
    return [row for row in hearing.demonstration(SOURCE) if row["kind"] == "gap"]


def _reference(dtype: str, rows: Sequence[Row]) -> Answer:
    """Whether the gaps of the reference are the derived ones."""
    subject, wanted = f"{REFERENCE}, {dtype}", rows[0]
    found = f"0 from a gap of {_list(rows)} on"
    derived = f"derived {wanted['derived']:.6g}, the next {dtype} is {wanted['expected']:.6g}"
    never = _never(rows)
    if never:
        return Answer(subject, "REFUTED", found, never, (SOURCE,))
    off = max(abs(row["gap"] / row["expected"] - 1) for row in rows)
    verdict: Verdict = "REFUTED" if off > TOLERANCE else "CONFIRMED"
    return Answer(subject, verdict, found, f"{derived}: off by {off:.2%}, {TOLERANCE:.1%} is allowed", (SOURCE,))


def _reported(who: str, rows: Sequence[Row]) -> Answer:
    """Gaps of somebody else; all that is asked of them is that there are any."""
    tried = [row for row in rows if row["refused"] is None]
    if not tried:
        return Answer(who, "INCONCLUSIVE", "refuses every problem", rows[0]["refused"], (SOURCE,))
    found = "; ".join(f"{dtype}: {_list(some)}" for (dtype,), some in grouped(tried, "dtype").items())
    never = _never(tried)
    if never:
        return Answer(who, "REFUTED", found, never, (SOURCE,))
    early = [row for row in tried if row["gap"] < row["expected"] * (1 - TOLERANCE)]
    late = [row for row in tried if row["gap"] > row["expected"] * (1 + TOLERANCE)]
    said = []
    if early:
        where = (f"{row['dtype']} with {row['keys']} keys (without subnormals {row['flushed']:.2f})" for row in early)
        said.append(f"earlier than derived: {', '.join(where)}")
    if late:
        where = (f"{row['dtype']} with {row['keys']} keys" for row in late)
        said.append(f"later than derived: {', '.join(where)}")
    return Answer(who, "CONFIRMED", found, "; ".join(said) or "at the derived gaps", (SOURCE,))


def _never(rows: Sequence[Row]) -> str:
    """Which weight never is 0; empty if all are from some gap on."""
    return ", ".join(
        f"no weight is 0 in {row['dtype']} with {row['keys']} keys, however large the gap"
        for row in rows
        if row["gap"] is None and row["refused"] is None
    )


def _list(rows: Sequence[Row]) -> str:
    """Gaps with the numbers of keys that they were found with; one where all agree."""
    gaps = {row["keys"]: "none" if row["gap"] is None else f"{row['gap']:.2f}" for row in rows}
    if len(set(gaps.values())) == 1:
        return next(iter(gaps.values()))
    return ", ".join(f"{gap} ({keys} keys)" for keys, gap in gaps.items())


def _figure(gaps: Sequence[Row], curves: Sequence[Row], answers: Sequence[Answer]) -> Drawing:
    figure, ((left, right),) = grid(1, 2, width=5.6, height=4.0)
    ends = {row["dtype"]: row["gap"] for row in gaps if row["who"] == REFERENCE and row["gap"] is not None}
    _curve_panel(left, curves, ends)
    _gap_panel(right, gaps)
    ended = ", ".join(f"{gap:.2f} ({dtype})" for dtype, gap in ends.items())
    verdicts = [answer.verdict for answer in answers]
    title = {
        "CONFIRMED": "Positive weights become exactly 0, where the smallest positive number of the dtype says",
        "REFUTED": "REFUTED: a weight that should underflow does not, or not where it was derived",
        "INCONCLUSIVE": "Where positive weights become 0: too few rows for a verdict",
    }[next((v for v in ("REFUTED", "INCONCLUSIVE") if v in verdicts), "CONFIRMED")]
    headline(figure, title, f"{REFERENCE} from a score gap of {ended}" if ended else "")
    keys = list(dict.fromkeys(row["keys"] for row in gaps))
    shared_legend(
        figure,
        [line_entry(dtype, color=_colour(dtype), linewidth=3) for dtype in dict.fromkeys(r["dtype"] for r in gaps)]
        + [
            line_entry(f"{count} keys", color="#555555", marker=mark, linestyle="none", markerfacecolor="none")
            for count, mark in zip(keys, _MARKS, strict=False)
        ]
        + [line_entry("derived", color="#555555", linestyle=(0, (1, 1)))],
    )
    return Drawing(
        stem=slug("weights-underflow"),
        figure=figure,
        caption=f"One key has the score on the axis, the others 0. Left: the weight of the other one by {REFERENCE} "
        "with two keys; it falls along exp(-gap) and ends where it is rounded to 0. Right: the smallest gap at which "
        f"everyone's weight is exactly 0. Gaps beyond {SHOWN:g} (float64) are not drawn.",
        alt=f"{title}. " + " ".join(f"{answer.subject}: {answer.found}." for answer in answers),
    )


def _colour(dtype: object) -> str:
    return _COLOURS.get(str(dtype), "#CC79A7")


def _curve_panel(axes: Any, curves: Sequence[Row], ends: Mapping[str, float]) -> None:
    values: list[float] = []
    for row in curves:
        pairs = [(gap, w) for gap, w in zip(row["gaps"], row["weights"], strict=True) if w > 0 and gap <= SHOWN]
        values += [weight for _, weight in pairs]
        axes.plot(*zip(*pairs, strict=True), color=_colour(row["dtype"]), linewidth=1.6, alpha=0.9)
    log_axis(axes, "weight of the other key", values)
    bottom = axes.get_ylim()[0]
    for dtype, gap in ends.items():
        last = min((w for row in curves if row["dtype"] == dtype for w in row["weights"] if w > 0), default=None)
        if gap <= SHOWN and last is not None:
            axes.plot([gap, gap], [last, bottom], color=_colour(dtype), linestyle="-", linewidth=1.6)
            axes.plot([gap], [bottom], marker="v", color=_colour(dtype), clip_on=False)
    axes.set_xlim(0, SHOWN)
    axes.set_xlabel("score gap")
    axes.set_title(f"{REFERENCE}, two keys", fontweight="bold")


def _gap_panel(axes: Any, gaps: Sequence[Row]) -> None:
    names = list(dict.fromkeys(row["who"] for row in gaps))
    keys = list(dict.fromkeys(row["keys"] for row in gaps))
    for row in gaps:
        if row["derived"] <= SHOWN:
            axes.axvline(row["derived"], color=_colour(row["dtype"]), linestyle=(0, (1, 1)), linewidth=1.0)
        if row["gap"] is not None and row["gap"] <= SHOWN:
            mark, place = _MARKS[keys.index(row["keys"]) % len(_MARKS)], names.index(row["who"])
            shift = 0.14 * (keys.index(row["keys"]) - (len(keys) - 1) / 2)
            axes.plot([row["gap"]], [place + shift], marker=mark, color=_colour(row["dtype"]), markerfacecolor="none")
    axes.set_yticks(range(len(names)), [printable(name, 34) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, SHOWN)
    axes.set_xlabel("smallest score gap with a weight of 0")
    axes.set_title("Everyone", fontweight="bold")
