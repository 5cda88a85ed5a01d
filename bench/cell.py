"""One case on its way to a record: what is collected about it, and the record that comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.calls import Step
from bench.implementation import Implementation
from bench.probes import Reading
from bench.problem import Problem
from bench.record import Agreement, Ceilings, Flag, Measurement, Memory, Record, Status
from bench.sweep import Case
from bench.timing import Samples
from bench.units import ns_to_s

UNSTABLE_SPREAD = 0.25
"""Interquartile range over median from which a cell is flagged ``unstable``."""
IMPOSSIBLE_MARGIN = 1.05
"""A call must beat a measured ceiling by more than this to be called impossible."""
REASON_CHARS = 600
"""Longer reasons are cut."""


@dataclass
class Cell:
    """What is known of a case so far."""

    index: int
    """Position in the task."""
    case: Case
    member: Implementation
    version: str | None = None
    step: Step | None = None
    agreement: Agreement | None = None
    reading: Reading | None = None
    prepare_ns: int = 0
    setup_ns: int | None = None
    first_call_ns: int = 0
    verify_s: float = 0.0
    measure_s: float = 0.0
    mask_bytes: int = 0
    notes: dict[str, Any] = field(default_factory=dict)


def finished_record(
    cell: Cell,
    device: str,
    device_name: str,
    status: Status,
    reason: str | None,
    samples: Samples | None = None,
    **measured: Any,
) -> Record:
    """The record of a cell that is done.

    Args:
        cell: what was collected.
        device: device type.
        device_name: as stored.
        status: what became of it.
        reason: why it is not ``ok``.
        samples: times, for status ``ok`` alone.
        measured: ``clock``, ``process``, ``memory_method`` and ``ceilings``, with the samples.
    """
    measurement: Measurement | None = None
    flags: tuple[Flag, ...] = ()
    if samples is not None:
        cell.measure_s += samples.total_ns / 1e9
        measurement = _measurement(
            cell, device, samples, measured["clock"], measured["process"], measured["memory_method"]
        )
        doubt = impossible_flag(cell.case.problem, seconds_per_call(samples), measured["ceilings"])
        flags = stability_flags(samples.ns) + doubt
    return make_record(
        cell.case,
        device_name,
        cell.version,
        status,
        reason,
        agreement=cell.agreement,
        measurement=measurement,
        flags=flags,
        notes=cell.notes,
        verify_s=cell.verify_s,
        measure_s=cell.measure_s,
    )


def seconds_per_call(samples: Samples) -> float:
    """Median latency."""
    return ns_to_s(median(samples.ns)) / samples.calls


def make_record(
    case: Case,
    device_name: str,
    version: str | None,
    status: Status,
    reason: str | None,
    **parts: Any,
) -> Record:
    """A record of ``case``; the counts that follow from the problem are filled in, long reasons are cut."""
    problem = case.problem
    if reason is not None and len(reason) > REASON_CHARS:
        reason = f"{reason[:REASON_CHARS]} [cut]"
    return Record(
        problem=problem,
        implementation=case.implementation,
        implementation_version=version,
        device=device_name,
        status=status,
        reason=reason,
        attended_pairs=problem.attended_pairs,
        empty_rows=problem.empty_rows,
        flop=problem.flop,
        **parts,
    )


def stability_flags(samples_ns: list[int]) -> tuple[Flag, ...]:
    """Doubts that the samples themselves raise."""
    ordered = sorted(samples_ns)
    quarter, middle = len(ordered) // 4, ordered[len(ordered) // 2]
    if middle == 0:
        return (Flag(name="unstable", reason="the clock read 0 for half of the blocks"),)
    spread = (ordered[-1 - quarter] - ordered[quarter]) / middle
    if spread <= UNSTABLE_SPREAD:
        return ()
    return (Flag(name="unstable", reason=f"the middle half of the samples spreads over {spread:.0%} of the median"),)


def impossible_flag(problem: Problem, seconds: float, ceilings: Ceilings | None) -> tuple[Flag, ...]:
    """The flag ``impossible`` if a call of ``seconds`` beats a measured ceiling by more than the margin."""
    if ceilings is None:
        return ()
    rate, moved = ceilings.flop_per_s.get(problem.dtype), problem.least_bytes
    if rate is not None and problem.flop > IMPOSSIBLE_MARGIN * rate * seconds:
        reason = (
            f"{problem.flop:.3g} FLOP in {seconds:.3g} s beat the measured matrix-product rate of {rate:.3g} FLOP/s"
        )
    elif moved > IMPOSSIBLE_MARGIN * ceilings.bytes_per_s * seconds:
        reason = f"{moved:.3g} bytes in {seconds:.3g} s beat the measured bandwidth of {ceilings.bytes_per_s:.3g} B/s"
    else:
        return ()
    return (Flag(name="impossible", reason=reason),)


def _measurement(
    cell: Cell, device: str, samples: Samples, clock: str, process: int, memory_method: str | None
) -> Measurement:
    memory = None
    if cell.reading is not None and memory_method is not None:
        reading = cell.reading
        memory = Memory(
            peak_bytes=reading.peak_bytes,
            output_bytes=reading.output_bytes,
            workspace_bytes=reading.peak_bytes - reading.output_bytes,
            mask_bytes=cell.mask_bytes,
            predicted_peak_bytes=cell.member.predicted_peak_bytes(cell.case.problem, device),
            method=memory_method,
        )
    return Measurement(
        samples_ns=tuple(samples.ns),
        calls_per_sample=samples.calls,
        processes=(process,) * len(samples.ns),
        clock=clock,
        first_call_ns=cell.first_call_ns,
        prepare_ns=cell.prepare_ns,
        setup_ns=cell.setup_ns,
        memory=memory,
    )
