"""Ratios between cells: a leader board within runs, and cell-by-cell comparison between runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from bench.analysis import LatencySummary, fastest, latency_summary, paired_ratio
from bench.errors import NothingSelectedError
from bench.record import Measurement, Record
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
    """Common cells in which it is clearly the fastest: the interval of every other's ratio to it lies above 1."""


def rank(runs: Iterable[Run]) -> list[Standing]:
    """Order implementations by the geometric mean of paired ratios on the cells that all of them measured.

    Within a cell, each is set against the fastest one, round by round, so that what slowed both down cancels; where no
    round timed both, by the ratio of medians, and then nobody wins the cell. Cells flagged ``impossible`` do
    not count; no other flag keeps a cell out. A single number per implementation hides where it wins and loses: it is
    meant for a first look.

    Raises:
        NothingSelectedError: if no cell was measured by all of them.
    """
    cells: dict[tuple[str, str], dict[str, Measurement]] = {}
    for run in runs:
        for record in run.records:
            measured = sound_measurement(record)
            if measured is not None:
                cells.setdefault((run.run_id, record.problem.key), {})[record.implementation] = measured
    names = sorted({name for cell in cells.values() for name in cell})
    common = [_ratios(cell) for cell in cells.values() if len(cell) == len(names)]
    common = [cell for cell in common if cell]
    if not common:
        raise NothingSelectedError(
            "leader board must have cells that all of its implementations measured, "
            f"got none for {', '.join(names) or 'no one'}. "
            "Select fewer with -i or -I."
        )
    standings = [
        Standing(
            implementation=name,
            ratio=geometric_mean([cell[name][0] for cell in common]),
            cells=len(common),
            wins=sum(cell[name][1] for cell in common),
        )
        for name in names
    ]
    return sorted(standings, key=lambda standing: standing.ratio)


def sound_measurement(record: Record) -> Measurement | None:
    """The measurement of a record, unless it is flagged ``impossible``."""
    return None if any(flag.name == "impossible" for flag in record.flags) else record.measurement


def _ratios(cell: dict[str, Measurement]) -> dict[str, tuple[float, bool]]:
    """By implementation: time over that of the fastest, and whether it clearly is that; empty if a clock read 0."""
    medians = {name: latency_summary(measured).median_ms for name, measured in cell.items()}
    if min(medians.values()) <= 0:
        return {}
    best, clear = fastest(medians, lambda one, other: paired_ratio(cell[one], cell[other]))
    ratios = {name: paired_ratio(measured, cell[best]) for name, measured in cell.items()}
    return {
        name: (pair.ratio if pair else medians[name] / medians[best], clear and name == best)
        for name, pair in ratios.items()
    }


@dataclass(frozen=True)
class AllocatorEffect:
    """What the default allocator costs one implementation, from two runs that differ in nothing else."""

    implementation: str
    ratio: float
    """Geometric mean over the common cells of its time with the default allocator over that with the warm one."""
    least: float
    most: float
    cells: int


def allocator_effects(default: Run, warm: Run) -> list[AllocatorEffect]:
    """Time with the default over time with the warm allocator, the largest ratio first.

    Empty unless the runs differ in their allocator alone. They were not interleaved.
    """
    settings = {"allocator": ("default", "warm")}
    if differences(default, warm) != settings:
        return []
    slow, fast = _by_cell(default), _by_cell(warm)
    ratios: dict[str, list[float]] = {}
    for key in slow.keys() & fast.keys():
        before, after = sound_measurement(fast[key]), sound_measurement(slow[key])
        if before is not None and after is not None and latency_summary(before).median_ms > 0:
            ratio = latency_summary(after).median_ms / latency_summary(before).median_ms
            ratios.setdefault(key[1], []).append(ratio)
    found = [
        AllocatorEffect(name, geometric_mean(values), min(values), max(values), len(values))
        for name, values in ratios.items()
        if min(values) > 0
    ]
    return sorted(found, key=lambda effect: (-effect.ratio, effect.implementation))


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
