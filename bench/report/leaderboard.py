"""The leader boards of the page: one for each machine, device, direction and dtype that several were timed on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.memory_law import NAIVE
from bench.metrics import Row
from bench.plots import Reading, grouped
from bench.report.leading import timed
from bench.standings import CAUTION, Standing, standings
from bench.units import significant

if TYPE_CHECKING:
    from bench.report.material import Material

KIND = ("machine", "device", "direction", "dtype")
"""Columns that are constant on a board."""
LEAST_SHARE = 0.5
"""Who was timed on a smaller share of the problems stands below the board instead of on it: it would shrink the cells
that all others have in common."""


@dataclass(frozen=True)
class Board:
    """One leader board."""

    title: str
    standings: list[Standing]
    """The fastest first."""
    problems: int
    """Problems that at least one was timed on."""
    unranked: dict[str, str]
    """Why an implementation is not on the board."""

    @property
    def cells(self) -> int:
        """Common cells."""
        return self.standings[0].cells


def boards(reading: Reading) -> list[Board]:
    """The boards, that with the most common cells first; none where nothing was timed by two."""
    found = [
        board
        for rows in grouped(reading.rows, *KIND).values()
        if (board := _board(reading, rows, several=len({row["machine"] for row in reading.rows}) > 1)) is not None
    ]
    return sorted(found, key=lambda board: -board.cells)


def ranked(reading: Reading, rows: Sequence[Row]) -> tuple[list[Standing], list[dict[str, Row]]]:
    """The standings of those who were timed on enough problems, with the common cells; empty for fewer than two."""
    by_problem = list(grouped(timed(rows), "run_id", "problem").values())
    cells = [{str(row["implementation"]): row for row in group} for group in by_problem]
    counts = Counter(name for cell in cells for name in cell)
    most = max(counts.values(), default=0)
    names = [name for name, count in counts.most_common() if count >= LEAST_SHARE * most]
    while len(names) > 1:
        common = [{name: cell[name] for name in names} for cell in cells if cell.keys() >= set(names)]
        found = standings(common, _latency_ms, reading.paired, [name for name in names if name == NAIVE])
        if found:
            return found, common
        names.pop()  # the one with the fewest
    return [], []


def _latency_ms(row: Row) -> float:
    return float(row["latency_ms"])


def _board(reading: Reading, rows: Sequence[Row], *, several: bool) -> Board | None:
    found, _ = ranked(reading, rows)
    if not found:
        return None
    first = rows[0]
    problems = grouped(timed(rows), "run_id", "problem")
    on_board = {standing.implementation for standing in found}
    unranked = {
        str(name): _why(cells, len(problems))
        for (name,), cells in sorted(grouped(rows, "implementation").items())
        if name not in on_board
    }
    where = f", {first['machine']}" if several else ""
    title = f"{first['direction']}, {first['dtype']}, on {first['device']}{where}"
    return Board(title, found, len(problems), unranked)


def _why(cells: Sequence[Row], problems: int) -> str:
    """Why an implementation is not ranked."""
    count = len(timed(cells))
    if count:
        return f"timed on {count} of {problems} problems"
    states = Counter(
        str(row["status"]).replace("_", " ") if row["sound"] or row["latency_ms"] is None else "impossible"
        for row in cells
    )
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


def section(material: Material) -> dict[str, Any] | None:
    """What the template ``leaderboard.html`` shows; None where nothing was timed by two implementations."""
    found = boards(material.reading)
    if not found:
        return None
    return {"caution": CAUTION, "boards": [shown(board) for board in found]}


def shown(board: Board) -> Mapping[str, Any]:
    """Heads and rows of a board, and what stands around them."""
    heads = ["place", "implementation", "time over fastest", "speed over best other", f"speed over {NAIVE}"]
    heads += ["wins", "losses", "undecided"]
    rows = [
        [
            str(place),
            one.implementation,
            _times(one.ratio),
            _times(one.over_best_other),
            _times(one.over_best_baseline),
            str(one.wins),
            str(one.losses),
            str(one.cells - one.wins - one.losses),
        ]
        for place, one in enumerate(board.standings, start=1)
    ]
    return {
        "title": board.title,
        "heads": heads,
        "rows": rows,
        "cells": board.cells,
        "problems": board.problems,
        "unranked": [f"{name}: {why}" for name, why in board.unranked.items()],
    }


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{significant(ratio)}x"
