"""Trends over many runs: one series per cell and machine, with the runs at which its level changed.

Times enter as ratios to a control that was measured in the same rounds, as in a check, because absolute times of a
machine drift from day to day. Where several neighbouring runs lie at another level than those before them, the change
is placed by PELT (package ruptures) and kept if a rank-sum test and the margin agree. Exact numbers have no noise:
every difference between neighbours is a change.

Source: Killick, Fearnhead and Eckley, Optimal detection of changepoints with a linear computational cost (2012).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from bench.errors import NothingSelectedError, UnknownNameError, UsageError
from bench.metrics import gated
from bench.policy import Policy
from bench.results import Run
from bench.state import Subject, machine_name, state_of

PENALTY = 4.0
"""Cost of one more change, in units of the noise's variance times log(runs); an information criterion has 2 to 3."""
SIGNIFICANT = 0.01
"""Largest p-value of a change of level that is kept."""
LEAST_RUNS = 3
"""Runs on either side of a change at least: with fewer, no test can tell it from noise."""
DIFFERENCE_TO_DEVIATION = 1.4826 / math.sqrt(2)
"""Median absolute difference of neighbours to standard deviation, for normal noise: a change of level is one neighbour
pair among many and does not inflate it."""


@dataclass(frozen=True)
class Point:
    """One run's value."""

    run_id: str
    started_at: str
    commit: str | None
    value: float


@dataclass(frozen=True)
class Shift:
    """A change of level."""

    index: int
    """First point of the new level."""
    before: float
    """Median of the level before it."""
    after: float
    p_value: float | None
    """Rank-sum test between the levels; None for an exact number."""

    @property
    def percent(self) -> float | None:
        """Relative change; None from zero."""
        return 100 * (self.after - self.before) / abs(self.before) if self.before else None


@dataclass(frozen=True)
class Trend:
    """One cell on one machine."""

    machine: str
    cell: str
    points: tuple[Point, ...]
    shifts: tuple[Shift, ...]


def trends(
    runs: Sequence[Run], metric: str, policy: Policy, takes: Callable[[str], bool] = lambda implementation: True
) -> list[Trend]:
    """Every cell's series in the order of time; those that changed come first.

    Args:
        runs: in any order.
        metric: ``time``, or a gated metric.
        policy: names the controls and the margin.
        takes: which implementations.

    Raises:
        UnknownNameError: if the metric is neither.
        NothingSelectedError: if no cell has it in two runs of one machine.
    """
    if metric != "time" and metric not in gated():
        raise UnknownNameError("metric of a history", metric, ["time", *gated()])
    series: dict[tuple[str, str], list[Point]] = {}
    for run in sorted(runs, key=lambda run: (run.header.started_at, run.run_id)):
        environment = run.header.environment
        machine = f"{machine_name(environment)}, {environment.allocator} allocator"
        for subject in state_of(run, Policy(controls=policy.controls)).subjects.values():
            value = _value(subject, metric)
            if value is not None and math.isfinite(value):
                point = Point(run.run_id, run.header.started_at, environment.git_commit, value)
                series.setdefault((machine, subject.key), []).append(point)
    found = [
        Trend(machine, cell, tuple(points), tuple(_shifts([p.value for p in points], metric, policy.margin)))
        for (machine, cell), points in series.items()
        if len(points) > 1 and takes(cell.partition(" ")[0])
    ]
    if not found:
        raise NothingSelectedError(
            f"history must have a cell with {metric} in two runs of one machine, got none in {len(runs)} runs. "
            "Name more runs, other filters, or another --metric."
        )
    return sorted(found, key=lambda trend: (-_largest(trend), trend.machine, trend.cell))


def change_points(values: Sequence[float], margin: float) -> list[Shift]:
    """Changes of level of positive values with noise, larger than ``margin`` (0.03 is 3 %).

    Raises:
        UsageError: if the package ruptures is missing.
    """
    if len(values) < 2 * LEAST_RUNS or min(values) <= 0:
        return []
    logs = [math.log(value) for value in values]
    cuts = _pelt(logs)
    while doubtful := [place for place in range(len(cuts)) if not _is_proven(logs, cuts, place, margin)]:
        # The lowest goes first: short levels beside a real change keep every test from being significant.
        del cuts[min(doubtful, key=lambda place: _height(logs, cuts, place))]
    shifts = []
    for place, cut in enumerate(cuts):
        before, after = _sides(values, cuts, place)
        shifts.append(Shift(cut, median(before), median(after), _level_test(logs, cuts, place)))
    return shifts


def _value(subject: Subject, metric: str) -> float | None:
    if metric != "time":
        return subject.values.get(metric)
    return math.exp(median(subject.log_ratios)) if subject.log_ratios else None


def _shifts(values: Sequence[float], metric: str, margin: float) -> list[Shift]:
    if metric == "time":
        return change_points(values, margin)
    return [Shift(index, old, new, None) for index, (old, new) in enumerate(pairwise(values), start=1) if old != new]


def _pelt(logs: Sequence[float]) -> list[int]:
    """First indices of new levels, as PELT places them."""
    try:
        import ruptures
    except ImportError as error:
        raise UsageError(
            f"history of times must have the package ruptures, got none ({error}). "
            "Install it: pip install 'attention-bench[history]'."
        ) from error
    import numpy as np

    steps = sorted(abs(b - a) for a, b in pairwise(logs))
    noise = max(DIFFERENCE_TO_DEVIATION * median(steps), 1e-6)
    signal = np.asarray(logs).reshape(-1, 1) / noise
    found = ruptures.KernelCPD(kernel="linear", min_size=LEAST_RUNS).fit(signal)
    return [int(cut) for cut in found.predict(pen=PENALTY * math.log(len(logs)))[:-1]]


def _sides(values: Sequence[float], cuts: Sequence[int], place: int) -> tuple[Sequence[float], Sequence[float]]:
    """The levels before and after a cut."""
    edges = [0, *cuts, len(values)]
    return values[edges[place] : edges[place + 1]], values[edges[place + 1] : edges[place + 2]]


def _is_proven(logs: Sequence[float], cuts: Sequence[int], place: int, margin: float) -> bool:
    return _height(logs, cuts, place) > math.log1p(margin) and _level_test(logs, cuts, place) <= SIGNIFICANT


def _height(logs: Sequence[float], cuts: Sequence[int], place: int) -> float:
    before, after = _sides(logs, cuts, place)
    return abs(median(after) - median(before))


def _level_test(logs: Sequence[float], cuts: Sequence[int], place: int) -> float:
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(*_sides(logs, cuts, place)).pvalue)


def _largest(trend: Trend) -> float:
    """Size of the largest change; a change from zero is beyond measure."""
    sizes = [math.inf if shift.percent is None else abs(shift.percent) for shift in trend.shifts]
    return max(sizes, default=0.0)
