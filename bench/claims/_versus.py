"""One implementation against naive along a ladder: paired ratios of time, exact ratios of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bench.claims._storage import STORES_NO_SCORES, by_length, whole_blocks
from bench.memory_law import NAIVE
from bench.metrics import Row
from bench.plots import LADDER, Reading
from bench.units import significant

MARGIN = 0.05
"""Ratios this near to 1 are neither ahead nor behind: identical code differs by less between processes."""


@dataclass(frozen=True)
class Point:
    """Time over that of naive at one length."""

    length: int
    ratio: float
    lo: float
    hi: float
    processes: int

    @property
    def ahead(self) -> bool:
        """Clearly faster than naive."""
        return self.hi < 1 / (1 + MARGIN)

    @property
    def behind(self) -> bool:
        """Clearly slower."""
        return self.lo > 1 + MARGIN

    @property
    def not_behind(self) -> bool:
        """Certainly not slower by more than the margin."""
        return self.hi < 1 + MARGIN

    @property
    def text(self) -> str:
        """``0.71x [0.69, 0.73]``."""
        return f"{significant(self.ratio)}x [{significant(self.lo)}, {significant(self.hi)}]"


@dataclass(frozen=True)
class Versus:
    """Rows of one implementation and of naive that differ in their length alone."""

    rows: tuple[Row, ...]
    """By ascending length."""
    naive: tuple[Row, ...]
    """Of naive at the same lengths."""
    times: tuple[Point, ...]
    """Where both were timed soundly in the same rounds."""

    @property
    def implementation(self) -> str:
        """Who is held against naive."""
        return str(self.rows[0]["implementation"])

    @property
    def keys(self) -> tuple[str, ...]:
        """Of all cells."""
        return tuple(str(row["cell_key"]) for row in (*self.rows, *self.naive))

    @property
    def lengths(self) -> list[int]:
        """Where both were measured."""
        return [int(row["length"]) for row in self.rows]

    @cached_property
    def memory(self) -> dict[int, float]:
        """By length: peak bytes over those of naive."""
        both = zip(self.rows, self.naive, strict=True)
        return {
            int(mine["length"]): mine["peak_bytes"] / its["peak_bytes"]
            for mine, its in both
            if mine["peak_bytes"] is not None and its["peak_bytes"]
        }

    @property
    def whole_lengths(self) -> list[int]:
        """Where blocks have their full size, so that the factor has to grow."""
        return [int(row["length"]) for row in whole_blocks(self.rows) if int(row["length"]) in self.memory]


def crossing_text(times: Sequence[Point]) -> str:
    """``ahead from T=512 on, crossing between 368 and 512`` and the like, for points by ascending length."""
    start: Point | None = None
    for point in reversed(times):
        if not point.ahead:
            break
        start = point
    if start is None:
        sometimes = (
            "ahead at shorter lengths, not clearly at" if any(point.ahead for point in times) else "not ahead up to"
        )
        return f"{sometimes} T={times[-1].length:,}"
    if start is times[0]:
        return f"ahead from the shortest length on, T={start.length:,}"
    before = [point for point in times if point.length < start.length]
    last = next((point for point in reversed(before) if point.behind), None)
    if last is None:
        return f"clearly ahead from T={start.length:,} on, nowhere clearly behind"
    return f"ahead from T={start.length:,} on, crossing between {last.length:,} and {start.length:,}"


def versus_naive(reading: Reading, names: Sequence[str] = STORES_NO_SCORES) -> list[Versus]:
    """Each implementation on each ladder of naive."""
    rows = [row for row in reading.rows if row["latency_ms"] is not None or row["peak_bytes"] is not None]
    ladders = by_length([row for row in rows if row["implementation"] in (NAIVE, *names)])
    naive = {
        _key(rows[0]): {row["length"]: row for row in rows} for rows in ladders if rows[0]["implementation"] == NAIVE
    }
    found = []
    for ladder in ladders:
        its = naive.get(_key(ladder[0]), {})
        mine = {row["length"]: row for row in ladder if row["length"] in its}
        if ladder[0]["implementation"] != NAIVE and mine:
            found.append(
                Versus(
                    tuple(mine.values()),
                    tuple(its[length] for length in mine),
                    tuple(point for length, row in mine.items() if (point := _point(reading, row, its[length]))),
                )
            )
    return found


def _point(reading: Reading, mine: Row, its: Row) -> Point | None:
    pair = reading.paired(mine, its) if mine["sound"] and its["sound"] else None
    return None if pair is None else Point(int(mine["length"]), pair.ratio, pair.lo, pair.hi, pair.processes)


def _key(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in LADDER)
