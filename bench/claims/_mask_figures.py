"""Figures of what a mask saves: ratios against length, and time under a sliding window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bench.claims import Drawing
from bench.claims._mask_ratios import ALL_PERMITTED, LEAST_LENGTHS, Series, limit, pair_share
from bench.claims._mask_windows import WindowLadder
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

MAX_PANELS, MAX_WINDOWS = 3, 2
"""Settings in one figure, and figures of windows; more would bury the rest."""
STEPS = 60
"""Points of a drawn curve."""
GREY = "#777777"

Panel = tuple[str, Sequence[Series]]
"""Title and what is drawn."""


def paired_figure(series: Sequence[Series], blocks: Mapping[str, int], equal: float) -> list[Drawing]:
    """Interleaved ratios: kernels that skip beside naive, which stores its mask.

    Args:
        series: all with ``relative`` false.
        blocks: longest block of each kernel that skips.
        equal: half-width of the band in which naive's times count as equal.
    """
    skipping = [one for one in series if one.implementation in blocks]
    storing = [one for one in series if one.implementation not in blocks]
    panels = [panel for panel in (("kernels that skip", skipping), ("a stored mask", storing)) if panel[1]]
    return _ratio_figure(
        "paired",
        panels,
        blocks,
        equal,
        "Blocks of the two calls were interleaved in the same processes; bars are intervals over "
        f"{min((r.processes for one in series for r in one.ratios), default=0)} or more processes. The all-permitted "
        "mask hides the last key from all queries but the last, for naive stores none where nothing is hidden.",
    )


def cell_figure(series: Sequence[Series], blocks: Mapping[str, int]) -> list[Drawing]:
    """Ratios relative to naive, one panel for each setting; all with ``relative`` true."""
    settings: dict[str, list[Series]] = {}
    for one in series:
        settings.setdefault(one.setting, []).append(one)
    return _ratio_figure(
        "cells",
        list(settings.items())[:MAX_PANELS],
        blocks,
        0.0,
        "Cells of the two masks were timed minutes apart, so each is taken over naive's time in the same rounds, which "
        "a stored mask raises by up to a quarter: ratios lie that much lower than those of interleaved calls.",
    )


def _ratio_figure(
    kind: str, panels: Sequence[Panel], blocks: Mapping[str, int], equal: float, caption: str
) -> list[Drawing]:
    """Time with a causal mask over time without, against T; none without panels."""
    if not panels:
        return []
    everything = [one for _, members in panels for one in members]
    looks = styles({one.implementation for one in everything})
    figure, axes = grid(1, len(panels), width=4.8, height=3.9)
    top = max(1.2, 1.08 * max(ratio.hi for one in everything for ratio in one.ratios))
    for (title, members), one in zip(panels, axes[0], strict=True):
        _ratio_panel(one, members, looks, blocks, equal)
        one.set_title(printable(title), fontweight="bold")
        one.set_ylim(0, top)
    labels = {_label(one): looks[one.implementation] for one in everything}
    entries = [_entry(label, look, ALL_PERMITTED in label) for label, look in labels.items()]
    if any(one.implementation in blocks for one in everything):
        entries.append(line_entry("visible pairs, (T+1)/2T", color="black", linewidth=2.2))
        entries.append(line_entry("fit: limit + b/T", color=GREY, linestyle=":"))
    shared_legend(figure, entries)
    said = "; ".join(f"{one.subject} {one.longest.text}" for one in everything)
    finding = "; ".join(_finding(one, blocks) for one in everything)
    beside = " and relative to naive" if kind == "cells" else ""
    headline(figure, f"Under a causal mask, as a share of the time without{beside}: {finding}")
    return [
        Drawing(
            stem=slug("mask_arithmetic", kind),
            figure=figure,
            caption=f"Time with a causal mask over time without, against sequence length: {said}. A kernel that skips "
            f"computes whole blocks along the diagonal, so its ratio is limit + b/T. {caption}",
            alt=f"Ratio of time with a causal mask to time without against sequence length, with the share of visible "
            f"pairs as a line near one half. {said}.",
        )
    ]


def _ratio_panel(
    axes: Axes, members: Sequence[Series], looks: Mapping[str, Style], blocks: Mapping[str, int], equal: float
) -> None:
    lengths = sorted({ratio.seqlen for one in members for ratio in one.ratios})
    skipping = [one for one in members if one.implementation in blocks]
    axes.axhline(1.0, color=GREY, linewidth=0.9, linestyle=(0, (2, 2)))
    if skipping:
        axes.plot(lengths, [pair_share(length) for length in lengths], color="black", linewidth=2.2)
    elif equal:
        axes.axhspan(1 / (1 + equal), 1 + equal, color="#bbbbbb", alpha=0.5, linewidth=0)
    for one in members:
        look = looks[one.implementation]
        points = [ratio.ratio for ratio in one.ratios]
        bars = ([r.ratio - r.lo for r in one.ratios], [r.hi - r.ratio for r in one.ratios])
        axes.errorbar(
            [ratio.seqlen for ratio in one.ratios],
            points,
            yerr=bars,
            color=look.color,
            marker=look.marker,
            linestyle="none" if one in skipping else look.linestyle,
            markerfacecolor="white" if one.without == ALL_PERMITTED else look.color,
            capsize=2,
        )
        bearing = one.bearing(blocks[one.implementation]) if one in skipping else ()
        if len(bearing) >= LEAST_LENGTHS:
            end, first = limit(bearing), bearing[0].seqlen
            places = [first * (lengths[-1] / first) ** (step / STEPS) for step in range(STEPS + 1)]
            axes.plot(places, [end.at(place) for place in places], color=look.color, linestyle=":")
    length_axis(axes, lengths, "sequence length T")
    beside = "\nrelative to naive" if any(one.relative for one in members) else ""
    axes.set_ylabel(f"time with causal / time without{beside}")


def _finding(one: Series, blocks: Mapping[str, int]) -> str:
    """Where the ratio goes, or for a stored mask what it is at the longest length."""
    where = f" ({one.setting})" if one.relative else ""
    bearing = one.bearing(blocks[one.implementation]) if one.implementation in blocks else ()
    if len(bearing) >= LEAST_LENGTHS:
        end = limit(bearing)
        return f"{one.implementation}{where} tends to {end.value:.2f} [{end.lo:.2f}, {end.hi:.2f}]"
    return f"{one.implementation}{where} takes {one.longest.ratio:.2f} times as long as under {one.without}"


def _label(one: Series) -> str:
    """Legend entry; settings of cells stand in the panels' titles."""
    return f"{one.implementation} over {one.without}" + ("" if one.relative else f" ({one.setting})")


