"""The figure of claim 2: measured bytes on their curves, and the residual beneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.claims import Answer, Drawing
from bench.claims._bytes import QUANTITIES, Ladder, byte_ladders, evaluated
from bench.claims._storage import WHOLE_BLOCKS, constants, several_machines, span
from bench.figure_style import (
    Style,
    byte_tick,
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
from bench.plots import LADDER, Reading
from bench.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_COLUMNS = 4
STEPS = 60
"""Points of a curve."""

Column = tuple[str, list[Ladder]]
"""A quantity, and the ladders of different implementations that are drawn together."""


def memory_figure(reading: Reading, answers: Sequence[Answer]) -> list[Drawing]:
    """One column for each mask and direction, and one for what is saved; none without a law."""
    found = [one for one in byte_ladders(reading) if one.laws]
    columns = _columns(found)
    if not columns:
        return []
    looks = styles({one.implementation for one in found})
    figure, axes = grid(2, len(columns), width=3.9, height=2.9)
    for number, (quantity, members) in enumerate(columns):
        above, beneath = axes[0][number], axes[1][number]
        _curves(above, quantity, members, looks)
        _residuals(beneath, quantity, members, looks)
        row = members[0].rows[0]
        above.set_title(printable(f"{QUANTITIES[quantity]}: {row['mask']}, {row['direction']}"), fontweight="bold")
        if number:
            beneath.set_ylabel("")
            above.set_ylabel("")
    headline(figure, f"Stored scores cost T² bytes, blockwise work does not: {_counts(answers)}", _examples(columns[0]))
    drawn = {one.implementation for _, members in columns for one in members}
    shared_legend(figure, [*_entries(looks, drawn), line_entry("law", color="black", linewidth=1.0)])
    left_out = len({_key(one) for one in found}) - len({_key(one) for _, members in columns for one in members})
    more = f" {left_out} further ladders are in the table alone." if left_out else ""
    return [
        Drawing(
            stem="score_memory",
            figure=figure,
            caption=f"Bytes of one call beyond its inputs ({_subject(columns[0], reading)}): points measured, lines "
            f"exact polynomials in T. Beneath, measured minus law: of {NAIVE} at every length, of the others from "
            f"T = {WHOLE_BLOCKS:,} on; below, blocks are cut to the length and take less.{more}",
            alt=f"Peak bytes against sequence length, both logarithmic, a line per implementation, residuals beneath. "
            f"{_counts(answers)}. {_examples(columns[0])}.",
        )
    ]


def _columns(found: Sequence[Ladder]) -> list[Column]:
    """For each mask and direction the key that most rows share, then what is saved for the backward pass."""
    by_key: dict[tuple[Any, ...], list[Ladder]] = {}
    for one in found:
        by_key.setdefault(_key(one), []).append(one)
    best: dict[tuple[str, str], list[Ladder]] = {}
    for members in sorted(by_key.values(), key=lambda members: -sum(len(one.rows) for one in members)):
        row = members[0].rows[0]
        best.setdefault((row["direction"], row["mask"]), members)
    # A causal mask costs no bytes that the others do not show, so it is the first to be left out.
    order = sorted(best.items(), key=lambda item: (item[0][1] == "causal", item[0][0] != "fwd", item[0][1] != "full"))
    columns: list[Column] = [("peak_bytes", members) for _, members in order]
    saved = [("saved_bytes", _with_law(members, "saved_bytes")) for _, members in order]
    saved = [column for column in saved if column[1]][:1]
    return columns[: MAX_COLUMNS - len(saved)] + saved


def _with_law(members: Sequence[Ladder], quantity: str) -> list[Ladder]:
    return [one for one in members if any(law.quantity == quantity for law in one.laws)]


def _curves(axes: Axes, quantity: str, members: Sequence[Ladder], looks: Mapping[str, Style]) -> None:
    values: list[float] = []
    for one in members:
        law = next(law for law in one.laws if law.quantity == quantity)
        look, counts = looks[one.implementation], [row[quantity] for row in one.rows]
        lengths = [row["length"] for row in one.rows]
        first, last = one.judged[0]["length"], one.judged[-1]["length"]
        curve = [first * (last / first) ** (step / STEPS) for step in range(STEPS + 1)]
        axes.plot(curve, [evaluated(law.found, length) for length in curve], color=look.color, linewidth=1.0)
        axes.plot(lengths, counts, look.marker, color=look.color, markeredgecolor="white")
        values += counts
    length_axis(axes, [row["length"] for one in members for row in one.rows], "sequence length T")
    log_axis(axes, "bytes", values, form=byte_tick)


def _residuals(axes: Axes, quantity: str, members: Sequence[Ladder], looks: Mapping[str, Style]) -> None:
    """On a scale that shows a single byte as well as megabytes; ladders side by side, since most are at 0."""
    for number, one in enumerate(members):
        look = looks[one.implementation]
        aside = 1.03 ** (number - (len(members) - 1) / 2)
        off = [(row["length"] * aside, residual) for row, residual in one.residuals(quantity)]
        axes.plot(*zip(*off, strict=True), look.marker, color=look.color, markeredgecolor="white")
    axes.axhline(0, color="black", linewidth=0.8, zorder=1)
    length_axis(axes, [row["length"] for one in members for row in one.rows], "sequence length T")
    axes.set_yscale("symlog", linthresh=1, linscale=1.2)
    reach = max(10.0, *(abs(residual) for one in members for _, residual in one.residuals(quantity)))
    axes.set_ylim(-4 * reach, 4 * reach)
    ticks = [0] + [sign * size for size in (1, 1e3, 1e6, 1e9) if size <= 4 * reach for sign in (1, -1)]
    axes.set_yticks(sorted(ticks), [_signed(tick) for tick in sorted(ticks)], minor=False)
    axes.yaxis.set_minor_locator(_no_ticks())
    axes.set_ylabel("measured minus law")


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _signed(tick: float) -> str:
    return "0" if not tick else f"{'+' if tick > 0 else '−'}{byte_tick(abs(tick))}"


def _entries(looks: Mapping[str, Style], names: set[str]) -> list[Any]:
    return [
        line_entry(
            printable(name, 28),
            color=looks[name].color,
            marker=looks[name].marker,
            linestyle="",
            markeredgecolor="white",
        )
        for name in sorted(names)
    ]


def _examples(column: Column) -> str:
    """Bytes of the longest length that the implementations share."""
    quantity, members = column
    shared = set.intersection(*({row["length"] for row in one.rows} for one in members))
    if not shared:
        return ""
    longest = max(shared)
    row = {one.implementation: row for one in members for row in one.rows if row["length"] == longest}
    said = ", ".join(f"{printable(name, 28).strip()} {format_bytes(row[name][quantity])}" for name in sorted(row))
    return f"At T={longest:,}: {said}"


def _counts(answers: Sequence[Answer]) -> str:
    counts = {
        verdict: sum(one.verdict == verdict for one in answers) for verdict in ("CONFIRMED", "REFUTED", "INCONCLUSIVE")
    }
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def _subject(column: Column, reading: Reading) -> str:
    rows = [row for one in column[1] for row in one.rows]
    lengths = sorted({int(row["length"]) for row in rows})
    said = constants(rows[0], several_machines(reading)).split(", ", 2)[2]  # mask and direction differ between columns
    return f"{said}, T {span(lengths)}"


def _key(one: Ladder) -> tuple[Any, ...]:
    return tuple(one.rows[0][name] for name in LADDER)
