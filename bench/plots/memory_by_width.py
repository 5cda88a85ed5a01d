"""Peak memory by head width at a fixed length."""

from __future__ import annotations

from typing import Any

from bench.figure_style import (
    Style,
    byte_tick,
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
from bench.plots import Drawing, Reading, register_plot
from bench.plots._by_width import NEED, growth_text, width_pages
from bench.plots._panels import Page, filled, handles, note_absent, series, span

OUTPUT_LINE: dict[str, Any] = {"color": "#999999", "linestyle": (0, (1, 1.5)), "linewidth": 1.4}


@register_plot
class MemoryByWidth:
    """Log-log, one line per implementation, with the output alone as a guide."""

    name = "memory_by_width"
    title = "Peak memory by head width"
    order = 90
    summary = "Peak bytes against head width at a fixed length."

    def needs(self, reading: Reading) -> str | None:
        """Two widths of one implementation at one length."""
        return None if width_pages(reading, _has_peak)[0] else NEED

    def draw(self, reading: Reading) -> list[Drawing]:
        """One figure per problem family; panels by mask."""
        looks = styles(reading.names)
        layout, left_out = width_pages(reading, _has_peak)
        return [self._page(reading, page, looks, left_out) for page in layout]

    def _page(self, reading: Reading, page: Page, looks: dict[str, Style], left_out: str) -> Drawing:
        figure, axes = grid(len(page.panels), len(page.panels[0]))
        values = [row[name] for row in page.rows for name in ("peak_bytes", "output_bytes") if row[name]]
        for panel, one in filled(page, axes):
            outputs = {row["head_dim"]: row["output_bytes"] for row in panel.rows}
            one.plot(sorted(outputs), [outputs[width] for width in sorted(outputs)], zorder=1, **OUTPUT_LINE)
            series(one, panel.rows, looks, lambda row: row["peak_bytes"], x="head_dim")
            length_axis(one, [row["head_dim"] for row in panel.rows], "head width head_dim")
            log_axis(one, "peak memory (decimal bytes)", values, form=byte_tick)
            one.set_title(panel.title, fontweight="bold")
            note_absent(one, panel, reading.rows)
        verdict = printable(growth_text(page.rows, "peak_bytes"))
        headline(figure, f"Peak memory by head width: {page.subject}", verdict)
        shared_legend(figure, [*handles(page.rows, looks), line_entry("output alone", **OUTPUT_LINE)])
        return Drawing(
            stem=slug(self.name, page.stem),
            figure=figure,
            caption=f"Peak memory grows with the width, {verdict}. Scores do not depend on it. {left_out}".strip(),
            alt=f"Peak bytes against head width {span(r['head_dim'] for r in page.rows)}, both logarithmic, "
            f"{page.subject}. {verdict}.",
        )


def _has_peak(row: Row) -> bool:
    return bool(row["peak_bytes"])
