"""Claim 4: what stores no scores still computes every pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, sqrt
from typing import TYPE_CHECKING, ClassVar

from bench.claims import Answer, Drawing, Hearing, Needs, Scope, Verdict, claims
from bench.claims._growth import FLASH, Ladder, cases, measured, problem, square_ladders, that_decide, verdict
from bench.claims._growth_figures import ALL_PAIRS, verdict_text
from bench.claims._ladders import ladder
from bench.figure_style import (
    Style,
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
from bench.memory_law import BytesPolynomial, bytes_polynomial
from bench.plots import Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SETTLED = 4
"""Peaks are held against a polynomial from a fourth of the longest length on: below, blocks still follow the length."""
SETTLING_LENGTHS = (1456, 2048, 2896)
"""What a quick ladder lacks for its blocks to have reached their full size."""
MAX_FIGURES = 3


@dataclass(frozen=True)
class Growth:
    """Time and memory of one implementation along the same rows."""

    ladder: Ladder
    """Time."""
    peaks: BytesPolynomial | None
    """Memory, from the settled lengths; None where too few have a peak."""

    @property
    def memory_text(self) -> str:
        """The polynomial in words."""
        if self.peaks is None:
            return "no law of memory"
        parts = [f"{float(self.peaks.quadratic):,.6g}·T²"] if self.peaks.quadratic else []
        parts += [f"{float(self.peaks.linear):,.6g}·T + {float(self.peaks.constant):,.8g} bytes"]
        exact = "exactly" if self.peaks.exact else f"but for {float(self.peaks.residual_bytes):+,.0f} bytes"
        return f"{' + '.join(parts)} {exact}"


@claims.register("flash_keeps_pairs")
class FlashKeepsPairs:
    """Exponent of time beside the exact polynomial of peak bytes, on the same rows."""

    name: ClassVar[str] = "flash_keeps_pairs"
    order: ClassVar[int] = 4
    statement: ClassVar[str] = (
        "Avoiding score storage does not remove the pair arithmetic: implementations whose peak memory is linear in T "
        "still take time that grows as T²."
    )
    rule: ClassVar[str] = (
        "On one ladder of T. CONFIRMED if peak bytes lie on a polynomial of T to the byte from a quarter of the "
        "longest length on, its T² coefficient is 0, and the exponent of time is CONFIRMED as 2 by the rule of claim "
        "1; REFUTED if that exponent is refuted, or if one that is said to store no scores has a T² coefficient; "
        "INCONCLUSIVE otherwise. Implementations that store scores are the contrast and are not judged."
    )

    def needs(self, scope: Scope) -> Needs:
        """The square ladder; a quick one as long as memory takes to settle, and without the contrast."""
        if scope.quick:
            lengths, names = ladder(scope) + SETTLING_LENGTHS, [name for name in measured(scope) if name in FLASH]
            return Needs(tuple(cases((problem(scope, length) for length in lengths), names)))
        return Needs(tuple(cases((problem(scope, length) for length in ladder(scope)), measured(scope))))

    def judge(self, hearing: Hearing) -> list[Answer]:
        """One answer for each ladder of an implementation that stores no scores, or is said not to."""
        several = len({row["machine"] for row in hearing.reading.rows}) > 1
        return [_answer(hearing.reading, one, several) for one in _growths(hearing.reading) if _bears(one)]

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Time and memory side by side, slopes beneath; those that store scores for contrast."""
        families: dict[str, list[Growth]] = {}
        for one in _growths(hearing.reading):
            row = one.ladder.rows[0]
            families.setdefault(f"{one.ladder.constants}, on {row['device']}, {row['machine']}", []).append(one)
        shown = [(name, group) for name, group in families.items() if any(map(_bears, group))]
        return [_figure(n, *family, hearing.reading) for n, family in enumerate(shown[:MAX_FIGURES], start=1)]


def _growths(reading: Reading) -> list[Growth]:
    found = []
    for one in that_decide(square_ladders(reading)):
        longest = one.fit.lengths[-1]
        peaks = {row["length"]: row["peak_bytes"] for row in one.rows if row["peak_bytes"]}
        settled = {length: count for length, count in peaks.items() if length * SETTLED >= longest}
        found.append(Growth(one, bytes_polynomial(settled)))
    return found


def _bears(one: Growth) -> bool:
    """Whether it stores no scores, as measured or as its name promises."""
    linear = one.peaks is not None and one.peaks.exact and one.peaks.quadratic == 0
    return linear or one.ladder.implementation in FLASH


