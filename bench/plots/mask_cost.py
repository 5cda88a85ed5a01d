"""What a mask costs or saves: time ratio of each mask to ``full`` beside its ratio of visible pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.figure_style import (
    Style,
    bar_entry,
    grid,
    headline,
    line_entry,
    printable,
    shared_legend,
    slug,
    styles,
)
from bench.metrics import Row
from bench.plots import LADDER, Drawing, Reading, grouped, register_plot
from bench.plots._panels import MAX_COLUMNS, MAX_PAGES, subject

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAMILY = tuple(name for name in LADDER if name not in ("head_dim", "head_dim_v", "mask"))
FULL = "full"
WIDE = 12
"""Bars from which on a panel takes the whole width of the figure."""
MAX_MASKS = 8
"""Groups of bars in one panel."""


@register_plot
class MaskCost:
    """Bars of time over ``full`` at the longest common length, a black line where time would follow the
    visible pairs.
    """

    name = "mask_cost"
    title = "Cost of each mask"
    order = 50
    summary = "Time of each mask relative to full beside its share of visible pairs."

    def needs(self, reading: Reading) -> str | None:
        """``full`` and another mask on one problem."""
        return None if _panels(reading) else "the mask full and at least one other on the same problem"

    def draw(self, reading: Reading) -> list[Drawing]:
        """One figure per problem family; panels by head width."""
        looks = styles(reading.names)
        drawings = []
        for family in list(grouped_panels(_panels(reading)).values())[:MAX_PAGES]:
            for start in range(0, len(family), MAX_COLUMNS):
                drawings.append(_figure(family[start : start + MAX_COLUMNS], looks, self.name, start))
        return drawings


def grouped_panels(panels: list[list[Row]]) -> dict[tuple[object, ...], list[list[Row]]]:
    """Panels by problem family and length, in the order of appearance."""
    found: dict[tuple[object, ...], list[list[Row]]] = {}
    for rows in panels:
        key = tuple(rows[0][name] for name in (*FAMILY, "seqlen_q", "length"))
        found.setdefault(key, []).append(rows)
    return found


def mask_ratios(rows: Sequence[Row]) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Time over ``full`` with the widest bounds that the two intervals allow, by implementation and mask."""
    full = {row["implementation"]: row for row in rows if row["mask"] == FULL}
    return {
        (row["implementation"], row["mask"]): (
            row["latency_ms"] / base["latency_ms"],
            row["latency_lo_ms"] / base["latency_hi_ms"],
            row["latency_hi_ms"] / base["latency_lo_ms"],
        )
        for row in rows
        if row["mask"] != FULL and (base := full.get(row["implementation"])) is not None
    }


def pair_ratios(rows: Sequence[Row]) -> dict[str, float]:
    """Visible pairs over those of ``full``, by mask."""
    return {row["mask"]: row["attended_pairs"] / row["all_pairs"] for row in rows if row["mask"] != FULL}


def _panels(reading: Reading) -> list[list[Row]]:
    """For each family and width, the cells of the longest length where an implementation ran ``full`` and
    another mask.
    """
    panels = []
    for group in grouped([row for row in reading.rows if row["sound"]], *FAMILY, "width").values():
        at_length = sorted(grouped(group, "seqlen_q", "length").values(), key=lambda rows: -rows[0]["length"])
        found = next((rows for rows in at_length if mask_ratios(rows)), None)
        if found:
            panels.append(found)
    return panels


