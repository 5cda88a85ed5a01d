"""The figure of claim 9: time and memory over those of naive, against length."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bench.claims import Answer, Drawing
from bench.claims._storage import STORES_NO_SCORES, constants, several_machines, span
from bench.claims._versus import MARGIN, Versus, crossing_text, versus_naive
from bench.figure_style import (
    Style,
    grid,
    headline,
    length_axis,
    line_entry,
    log_axis,
    printable,
    shared_legend,
    styles,
)
from bench.memory_law import NAIVE
from bench.plots import Reading
from bench.units import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LADDERS = 3
GREY = "#bbbbbb"
TITLE_COLUMNS = 76
"""Characters of a line above a panel."""


def crossover_figure(reading: Reading, answers: Sequence[Answer]) -> list[Drawing]:
    """Time on the left, memory on the right, one line of panels per ladder; none without an answer."""
    if not answers:
        return []
    several = several_machines(reading)
    ladders: dict[str, list[Versus]] = {}
    for one in versus_naive(reading, [name for name in reading.names if name != NAIVE]):
        if len(one.lengths) > 1:
            ladders.setdefault(constants(one.rows[0], several), []).append(one)
    shown = sorted(ladders.items(), key=lambda item: -sum(len(one.lengths) for one in item[1]))[:MAX_LADDERS]
    looks = styles({one.implementation for _, members in shown for one in members})
    figure, axes = grid(len(shown), 2, width=5.2, height=3.3)
    for (said, members), (left, right) in zip(shown, axes, strict=True):
        _panel(left, members, looks, "time")
        _panel(right, members, looks, "peak bytes")
        _entitle(left, f"{said}: time", [_time_text(one) for one in members])
        _entitle(right, f"{said}: memory", [_memory_text(one) for one in members])
    finding = "; ".join(_verdicts(what, answers) for what in ("time", "memory"))
    headline(figure, f"What stores no scores overtakes {NAIVE}, on all ladders together: {finding}")
    shared_legend(
        figure,
        [
            *(
                line_entry(printable(name, 28), color=look.color, linestyle=look.linestyle, marker=look.marker)
                for name, look in looks.items()
            ),
            line_entry(f"as {NAIVE}, ±{MARGIN:.0%}", color=GREY, linewidth=6),
        ],
    )
    lengths = sorted({length for _, members in shown for one in members for length in one.lengths})
    processes = sorted({point.processes for _, members in shown for one in members for point in one.times})
    over = f"over {processes[0]} processes" if processes and processes[0] > 1 else "within one process"
    left_out = (
        f" {len(ladders) - len(shown)} further ladders are in the table alone." if len(ladders) > len(shown) else ""
    )
    return [
        Drawing(
            stem="crossover",
            figure=figure,
            caption=f"Time per call and peak bytes beyond inputs over those of {NAIVE}, T {span(lengths)}; below 1 it "
            f"is beaten. Times are paired round by round, bands are intervals {over}; bytes are exact.{left_out}",
            alt=f"Ratio to {NAIVE} against sequence length, both logarithmic, time on the left, memory on the right, "
            f"a line per implementation and a line at 1. {finding}. {_spoken(shown)}",
        )
    ]


def _panel(axes: Axes, members: Sequence[Versus], looks: Mapping[str, Style], what: str) -> None:
    values, lengths = [1.0], []
    for one in members:
        look = looks[one.implementation]
        points = [(p.length, p.ratio) for p in one.times] if what == "time" else sorted(one.memory.items())
        if not points:
            continue
        axes.plot(
            *zip(*points, strict=True),
            color=look.color,
            linestyle=look.linestyle,
            marker=look.marker,
            markeredgecolor="white",
        )
        values += [ratio for _, ratio in points]
        lengths += [length for length, _ in points]
        if what == "time":
            axes.fill_between(
                [p.length for p in one.times],
                [p.lo for p in one.times],
                [p.hi for p in one.times],
                color=look.color,
                alpha=0.2,
                linewidth=0,
            )
            values += [edge for p in one.times for edge in (p.lo, p.hi)]
    if not lengths:
        axes.set_axis_off()
        axes.text(0.5, 0.5, f"no {what} of both", transform=axes.transAxes, ha="center", color="#777777")
        return
    axes.axhline(1.0, color="black", linewidth=0.9)
    if what == "time":
        axes.axhspan(1 / (1 + MARGIN), 1 + MARGIN, color=GREY, alpha=0.5, linewidth=0)
    length_axis(axes, lengths, "sequence length T")
    log_axis(axes, f"{what} over {NAIVE}'s", values)


def _entitle(axes: Axes, title: str, lines: Sequence[str]) -> None:
    """The ladder, and in a line of its own what was found of each implementation."""
    wrapped = [part for line in lines if line for part in textwrap.wrap(printable(line), TITLE_COLUMNS)]
    axes.set_title("\n".join((printable(title), *wrapped)), loc="left", fontsize=8.5)


def _time_text(one: Versus) -> str:
    judged = one.implementation in STORES_NO_SCORES
    return f"{_name(one)} {crossing_text(one.times)}" if judged and one.times else ""


def _memory_text(one: Versus) -> str:
    if one.implementation not in STORES_NO_SCORES or not one.memory:
        return ""
    longest = max(one.memory)
    return f"{_name(one)} holds {significant(100 * one.memory[longest])} % of the bytes at T={longest:,}"


def _name(one: Versus) -> str:
    return printable(one.implementation, 28).strip()


def _verdicts(what: str, answers: Sequence[Answer]) -> str:
    """``time CONFIRMED on 5 of 6``."""
    found = Counter(answer.verdict for answer in answers if answer.subject.startswith(what))
    counts = ", ".join(f"{verdict} on {count} of {found.total()}" for verdict, count in found.most_common())
    return f"{what} {counts or 'not judged'}"


def _spoken(shown: Sequence[tuple[str, Sequence[Versus]]]) -> str:
    """All titles in one line."""
    lines = [
        (said, [text for one in members for text in (_time_text(one), _memory_text(one)) if text])
        for said, members in shown
    ]
    return " ".join(f"{said}: {'; '.join(found)}." for said, found in lines)
