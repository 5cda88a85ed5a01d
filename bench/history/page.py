"""A history as rows, as a figure and as a page that works offline."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.errors import OutputError
from bench.figure_style import figure_style, grid, headline, plain, printable, styles
from bench.history import Shift, Trend
from bench.metrics import gated
from bench.plots import PAGE_DPI, Drawing, save

PANELS = 12
"""Cells in the figure: those with the largest changes."""
COLUMNS = 3
LEAST_REACH = 0.06
"""An axis of times reaches at least this far from its middle on either side, relative to it."""


def trend_rows(trends: Sequence[Trend], metric: str) -> list[dict[str, Any]]:
    """One row per cell."""
    return [
        {
            "cell": trend.cell,
            "machine": trend.machine,
            "runs": len(trend.points),
            "first": trend.points[0].value,
            "last": trend.points[-1].value,
            "changes": len(trend.shifts),
            "what": "; ".join(shift_text(trend, shift, metric) for shift in trend.shifts) or None,
        }
        for trend in trends
    ]


def shift_text(trend: Trend, shift: Shift, metric: str) -> str:
    """``slower by 12 % from run 20261130T094512Z-3fa9 (0123456789ab) on``."""
    point = trend.points[shift.index]
    more, less = ("slower", "faster") if metric == "time" else ("more", "less")
    word = more if shift.after > shift.before else less
    size = f"{plain(shift.before)} to {plain(shift.after)}" if shift.percent is None else f"{abs(shift.percent):.3g} %"
    commit = f" ({point.commit[:12]})" if point.commit else ""
    doubt = "" if shift.p_value is None else f", p = {shift.p_value:.2g}"
    return f"{word}{' by' if metric == 'time' else ''} {size} from run {point.run_id}{commit} on{doubt}"


def draw(trends: Sequence[Trend], metric: str) -> Drawing:
    """The cells with the largest changes, a panel each."""
    from matplotlib.ticker import MaxNLocator

    shown = list(trends[:PANELS])
    columns = min(COLUMNS, len(shown))
    several = len({trend.machine for trend in shown}) > 1
    changed = sum(bool(trend.shifts) for trend in trends)
    with figure_style():
        figure, axes = grid(-(-len(shown) // columns), columns, height=2.6)
        look = styles(trend.cell.split(" ")[0] for trend in shown)
        for index, panel in enumerate(panel for row in axes for panel in row):
            if index >= len(shown):
                panel.set_axis_off()
                continue
            trend = shown[index]
            name, _, problem = trend.cell.partition(" ")
            style = look[name]
            places = range(1, len(trend.points) + 1)
            values = [point.value for point in trend.points]
            panel.plot(places, values, color=style.color, marker=style.marker, linestyle=":", linewidth=0.9)
            edges = [0, *(shift.index for shift in trend.shifts), len(values)]
            levels = [shift.before for shift in trend.shifts] + [trend.shifts[-1].after] if trend.shifts else []
            for place, level in enumerate(levels):
                panel.hlines(level, edges[place] + 0.6, edges[place + 1] + 0.4, color="black", linewidth=1.2)
            for shift in trend.shifts:
                panel.axvline(shift.index + 0.5, color="black", linestyle="--", linewidth=0.9)
            where = f"\n{printable(trend.machine, 46)}" if several else ""
            panel.set_title(f"{printable(name, 40)}\n{printable(problem, 46)}{where}", loc="left")
            panel.set_xlabel("run, oldest first")
            panel.set_ylabel(label(metric))
            panel.set_xlim(0.5, len(values) + 0.5)
            panel.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
            if metric == "time":  # noise fills no panel
                middle = (min(values) + max(values)) / 2
                reach = max((max(values) - min(values)) * 0.55, middle * LEAST_REACH)
                panel.set_ylim(middle - reach, middle + reach)
        finding = f"{changed} of {len(trends)} cells changed their level" if changed else "no cell changed its level"
        headline(figure, f"History of {label(metric)}", finding)
    caption = (
        f"{finding}. Each point is one run; dashed lines stand where the level changed, black lines are the levels. "
        f"{'Shown are the cells with the largest changes.' if len(trends) > len(shown) else ''}"
    )
    return Drawing(stem=f"history-{metric}", figure=figure, caption=caption.strip(), alt=f"{caption} {_alt(shown)}")


def label(metric: str) -> str:
    """What the numbers are."""
    if metric == "time":
        return "time over that of the control"
    found = gated()[metric]
    return f"{found.title}{f' in {found.unit}' if found.unit else ''}"


def build_page(trends: Sequence[Trend], metric: str, folder: Path) -> Path:
    """Write ``index.html`` and the figure into ``folder``; returns the page.

    Raises:
        OutputError: if the folder cannot be written.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    try:
        folder.mkdir(parents=True, exist_ok=True)
        drawing = draw(trends, metric)
        figure = save(drawing, folder)
        environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
        )
        page = folder / "index.html"
        html = environment.get_template("template.html").render(
            metric=label(metric),
            rows=trend_rows(trends, metric),
            drawing=drawing,
            source=base64.b64encode(figure.read_bytes()).decode(),
            width=round(drawing.figure.get_figwidth() * PAGE_DPI / 2),
        )
        page.write_text(html, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"report folder must be writable, got {str(folder)!r} ({error.strerror}). Choose another with --output."
        ) from error
    return page


def _alt(trends: Sequence[Trend]) -> str:
    return "; ".join(f"{trend.cell}: {len(trend.points)} runs, {len(trend.shifts)} changes" for trend in trends[:4])