def _entry(label: str, look: Style, hollow: bool) -> Line2D:
    face = "white" if hollow else look.color
    return line_entry(
        printable(label), color=look.color, linestyle=look.linestyle, marker=look.marker, markerfacecolor=face
    )


def window_figures(windows: Sequence[WindowLadder]) -> list[Drawing]:
    """Time under a window, and time per query beside it, where a linear law is flat; one figure for each setting."""
    settings: dict[str, list[WindowLadder]] = {}
    for one in windows:
        settings.setdefault(one.setting, []).append(one)
    return [_window_figure(setting, members) for setting, members in list(settings.items())[:MAX_WINDOWS]]


def _window_figure(setting: str, members: Sequence[WindowLadder]) -> Drawing:
    looks = styles({one.implementation for one in members})
    figure, (axes,) = grid(1, 2, width=4.8, height=3.9)
    lengths = [row["length"] for one in members for row in one.rows]
    for panel, label, per_query in ((axes[0], "latency (ms)", False), (axes[1], "latency / T (µs)", True)):
        drawn: list[float] = []
        for one in members:
            look = looks[one.implementation]
            scales = [1e3 / row["length"] if per_query else 1.0 for row in one.rows]
            points = [row["latency_ms"] * scale for row, scale in zip(one.rows, scales, strict=True)]
            low = [(row["latency_ms"] - row["latency_lo_ms"]) * s for row, s in zip(one.rows, scales, strict=True)]
            high = [(row["latency_hi_ms"] - row["latency_ms"]) * s for row, s in zip(one.rows, scales, strict=True)]
            places = [row["length"] for row in one.rows]
            panel.errorbar(
                places,
                points,
                yerr=(low, high),
                color=look.color,
                linestyle=look.linestyle,
                marker=look.marker,
                capsize=2,
            )
            drawn += points
        length_axis(panel, lengths, "sequence length T")
        log_axis(panel, label, drawn)
    axes[0].set_title("time", fontweight="bold")
    axes[1].set_title("time per query: flat if linear", fontweight="bold")
    entries = [_entry(f"{one.implementation}: {one.fit.text}", looks[one.implementation], False) for one in members]
    shared_legend(figure, entries)
    said = ", ".join(f"{one.implementation} {one.fit.text} ({one.fit.verdict}: {one.fit.growth})" for one in members)
    grow = ", ".join(f"{one.implementation} as T^{one.fit.exponent:.2f}" for one in members)
    headline(figure, f"Time under a sliding window: {grow}", setting)
    return Drawing(
        stem=slug("mask_arithmetic-window", setting),
        figure=figure,
        caption=f"Median latency with its interval against sequence length under {setting}; the visible pairs are "
        f"linear in T. Exponents of t = c0 + c1·T^p with their 95 % intervals: {said}. A kernel that looks at the "
        "window alone is linear; one that takes the mask as a matrix is quadratic however little of it is visible.",
        alt=f"Latency, and latency per query, against sequence length, all logarithmic, one line per implementation, "
        f"under {setting}. {said}.",
    )