def _judge(reading: Reading, one: Growth) -> tuple[Verdict, str]:
    if one.peaks is None:
        return "INCONCLUSIVE", "peak bytes at three settled lengths are needed, from a quarter of the longest on"
    if not one.peaks.exact:
        return "INCONCLUSIVE", "peak bytes are on no polynomial of T that a further length has tested"
    if one.peaks.quadratic:
        return "REFUTED", f"peak bytes have a T² coefficient of {float(one.peaks.quadratic):,.6g}: memory is not linear"
    said, reason = verdict(reading, one.ladder)
    return said, f"memory: T² coefficient 0; time: {reason}"


def _answer(reading: Reading, one: Growth, several: bool) -> Answer:
    said, reason = _judge(reading, one)
    machine = f", {one.ladder.rows[0]['machine']}" if several else ""
    subject = f"{one.ladder.implementation} ({one.ladder.constants}{machine})"
    found = f"time {one.ladder.exponent} {one.ladder.fit.scope}; memory {one.memory_text}"
    return Answer(subject, said, found, reason, one.ladder.cells)


def _figure(number: int, constants: str, growths: Sequence[Growth], reading: Reading) -> Drawing:
    looks = styles({one.ladder.implementation for one in growths})
    figure, axes = grid(2, 2, width=4.6, height=3.0)
    series = {
        "time": {one.ladder.implementation: dict(_points(one, "latency_ms")) for one in growths},
        "peak memory": {one.ladder.implementation: dict(_points(one, "peak_bytes")) for one in growths},
    }
    for column, (quantity, lines) in enumerate(series.items()):
        _panel(axes[0][column], f"{quantity}, relative", lines, looks)
        _slopes(axes[1][column], f"slope of {quantity}", lines, looks)
    entries = [
        line_entry(
            f"{printable(one.ladder.implementation, 28)}: time {one.ladder.exponent}; memory "
            f"{'T²' if one.peaks and one.peaks.quadratic else 'linear' if _bears(one) else 'of no law'}",
            color=looks[one.ladder.implementation].color,
            linestyle=looks[one.ladder.implementation].linestyle,
            marker=looks[one.ladder.implementation].marker,
        )
        for one in growths
    ]
    shared_legend(figure, entries)
    judged = verdict_text([(one.ladder, _judge(reading, one)[0]) for one in growths if _bears(one)])
    headline(figure, f"Linear memory, quadratic time: {judged}", f"{ALL_PAIRS}, {constants}")
    laws = "; ".join(f"{one.ladder.implementation} {one.memory_text}" for one in growths)
    return Drawing(
        stem=slug("flash_keeps_pairs", number),
        figure=figure,
        caption=f"Median latency and exact peak bytes of the same cells ({ALL_PAIRS}, {constants}), each over its "
        "value at the shortest length, with slopes between neighbouring lengths beneath. Grey: T and T². Peak memory "
        f"from a quarter of the longest length on: {laws}. Scratch of whole blocks is fixed once the sequence is "
        "longer than a block, so the slope of linear memory may lie below 1.",
        alt=f"Growth of latency (left) and of peak memory (right) against sequence length, one line per "
        f"implementation, {constants}. {judged}.",
    )


def _points(one: Growth, column: str) -> list[tuple[int, float]]:
    rows = [row for row in one.ladder.rows if row[column]]
    return [(row["length"], row[column] / rows[0][column]) for row in rows]


def _panel(axes: Axes, label: str, lines: dict[str, dict[int, float]], looks: dict[str, Style]) -> None:
    lengths = sorted({length for line in lines.values() for length in line})
    for power in (1, 2):
        axes.plot(lengths, [(n / lengths[0]) ** power for n in lengths], color="#bbbbbb", linewidth=2.5, zorder=1)
        axes.annotate(
            f"T{'²' if power == 2 else ''}", (lengths[-1], (lengths[-1] / lengths[0]) ** power), color="#777777"
        )
    for name, line in lines.items():
        look = looks[name]
        axes.plot(list(line), list(line.values()), color=look.color, linestyle=look.linestyle, marker=look.marker)
    length_axis(axes, lengths, "sequence length T")
    log_axis(
        axes, label, [1.0, (lengths[-1] / lengths[0]) ** 2, *(v for line in lines.values() for v in line.values())]
    )


def _slopes(axes: Axes, label: str, lines: dict[str, dict[int, float]], looks: dict[str, Style]) -> None:
    for power in (1, 2):
        axes.axhline(power, color="#bbbbbb", linewidth=2.5, zorder=1)
    for name, line in lines.items():
        look, steps = looks[name], list(pairwise(line.items()))
        middles = [sqrt(a * b) for (a, _), (b, _) in steps]
        slopes = [log(y / x) / log(b / a) for (a, x), (b, y) in steps]
        axes.plot(middles, slopes, color=look.color, linestyle=look.linestyle, marker=look.marker)
    length_axis(axes, {length for line in lines.values() for length in line}, "sequence length T")
    axes.set_ylim(-0.2, 3.0)
    axes.set_ylabel(label)
