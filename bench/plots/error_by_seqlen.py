"""Largest error of the output against float64, by sequence length and dtype."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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
from bench.metrics import Row
from bench.plots import LADDER, Drawing, Reading, grouped, register_plot
from bench.plots._panels import Page, Panel, filled, handles, length_label, pages, series, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CONSTANT = tuple(name for name in LADDER if name not in ("dtype", "mask"))
"""Head widths get figures of their own; dtypes and masks are the panels."""
LIMIT_LINE: dict[str, Any] = {"color": "#777777", "linestyle": (0, (4, 3)), "linewidth": 1.1}
WRONG: dict[str, Any] = {
    "color": "#B00000",
    "marker": "x",
    "linestyle": "none",
    "markersize": 10,
    "markeredgewidth": 2.2,
}
EXACT_FLOOR = 1e-12
"""Where an exact zero is drawn if no error in the panel is above zero."""


@register_plot
class ErrorBySeqlen:
    """Log-log; verified cells count as well as timed ones; a zero stands on a marked floor, a missing value
    is a gap.
    """

    name = "error_by_seqlen"
    title = "Error against float64 by sequence length"
    order = 30
    summary = "Largest output error against float64 by sequence length, dtype and mask."

    def needs(self, reading: Reading) -> str | None:
        """Two lengths with errors."""
        return None if _ladders(reading) else "at least two sequence lengths with errors against float64"

    def draw(self, reading: Reading) -> list[Drawing]:
        """One figure per head width; panels by dtype and mask."""
        looks = styles(reading.names)
        layout, left_out = pages(_ladders(reading), constant=CONSTANT, down="dtype")
        return [self._page(page, looks, left_out) for page in layout]

    def _page(self, page: Page, looks: dict[str, Style], left_out: str) -> Drawing:
        figure, axes = grid(len(page.panels), len(page.panels[0]), height=3.0)
        for panel, one in filled(page, axes):
            _draw_panel(one, panel, looks, page.rows)
        verdict = error_text(page.rows)
        headline(
            figure,
            f"Error of the output against float64: {page.subject}, head_dim {page.rows[0]['width']}",
            verdict,
        )
        marks = [line_entry("limit", **LIMIT_LINE)]
        if any(row["status"] == "incorrect" for row in page.rows):
            marks.append(line_entry("incorrect: has no speed", **WRONG))
        shared_legend(figure, [*handles(page.rows, looks), *marks])
        return Drawing(
            stem=slug(self.name, page.stem),
            figure=figure,
            caption=f"{verdict}. Largest absolute difference of the output from the float64 reference. "
            f"{left_out}".strip(),
            alt=f"Largest absolute error against length {span(r['length'] for r in page.rows)}, both "
            f"logarithmic, panels by dtype and mask, {page.subject}. {verdict}.",
        )


def error_text(rows: list[Row]) -> str:
    """The cell nearest to its limit, and how many exceed it, in one line."""
    judged = [row for row in rows if row["out_max_abs"] is not None and row["out_limit"]]
    wrong = sum(row["status"] == "incorrect" for row in rows)
    said = f"{wrong} of {len(rows)} cells INCORRECT; " if wrong else f"all {len(rows)} cells within their limits; "
    right = [row for row in judged if row["status"] != "incorrect"]
    if not right:
        return said + "no error was judged by a limit"
    worst = max(right, key=lambda row: row["out_max_abs"] / row["out_limit"])
    share = worst["out_max_abs"] / worst["out_limit"]
    return (
        f"{said}worst: {printable(worst['implementation'], 28).strip()} in {worst['dtype']} "
        f"at T={worst['length']}, {worst['out_max_abs']:.2g}, {share:.0%} of the limit"
    )


def _ladders(reading: Reading) -> list[Row]:
    """Rows with an agreement whose implementation has at least two lengths on its ladder."""
    judged = [row for row in reading.rows if row["out_max_abs"] is not None or row["out_nonfinite"] is not None]
    ladders = grouped(judged, *LADDER, "implementation").values()
    return [row for rows in ladders if len({row["length"] for row in rows}) > 1 for row in rows]


def _draw_panel(axes: Axes, panel: Panel, looks: dict[str, Style], page_rows: list[Row]) -> None:
    errors = [row["out_max_abs"] for row in panel.rows if row["out_max_abs"] is not None]
    positive = [error for error in errors if error > 0]
    limits = {row["length"]: row["out_limit"] for row in panel.rows if row["out_limit"]}
    floor = 10.0 ** (math.floor(math.log10(min(positive))) - 1) if positive else EXACT_FLOOR
    series(
        axes,
        panel.rows,
        looks,
        lambda row: row["out_max_abs"] or (floor if row["out_max_abs"] == 0 else None),
    )
    if limits:
        axes.plot(sorted(limits), [limits[n] for n in sorted(limits)], **LIMIT_LINE)
    for row in (row for row in panel.rows if row["status"] == "incorrect"):
        if row["out_max_abs"]:
            axes.plot(row["length"], row["out_max_abs"], **WRONG)
        else:  # no finite error: at the upper edge
            axes.plot(row["length"], 0.96, transform=axes.get_xaxis_transform(), **WRONG)
    alike = [row for row in page_rows if row["dtype"] == panel.rows[0]["dtype"]]  # one range for each dtype
    values = [row[name] for row in alike for name in ("out_max_abs", "out_limit") if row[name]]
    if len(positive) < len(errors):
        values.append(floor)
        axes.axhline(floor, color="#009E73", linewidth=0.8, linestyle=":")
        where = axes.get_yaxis_transform()
        axes.text(0.01, floor, "exact (0)", transform=where, va="top", fontsize=8, color="#006B4F")
    length_axis(axes, [row["length"] for row in panel.rows], length_label(panel.rows[0]))
    log_axis(axes, "largest absolute error", values)
    missing = sum(row["out_max_abs"] is None for row in panel.rows)
    axes.set_title(panel.title + (f" ({missing} without a finite error)" if missing else ""), fontweight="bold")
