"""How all figures look: colours, lines, axes and text that any name survives."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from math import floor, isfinite, log10
from typing import TYPE_CHECKING, Any

from bench.units import format_bytes

if TYPE_CHECKING:  # matplotlib is imported where it draws, so that listing plots costs nothing
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

FONT = "DejaVu Sans"
"""Comes with matplotlib, so figures look the same on every machine."""

_RC: dict[str, Any] = {
    "font.family": FONT,
    "font.size": 10,
    "axes.titlesize": 9.5,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.handlelength": 3.0,
    "figure.titlesize": 12,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "text.parse_math": False,  # a name may hold dollar signs
    "axes.unicode_minus": True,
}

# Okabe and Ito (2008), told apart by all common kinds of colour blindness; their yellow fades on white.
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
_LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2, 1, 2, 1, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "h")
_HATCHES = ("", "//", "..", "xx", "\\\\", "--", "oo", "++", "**")
_OWN = (
    "naive",
    "online_softmax",
    "sdpa_flash",
    "sdpa_math",
    "sdpa_efficient",
    "sdpa_cudnn",
    "flex",
    "naive_compiled",
    "triton_flash",
    "flash_attn",
)
"""Names that keep their style from one report to the next; others take the next free one."""


MAX_TICKS = 9
"""Labels on a logarithmic axis."""
_TICKS = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))


@dataclass(frozen=True)
class Style:
    """How one implementation is drawn, the same in every figure of a report."""

    color: str
    linestyle: Any
    marker: str
    hatch: str


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Styles by implementation: colour, line, marker and hatch all differ, so that no one of them has to be
    seen.
    """
    names = sorted(names)
    free = (place for place in count() if place >= len(_OWN) or _OWN[place] not in names)
    places = {name: _OWN.index(name) if name in _OWN else next(free) for name in names}
    return {
        name: Style(*(looks[place % len(looks)] for looks in (_COLOURS, _LINES, _MARKERS, _HATCHES)))
        for name, place in places.items()
    }


@contextmanager
def figure_style() -> Iterator[None]:
    """matplotlib's settings for drawing and for saving."""
    import matplotlib

    with matplotlib.rc_context(_RC):  # type: ignore[arg-type]  # a plain dict is what it takes
        yield


def grid(
    rows: int,
    columns: int,
    *,
    width: float = 4.1,
    height: float = 3.3,
    least: tuple[float, float] = (9.0, 5.2),
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of ``rows`` by ``columns`` panels of about this size in inches, at least ``least`` in all."""
    from matplotlib.figure import Figure

    size = (max(width * columns, least[0]), max(height * rows + 1.0, least[1]))
    figure = Figure(figsize=size)
    figure.set_layout_engine("constrained", h_pad=0.1, w_pad=0.06)
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, axes.tolist()


def headline(figure: Figure, first: str, *rest: str) -> None:
    """Title over all panels: the subject, then the verdict, wrapped to the figure's width."""
    per_line = int(figure.get_figwidth() * 9.3)
    lines = [line for text in (first, *rest) if text for line in textwrap.wrap(printable(text), per_line)]
    figure.suptitle("\n".join(lines), fontweight="bold", fontsize=11.5)


def line_entry(label: str, **look: Any) -> Line2D:
    """A legend entry for a line."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def bar_entry(label: str, look: Style) -> Patch:
    """A legend entry for bars."""
    from matplotlib.patches import Patch

    return Patch(facecolor=look.color, hatch=look.hatch, edgecolor="white", label=label)


def shared_legend(figure: Figure, handles: Sequence[Any]) -> None:
    """One legend below all panels."""
    widest = max(len(str(handle.get_label())) for handle in handles) * 0.078 + 0.85  # inches
    columns = max(1, min(len(handles), int(figure.get_figwidth() / widest)))
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns, frameon=False)


def length_axis(axes: Axes, lengths: Iterable[int], label: str) -> None:
    """A base-two axis that shows plain numbers at powers of two."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    values = sorted(set(lengths))
    axes.set_xscale("log", base=2)
    low, high = values[0], values[-1]
    ticks = [2**n for n in range(40) if low <= 2**n <= high]
    if len(ticks) < 2:
        ticks = values
    step = -(-len(ticks) // 7)
    ticks = ticks[::-1][::step][::-1]  # keep the longest
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([str(tick) for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(low / 1.15, high * 1.15)
    axes.set_xlabel(label)


def log_axis(axes: Axes, label: str, values: Iterable[float], *, form: Any = None, room: float = 1.0) -> None:
    """A base-ten axis over the positive ``values`` with plain tick labels; ``room`` multiplies the upper
    end.
    """
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

    positive = [v for v in values if isfinite(v) and v > 0]
    low, high = (min(positive), max(positive)) if positive else (0.5, 2.0)
    margin = max(1.4, 10 ** (0.06 * (log10(high) - log10(low))))
    low, high = low / margin, high * margin * room
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    decades = range(floor(log10(low)), floor(log10(high)) + 1)
    for within in _TICKS:  # the finest division that is not crowded
        ticks = [tick for e in decades for tick in (s * 10.0**e for s in within) if low <= tick <= high]
        if len(ticks) <= MAX_TICKS:
            break
    ticks = ticks[:: -(-len(ticks) // MAX_TICKS)] if ticks else [low, high]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(FixedFormatter([(form or plain)(tick) for tick in ticks]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(label)


def plain(value: float) -> str:
    """A tick label without superscripts: ``0.001``, ``20``, ``1e-07``."""
    return f"{value:.6g}" if 1e-4 <= abs(value) < 1e6 or value == 0 else f"{value:.3g}"


def byte_tick(value: float) -> str:
    """A byte count as a tick label: ``100 kB``, ``2 MB``."""
    number, unit = format_bytes(value).split(" ")
    return f"{float(number):g} {unit}"


def printable(text: str, limit: int = 0) -> str:
    """``text`` with characters that the font lacks spelled ``U+1F680``, control characters as blanks, cut to
    ``limit``.

    matplotlib drops legend entries that begin with an underscore; a blank in front keeps them.
    """
    known = _characters()
    shown = "".join(" " if ord(c) < 32 or c.isspace() else c if ord(c) in known else f"U+{ord(c):04X}" for c in text)
    if limit and len(shown) > limit:
        shown = shown[: limit - 1] + "…"
    return f" {shown}" if shown.startswith("_") else shown


def slug(*parts: object) -> str:
    """A file name stem of safe ASCII characters."""
    text = "-".join(str(part) for part in parts if part not in ("", None))
    return re.sub(r"-{2,}", "-", re.sub(r"[^A-Za-z0-9._-]+", "-", text)).strip("-.")[:100] or "figure"


@cache
def _characters() -> frozenset[int]:
    from matplotlib import font_manager

    return frozenset(font_manager.get_font(font_manager.findfont(FONT)).get_charmap())
