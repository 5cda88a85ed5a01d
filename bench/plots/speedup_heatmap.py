"""Speed-up over naive in every cell, with the reason in the cells that have no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, nan
from typing import TYPE_CHECKING

from bench.figure_style import grid, headline, printable, slug
from bench.memory_law import NAIVE
from bench.metrics import Row
from bench.plots import LADDER, Drawing, Reading, grouped, register_plot
from bench.plots._panels import Page, length_label, pages
from bench.units import format_ms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHORT = {
    "verified": "not timed",
    "incorrect": "WRONG",
    "unsupported": "unsup.",
    "unavailable": "n/a",
    "out_of_memory": "no mem.",
    "timeout": "time-out",
    "crashed": "crash",
    "error": "error",
}
"""What an empty cell shows for its status."""
LIMIT = 3.0
"""Colours end at eight times faster or slower."""
MAX_PROBLEMS = 24
"""Rows of the table of single problems."""
MAX_REASONS = 6
"""Reasons spelled out below a figure."""


@dataclass(frozen=True)
class _Cell:
    """What one field shows: a ratio with its text, or only a text."""

    text: str
    ratio: float | None = None
    best: bool = False


@register_plot
class SpeedupHeatmap:
    """Implementations by length (or problems by implementation where the length is fixed); the fastest is
    framed.
    """

    name = "speedup_heatmap"
    title = "Speed-up in every cell"
    order = 40
    summary = "Speed-up over naive in every cell, with reasons in the empty ones."

    def needs(self, reading: Reading) -> str | None:
        """Two implementations timed on one problem."""
        return None if _comparable(reading) else "at least two implementations timed on the same problem"

    def draw(self, reading: Reading) -> list[Drawing]:
        """One figure per family of ladders, and one of the problems that stand alone."""
        if not _comparable(reading):
            return []
        timed = {row["problem"] for row in reading.rows if row["sound"]}
        rows = [row for row in reading.rows if row["problem"] in timed]
        ladders: list[Row] = []
        single: list[Row] = []
        for group in grouped(rows, *LADDER).values():
            (ladders if len({row["length"] for row in group}) > 1 else single).extend(group)
        layout, left_out = pages(ladders)
        drawings = [self._page(reading, page, left_out) for page in layout]
        return [*drawings, self._problems(reading, single)] if single else drawings

    def _page(self, reading: Reading, page: Page, left_out: str) -> Drawing:
        base = _baseline(page.rows)
        names = sorted({row["implementation"] for row in page.rows})
        lengths = {row["length"] for row in page.rows}
        panels = [panel for line in page.panels for panel in line if panel]
        across = 1 if len(lengths) > 6 else min(2, len(panels))  # few across: every field holds a number to be read
        figure, axes = grid(
            -(-len(panels) // across),
            across,
            width=max(4.4, 0.64 * len(lengths) + 1.8),
            height=0.34 * len(names) + 0.75,
            least=(9.0, 2.4),
        )
        flat = [one for line in axes for one in line]
        for one in flat[len(panels) :]:
            one.set_axis_off()
        for panel, one in zip(panels, flat, strict=False):
            columns = sorted({row["length"] for row in panel.rows})
            at = {length: [row for row in panel.rows if row["length"] == length] for length in columns}
            by_length = {length: _cells(reading, rows, base) for length, rows in at.items()}
            table = [[by_length[length].get(name, _Cell("")) for length in columns] for name in names]
            _heat(one, table, [printable(name, 22) for name in names], [str(length) for length in columns])
            one.set_xlabel(length_label(panel.rows[0]))
            one.set_title(panel.title, fontweight="bold")
        return self._drawing(figure, page.subject, _verdict(reading, page.rows), page.rows, base, page.stem, left_out)

    def _problems(self, reading: Reading, rows: list[Row]) -> Drawing:
        base = _baseline(rows)
        names = sorted({row["implementation"] for row in rows})
        problems = list(dict.fromkeys(row["problem"] for row in rows))
        shown, extra = problems[:MAX_PROBLEMS], len(problems) - MAX_PROBLEMS
        figure, axes = grid(1, 1, width=1.05 * len(names) + 5.0, height=0.34 * len(shown) + 1.2, least=(9.0, 2.4))
        of = {problem: [row for row in rows if row["problem"] == problem] for problem in shown}
        cells = {problem: _cells(reading, of[problem], base) for problem in shown}
        table = [[cells[problem].get(name, _Cell("")) for name in names] for problem in shown]
        _heat(axes[0][0], table, [printable(p, 60) for p in shown], [printable(name, 16) for name in names])
        axes[0][0].tick_params(axis="x", labelrotation=25 if len(names) > 4 else 0)
        left_out = f"{extra} further problems were left out." if extra > 0 else ""
        return self._drawing(figure, "single problems", _verdict(reading, rows), rows, base, "problems", left_out)

    def _drawing(
        self, figure: Figure, about: str, verdict: str, rows: list[Row], base: str | None, stem: str, left_out: str
    ) -> Drawing:
        what = f"Speed-up over {printable(base).strip()}" if base else "Speed relative to the fastest"
        headline(figure, f"{what}: {about}", verdict)
        reasons = _reasons(rows)
        if reasons:
            figure.supxlabel("\n".join(reasons), fontsize=8, x=0.01, ha="left", color="#444444")
        how = (
            "time of naive over time of the implementation"
            if base
            else "time of the fastest over time of the implementation"
        )
        return Drawing(
            stem=slug(self.name, stem),
            figure=figure,
            caption=f"{verdict}. Numbers are {how}, the median over rounds (~: no round timed both, so "
            f"it is that of two medians); framed is who is clearly fastest, the whole interval. {left_out}".strip(),
            alt=f"Table of {what.lower()}, {about}. {verdict}. {' '.join(reasons)}".strip(),
        )


def _comparable(reading: Reading) -> bool:
    timed = grouped([row for row in reading.rows if row["sound"]], "machine", "device", "problem").values()
    return any(len(rows) > 1 for rows in timed)


def _baseline(rows: Sequence[Row]) -> str | None:
    """naive where it was timed; otherwise None, and the fastest of each problem is the measure."""
    return NAIVE if any(row["sound"] and row["implementation"] == NAIVE for row in rows) else None


def _cells(reading: Reading, rows: list[Row], base: str | None) -> dict[str, _Cell]:
    """The fields of one problem, by implementation."""
    timed = {row["implementation"]: row for row in rows if row["sound"] and row["latency_ms"] > 0}
    fastest, clear = reading.fastest(list(timed.values())) if timed else (None, False)
    measure = timed.get(base) if base else fastest
    cells = {}
    for row in rows:
        name, best = row["implementation"], clear and row is fastest
        if name not in timed:
            said = "impossible" if row["latency_ms"] is not None else SHORT.get(row["status"], row["status"])
            cells[name] = _Cell(str(said))
        elif measure is None:
            cells[name] = _Cell(format_ms(row["latency_ms"]), best=best)
        else:
            pair = reading.paired(measure, row)
            ratio = pair.ratio if pair else measure["latency_ms"] / row["latency_ms"]
            text = f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.3g}"
            cells[name] = _Cell(text if pair else f"~{text}", ratio, best)
    return cells


def _heat(axes: Axes, table: list[list[_Cell]], rows: list[str], columns: list[str]) -> None:
    """Orange is slower than the baseline, purple faster; grey has no ratio."""
    import matplotlib
    from matplotlib.patches import Rectangle

    ratios = [[nan if cell.ratio is None else log2(cell.ratio) for cell in line] for line in table]
    colours = matplotlib.colormaps["PuOr"].with_extremes(bad="#eeeeee")
    axes.imshow(ratios, cmap=colours, vmin=-LIMIT, vmax=LIMIT, aspect="auto")
    for y, line in enumerate(table):
        for x, cell in enumerate(line):
            strong = cell.ratio is not None and abs(log2(cell.ratio)) > 0.62 * LIMIT
            axes.text(
                x,
                y,
                cell.text,
                ha="center",
                va="center",
                fontsize=9 if cell.ratio is not None else 7.5,
                color="white" if strong else "#222222",
                fontweight="bold" if cell.best else "normal",
            )
            if cell.best:
                axes.add_patch(
                    Rectangle((x - 0.47, y - 0.44), 0.94, 0.88, fill=False, edgecolor="black", linewidth=1.4)
                )
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks(range(len(columns)), columns, rotation=0)
    axes.grid(visible=False)


def _verdict(reading: Reading, rows: list[Row]) -> str:
    """Who is clearly fastest how often."""
    fastest: dict[str, int] = {}
    problems = 0
    for group in grouped([row for row in rows if row["sound"]], "machine", "problem").values():
        if len(group) > 1:
            best, clear = reading.fastest(group)
            problems += 1
            if clear:
                fastest[best["implementation"]] = fastest.get(best["implementation"], 0) + 1
    if not problems:
        return "no problem was timed by two implementations"
    ranking = sorted(fastest.items(), key=lambda item: (-item[1], item[0]))
    said = [f"{printable(name, 28).strip()} {count}" for name, count in ranking[:4]]
    unclear = problems - sum(fastest.values())
    if unclear:
        said.append(f"nobody clearly {unclear}")
    return f"fastest of {problems} compared problems: {', '.join(said)}"


def _reasons(rows: list[Row]) -> list[str]:
    """The reasons of cells without a time, once each."""
    seen: dict[str, int] = {}
    for row in rows:
        if row["status"] != "ok":
            short = SHORT.get(row["status"], row["status"])
            text = f"{row['implementation']}: {short} = {row['reason'] or row['status']}"
            seen[text] = seen.get(text, 0) + 1
    lines = [printable(f"{text} ({count} cells)", 170).strip() for text, count in seen.items()]
    extra = len(lines) - MAX_REASONS
    return lines[:MAX_REASONS] + ([f"and {extra} more reasons, see the table of cells"] if extra > 0 else [])
