"""Figures of laws of growth: points, fitted curve, slopes beneath, and the straight line that misleads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING, Any

from bench.claims import Drawing, Verdict
from bench.claims._growth import Ladder
from bench.figure_style import (
    Style,
    grid,
    headline,
    length_axis,
    line_entry,
    log_axis,
    printable,
    shared_legend,
    slug,
    styles,
)
from bench.scaling import TOLERANCE, fit_latencies

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Judged = tuple[Ladder, Verdict]
"""A fitted ladder and what is said of it."""

MAX_COLUMNS, MAX_FIGURES = 4, 4
"""Panels beside one another, and figures of one kind; more would bury the rest."""
STEPS = 60
"""Points of a drawn curve."""
SLOPES = (-1.0, 4.0)
"""Local slopes that are drawn where they lie."""
GREY = "#777777"
ALL_PAIRS = "mask full"
"""Of all ladders here; masks that hide pairs are another claim's."""


def scaling_figures(judged: Sequence[Judged]) -> list[Drawing]:
    """Time against T with the fit above, local slopes beneath; one figure for ladders that differ in nothing else."""
    looks = styles({one.implementation for one, _ in judged})
    families: dict[str, list[Judged]] = {}
    for one, said in judged:
        families.setdefault(f"{one.constants}, on {one.rows[0]['device']}", []).append((one, said))
    chunks = [
        (constants, members[first : first + MAX_COLUMNS])
        for constants, members in sorted(families.items(), key=lambda family: -len(family[1]))
        for first in range(0, len(members), MAX_COLUMNS)
    ]
    return [_scaling_figure(n, *chunk, looks) for n, chunk in enumerate(chunks[:MAX_FIGURES], start=1)]


def _scaling_figure(number: int, constants: str, judged: Sequence[Judged], looks: Mapping[str, Style]) -> Drawing:
    figure, axes = grid(2, len(judged), height=2.9)
    several = len({one.rows[0]["machine"] for one, _ in judged}) > 1
    for column, (one, said) in enumerate(judged):
        above, beneath = axes[0][column], axes[1][column]
        time_panel(above, one, looks[one.implementation])
        slope_panel(beneath, one, looks[one.implementation])
        machine = "\n" + printable(one.rows[0]["machine"], 44) if several else ""
        title = f"{printable(one.implementation, 28).strip()}: {said}\n{one.exponent}{machine}"
        above.set_title(title, fontweight="bold")
    figure.align_ylabels([line[0] for line in axes])
    shared_legend(figure, _entries())
    lengths = judged[0][0].fit.lengths
    trap = ", ".join(f"{one.implementation} T^{one.plain_line()[0]:.2f}" for one, _ in judged)
    finding = f"Time as T² once overhead is taken out: {verdict_text(judged)}"
    headline(figure, finding, f"{ALL_PAIRS}, {constants}")
    return Drawing(
        stem=slug("pair_cost-scaling", number),
        figure=figure,
        caption=f"Median latency with its interval at {len(lengths)} lengths from {lengths[0]} to {lengths[-1]} "
        f"({ALL_PAIRS}, {constants}), with t = c0 + c1·T^p fitted to the logarithms; exponents with their 95 % "
        f"intervals. Beneath, the slope between neighbouring lengths and that of the fit; 2 ± {TOLERANCE} is shaded. "
        "The dashed straight line through the logarithms is the trap, for it takes overhead for slow growth: "
        f"{trap}.",
        alt=f"Latency against sequence length, both logarithmic, and local slopes beneath, one column per "
        f"implementation, {constants}. {verdict_text(judged)}.",
    )


def time_panel(axes: Axes, one: Ladder, look: Style) -> None:
    """Points, fitted curve, overhead, and the straight line with its exponent written in."""
    sizes = _between(one.fit.lengths)
    low = [row["latency_ms"] - row["latency_lo_ms"] for row in one.rows]
    high = [row["latency_hi_ms"] - row["latency_ms"] for row in one.rows]
    points = [row["latency_ms"] for row in one.rows]
    slope, factor = one.plain_line()
    axes.plot(sizes, [factor * size**slope for size in sizes], color=GREY, linestyle=(0, (4, 2)), linewidth=1.2)
    axes.plot(sizes, [one.fitted_ms(size) for size in sizes], color=look.color)
    if one.fit.floor_ms and one.fit.floor_ms > min(points) / 30:  # lower, it would only squeeze the rest
        axes.axhline(one.fit.floor_ms, color=look.color, linestyle=":", linewidth=1.2)
    axes.errorbar(
        one.fit.lengths, points, yerr=(low, high), fmt=look.marker, color=look.color, markeredgecolor="white", capsize=2
    )
    axes.text(
        0.97, 0.05, f"straight line: T^{slope:.2f}", transform=axes.transAxes, ha="right", color=GREY, fontsize=8.5
    )
    length_axis(axes, one.fit.lengths, "sequence length T")
    log_axis(axes, "latency (ms)", [*points, *(row["latency_hi_ms"] for row in one.rows)])


