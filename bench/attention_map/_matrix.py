"""A matrix with its numbers written in, and blocked cells hatched."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from bench.figure_style import headline, printable

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HATCHED: dict[str, Any] = {"facecolor": "#f4f4f4", "edgecolor": "#b4b4b4", "hatch": "////", "linewidth": 0}
"""How a pair that does not exist looks."""
INK = "#1a1a1a"
TOKEN = 12
"""Characters of a token that are shown."""
MOST_COORDINATES = 16
"""Coordinates of a vector that are drawn."""
ABOVE = 0.36
"""Inches for the title of a matrix."""
ALIGNED = 17.0
"""Inches up to which matrices of all lines stand below one another; wider figures pack each line for itself."""
LEAST = 7.2
"""Inches of the narrowest figure: the headline has to fit."""


@dataclass(frozen=True)
class Colours:
    """A colour scale: one hue for shares, two for numbers with a sign."""

    map: str
    low: float
    high: float


SHARES = Colours("Blues", 0.0, 1.0)


def signed(*values: np.ndarray) -> Colours:
    """Purple below zero, white at it, orange above, as far as the largest magnitude in ``values``."""
    import numpy as np

    finite = [np.abs(value[np.isfinite(value)]).max(initial=0.0) for value in values]
    largest = float(max(finite, default=0.0)) or 1.0
    return Colours("PuOr_r", -1.6 * largest, 1.6 * largest)  # the ends of the scale are too dark for numbers


def cell_size(columns: int, rows: int) -> tuple[float, float, float]:
    """Width and height of a cell in inches, and the size of its number in points."""
    most = max(columns, rows)
    for limit, size in ((4, (0.78, 0.52, 10.0)), (8, (0.62, 0.42, 9.0)), (16, (0.46, 0.32, 7.0))):
        if most <= limit:
            return size
    return 0.34, 0.26, 5.5


def paint(
    axes: Axes,
    values: np.ndarray,
    colours: Colours,
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    shown: np.ndarray | None = None,
    digits: int = 3,
    points: float = 9.0,
) -> None:
    """Draw ``values (rows, columns)``; cells where ``shown`` is False are hatched and bear no number."""
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.colors import Normalize
    from matplotlib.patches import Rectangle

    height, width = values.shape
    shown = np.ones(values.shape, dtype=bool) if shown is None else shown
    look, norm = colormaps[colours.map], Normalize(colours.low, colours.high)
    axes.add_patch(Rectangle((0, 0), width, height, **HATCHED))
    painted = np.ma.masked_array(np.where(np.isfinite(values), values, 0.0), mask=~shown)
    axes.pcolormesh(
        painted, cmap=look, norm=norm, edgecolors="white", linewidth=1.2 if max(width, height) <= 16 else 0.4
    )
    for i, j in zip(*np.nonzero(shown), strict=True):
        red, green, blue, _ = look(norm(painted[i, j]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        text = number(float(values[i, j]), digits if width <= 16 else 2)
        ink = "white" if dark else INK
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=points, color=ink)
    frame(axes, height, width)
    _ticks(axes.set_yticks, rows, height)
    _ticks(axes.set_xticks, columns, width)
    if columns and max(len(name) for name in columns) * width > 40:
        axes.tick_params(axis="x", labelrotation=90)


def frame(axes: Axes, height: int, width: int) -> None:
    """Row 0 on top, no grid, no ticks' marks."""
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def number(value: float, digits: int = 3) -> str:
    """A cell's text: whole numbers without decimals, a positive number never as 0."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "−∞"
    if value == int(value) and abs(value) < 1e5:
        return str(int(value)).replace("-", "−")
    least = 10.0**-digits
    if abs(value) < least / 2:
        return f"<{least:g}" if value > 0 else f">−{least:g}"
    text = f"{value:.{digits}f}" if abs(value) < 1e3 else f"{value:.3g}"
    return text.replace("-", "−")


@dataclass(frozen=True)
class Sheet:
    """A figure of matrices whose cells all have one size, with a headline above and small print below."""

    figure: Figure
    axes: list[list[Axes]]
    """The matrices' axes, line by line; gaps are left out."""
    points: float
    """Size of a cell's number."""


def sheet(
    shapes: Sequence[Sequence[tuple[int, int]]],
    title: Sequence[str],
    notes: Sequence[str],
    *,
    left: float = 0.6,
    right: float = 0.4,
    below: float = 0.62,
) -> Sheet:
    """Lay out matrices of these (rows, columns), line by line.

    Positions are computed rather than left to a layout engine, which would stretch the cells of smaller matrices.

    Args:
        shapes: sizes; lines may differ in length.
        title: headline, the subject first.
        notes: small print.
        left: inches for row labels, of each matrix.
        right: inches right of each matrix.
        below: inches for column labels, of each matrix.
    """
    from matplotlib.figure import Figure

    cells = [shape for line in shapes for shape in line]
    wide, high, points = cell_size(max(c for _, c in cells), max(r for r, _ in cells))
    own = [[left + c * wide + right for _, c in line] for line in shapes]
    widest = [max(widths) for widths in zip_longest(*own, fillvalue=0.0)]
    columns = [widest] * len(own) if sum(widest) <= ALIGNED else own
    rows = [ABOVE + max(r for r, _ in line) * high + below for line in shapes]
    width = max(*(sum(widths) for widths in columns), LEAST) + 0.2
    small = [line for note in notes if note for line in textwrap.wrap(printable(note), int(width * 14))]
    figure = Figure(figsize=(width, 1.0))
    headline(figure, *title)
    head, foot = 0.2 * (figure.get_suptitle().count("\n") + 1) + 0.2, 0.165 * len(small) + 0.2
    height = head + sum(rows) + foot
    figure.set_figheight(height)
    figure.suptitle(figure.get_suptitle(), fontweight="bold", fontsize=11.5, y=1 - 0.12 / height, va="top")
    figure.text(
        0.15 / width, 0.1 / height, "\n".join(small), fontsize=8.5, color="#444444", va="bottom", linespacing=1.35
    )
    placed, y, start = [], height - head, (width - max(sum(widths) for widths in columns)) / 2
    for line, row, widths in zip(shapes, rows, columns, strict=True):
        x, axes = start, []
        for (down, along), column in zip(line, widths, strict=False):
            box = ((x + left) / width, (y - ABOVE - down * high) / height, along * wide / width, down * high / height)
            axes.append(figure.add_axes(box))
            x += column
        placed.append(axes)
        y -= row
    return Sheet(figure, placed, points)


def coordinates(width: int) -> list[str]:
    """Names of the columns of a matrix of vectors."""
    return [str(column + 1) for column in range(width)]


def narrow(name: str, values: np.ndarray) -> tuple[str, np.ndarray]:
    """A matrix of vectors with the coordinates that fit, and its name, which says so where some are left out."""
    width = values.shape[1]
    return (
        (name, values)
        if width <= MOST_COORDINATES
        else (f"{name} (first {MOST_COORDINATES} of {width})", values[:, :MOST_COORDINATES])
    )


def label_room(names: Sequence[str], *, named: bool = False) -> float:
    """Inches that row labels take, with the name of the axis if it is ``named``."""
    return 0.2 + 0.082 * min(max(map(len, names)), TOKEN) + 0.25 * named


def _ticks(place: Any, names: Sequence[str], count: int) -> None:
    if not names:
        place([])
        return
    place([at + 0.5 for at in range(count)], [printable(name, TOKEN) for name in names])
