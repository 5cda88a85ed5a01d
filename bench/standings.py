"""The leader board: one number per implementation, from paired ratios on the cells that all of them measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import TypeVar

from bench.analysis import PairedRatio, fastest, latency_summary, paired_ratio
from bench.errors import NothingSelectedError, UsageError
from bench.record import Measurement, Record
from bench.results import Run

K = TypeVar("K")

CAUTION = "One number per implementation hides where it wins and loses; look at the figures before choosing."
"""Stands beside every leader board."""


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
    losses: int
    """Common cells in which the fastest clearly beats it. In the rest, nobody can tell."""
    over_best_other: float | None
    """Geometric mean of the time of the best of the others over its own; None if there is no other."""
    over_best_baseline: float | None
    """The same against the best of the baselines (itself included, if it is one); None without baselines."""


@dataclass(frozen=True)
class _Place:
    """One implementation in one cell."""

    ratio: float
    wins: bool
    loses: bool


def rank(runs: Iterable[Run], baselines: Sequence[str] = ()) -> list[Standing]:
    """Order implementations by the geometric mean of paired ratios on the cells that all of them measured.

    Within a cell, each is set against the fastest one, round by round, so that what slowed both down cancels; where no
    round timed both, by the ratio of medians, and then nobody wins the cell. Cells flagged ``impossible`` do
    not count; no other flag keeps a cell out. A single number per implementation hides where it wins and loses: it is
    meant for a first look.

    Args:
        runs: whose cells to rank.
        baselines: implementations; each is also set against the best of them, cell by cell.

    Raises:
        NothingSelectedError: if no cell was measured by all of them.
        UsageError: if a baseline is not among the ranked.
    """
    cells: dict[tuple[str, str], dict[str, Measurement]] = {}
    for run in runs:
        for record in run.records:
            measured = sound_measurement(record)
            if measured is not None:
                cells.setdefault((run.run_id, record.problem.key), {})[record.implementation] = measured
    names = sorted({name for cell in cells.values() for name in cell})
    unknown = [name for name in baselines if name not in names]
    if unknown:
        raise UsageError(f"baseline must be one of {', '.join(names) or 'no one'}, got {unknown[0]!r}. Name another.")
    medians = {id(m): latency_summary(m).median_ms for cell in cells.values() for m in cell.values()}
    found = standings(list(cells.values()), lambda one: medians[id(one)], paired_ratio, baselines)
    if not found:
        raise NothingSelectedError(
            "leader board must have cells that all of its implementations measured, "
            f"got none for {', '.join(names) or 'no one'}. "
            "Select fewer with -i or -I."
        )
    return found


def standings(
    cells: Sequence[Mapping[str, K]],
    median_ms: Callable[[K], float],
    paired: Callable[[K, K], PairedRatio | None],
    baselines: Sequence[str] = (),
) -> list[Standing]:
    """The leader board of whatever was measured, the fastest first; empty if no cell has everyone.

    Args:
        cells: each problem of each run: what was measured, by implementation.
        median_ms: the latency of one measured thing.
        paired: time of the first over that of the second; None where no round timed both.
        baselines: implementations that occur in ``cells``.
    """
    names = sorted({name for cell in cells for name in cell})
    common = [places for cell in cells if len(cell) == len(names) and (places := _places(cell, median_ms, paired))]
    if not common:
        return []
    found = [
        Standing(
            implementation=name,
            ratio=geometric_mean([places[name].ratio for places in common]),
            cells=len(common),
            wins=sum(places[name].wins for places in common),
            losses=sum(places[name].loses for places in common),
            over_best_other=_against(common, name, [other for other in names if other != name]),
            over_best_baseline=_against(common, name, baselines),
        )
        for name in names
    ]
    return sorted(found, key=lambda standing: standing.ratio)


def _places(
    cell: Mapping[str, K], median_ms: Callable[[K], float], paired: Callable[[K, K], PairedRatio | None]
) -> dict[str, _Place]:
    """Everyone against the fastest of one cell; empty if a clock read 0."""
    medians = {name: median_ms(measured) for name, measured in cell.items()}
    if min(medians.values()) <= 0:
        return {}
    best, clear = fastest(medians, lambda one, other: paired(cell[one], cell[other]))
    places = {}
    for name, measured in cell.items():
        pair = None if name == best else paired(measured, cell[best])
        ratio = pair.ratio if pair else medians[name] / medians[best]
        places[name] = _Place(ratio, clear and name == best, pair is not None and pair.lo > 1)
    return places


def _against(cells: Sequence[Mapping[str, _Place]], name: str, others: Sequence[str]) -> float | None:
    """Geometric mean over cells of the time of the best of ``others`` over that of ``name``."""
    if not others:
        return None
    return geometric_mean([min(cell[other].ratio for other in others) / cell[name].ratio for cell in cells])


def sound_measurement(record: Record) -> Measurement | None:
    """The measurement of a record, unless it is flagged ``impossible``."""
    return None if any(flag.name == "impossible" for flag in record.flags) else record.measurement
