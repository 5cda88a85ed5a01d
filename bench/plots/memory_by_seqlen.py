"""Peak memory by sequence length, with one score matrix and naive's law: do measured bytes equal the law?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from bench.memory_law import NAIVE, NAIVE_LAW, MemoryCheck, bytes_polynomial, check_memory, naive_law_bytes
from bench.metrics import Row
from bench.plots import LADDER, Drawing, Reading, grouped, register_plot
from bench.plots._panels import Page, Panel, filled, handles, length_label, note_absent, pages, series, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MATRIX_LINE: dict[str, Any] = {"color": "#999999", "linestyle": (0, (1, 1.5)), "linewidth": 1.4}
LAW_LINE: dict[str, Any] = {"color": "#000000", "linestyle": (0, (4, 3)), "linewidth": 0.9}


@register_plot
class MemoryBySeqlen:
    """Log-log, one line per implementation, the score matrix and the law of storing it drawn in."""

    name = "memory_by_seqlen"
    title = "Peak memory by sequence length"
    order = 20
    summary = "Peak bytes against sequence length beside one score matrix and the law of naive."

    def needs(self, reading: Reading) -> str | None:
        """Two lengths of one implementation."""
        return None if _ladders(reading) else "at least two sequence lengths with measured peak memory"

    def draw(self, reading: Reading) -> list[Drawing]:
        """One figure per problem family; panels by head width and mask."""
        looks = styles(reading.names)
        layout, left_out = pages(_ladders(reading))
        return [self._page(reading, page, looks, left_out) for page in layout]

    def _page(self, reading: Reading, page: Page, looks: dict[str, Style], left_out: str) -> Drawing:
        figure, axes = grid(len(page.panels), len(page.panels[0]))
        for panel, one in filled(page, axes):
            _draw_panel(one, panel, reading, looks, page.rows)
            note_absent(one, panel, reading.rows)
        checks = check_memory(reading.record(row) for row in page.rows)
        about_naive = [check for check in checks if check.implementation == NAIVE]
        verdict = law_text(about_naive[0]) if about_naive else "no measured naive cell to hold against the law"
        headline(figure, f"Peak memory by sequence length: {page.subject}", verdict)
        guides = [line_entry("one score matrix, B·H·Tq·Tk·bytes", **MATRIX_LINE)]
        if page.rows[0]["direction"] == "fwd":
            guides.append(line_entry(f"law of naive, {NAIVE_LAW}", **LAW_LINE))
        shared_legend(figure, [*handles(page.rows, looks), *guides])
        caption = f"{verdict}. {_polynomials(page.rows)} {left_out}".strip()
        return Drawing(
            stem=slug(self.name, page.stem),
            figure=figure,
            caption=f"{caption} Peak of one call beyond its inputs and mask tensors, output included.",
            alt=f"Peak bytes against length {span(r['length'] for r in page.rows)}, both logarithmic, one "
            f"line per implementation, {page.subject}. {verdict}.",
        )


def law_text(check: MemoryCheck) -> str:
    """Whether the measured bytes of one implementation equal its law, in one line."""
    name = printable(check.implementation, 28).strip()
    law = f"the law {check.law}" if check.theory else check.law
    cells = f"{check.cells} cells" if check.cells != 1 else "1 cell"
    if check.holds:
        return f"{name}: measured bytes equal {law} in all {cells} (residual 0 bytes)"
    return (
        f"{name}: measured bytes DIFFER from {law} in {check.cells - check.equal} of {cells} (largest "
        f"residual {check.residual_bytes:+,} bytes, {100 * check.worst_share:+.2g} %, at "
        f"{printable(check.worst)})"
    )


def _ladders(reading: Reading) -> list[Row]:
    """Rows with a peak whose implementation has at least two lengths on its ladder."""
    measured = [row for row in reading.rows if row["peak_bytes"] is not None]
    ladders = grouped(measured, *LADDER, "implementation").values()
    return [row for rows in ladders if len({row["length"] for row in rows}) > 1 for row in rows]


def _draw_panel(axes: Axes, panel: Panel, reading: Reading, looks: dict[str, Style], page_rows: list[Row]) -> None:
    by_length = {row["length"]: row for row in panel.rows}
    lengths = sorted(by_length)
    matrix = [by_length[n]["all_pairs"] * by_length[n]["element_bytes"] for n in lengths]
    axes.plot(lengths, matrix, zorder=1, **MATRIX_LINE)
    series(axes, panel.rows, looks, lambda row: row["peak_bytes"])
    values = [row["peak_bytes"] for row in page_rows] + matrix
    if by_length[lengths[0]]["direction"] == "fwd":
        law = [naive_law_bytes(reading.record(by_length[n]).problem) for n in lengths]
        axes.plot(lengths, law, zorder=3, **LAW_LINE)
        values += law
    length_axis(axes, lengths, length_label(panel.rows[0]))
    log_axis(axes, "peak memory (decimal bytes)", values, form=byte_tick)
    axes.set_title(panel.title, fontweight="bold")


def _polynomials(rows: list[Row]) -> str:
    """The exact polynomial in T of each implementation on the largest head width's first ladder."""
    said = []
    for (name,), group in sorted(grouped(rows, "implementation").items()):
        ladder = next(iter(grouped(group, "mask", "width").values()))
        found = bytes_polynomial({row["length"]: row["peak_bytes"] for row in ladder})
        if found is not None and found.exact:
            terms = [(found.quadratic, "·T²"), (found.linear, "·T"), (found.constant, "")]
            text = " + ".join(f"{float(value):,.6g}{power}" for value, power in terms if value)
            said.append(f"{name} {text or '0'}")
    where = f" (mask {rows[0]['mask']}, head_dim {rows[0]['width']})"
    return f"Exact polynomials in bytes{where}: {'; '.join(said)}." if said else ""
