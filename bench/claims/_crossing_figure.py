"""The figure of a crossing: time of both parts and of the whole against length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.claims import Drawing, Verdict
from bench.claims._crossing import PartsLadder
from bench.figure_style import grid, headline, length_axis, line_entry, log_axis, printable, shared_legend, slug

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Judged = tuple[PartsLadder, Verdict]

MAX_PANELS, COLUMNS = 9, 3
LOOKS = {
    "projections": ("#0072B2", "s", "products with weights"),
    "pairs": ("#D55E00", "o", "pairs"),
    "whole": ("#000000", "^", "both in one call"),
}
"""Colour, marker and name of each part."""
BAND, BY_FLOP, BY_RATES = "#E69F00", "#777777", "#009E73"


def crossing_figure(judged: Sequence[Judged]) -> Drawing:
    """One panel for each of the first ladders."""
    shown = judged[:MAX_PANELS]
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = grid(rows, columns, width=4.3, height=3.4)
    panels = [one for line in axes for one in line]
    for panel, (ladder, verdict) in zip(panels, shown, strict=False):
        _panel(panel, ladder, verdict)
    for empty in panels[len(shown) :]:
        empty.set_visible(False)
    shared_legend(
        figure,
        [
            *(line_entry(name, color=colour, marker=marker) for colour, marker, name in LOOKS.values()),
            line_entry("crossover, measured, with its 95 % interval", color=BAND, linewidth=4),
            line_entry("predicted by FLOP alone", color=BY_FLOP, linestyle="--"),
            line_entry("by FLOP and the rates at the longest length", color=BY_RATES, linestyle=":"),
        ],
    )
    said = finding_text(judged)
    first, names = shown[0][0], sorted({str(one.fixed["implementation"]) for one, _ in shown})
    widths = {one.widths for one, _ in shown}
    finding = "Where do pairs overtake the projections?"
    if {verdict for _, verdict in judged} == {"CONFIRMED"}:
        finding = "Projections dominate short sequences, pairs long ones, and FLOP say from where on"
    headline(figure, finding, f"Crossover {said}", tally(judged))
    return Drawing(
        stem=slug("projections-and-pairs"),
        figure=figure,
        caption="Time of Q = XW_Q, K = SW_K and V = SW_V, of attention on the projected vectors, and of both in one "
        f"call, at {len(first.lengths)} lengths from {first.lengths[0]} to {first.lengths[-1]}; medians of "
        f"{first.rounds} or more interleaved rounds in one process ({first.threads}). For multihead the products "
        "include that of its output. Dashed: both parts cost as many "
        "FLOP. Dotted: they take as long, if each keeps the rate that it reached at the longest length.",
        alt="Latency of projections, pairs and both against sequence length, both axes logarithmic, one panel for "
        f"each of {', '.join(names)} with {'; '.join(sorted(widths))}. {said}. {tally(judged)}.",
    )


def finding_text(judged: Sequence[Judged]) -> str:
    """Where the crossovers are and how well they were predicted."""
    crossed = [one for one, _ in judged if 0 < one.crossing < math.inf]
    if not crossed:
        return "nowhere on the ladder"
    low, high = min(one.crossing for one in crossed), max(one.crossing for one in crossed)
    where = f"at T = {low:.0f}" if len(crossed) == 1 else f"between T = {low:.0f} and {high:.0f}"
    worst = max((abs(math.log(end)) for one in crossed for end in one.miss if 0 < end < math.inf), default=0.0)
    return f"{where}, at most {math.exp(worst):.2f}x from where FLOP and rates predict it"


def tally(judged: Sequence[Judged]) -> str:
    """How many ladders have which verdict."""
    counts = {v: sum(said == v for _, said in judged) for v in ("CONFIRMED", "REFUTED", "INCONCLUSIVE")}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def _panel(axes: Axes, one: PartsLadder, verdict: Verdict) -> None:
    low, high = (min(max(end, one.lengths[0]), one.lengths[-1]) for end in one.crossing_span)
    if high > low or one.crossing in one.crossing_span:
        axes.axvspan(low, high, color=BAND, alpha=0.35, linewidth=0)
    if 0 < one.crossing < math.inf:
        axes.axvline(one.crossing, color=BAND, linewidth=1.4)
    axes.axvline(one.by_flop, color=BY_FLOP, linestyle="--", linewidth=1.3)
    axes.axvline(math.sqrt(math.prod(one.by_rates)), color=BY_RATES, linestyle=":", linewidth=2.0)
    values = []
    for part, (colour, marker, _) in LOOKS.items():
        points = [(t, ms) for t, ms in zip(one.lengths, one.medians_ms(part), strict=True) if ms > 0]
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=4.5)
        values += [ms for _, ms in points]
    length_axis(axes, one.lengths, "sequence length T")
    log_axis(axes, "latency (ms)", values)
    place = f"T = {one.crossing:.0f}" if 0 < one.crossing < math.inf else "none on the ladder"
    axes.set_title(
        f"{printable(str(one.fixed['implementation']), 28).strip()}, {one.widths}\n{verdict}: crossover {place}",
        fontweight="bold",
    )