def _figure(panels: list[list[Row]], looks: dict[str, Style], name: str, start: int) -> Drawing:
    bars = max(len(mask_ratios(rows)) for rows in panels)
    if bars > WIDE:
        figure, axes = grid(len(panels), 1, width=min(16.0, 1.5 + 0.36 * bars), height=3.6)
    else:
        figure, axes = grid(1, len(panels), width=6.2, height=3.8)
    for rows, one in zip(panels, [one for line in axes for one in line], strict=True):
        _draw_panel(one, rows, looks)
    everything = [row for rows in panels for row in rows]
    verdict = _verdict(panels[0])
    about = subject(panels[0][0], (*FAMILY, "length"))
    headline(figure, f"Time of each mask relative to full: {about}", verdict)
    names = sorted({implementation for rows in panels for implementation, _ in mask_ratios(rows)})
    entries: list[Any] = [bar_entry(printable(n, 28), looks[n]) for n in names]
    entries.append(line_entry("visible pairs relative to full", color="black", linewidth=2.2))
    shared_legend(figure, entries)
    head = panels[0][0]
    stem = slug(
        name,
        head["device"],
        head["direction"],
        head["dtype"],
        f"T{head['length']}",
        head["batch_size"],
        head["num_heads_q"],
        start or "",
    )
    masks = ", ".join(sorted({row["mask"] for row in everything if row["mask"] != FULL}))
    return Drawing(
        stem=stem,
        figure=figure,
        caption=f"{verdict}. A bar at the black line: time follows the visible pairs; at 1, the mask saves "
        "nothing. Error bars are the widest that the two intervals allow (different processes).",
        alt=f"Bars of time relative to the mask full for {masks}, one colour per implementation, {about}. {verdict}.",
    )


def _draw_panel(axes: Axes, rows: list[Row], looks: dict[str, Style]) -> None:
    ratios, pairs = mask_ratios(rows), pair_ratios(rows)
    masks = sorted({mask for _, mask in ratios}, key=lambda mask: pairs[mask])[:MAX_MASKS]
    names = sorted({name for name, _ in ratios})
    width, turn = 0.8 / len(names), 90 if len(ratios) > WIDE else 0
    for place, mask in enumerate(masks):
        for index, name in enumerate(names):
            if (name, mask) not in ratios:
                continue
            ratio, low, high = ratios[name, mask]
            x = place - 0.4 + (index + 0.5) * width
            axes.bar(x, ratio, width * 0.9, color=looks[name].color, hatch=looks[name].hatch, edgecolor="white")
            axes.errorbar(x, ratio, yerr=[[ratio - low], [high - ratio]], color="#222222", linewidth=1, capsize=2)
            axes.text(
                x,
                high,
                ("  " if turn else "") + f"{ratio:.2f}",
                ha="center",
                va="bottom",
                fontsize=8,
                rotation=turn,
            )
        axes.hlines(pairs[mask], place - 0.45, place + 0.45, color="white", linewidth=4.5)
        axes.hlines(pairs[mask], place - 0.45, place + 0.45, color="black", linewidth=2.2)
    axes.axhline(1.0, color="#777777", linewidth=0.9, linestyle=(0, (2, 2)))
    axes.set_xticks(range(len(masks)), [f"{printable(mask, 26)}\npairs {pairs[mask]:.2f}" for mask in masks])
    if len(masks) > 3:
        axes.tick_params(axis="x", labelrotation=20)
    axes.grid(visible=False, axis="x")
    axes.set_xlim(-0.6, len(masks) - 0.4)
    axes.set_ylim(0, max(1.15, (1.25 if turn else 1.12) * max(high for _, _, high in ratios.values())))
    axes.set_ylabel("time over time of full (ratio)")
    axes.set_title(f"head_dim {rows[0]['width']}", fontweight="bold")


def _verdict(rows: list[Row]) -> str:
    """Who gains most of what the mask with the fewest pairs would allow."""
    pairs, ratios = pair_ratios(rows), mask_ratios(rows)
    mask = min({mask for _, mask in ratios}, key=lambda m: pairs[m])
    said = [f"{printable(name, 28).strip()} {ratio[0]:.2f}" for (name, m), ratio in sorted(ratios.items()) if m == mask]
    where = f"share of the time at head_dim {rows[0]['width']}"
    return f"{mask}, {pairs[mask]:.2f} of the pairs, {where}: {', '.join(said)}"
