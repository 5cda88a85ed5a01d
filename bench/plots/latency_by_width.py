"""Latency by head width at a fixed length."""

from __future__ import annotations

from bench.figure_style import (
    Style,
    grid,
    headline,
    length_axis,
    log_axis,
    printable,
    shared_legend,
    slug,
    styles,
)
from bench.plots import Drawing, Reading, register_plot
from bench.plots._by_width import NEED, growth_text, width_pages
from bench.plots._panels import Page, filled, handles, note_absent, series, span


@register_plot
class LatencyByWidth:
    """Log-log, one line per implementation, the interval of the median as a band."""

    name = "latency_by_width"
    title = "Latency by head width"
    order = 80
    summary = "Median latency against head width at a fixed length."

    def needs(self, reading: Reading) -> str | None:
        """Two widths of one implementation at one length."""
        return None if width_pages(reading, lambda row: bool(row["sound"]))[0] else NEED

    def draw(self, reading: Reading) -> list[Drawing]:
        """One figure per problem family; panels by mask."""
        looks = styles(reading.names)
        layout, left_out = width_pages(reading, lambda row: bool(row["sound"]))
        return [self._page(reading, page, looks, left_out) for page in layout]

    def _page(self, reading: Reading, page: Page, looks: dict[str, Style], left_out: str) -> Drawing:
        figure, axes = grid(len(page.panels), len(page.panels[0]))
        values = [row[name] for row in page.rows for name in ("latency_lo_ms", "latency_hi_ms")]
        for panel, one in filled(page, axes):
            series(one, panel.rows, looks, lambda row: row["latency_ms"], x="head_dim",
                   band=("latency_lo_ms", "latency_hi_ms"))  # fmt: skip
            length_axis(one, [row["head_dim"] for row in panel.rows], "head width head_dim")
            log_axis(one, "latency (ms)", values)
            one.set_title(panel.title, fontweight="bold")
            note_absent(one, panel, reading.rows)
        verdict = printable(growth_text(page.rows, "latency_ms"))
        headline(figure, f"Latency by head width: {page.subject}", verdict)
        shared_legend(figure, handles(page.rows, looks))
        return Drawing(
            stem=slug(self.name, page.stem),
            figure=figure,
            caption=f"Latency grows with the width, {verdict}. Bands are 95 % intervals. {left_out}".strip(),
            alt=f"Latency in milliseconds against head width {span(r['head_dim'] for r in page.rows)}, both "
            f"logarithmic, {page.subject}. {verdict}.",
        )
