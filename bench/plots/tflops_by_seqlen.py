"""Arithmetic rate by sequence length under our exact-pair convention, with the factors to the published
ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from bench.metrics import Row, metrics
from bench.plots import Drawing, Reading, register_plot
from bench.plots._panels import Page, Panel, filled, handles, length_label, note_absent, pages, series, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PUBLISHED = {
    "tflops_dense": "dense",
    "tflops_halved": "halved causal",
    "tflops_with_softmax": "with softmax",
}
"""Metrics of other conventions, and what they are called in the figure."""


@register_plot
class TflopsBySeqlen:
    """TFLOP/s over the visible pairs; each panel states what other conventions would say."""

    name = "tflops_by_seqlen"
    title = "TFLOP/s by sequence length"
    order = 70
    summary = "TFLOP/s over exact pairs, with factors to published conventions."

    def needs(self, reading: Reading) -> str | None:
        """Two timed lengths of one implementation."""
        return None if reading.timed_ladders else "at least two sequence lengths that one implementation was timed at"

    def draw(self, reading: Reading) -> list[Drawing]:
        """One figure per problem family; panels by head width and mask."""
        looks = styles(reading.names)
        rows = [row for row in reading.timed_ladder_rows if rate(row) is not None]
        layout, left_out = pages(rows)
        return [self._page(reading, page, looks, left_out) for page in layout]

    def _page(self, reading: Reading, page: Page, looks: dict[str, Style], left_out: str) -> Drawing:
        figure, axes = grid(len(page.panels), len(page.panels[0]), height=3.0)
        values = [value for row in page.rows if (value := rate(row)) is not None]
        for panel, one in filled(page, axes):
            _draw_panel(one, panel, looks, values)
            note_absent(one, panel, reading.rows)
        best = max(page.rows, key=lambda row: rate(row) or 0.0)
        verdict = (
            f"highest: {printable(best['implementation'], 28).strip()}, {rate(best):.3g} TFLOP/s at "
            f"T={best['length']} (mask {best['mask']}, head_dim {best['width']})"
        )
        headline(figure, f"TFLOP/s by sequence length, exact pairs: {page.subject}", verdict)
        shared_legend(figure, handles(page.rows, looks))
        return Drawing(
            stem=slug(self.name, page.stem),
            figure=figure,
            caption=f"{verdict[0].upper()}{verdict[1:]}. FLOP are 2·pairs·(d_k + d_v) forward, over the "
            "pairs that the mask lets through; the factors convert to conventions that others publish. "
            f"{left_out}".strip(),
            alt=f"TFLOP per second against length {span(r['length'] for r in page.rows)}, both logarithmic, "
            f"one line per implementation, {page.subject}. {verdict}.",
        )


def rate(row: Row) -> float | None:
    """The metric ``tflops``."""
    return metrics.get("tflops").value(row)


def convention_text(row: Row) -> str:
    """What other conventions would multiply this row's rate with."""
    own = rate(row)
    said = []
    for name, words in PUBLISHED.items():
        value = metrics.get(name).value(row)
        if value is not None and own:
            said.append(f"{words} ×{value / own:.3f}")
    return "\n".join(said)


def _draw_panel(axes: Axes, panel: Panel, looks: dict[str, Style], page_values: list[float]) -> None:
    series(axes, panel.rows, looks, rate)
    length_axis(axes, [row["length"] for row in panel.rows], length_label(panel.rows[0]))
    log_axis(axes, "TFLOP/s (exact pairs)", page_values, room=1.8)
    longest = max(panel.rows, key=lambda row: row["length"])
    text = f"other conventions at T={longest['length']}:\n{convention_text(longest)}"
    axes.text(0.02, 0.97, text, transform=axes.transAxes, ha="left", va="top", fontsize=8.2, color="#444444",
              bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5})  # fmt: skip
    axes.set_title(panel.title, fontweight="bold")
