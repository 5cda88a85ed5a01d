"""Ratios between cells: a leader board within runs, and cell-by-cell comparison between runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from bench.analysis import LatencySummary, latency_summary
from bench.errors import NothingSelectedError
from bench.record import Record
from bench.results import Run

COMPARABLE = ("cpu", "cores", "device", "allocator", "torch_threads", "torch_build")
"""Fields of the environment that must be equal for absolute times of two runs to be compared."""
COMPARABLE_PACKAGES = ("torch", "triton")
"""Packages whose versions must be equal as well."""


@dataclass(frozen=True)
class Standing:
    """One line of the leader board."""

    implementation: str
    ratio: float
    """Geometric mean over the common cells of its time over that of the fastest in the same cell of the same run."""
    cells: int
    """Common cells: those that every ranked implementation measured."""
    wins: int
    """Common cells in which it is the fastest."""


def rank(runs: Iterable[Run]) -> list[Standing]:
    """Order implementations by the geometric mean of paired ratios on the cells that all of them measured.

    Cells flagged ``impossible`` do not count. A single number per implementation hides where it wins and loses: it is
    meant for a first look.

    Raises:
        NothingSelectedError: if no cell was measured by all of them.
    """
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for run in runs:
        for record in run.records:
            if record.measurement is not None and not any(flag.name == "impossible" for flag in record.flags):
                cell = cells.setdefault((run.run_id, record.problem.key), {})
                cell[record.implementation] = latency_summary(record.measurement).median_ms
    names = sorted({name for cell in cells.values() for name in cell})
    common = [cell for cell in cells.values() if len(cell) == len(names) and min(cell.values()) > 0]
    if not common:
        raise NothingSelectedError(
            "leader board must have cells that all of its implementations measured, "
            f"got none for {', '.join(names) or 'no one'}. "
            "Select fewer with -i or -I."
        )
    standings = [
        Standing(
            implementation=name,
            ratio=geometric_mean([cell[name] / min(cell.values()) for cell in common]),
            cells=len(common),
            wins=sum(cell[name] == min(cell.values()) for cell in common),
        )
        for name in names
    ]
    return sorted(standings, key=lambda standing: standing.ratio)


@dataclass(frozen=True)
class Change:
    """One cell in two runs. The runs were not interleaved, so only large changes mean anything."""

    problem: str
    implementation: str
    before_status: str | None
    """None if the first run does not have the cell."""
    after_status: str | None
    """None if the second run does not have the cell."""
    latency_ratio: float | None
    """Median of the second run over that of the first; None if either has none or the machines differ."""
    latency_ratio_lo: float | None
    """Smallest ratio that the two intervals allow."""
    latency_ratio_hi: float | None
    """Largest ratio that the two intervals allow."""
    peak_bytes_change: int | None
    """Bytes of the second run minus those of the first; exact."""
    out_max_abs_ratio: float | None
    """Error of the second run over that of the first; None if the first is 0 or either is missing."""


def compare(before: Run, after: Run) -> list[Change]:
    """Every cell of either run, those in both first; times are left out where the machines differ.

    Raises:
        NothingSelectedError: if the two runs share no cell.
    """
    left, right = _by_cell(before), _by_cell(after)
    if not left.keys() & right.keys():
        raise NothingSelectedError(
            f"compared runs must share at least one cell, got none in {before.run_id} and {after.run_id}. "
            "Compare runs of the same sweep."
        )
    timed = not differences(before, after)
    keys = [key for key in left if key in right] + [key for key in left if key not in right]
    return [
        _change(key, left.get(key), right.get(key), timed) for key in keys + [key for key in right if key not in left]
    ]


def differences(before: Run, after: Run) -> dict[str, tuple[Any, Any]]:
    """Fields of the environments that differ and make absolute times incomparable."""
    a, b = before.header.environment, after.header.environment
    pairs = {name: (getattr(a, name), getattr(b, name)) for name in COMPARABLE}
    pairs |= {name: (a.packages.get(name), b.packages.get(name)) for name in COMPARABLE_PACKAGES}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def selected(runs: Sequence[Run], takes_implementation: Any, takes_problem: Any) -> list[Run]:
    """The runs with only the records that both predicates let through."""
    from dataclasses import replace

    return [
        replace(
            run, records=[r for r in run.records if takes_implementation(r.implementation) and takes_problem(r.problem)]
        )
        for run in runs
    ]


def _by_cell(run: Run) -> dict[tuple[str, str], Record]:
    return {(record.problem.key, record.implementation): record for record in run.records}


def _change(key: tuple[str, str], before: Record | None, after: Record | None, timed: bool) -> Change:
    latency = _summaries(before, after) if timed else None
    ratio = None if latency is None or latency[0].median_ms <= 0 else latency[1].median_ms / latency[0].median_ms
    lo = hi = None
    if latency is not None and latency[0].lo_ms > 0:
        lo, hi = latency[1].lo_ms / latency[0].hi_ms, latency[1].hi_ms / latency[0].lo_ms
    old, new = _error(before), _error(after)
    return Change(
        problem=key[0],
        implementation=key[1],
        before_status=None if before is None else before.status,
        after_status=None if after is None else after.status,
        latency_ratio=ratio,
        latency_ratio_lo=lo,
        latency_ratio_hi=hi,
        peak_bytes_change=_peak_change(before, after),
        out_max_abs_ratio=new / old if old and new is not None else None,
    )


def _summaries(before: Record | None, after: Record | None) -> tuple[LatencySummary, LatencySummary] | None:
    if before is None or after is None or before.measurement is None or after.measurement is None:
        return None
    return latency_summary(before.measurement), latency_summary(after.measurement)


def _peak_change(before: Record | None, after: Record | None) -> int | None:
    peaks = [
        record.measurement.memory.peak_bytes
        for record in (before, after)
        if record is not None and record.measurement is not None and record.measurement.memory is not None
    ]
    return peaks[1] - peaks[0] if len(peaks) == 2 else None


def _error(record: Record | None) -> float | None:
    if record is None or record.agreement is None or "out" not in record.agreement.tensors:
        return None
    return record.agreement.tensors["out"].max_abs
