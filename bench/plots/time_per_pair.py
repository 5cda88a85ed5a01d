"""Time per attended pair by sequence length: flat where the cost of a pair rules."""

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
from bench.metrics import Row, metrics
from bench.plots import Drawing, Reading, grouped, register_plot
from bench.plots._panels import Page, filled, handles, length_label, note_absent, pages, series, span

FLAT = 1.25
"""Largest over smallest time per pair that still counts as flat."""


@register_plot
class TimePerPair:
    """Nanoseconds per visible pair; a floor or poor use of the machine at short lengths shows as a fall."""

    name = "time_per_pair"
    title = "Time per attended pair"
    order = 60
    summary = "Nanoseconds per attended pair against sequence length."

    def needs(self, reading: Reading) -> str | None:
        """Two timed lengths of one implementation."""
        return None if reading.timed_ladders else "at least two sequence lengths that one implementation was timed at"

    def draw(self, reading: Reading) -> list[Drawing]:
        """One figure per problem family; panels by head width and mask."""
        looks = styles(reading.names)
        rows = [row for row in reading.timed_ladder_rows if per_pair(row) is not None]
        layout, left_out = pages(rows)
        return [self._page(reading, page, looks, left_out) for page in layout]

    def _page(self, reading: Reading, page: Page, looks: dict[str, Style], left_out: str) -> Drawing:
        figure, axes = grid(len(page.panels), len(page.panels[0]), height=3.0)
        values = [value for row in page.rows if (value := per_pair(row)) is not None]
        for panel, one in filled(page, axes):
            series(one, panel.rows, looks, per_pair)
            length_axis(one, [row["length"] for row in panel.rows], length_label(panel.rows[0]))
            log_axis(one, "time per attended pair (ns)", values)
            one.set_title(panel.title, fontweight="bold")
            note_absent(one, panel, reading.rows)
        verdict = flatness_text(page.rows)
        headline(figure, f"Time per attended pair: {page.subject}", verdict)
        shared_legend(figure, handles(page.rows, looks))
        return Drawing(
            stem=slug(self.name, page.stem),
            figure=figure,
            caption=f"{verdict[0].upper()}{verdict[1:]}. Latency over the exact number of visible pairs of "
            f"all heads. {left_out}".strip(),
            alt=f"Nanoseconds per attended pair against length {span(r['length'] for r in page.rows)}, both "
            f"logarithmic, one line per implementation, {page.subject}. {verdict}.",
        )


def per_pair(row: Row) -> float | None:
    """The metric ``time_per_pair_ns``."""
    return metrics.get("time_per_pair_ns").value(row)


def flatness_text(rows: list[Row]) -> str:
    """From which length on the cost of a pair is constant, per implementation, on the unmasked ladder where
    there is one.
    """
    first = next((row for row in rows if row["mask"] == "full"), rows[0])
    ladder = [row for row in rows if (row["mask"], row["width"]) == (first["mask"], first["width"])]
    said = []
    for (name,), group in sorted(grouped(ladder, "implementation").items()):
        group = sorted(group, key=lambda row: -row["length"])
        kept: list[float] = []
        start = group[0]["length"]
        for row in group:
            value = per_pair(row)
            if value is None or max([*kept, value]) > FLAT * min([*kept, value]):
                break
            kept.append(value)
            start = row["length"]
        where = f"T={start}" if len(kept) > 2 else "nowhere"
        said.append(f"{printable(str(name), 28).strip()} {where}")
    where = f"mask {first['mask']}, head_dim {first['width']}"
    return f"flat within {FLAT - 1:.0%} from ({where}): {', '.join(said)}"
