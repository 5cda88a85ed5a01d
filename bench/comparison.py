"""Two runs held against each other, cell by cell: whether their times may be compared, and what changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Any

from bench.analysis import LatencySummary, latency_summary
from bench.errors import NothingSelectedError
from bench.record import Record
from bench.results import Run
from bench.standings import sound_measurement
from bench.verdicts import LOOKS, MARGIN, Verdict

COMPARABLE = ("cpu", "cores", "device", "allocator", "torch_threads", "torch_build", "float32_products")
"""Fields of the environment that must be equal for absolute times of two runs to be compared."""
COMPARABLE_PACKAGES = ("torch", "triton")
"""Packages whose versions must be equal as well."""


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
    """Median of the second run over that of the first; None if either has none, is flagged ``impossible``, or the
    machines differ."""
    latency_ratio_lo: float | None
    """Smallest ratio that the two intervals allow."""
    latency_ratio_hi: float | None
    """Largest ratio that the two intervals allow."""
    processes: int | None
    """Processes behind the ratio: of the run that has fewer."""
    verdict: Verdict | None
    """From six processes in both runs on; None with fewer, whose intervals say nothing of the next process."""
    significance: float | None
    """How far the nearer end of the interval lies from 1, in margins: from 1 on, all of it lies beyond the margin. 0
    where the interval holds 1."""
    peak_bytes_change: int | None
    """Bytes of the second run minus those of the first; exact."""
    out_max_abs_ratio: float | None
    """Error of the second run over that of the first; None if the first is 0 or either is missing."""

    @property
    def notable(self) -> bool:
        """Whether anything changed: time beyond the margin, bytes, status, or the error by more than half."""
        error = self.out_max_abs_ratio
        return (
            (self.significance or 0.0) >= 1
            or bool(self.peak_bytes_change)
            or self.before_status != self.after_status
            or (error is not None and not 2 / 3 <= error <= 1.5)
        )


def compare(before: Run, after: Run) -> list[Change]:
    """Every cell of either run, the most significant change of time first; cells of one run alone come last.

    Times are left out where the machines differ.

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
    changes = [_change(key, left.get(key), right.get(key), timed) for key in {**left, **right}]
    return sorted(changes, key=_importance)


def _importance(change: Change) -> tuple[bool, float, float]:
    """Cells of both runs first; among them by significance, then by the size of the change."""
    size = abs(math.log(change.latency_ratio)) if change.latency_ratio else 0.0
    return None in (change.before_status, change.after_status), -(change.significance or 0.0), -size


def differences(before: Run, after: Run) -> dict[str, tuple[Any, Any]]:
    """Fields of the environments that differ and make absolute times incomparable."""
    a, b = _comparable(before), _comparable(after)
    return {name: (a[name], b[name]) for name in a if a[name] != b[name]}


def _comparable(run: Run) -> dict[str, Any]:
    environment = run.header.environment
    fields = {name: getattr(environment, name) for name in COMPARABLE}
    return fields | {name: environment.packages.get(name) for name in COMPARABLE_PACKAGES}


def machine_names(runs: Sequence[Run]) -> dict[str, str]:
    """By run: the machine in words, the same for two runs exactly if their times may stand in one figure.

    That is if host and everything that :func:`differences` looks at agree. Where host and allocator do not tell two
    apart, what differs is named.
    """
    names: dict[str, str] = {}
    for run in runs:
        host = run.header.environment.hostname
        rivals = [one for one in runs if one.header.environment.hostname == host]
        differing = {name for one in rivals for name in differences(run, one)} - {"allocator"}
        own = _comparable(run)
        told = [f"{name.replace('_', ' ')} {own[name] or 'unknown'}" for name in own if name in differing]
        names[run.run_id] = ", ".join([host, f"{own['allocator']} allocator", *told])
    return names


def selected(runs: Sequence[Run], takes_implementation: Any, takes_problem: Any) -> list[Run]:
    """The runs with only the records that both predicates let through."""
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
    ratio = lo = hi = verdict = significance = processes = None
    if latency is not None:
        first, second, processes = latency
        ratio, lo, hi = second.median_ms / first.median_ms, second.lo_ms / first.hi_ms, second.hi_ms / first.lo_ms
        significance = max(math.log(lo), -math.log(hi), 0.0) / math.log1p(MARGIN)
        verdict = _verdict(lo, hi) if processes >= LOOKS[0] else None
    old, new = _error(before), _error(after)
    return Change(
        problem=key[0],
        implementation=key[1],
        before_status=None if before is None else before.status,
        after_status=None if after is None else after.status,
        latency_ratio=ratio,
        latency_ratio_lo=lo,
        latency_ratio_hi=hi,
        processes=processes,
        verdict=verdict,
        significance=significance,
        peak_bytes_change=_peak_change(before, after),
        out_max_abs_ratio=new / old if old and new is not None else None,
    )


def _verdict(lo: float, hi: float) -> Verdict:
    """That of :mod:`bench.verdicts`, on an interval that two unpaired ones allow."""
    if lo > 1 + MARGIN:
        return "REGRESSED"
    if hi < 1 / (1 + MARGIN):
        return "IMPROVED"
    return "UNCHANGED" if lo > 1 / (1 + MARGIN) and hi < 1 + MARGIN else "UNCLEAR"


def _summaries(before: Record | None, after: Record | None) -> tuple[LatencySummary, LatencySummary, int] | None:
    """Both latencies and the fewer processes; None unless both are believable and above 0."""
    measured = [sound_measurement(record) for record in (before, after) if record is not None]
    if len(measured) < 2 or measured[0] is None or measured[1] is None:
        return None
    if measured[0].clock != measured[1].clock:
        return None
    first, second = latency_summary(measured[0]), latency_summary(measured[1])
    if min(first.lo_ms, second.lo_ms) <= 0:
        return None
    return first, second, min(len(set(one.processes)) for one in measured if one is not None)


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
