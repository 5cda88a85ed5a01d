"""After how many calls does compiling, autotuning or building masks pay?

What an implementation spends before its first call is ``setup_ns`` (preparing and first calling the certificate problem
in a fresh process: compilation and autotuning, above all) and ``prepare_ns`` (masks, scratch, and what compilation the
sizes of this problem still need). Against one that spends less by ``d`` and takes longer per call by ``s``, it pays
after ``d / s`` calls. That is an upper bound for a process that computes other problems of the kind as well: it sets up
once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bench.analysis import latency_summary, paired_ratio
from bench.record import Measurement, Record
from bench.units import ns_to_ms

LEAST_MS = 100.0
"""Smaller differences are no set-up cost: where nothing is compiled, the first calls of a process differ by up to 30 ms
(two cores, sweep ``default``); what compiles takes seconds."""


@dataclass(frozen=True)
class BreakEven:
    """One implementation that spends time up front, against the fastest one that spends less, on one problem."""

    problem: str
    """Key of the problem."""
    implementation: str
    versus: str
    """The fastest implementation of the same problem whose cost is smaller by :data:`LEAST_MS` or more."""
    extra_ms: float
    """What it spends up front beyond the other."""
    saved_ms: float
    """What it saves in each call; negative where it is slower."""
    calls: int | None
    """Calls after which it has paid; None: never, it is no faster."""
    calls_least: int | None
    """The fewest that the interval of the paired ratio allows; None: never, whatever the ratio within it."""
    calls_most: int | None
    """The most; None: the interval does not exclude that it never pays."""


def break_even(records: Iterable[Record]) -> list[BreakEven]:
    """Every implementation that spends at least :data:`LEAST_MS` more up front than another one on the same problem.

    Args:
        records: of one run. Cells without a sound time, and pairs that no round timed together, are passed over.
    """
    by_problem: dict[str, dict[str, Measurement]] = {}
    for record in records:
        if record.measurement is not None and not any(flag.name == "impossible" for flag in record.flags):
            by_problem.setdefault(record.problem.key, {})[record.implementation] = record.measurement
    found = [_against(problem, name, cells) for problem, cells in by_problem.items() for name in cells]
    return [one for one in found if one is not None]


def cost_ms(measurement: Measurement, *, with_setup: bool = True) -> float:
    """Milliseconds that were spent before the first call."""
    setup = measurement.setup_ns if with_setup else None
    return ns_to_ms((setup or 0) + measurement.prepare_ns)


def _against(problem: str, name: str, cells: dict[str, Measurement]) -> BreakEven | None:
    """The comparison with the fastest rival that spends less; None if there is none."""
    mine = cells[name]
    rivals = {other: extra for other in cells if other != name and (extra := _extra_ms(mine, cells[other])) >= LEAST_MS}
    if not rivals:
        return None
    versus = min(rivals, key=lambda other: latency_summary(cells[other]).median_ms)
    pair = paired_ratio(cells[versus], mine)
    if pair is None:
        return None
    extra, call_ms = rivals[versus], latency_summary(mine).median_ms
    return BreakEven(
        problem=problem,
        implementation=name,
        versus=versus,
        extra_ms=extra,
        saved_ms=call_ms * (pair.ratio - 1),
        calls=_calls(extra, call_ms, pair.ratio),
        calls_least=_calls(extra, call_ms, pair.hi),
        calls_most=_calls(extra, call_ms, pair.lo),
    )


def _extra_ms(mine: Measurement, other: Measurement) -> float:
    """What ``mine`` costs up front beyond ``other``; set-up counts where it is known of both."""
    both = mine.setup_ns is not None and other.setup_ns is not None
    return cost_ms(mine, with_setup=both) - cost_ms(other, with_setup=both)


def _calls(extra_ms: float, call_ms: float, ratio: float) -> int | None:
    """Whole calls after which ``extra_ms`` is earned back; None if the rival takes no longer."""
    return math.ceil(extra_ms / (call_ms * (ratio - 1))) if ratio > 1 else None