def slope_panel(axes: Axes, one: Ladder, look: Style) -> None:
    """Slope between neighbours, that of the fit, and the exponents that count as equal to the expected one.

    A slope that noise threw beyond :data:`SLOPES` would squeeze the rest: it is drawn open, at the edge.
    """
    expected = one.axis.expected
    axes.axhspan(expected - TOLERANCE, expected + TOLERANCE, color="#bbbbbb", alpha=0.5, linewidth=0)
    middles = [sqrt(a * b) for a, b in pairwise(one.fit.lengths)]
    sizes = _between(one.fit.lengths)
    exponent, floor = one.fit.exponent or 0.0, one.fit.floor_ms or 0.0
    axes.plot(sizes, [exponent * (1 - floor / one.fitted_ms(size)) for size in sizes], color=look.color)
    low, high = SLOPES
    for middle, slope in zip(middles, one.fit.local_slopes, strict=True):
        inside = low <= slope <= high
        fill = look.color if inside else "white"
        axes.plot(
            middle,
            min(max(slope, low), high),
            look.marker,
            color=fill,
            markeredgecolor="white" if inside else look.color,
        )
    length_axis(axes, one.fit.lengths, "sequence length T")
    axes.set_ylabel("local slope")
    axes.set_ylim(low - 0.15, high + 0.15)


