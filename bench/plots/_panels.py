"""From rows to pages of panels: what is constant stands in the title, what varies spans the grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.figure_style import Style, line_entry, printable, slug
from bench.metrics import Row
from bench.plots import LADDER, grouped
from bench.problem import DTYPE_BYTES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

BASE = tuple(name for name in LADDER if name not in ("head_dim", "head_dim_v", "mask"))
"""Columns that are constant on a page."""
MAX_PAGES = 4
"""Figures of one plot; more would bury the report."""
MAX_COLUMNS, MAX_ROWS = 3, 3
"""Panels of one figure."""


@dataclass(frozen=True)
class Panel:
    """Rows that share one pair of axes."""

    title: str
    rows: list[Row]


@dataclass(frozen=True)
class Page:
    """One figure's worth of panels."""

    subject: str
    """What is constant on the page, in words."""
    stem: str
    """End of the file name."""
    panels: list[list[Panel | None]]
    """Panels by row and column of the grid; None where there are no data."""

    @property
    def rows(self) -> list[Row]:
        """All rows on the page."""
        return [row for line in self.panels for panel in line if panel for row in panel.rows]


def pages(rows: Sequence[Row], *, constant: Sequence[str] = BASE, down: str | None = "width") -> tuple[list[Page], str]:
    """Lay out ``rows`` with masks across and ``down`` (head widths) downwards, the largest groups first.

    Returns:
        The pages, and a sentence on what was left out; empty if nothing was.
    """
    several = len({row["machine"] for row in rows}) > 1
    found = []
    for key, group in grouped(rows, *constant).items():
        masks = list(dict.fromkeys(row["mask"] for row in group))
        lows = sorted({row[down] for row in group}, key=_numeric) if down else [None]
        for masks_part in _chunks(masks, MAX_COLUMNS):
            for lows_part in _chunks(lows, MAX_ROWS):
                lines = [[_panel(group, mask, down, low) for mask in masks_part] for low in lows_part]
                found.append((key, Page(subject(group[0], constant, several), "", lines)))
    found.sort(key=lambda item: -len(item[1].rows))
    kept = [
        Page(page.subject, slug(_stem(page.rows[0], constant), number or ""), page.panels)
        for number, (_, page) in enumerate(found[:MAX_PAGES])
    ]
    extra = len(found) - len(kept)
    return kept, f"{extra} further figures were left out; filter the cells to see them." if extra > 0 else ""


def filled(page: Page, axes: list[list[Axes]]) -> Iterator[tuple[Panel, Axes]]:
    """The panels with their axes, row by row; places without data say so."""
    for panels, line in zip(page.panels, axes, strict=True):
        for panel, one in zip(panels, line, strict=True):
            if panel is not None:
                yield panel, one
                continue
            one.set_axis_off()
            one.text(0.5, 0.5, "no such cells in these runs", transform=one.transAxes, ha="center", color="#777777")


def subject(row: Row, constant: Sequence[str] = BASE, several_machines: bool = False) -> str:
    """The constants of a page in words: ``fwd, float32, B=1, H=4, on cpu``."""
    groups = f":{row['num_heads_kv']}" if row["num_heads_kv"] != row["num_heads_q"] else ""
    queries = "" if row["shape"] == "square" else f"Tq={row['seqlen_q']}"
    parts = [
        row["direction"],
        row["dtype"] if "dtype" in constant else "",
        f"B={row['batch_size']}",
        f"H={row['num_heads_q']}{groups}",
        queries,
        f"{'Tk' if queries else 'T'}={row['length']}" if "length" in constant else "",
        "" if row["distribution"] == "normal" else f"{row['distribution']} inputs",
        "" if row["scale"] is None else f"scale {row['scale']:g}",
        f"on {row['machine'] if several_machines else row['device']}",
    ]
    return ", ".join(part for part in parts if part)


def length_label(row: Row) -> str:
    """Name of the length axis."""
    return "sequence length T" if row["shape"] == "square" else f"key length Tk ({row['shape']})"


