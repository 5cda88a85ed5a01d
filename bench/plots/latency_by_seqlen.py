"""Latency by sequence length, with the fitted exponents: is it T squared?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from bench.figure_style import (
    Style,
    grid,
    headline,
    length_axis,
    line_entry,
    log_axis,
    printable,
    slug,
    styles,
)
from bench.memory_law import NAIVE
from bench.metrics import Row
from bench.plots import Drawing, Reading, register_plot
from bench.plots._panels import Page, Panel, filled, handles, length_label, note_absent, pages, series, span
from bench.scaling import TimeFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


INSIDE = 6
"""Legend entries that fit into the free corner of a panel; more stand beside it."""
GUIDE: dict[str, Any] = {"color": "#777777", "linestyle": (0, (2, 2)), "linewidth": 1.1}


@register_plot
class LatencyBySeqlen:
    """Log-log, one line per implementation, the interval of the median as a band, a T² guide through the
    longest.
    """

    name = "latency_by_seqlen"
    title = "Latency by sequence length"
    order = 10
    summary = "Median latency against sequence length with fitted exponents and a T squared guide."

    def needs(self, reading: Reading) -> str | None:
        """Two lengths of one implementation."""
        return None if reading.timed_ladders else "at least two sequence lengths that one implementation was timed at"

    def draw(self, reading: Reading) -> list[Drawing]:
        """One figure per problem family; panels by head width and mask."""
        looks = styles(reading.names)
        layout, left_out = pages(reading.timed_ladder_rows)
        return [self._page(reading, page, looks, left_out) for page in layout]

    def _page(self, reading: Reading, page: Page, looks: dict[str, Style], left_out: str) -> Drawing:
        crowded = len({row["implementation"] for row in page.rows}) > INSIDE
        figure, axes = grid(len(page.panels), len(page.panels[0]), width=6.6 if crowded else 4.1)
        for panel, one in filled(page, axes):
            _draw_panel(one, panel, reading, looks, page.rows)
            note_absent(one, panel, reading.rows)
        name = subject_of([row["implementation"] for row in page.rows])
        fits = list(dict.fromkeys(reading.fit(row) for row in page.rows if row["implementation"] == name))
        verdict = verdict_text(name, [fit for fit in fits if fit is not None])
        headline(figure, f"Latency by sequence length: {page.subject}", verdict)
        several = {row["processes"] > 1 for row in page.rows}
        scope = " and ".join({False: "within run", True: "across processes"}[one] for one in sorted(several))
        caption = (
            f"{verdict}. Points are medians, bands their 95 % intervals ({scope}); "
            "exponents come from t = c0 + c1·T^p, with their 95 % intervals. " + left_out
        )
        return Drawing(
            stem=slug(self.name, page.stem),
            figure=figure,
            caption=caption.strip(),
            alt=f"Latency in milliseconds against length {span(r['length'] for r in page.rows)}, both "
            f"logarithmic, one line per implementation, {page.subject}. {verdict}.",
        )


def subject_of(names: list[str]) -> str:
    """The implementation whose exponent stands in the title: naive where it was measured."""
    return NAIVE if NAIVE in names else min(names)


def verdict_text(name: str, fits: list[TimeFit]) -> str:
    """What the fits of one implementation say about T squared, in one line."""
    shown = printable(name, 28).strip()
    if len(fits) == 1:
        fit = fits[0]
        if fit.exponent is None:
            return f"{shown}: {fit.growth} growth INCONCLUSIVE ({fit.reason})"
        why = f" ({fit.reason})" if fit.verdict == "INCONCLUSIVE" else ""
        return f"{shown} grows as {fit.text}: {fit.growth} growth {fit.verdict}{why}"
    counts = Counter(fit.verdict for fit in fits)
    said = ", ".join(f"{verdict} in {n}" for verdict, n in counts.most_common()) + f" of {len(fits)} panels"
    if len(counts) == 1 and "INCONCLUSIVE" in counts:
        said += f" ({Counter(fit.reason for fit in fits).most_common(1)[0][0]})"
    exponents = [fit.exponent for fit in fits if fit.exponent is not None]
    intervals = [fit.interval95 for fit in fits if fit.interval95 is not None]
    if not exponents:
        return f"{shown}: {fits[0].growth} growth {said}"
    ends = sorted({f"T^{min(exponents):.2f}", f"T^{max(exponents):.2f}"})
    low, high = min(low for low, _ in intervals), max(high for _, high in intervals)
    return f"{shown} grows as {' to '.join(ends)} [{low:.2f}, {high:.2f}]: {fits[0].growth} growth {said}"


def _draw_panel(axes: Axes, panel: Panel, reading: Reading, looks: dict[str, Style], page_rows: list[Row]) -> None:
    rows = panel.rows
    fits = {row["implementation"]: fit for row in rows if (fit := reading.fit(row)) is not None}
    series(axes, rows, looks, lambda row: row["latency_ms"], band=("latency_lo_ms", "latency_hi_ms"))
    name = subject_of(list(fits))
    lengths = sorted({row["length"] for row in rows})
    anchor = max((row for row in rows if row["implementation"] == name), key=lambda row: row["length"])
    power = fits[name].expected
    guide = [anchor["latency_ms"] * 1.6 * (length / anchor["length"]) ** power for length in lengths]
    axes.plot(lengths, guide, zorder=1, **GUIDE)
    length_axis(axes, lengths, length_label(rows[0]))
    values = [row[name] for row in page_rows for name in ("latency_lo_ms", "latency_hi_ms")]
    room = 12.0 if len(fits) <= INSIDE else 1.0  # a free corner for the legend
    log_axis(axes, "latency (ms)", values, room=room)  # the same range in all panels
    said = f"\n{printable(name, 28).strip()}: {fits[name].text}, {fits[name].verdict}"
    axes.set_title(panel.title + said, fontweight="bold")
    entries = handles(rows, looks, lambda n: f"  {fits[n].text}" if fits[n].exponent is not None else "")
    entries.append(line_entry("T² guide" if power == 2 else "T guide", **GUIDE))
    if len(entries) <= INSIDE + 1:
        axes.legend(handles=entries, loc="upper left", fontsize=8.2, framealpha=0.85, edgecolor="none")
    else:
        axes.legend(handles=entries, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8.2, frameon=False)
