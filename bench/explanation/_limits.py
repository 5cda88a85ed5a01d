"""How much of a cell's time each limit of the machine accounts for, at least.

Three lower bounds follow from a run alone:

* *products*: FLOP of the visible pairs over the best measured rate of matrix products in the dtype;
* *bytes*: inputs read and results written once, over the best measured bandwidth of a working set at least as large;
* *calling*: what does not grow with the work. Through this cell and a neighbour of the same ladder with at most half,
  or at least twice, its FLOP goes one line ``time = constant + slope · FLOP``, and the constant is that part. A cost
  that grows with the length alone, not with the pairs, is counted with at most a third of it.

What the profiler counted replaces none of them; it is held beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.analysis import LatencySummary, bandwidth_roof
from bench.explanation._cell import Cell, Support, length_text, time_support, timed
from bench.header import Ceilings
from bench.record import Record
from bench.units import format_ms, ms_to_s

Regime = Literal["compute", "bandwidth", "cache", "launch"]

WORK_RATIO = 2.0
"""A neighbour is used to tell the part that does not grow if the FLOP differ by this factor or more."""
BEATEN = 1.05
"""A call that beats a ceiling by more shows that it is none, as for the flag ``impossible``."""


@dataclass(frozen=True)
class Share:
    """Part of a cell's time that one limit takes at least."""

    regime: Regime
    lo: float
    """Least that the interval of the latency allows."""
    middle: float
    hi: float
    text: str
    """What takes it, as the subject of a sentence."""
    support: tuple[Support, ...]


def products_share(cell: Cell, time: LatencySummary, ceilings: Ceilings) -> Share | str:
    """Share of the products, or why there is none."""
    dtype, flop = cell.record.problem.dtype, cell.record.flop
    rate = ceilings.flop_per_s.get(dtype)
    if rate is None:
        return f"the run measured no rate of products in {dtype} (header.ceilings.flop_per_s)"
    support = (
        Support("record", "flop", flop),
        Support("ceilings", f"flop_per_s.{dtype}", rate),
        time_support(cell.record),
    )
    return _share("compute", flop / rate, time, "its products at the best measured rate", support)


def bytes_share(cell: Cell, time: LatencySummary, ceilings: Ceilings) -> Share | str:
    """Share of moving the least bytes, or why there is none; ``cache`` where the last one holds all that is touched."""
    moved = cell.record.problem.least_bytes
    roof = bandwidth_roof(ceilings, moved)
    regime = place(cell) or "bandwidth"
    support = (
        Support("record", "problem.least_bytes", moved),
        Support("ceilings", f"bandwidth of {moved} B or more, bytes_per_s", roof),
        *place_support(cell),
        time_support(cell.record),
    )
    return _share(
        regime, moved / roof, time, "its inputs read and its results written once at the measured bandwidth", support
    )


def place(cell: Cell) -> Literal["cache", "bandwidth"] | None:
    """Whether what the call touches fits into the last cache or not; None where nobody knows."""
    touched = cell.touched_bytes
    size = None if cell.ceilings is None else cell.ceilings.cache_bytes
    if touched is None or size is None:
        return None
    return "cache" if touched <= size else "bandwidth"


def place_support(cell: Cell) -> tuple[Support, ...]:
    """What :func:`place` compares; empty where it cannot."""
    if place(cell) is None or cell.ceilings is None:
        return ()
    return (
        Support("record", "problem.least_bytes + measurement.memory.workspace_bytes", cell.touched_bytes),
        Support("ceilings", "cache_bytes", cell.ceilings.cache_bytes),
    )


def neighbour(cell: Cell) -> Record | None:
    """The nearest shorter cell of the ladder with at most half the FLOP; else the nearest longer one with twice."""
    flop = cell.record.flop
    shorter = [other for other in cell.ladder if 0 < other.flop * WORK_RATIO <= flop]
    longer = [other for other in cell.ladder if other.flop >= WORK_RATIO * flop > 0]
    return shorter[-1] if shorter else longer[0] if longer else None


def calling_share(cell: Cell, time: LatencySummary) -> Share | str:
    """Share of what does not grow with the work, or why it is not known."""
    if cell.doubted is not None:
        return f"its time is compared with no other one: it is flagged {cell.doubted}"
    other = neighbour(cell)
    if other is None:
        return f"the run has no cell of {cell.name} of another length with half or twice the FLOP"
    beside, ratio = timed(other), other.flop / cell.record.flop

    def constant(own_ms: float, other_ms: float) -> float:
        return (ratio * own_ms - other_ms) / (ratio - 1) / own_ms

    # The part is monotonic in both times, so its ends lie at ends of the intervals.
    ends = [constant(own, far) for own in (time.lo_ms, time.hi_ms) for far in (beside.lo_ms, beside.hi_ms)]
    support = (
        time_support(cell.record),
        time_support(other, f"record at {length_text(other)}"),
        Support(f"record at {length_text(other)}", "flop over this cell's", round(ratio, 6)),
    )
    text = f"what does not grow with the FLOP between {length_text(cell.record)} and {length_text(other)}"
    return Share("launch", min(ends), constant(time.median_ms, beside.median_ms), max(ends), text, support)


def _share(
    regime: Regime, seconds: float, time: LatencySummary, text: str, support: tuple[Support, ...]
) -> Share | str:
    """The share, unless it is more than all: then the ceiling is none."""
    if seconds > BEATEN * ms_to_s(time.hi_ms):
        least = format_ms(1000 * seconds)
        return f"it is faster than a measured limit of its machine allows: {text} would take {least}"
    return Share(
        regime,
        seconds / ms_to_s(time.hi_ms),
        seconds / ms_to_s(time.median_ms),
        seconds / ms_to_s(time.lo_ms),
        text,
        support,
    )