def series(
    axes: Axes,
    rows: Iterable[Row],
    looks: dict[str, Style],
    value: Callable[[Row], float | None],
    *,
    x: str = "length",
    band: tuple[str, str] | None = None,
) -> list[float]:
    """One line per implementation, with its interval as a band; missing values leave a gap. Returns the drawn
    values.
    """
    drawn: list[float] = []
    for (name,), group in sorted(grouped(rows, "implementation").items()):
        group = sorted(group, key=lambda row: row[x])
        points = [(row[x], y) for row in group if (y := value(row)) is not None]
        if not points:
            continue
        look = looks[str(name)]
        axes.plot(*zip(*points, strict=True), **_line(look))
        drawn += [y for _, y in points]
        if band:
            edges = [(row[x], row[band[0]], row[band[1]]) for row in group if row[band[0]] is not None]
            places, low, high = zip(*edges, strict=True)
            axes.fill_between(places, low, high, color=look.color, alpha=0.2, linewidth=0)
    return drawn


def handles(rows: Iterable[Row], looks: dict[str, Style], text: Callable[[str], str] | None = None) -> list[Line2D]:
    """Legend entries of the implementations that occur in ``rows``, by name."""
    names = sorted({row["implementation"] for row in rows})
    return [line_entry(printable(name, 28) + (text(name) if text else ""), **_line(looks[name])) for name in names]


def _status(row: Row) -> str:
    """Status in words; ``impossible`` where a time exists that cannot be believed."""
    impossible = row["latency_ms"] is not None and not row["sound"]
    return "impossible" if impossible else str(row["status"]).replace("_", " ")


def note_absent(axes: Axes, panel: Panel, everything: Iterable[Row]) -> None:
    """Small print in the lower right corner: which implementations have no line here, and their status."""
    keys = {tuple(row[name] for name in LADDER) for row in panel.rows}
    there = {row["implementation"] for row in panel.rows}
    absent = {
        row["implementation"]: _status(row)
        for row in everything
        if row["implementation"] not in there and tuple(row[name] for name in LADDER) in keys
    }
    if absent:
        lines = [printable(f"{name}: {status}", 40).strip() for name, status in sorted(absent.items())[:4]]
        lines += [f"and {len(absent) - 4} more"] if len(absent) > 4 else []
        axes.text(
            0.985,
            0.03,
            "\n".join(lines),
            transform=axes.transAxes,
            ha="right",
            va="bottom",
            fontsize=8.2,
            color="#444444",
        )


def span(values: Iterable[int]) -> str:
    """``128 to 4096``, or the one value."""
    found = sorted(set(values))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _line(look: Style) -> dict[str, Any]:
    return {
        "color": look.color,
        "linestyle": look.linestyle,
        "marker": look.marker,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


def _panel(group: list[Row], mask: str, down: str | None, low: Any) -> Panel | None:
    rows = [row for row in group if row["mask"] == mask and (down is None or row[down] == low)]
    if not rows:
        return None
    names = {"width": "head_dim"}
    title = f"mask {mask}" + (f", {names.get(down, down)} {low}" if down else "")
    return Panel(printable(title, 60), rows)


def _chunks(values: list[Any], size: int) -> list[list[Any]]:
    """Parts of nearly equal length, none longer than ``size``."""
    parts = -(-len(values) // size)
    return [values[i * len(values) // parts : (i + 1) * len(values) // parts] for i in range(parts)]


def _numeric(value: Any) -> tuple[float, str]:
    """Sorts widths by size and dtypes from precise to coarse."""
    text = str(value)
    if text in DTYPE_BYTES:
        return (float(list(DTYPE_BYTES).index(text)), text)
    head = text.split(":")[0]
    return (float(head) if head.isdigit() else 0.0, text)


def _stem(row: Row, constant: Sequence[str]) -> str:
    skipped = {"machine", "scale", "num_heads_kv"}
    defaults = {"shape": "square", "distribution": "normal"}
    parts = [row[name] for name in constant if name not in skipped and row[name] != defaults.get(name)]
    return slug(*parts)
