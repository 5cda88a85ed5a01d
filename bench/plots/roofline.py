"""Arithmetic rate against arithmetic intensity, under the roofs that were measured on the same machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.figure_style import (
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
from bench.header import Ceilings
from bench.metrics import Row, metrics
from bench.plots import Drawing, Reading, register_plot
from bench.plots._panels import Page, filled, handles, note_absent, pages, series, span
from bench.units import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INTENSITY = "flop_per_byte"
"""Column that is added to the rows: the metric of that name."""
MEMORY: dict[str, Any] = {"color": "#333333", "linestyle": "-", "linewidth": 1.4}
CACHE: dict[str, Any] = {"color": "#333333", "linestyle": (0, (5, 2)), "linewidth": 1.1}
ONE_THREAD: dict[str, Any] = {"color": "#888888", "linestyle": (0, (1, 1.5)), "linewidth": 1.4}


@register_plot
class Roofline:
    """TFLOP/s against FLOP per least byte, one line per implementation along its lengths, and the measured roofs."""

    name = "roofline"
    title = "Roofline"
    order = 75
    summary = "TFLOP/s against arithmetic intensity, under the measured rate of products and bandwidth."

    def needs(self, reading: Reading) -> str | None:
        """A timed cell in a run that measured what the machine can do."""
        if _points(reading):
            return None
        return "at least one timed cell in a run that measured this machine's ceilings in its dtype"

    def draw(self, reading: Reading) -> list[Drawing]:
        """One figure per problem family; panels by head width and mask."""
        layout, left_out = pages(_points(reading))
        return [self._page(reading, page, left_out) for page in layout]

    def _page(self, reading: Reading, page: Page, left_out: str) -> Drawing:
        looks = styles(reading.names)
        dtype = page.rows[0]["dtype"]
        ceilings = _ceilings(reading, max(page.rows, key=lambda row: row["run_id"]))
        assert ceilings is not None, "points are rows of runs with ceilings"
        peak = ceilings.flop_per_s[dtype]
        ridge = peak / (ceilings.memory_bytes_per_s or ceilings.bytes_per_s)
        figure, axes = grid(len(page.panels), len(page.panels[0]))
        places = [row[INTENSITY] for row in page.rows]
        edges = (min(*places, ridge / 4), max(*places, ridge * 4))
        rates = [row["tflops"] for row in page.rows]
        for panel, one in filled(page, axes):
            _draw_roofs(one, ceilings, dtype, edges)
            series(one, panel.rows, looks, lambda row: row["tflops"], x=INTENSITY)
            length_axis(one, edges, "arithmetic intensity (FLOP per byte)")
            log_axis(one, "TFLOP/s (exact pairs)", [*rates, peak / 1e12])
            one.set_title(panel.title, fontweight="bold")
            note_absent(one, panel, reading.rows)
        best = max(page.rows, key=lambda row: row["roof_fraction"])
        verdict = (
            f"closest to its roof: {printable(best['implementation'], 28).strip()}, {best['roof_fraction']:.0%} of it "
            f"at {'T' if best['shape'] == 'square' else 'Tk'}={best['length']} "
            f"(mask {best['mask']}, head_dim {best['width']})"
        )
        headline(figure, f"Measured roofline: {page.subject}", verdict)
        shared_legend(figure, [*handles(page.rows, looks), *_roof_entries(ceilings, dtype)])
        return Drawing(
            stem=slug(self.name, page.stem),
            figure=figure,
            caption=f"{verdict[0].upper()}{verdict[1:]}. Bytes are those that no implementation avoids: inputs "
            "read and results written once. Along a line the length grows to the right. Roofs are matrix products and "
            f"passes over memory, timed on the same machine. {left_out}".strip(),
            alt=f"TFLOP per second against FLOP per byte, both logarithmic, one line per implementation over lengths "
            f"{span(row['length'] for row in page.rows)}, under measured roofs, {page.subject}. {verdict}.",
        )


def _points(reading: Reading) -> list[Row]:
    """Soundly timed rows that have a roof, with the numbers that are drawn."""
    names = (INTENSITY, "tflops", "roof_fraction")
    rows = [dict(row) | {name: metrics.get(name).value(row) for name in names} for row in reading.rows if row["sound"]]
    return [row for row in rows if all(row[name] for name in names)]


def _ceilings(reading: Reading, row: Row) -> Ceilings | None:
    """What the machine of this row can do."""
    return next(run.header.ceilings for run in reading.runs if run.run_id == row["run_id"])


def _draw_roofs(axes: Axes, ceilings: Ceilings, dtype: str, edges: tuple[float, float]) -> None:
    """The roof that memory and products make, that of the fastest cache, and one thread's rate of products."""
    low, high = edges[0] / 1.15, edges[1] * 1.15
    peak, memory = ceilings.flop_per_s[dtype], ceilings.memory_bytes_per_s or ceilings.bytes_per_s

    def roof(bandwidth: float, **look: Any) -> None:
        places = (low, peak / bandwidth, high)
        axes.plot(places, [min(peak, place * bandwidth) / 1e12 for place in places], zorder=1.5, **look)

    if _has_cache_roof(ceilings):
        roof(ceilings.bytes_per_s, **CACHE)
    roof(memory, **MEMORY)
    single = ceilings.flop_per_s_one_thread.get(dtype)
    if single is not None:
        axes.plot((low, high), (single / 1e12,) * 2, zorder=1.4, **ONE_THREAD)


def _has_cache_roof(ceilings: Ceilings) -> bool:
    return ceilings.memory_bytes_per_s is not None and ceilings.memory_bytes_per_s < ceilings.bytes_per_s


def _roof_entries(ceilings: Ceilings, dtype: str) -> list[Any]:
    """Legend entries of the roofs, with their figures."""
    memory = ceilings.memory_bytes_per_s or ceilings.bytes_per_s
    products = f"{significant(ceilings.flop_per_s[dtype] / 1e12)} TFLOP/s"
    where = "memory" if ceilings.memory_bytes_per_s else "best copy"
    entries = [line_entry(f"{where} {significant(memory / 1e9)} GB/s, products {products}", **MEMORY)]
    if _has_cache_roof(ceilings):
        entries.append(line_entry(f"fastest cache {significant(ceilings.bytes_per_s / 1e9)} GB/s", **CACHE))
    single = ceilings.flop_per_s_one_thread.get(dtype)
    if single is not None:
        entries.append(line_entry(f"products, one thread: {significant(single / 1e12)} TFLOP/s", **ONE_THREAD))
    return entries
