"""The figure of claim 10: stored bytes, pairs and time against the number of key heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.claims import Answer, Drawing
from bench.claims._sharing import Sharing, sharings
from bench.claims._storage import several_machines
from bench.figure_style import (
    Style,
    byte_tick,
    grid,
    headline,
    line_entry,
    log_axis,
    printable,
    shared_legend,
    styles,
)
from bench.plots import Reading
from bench.units import format_bytes
from bench.verdicts import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Paired = Mapping[tuple[str, str], tuple[Comparison, Comparison | None]]
"""By implementation and device type: one key head against one for each query head, and all pairs against half."""

SHRUNK: dict[str, Any] = {"color": "#999999", "linestyle": (0, (4, 3)), "linewidth": 1.2}


def shared_heads_figure(reading: Reading, paired: Paired, answers: Sequence[Answer]) -> list[Drawing]:
    """The setting with most key heads tried, all its implementations; none without rows."""
    several = several_machines(reading)
    settings: dict[str, list[Sharing]] = {}
    for one in sharings(reading):
        settings.setdefault(one.constants(several), []).append(one)
    if not settings or not answers:
        return []
    said, members = max(settings.items(), key=lambda item: (len(item[1][0].rows), len(item[1])))
    looks = styles({one.implementation for one in members})
    figure, axes = grid(1, 3, width=4.0, height=3.6)
    left, middle, right = axes[0]
    _bytes(left, members, looks)
    _pairs(middle, members[0])
    _times(right, members, looks, paired)
    for panel in (left, middle):
        _heads_axis(panel, members[0].counts)
    first = members[0]
    most, least = first.counts[0], first.counts[-1]
    ratios = ", ".join(f"{one.implementation} {ratio.ratio:.2f}x" for one in members if (ratio := _ratio(one, paired)))
    finding = (
        f"{least} of {most} key heads: k and v take {format_bytes(first.kv_bytes[least])} instead of "
        f"{format_bytes(first.kv_bytes[most])}, the pairs stay"
    )
    time_said = f"time with {least} key head over that with {most}: {ratios}" if ratios else ""
    headline(figure, finding, time_said)
    entries = [
        line_entry(printable(name, 28), color=look.color, linestyle=look.linestyle, marker=look.marker)
        for name, look in looks.items()
    ]
    shared_legend(figure, [*entries, line_entry("if all shrank with the key heads", **SHRUNK)])
    rises = [one for one in members if max(one.rise_bytes.values()) > 0]
    repeats = "".join(
        f" {one.implementation} repeats shared heads to full width: up to {format_bytes(max(one.rise_bytes.values()))} "
        "more during the call."
        for one in rises
    )
    return [
        Drawing(
            stem="shared_heads",
            figure=figure,
            caption=f"{most} query heads, fewer and fewer key and value heads ({said}). Left: bytes of k and v, plus "
            f"what the call holds beyond the unshared call. Right: ratios paired round by round, with intervals over "
            f"processes; open points compute half the query heads, so half the pairs, at one key head.{repeats}",
            alt=f"Bytes of k and v and pairs against the number of key heads, and relative time, by "
            f"implementation. {finding}. {time_said}".strip(),
        )
    ]


def _key(one: Sharing) -> tuple[str, str]:
    return one.implementation, "cpu" if one.rows[0]["device"] == "cpu" else "cuda"


def _ratio(one: Sharing, paired: Paired) -> Comparison | None:
    return paired[_key(one)][0] if _key(one) in paired else None


def _bytes(axes: Axes, members: Sequence[Sharing], looks: Mapping[str, Style]) -> None:
    values: list[float] = []
    for one in members:
        held = [max(1, one.kv_bytes[count] + one.rise_bytes[count]) for count in one.counts]
        _line(axes, one.counts, held, looks[one.implementation])
        values += held
    first = members[0]
    axes.plot(first.counts, [first.kv_bytes[count] for count in first.counts], zorder=3, **SHRUNK)
    log_axis(axes, "bytes of k and v, and of repeats", values, form=byte_tick)
    axes.set_title("Storage", fontweight="bold")


def _pairs(axes: Axes, one: Sharing) -> None:
    flop = [row["flop"] / 1e9 for row in one.rows]
    axes.plot(one.counts, flop, color="black", marker="o", markeredgecolor="white")
    axes.plot(one.counts, [flop[0] * count / one.counts[0] for count in one.counts], **SHRUNK)
    log_axis(axes, "GFLOP over the visible pairs", [*flop, flop[0] * one.counts[-1] / one.counts[0]])
    axes.set_title(f"Arithmetic: {one.pairs:,} pairs", fontweight="bold")


def _times(axes: Axes, members: Sequence[Sharing], looks: Mapping[str, Style], paired: Paired) -> None:
    """One place for each implementation: all pairs and half of them at one key head, over the time without sharing."""
    timed = [one for one in members if _ratio(one, paired)]
    heads = members[0].counts[0]
    if not timed:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "time was not compared in pairs", transform=axes.transAxes, ha="center", color="#777777")
        return
    values = [1.0, 1 / heads]
    for place, one in enumerate(timed):
        look, ratio, control = looks[one.implementation], *paired[_key(one)]
        spread = [[ratio.ratio - ratio.lo], [ratio.hi - ratio.ratio]]
        axes.errorbar([place], [ratio.ratio], spread, fmt=look.marker, color=look.color, capsize=4)
        values += [ratio.lo, ratio.hi]
        if control is not None:
            half = [ratio.ratio / count for count in (control.ratio, control.hi, control.lo)]
            spread = [[half[0] - half[1]], [half[2] - half[0]]]
            axes.errorbar([place + 0.2], half[:1], spread, fmt=look.marker, color=look.color, mfc="white", capsize=4)
            values += half
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.axhline(1 / heads, **SHRUNK)
    axes.set_xlim(-0.5, len(timed) - 0.2)
    axes.set_xticks(range(len(timed)), [printable(one.implementation, 16) for one in timed])
    log_axis(axes, f"time over that with {heads} key heads", values)
    axes.set_title("Time with 1 key head; open: half the pairs", fontweight="bold")


def _line(axes: Axes, x: Sequence[float], y: Sequence[float], look: Style) -> None:
    axes.plot(x, y, color=look.color, linestyle=look.linestyle, marker=look.marker, markeredgecolor="white")


def _heads_axis(axes: Axes, counts: Sequence[int]) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_major_formatter(FixedFormatter([str(count) for count in counts]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.invert_xaxis()
    axes.set_xlabel("key and value heads")
