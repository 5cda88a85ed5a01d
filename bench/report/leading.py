"""Who leads where: how often each is clearly fastest, and whether that changes with the length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from bench.metrics import Row
from bench.plots import LADDER, Reading, grouped
from bench.report.finding import place


def timed(rows: Iterable[Row]) -> list[Row]:
    """The rows whose time can be believed and is not 0."""
    return [row for row in rows if row["sound"] and row["latency_ms"]]


def leader(cells: Sequence[Row], reading: Reading | None) -> Row | None:
    """Who is clearly the fastest of one problem that several were timed on; None if nobody is.

    Round by round with the ``reading`` that the cells come from; without it, where intervals do not overlap.
    """
    if reading is not None:
        best, clear = reading.fastest(cells)
    else:
        best = min(cells, key=lambda row: float(row["latency_ms"]))
        clear = all(row["latency_lo_ms"] > best["latency_hi_ms"] for row in cells if row is not best)
    return best if clear else None


def standing(rows: Iterable[Row], reading: Reading | None) -> str:
    """One sentence on who is clearly fastest how often; empty if no problem was timed by two."""
    problems = [cells for cells in grouped(timed(rows), "run_id", "problem").values() if len(cells) > 1]
    if not problems:
        return ""
    leaders = [leader(cells, reading) for cells in problems]
    won = Counter(str(row["implementation"]) for row in leaders if row is not None)
    unclear = sum(row is None for row in leaders)
    if len(problems) == 1:
        return f"{next(iter(won), 'Nobody')} is clearly fastest on the one problem that several were timed on."
    if not won:
        return f"Nobody is clearly fastest on any of the {len(problems)} problems that several were timed on."
    said = ", ".join(f"{name} on {count}" for name, count in sorted(won.items(), key=lambda item: (-item[1], item[0])))
    nobody = f"; nobody on {unclear}" if unclear else ""
    return f"Clearly fastest of {len(problems)} problems that several were timed on: {said}{nobody}."


def crossings(rows: Iterable[Row], reading: Reading | None) -> str:
    """One sentence on the longest ladder along which the clearly fastest changes; empty if there is none."""
    rows = timed(rows)
    ladders = grouped(rows, "run_id", *LADDER).values()
    told = [(reigns, ladder) for ladder in ladders if len(reigns := _reigns(ladder, reading)) > 1]
    if not told:
        return ""
    reigns, ladder = max(told, key=lambda one: len(one[1]))
    where = place(ladder[0], rows).partition(", ")[2]
    said = ", then ".join(f"{name} at {_lengths(lengths)}" for name, lengths in reigns)
    often = f" on {len(told)} ladders" if len(told) > 1 else ""
    return f"Who is fastest changes with the length{often}{f' ({where})' if where else ''}: {said}."


def _reigns(ladder: Sequence[Row], reading: Reading | None) -> list[tuple[str, list[int]]]:
    """Who is clearly fastest over which lengths, one after the other; lengths without such a one are passed over.

    Empty unless both were timed on both sides of each change: otherwise it may only be an absence.
    """
    reigns: list[tuple[str, list[int]]] = []
    there: dict[int, set[str]] = {}
    for cells in sorted(grouped(ladder, "length").values(), key=lambda cells: int(cells[0]["length"])):
        length = int(cells[0]["length"])
        there[length] = {str(row["implementation"]) for row in cells}
        ahead = leader(cells, reading) if len(cells) > 1 else None
        if ahead is None:
            continue
        if reigns and reigns[-1][0] == ahead["implementation"]:
            reigns[-1][1].append(length)
        else:
            reigns.append((str(ahead["implementation"]), [length]))
    changes = pairwise(reigns)
    both = all({old, new} <= there[before[-1]] & there[after[0]] for (old, before), (new, after) in changes)
    return reigns if both else []


def _lengths(lengths: Sequence[int]) -> str:
    """``T=128``, or how many between which two."""
    return f"T={lengths[0]}" if len(lengths) == 1 else f"{len(lengths)} lengths from T={lengths[0]} to T={lengths[-1]}"