def linear_figure(judged: Sequence[Judged]) -> list[Drawing]:
    """Time against each other size on plain axes, where a linear law is a straight line; none without ladders."""
    if not judged:
        return []
    looks = styles({one.implementation for one, _ in judged})
    panels: dict[str, list[Judged]] = {}
    for one, said in judged:
        panels.setdefault(f"{one.axis.symbol} ({one.constants}), {one.rows[0]['machine']}", []).append((one, said))
    shown = sorted(panels.values(), key=lambda members: -len(members))[: 2 * MAX_COLUMNS]
    columns = min(3, len(shown))
    figure, axes = grid(-(-len(shown) // columns), columns, height=3.2)
    places = [place for line in axes for place in line]
    for place, members in zip(places, shown, strict=False):
        _linear_panel(place, members, looks)
    for place in places[len(shown) :]:
        place.set_axis_off()
    symbols = ", ".join(dict.fromkeys(one.axis.symbol for one, _ in judged))
    headline(figure, f"Time linear in {symbols}: {verdict_text(judged)}", ALL_PAIRS)
    left_out = f" {len(panels) - len(shown)} further groups are not drawn." if len(panels) > len(shown) else ""
    constants = "; ".join(f"{members[0][0].axis.symbol}: {members[0][0].constants}" for members in shown)
    drawing = Drawing(
        stem="pair_cost-linear",
        figure=figure,
        caption="Median latency with its interval while one size grows and the others stay, with t = c0 + c1·size^p; "
        f"the theory says p = 1. Exponents with their 95 % intervals are in the legends. {constants}.{left_out}",
        alt=f"Latency against each size on linear axes, one line per implementation. {verdict_text(judged)}.",
    )
    return [drawing]


def _linear_panel(axes: Axes, members: Sequence[Judged], looks: Mapping[str, Style]) -> None:
    for one, said in members:
        look, sizes = looks[one.implementation], _between(one.fit.lengths)
        points = [row["latency_ms"] for row in one.rows]
        low = [row["latency_ms"] - row["latency_lo_ms"] for row in one.rows]
        high = [row["latency_hi_ms"] - row["latency_ms"] for row in one.rows]
        axes.plot(sizes, [one.fitted_ms(size) for size in sizes], color=look.color, linestyle=look.linestyle)
        label = f"{printable(one.implementation, 20)} {one.exponent}\n{said}"
        axes.errorbar(
            one.fit.lengths,
            points,
            yerr=(low, high),
            fmt=look.marker,
            color=look.color,
            markeredgecolor="white",
            capsize=2,
            label=label,
        )
    axes.legend(loc="upper left", frameon=False, fontsize=8)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.35)  # room for the legend
    axes.set_xlabel(members[0][0].axis.symbol)
    axes.set_ylabel("latency (ms)")
    axes.set_title(members[0][0].constants, fontweight="bold")


def allocator_figure(rows: Sequence[Mapping[str, Any]]) -> list[Drawing]:
    """Naive attention under both allocator settings: time, and page faults per call; none without rows."""
    settings = {name: [row for row in rows if row["allocator"] == name] for name in ("default", "warm")}
    if not all(settings.values()):
        return []
    looks = dict(zip(settings, styles(settings).values(), strict=True))
    figure, ((left, right),) = grid(1, 2, height=3.6)
    said = []
    for name, group in settings.items():
        lengths, look = [row["seqlen"] for row in group], looks[name]
        line = {"color": look.color, "linestyle": look.linestyle, "marker": look.marker}
        fit = fit_latencies({row["seqlen"]: {0: row["latency_ms"]} for row in group})
        said.append(f"{name} allocator {group[-1]['page_faults']:,.0f} page faults a call and {fit.text}")
        left.plot(lengths, [row["latency_ms"] for row in group], label=f"{name}: {fit.text}", **line)
        right.plot(lengths, [row["page_faults"] for row in group], label=name, **line)
    pages = [(row["seqlen"], row["score_pages"]) for row in settings["default"]]
    right.plot(*zip(*pages, strict=True), color=GREY, linestyle=":", label="pages of scores and weights")
    right.set_ylabel("page faults per call")
    right.yaxis.set_major_formatter("{x:,.0f}")
    log_axis(left, "latency (ms)", [row["latency_ms"] for row in rows])
    for axes in (left, right):
        length_axis(axes, [row["seqlen"] for row in rows], "sequence length T")
        axes.legend(loc="upper left", frameon=False)
    longest = max(row["seqlen"] for row in rows)
    headline(figure, f"Naive attention at T={longest}: {'; '.join(said)}")
    drawing = Drawing(
        stem="pair_cost-allocator",
        figure=figure,
        caption="Naive attention (float32, B=1, H=4, d_k=64, d_v=64) in two processes. By default glibc gives large "
        "tensors back to the kernel and has their pages supplied anew on each call, once scores and weights are large "
        "enough; kept warm, memory stays with the process. What the default adds to the time is the cost of pages, not "
        "of pairs, and it bends the law of growth. Exponents are those of t = c0 + c1·T^p with their 95 % intervals.",
        alt=f"Latency and page faults per call of naive attention against sequence length, one line per allocator "
        f"setting. {'; '.join(said)}.",
    )
    return [drawing]


def verdict_text(judged: Sequence[Judged]) -> str:
    """``CONFIRMED for naive, sdpa_flash; REFUTED for linear``: all verdicts in a line, long lists as a count."""
    parts = []
    for verdict in ("CONFIRMED", "REFUTED", "INCONCLUSIVE"):
        names = [_short(one, [other for other, _ in judged]) for one, said in judged if said == verdict]
        if names:
            listed = ", ".join(names) if len(names) <= MAX_COLUMNS else f"{len(names)} of {len(judged)} ladders"
            parts.append(f"{verdict} for {listed}")
    return "; ".join(parts)


def _short(one: Ladder, among: Sequence[Ladder]) -> str:
    """Its name, and in what else it differs from the others."""
    axis = f" in {one.axis.symbol}" if len({other.axis for other in among}) > 1 else ""
    several = len({other.rows[0]["machine"] for other in among}) > 1
    machine = f" ({printable(one.rows[0]['machine'], 60)})" if several else ""
    return f"{printable(one.implementation, 28).strip()}{axis}{machine}"


def _between(sizes: Sequence[int]) -> list[float]:
    """Points for a curve over the sizes, evenly spaced in the logarithm."""
    ratio = sizes[-1] / sizes[0]
    return [sizes[0] * ratio ** (step / (STEPS - 1)) for step in range(STEPS)]


def _entries() -> list[Any]:
    return [
        line_entry("measured median with its interval", color="black", marker="o", linestyle=""),
        line_entry("fit: overhead + power", color="black"),
        line_entry("overhead c0", color="black", linestyle=":"),
        line_entry("straight line through the logarithms (rejected)", color=GREY, linestyle=(0, (4, 2))),
    ]
