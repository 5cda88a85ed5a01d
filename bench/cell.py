"""One case on its way to a record: what is collected about it, and the record that comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.calls import Step
from bench.case import Case
from bench.cross_examination import cross_examine
from bench.flags import few_samples_flag, impossible_flag, merged_flags, sample_flags, seconds_per_call
from bench.implementation import Implementation
from bench.probes import Reading
from bench.record import Agreement, Energy, Flag, Measurement, Memory, Record, Sampled, Status, Telemetry
from bench.timing import Samples

FAULTS = ("missing_synchronisation", "uncaptured", "slowed_down", "unexplained")
"""Findings between clocks that are doubts; the others describe a regime (host bound, hot cache), not a fault."""
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
    others: list[Sampled] = field(default_factory=list)
    """Samples under other clocks."""
    excluded_bytes: dict[str, int] = field(default_factory=dict)
    """What clocks hold for themselves, by name."""
    telemetry: tuple[Telemetry, ...] = ()
    energy: Energy | None = None

    @property
    def ready(self) -> Step:
        """The step of a cell that was prepared and not yet released."""
        assert self.step is not None, f"{self.case.implementation} was not prepared"
        return self.step


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
        disagreements = "; ".join(f"{f.name}: {f.reason}" for f in cross_examine(measurement) if f.name in FAULTS)
        if disagreements:
            doubt += (Flag(name="clocks_disagree", reason=disagreements),)
        flags = sample_flags(samples) + doubt
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
            saved_bytes=reading.saved_bytes,
            backward_peak_bytes=reading.backward_peak_bytes,
            allocated_bytes=reading.allocated_bytes,
            reserved_bytes=reading.reserved_bytes,
            device_used_bytes=reading.device_used_bytes,
            excluded_bytes=cell.excluded_bytes,
        )
    return Measurement(
        samples_ns=tuple(samples.ns),
        calls_per_sample=samples.calls,
        processes=(process,) * len(samples.ns),
        clock=clock,
        cpu_ns=tuple(samples.cpu_ns) if samples.cpu_ns else None,
        isolated_ns=tuple(samples.isolated_ns),
        discarded_rounds=samples.discarded,
        others=tuple(cell.others),
        telemetry=cell.telemetry,
        energy=cell.energy,
        first_call_ns=cell.first_call_ns,
        prepare_ns=cell.prepare_ns,
        setup_ns=cell.setup_ns,
        memory=memory,
    )


def merged_record(records: Sequence[Record], wanted: int) -> Record:
    """One record of a case that several processes timed; all but the samples is that of the first.

    Args:
        records: status ``ok``, in the order of the processes; the first is the one that verified the case.
        wanted: processes that the first look asks for.
    """
    measured = [record.measurement for record in records if record.measurement is not None]
    assert len(measured) == len(records) > 0, "records of timed cases have a measurement"
    first = measured[0]
    assert {m.calls_per_sample for m in measured} == {first.calls_per_sample}, "later processes take over the block"

    def joined(name: str) -> tuple[Any, ...]:
        return tuple(value for m in measured for value in getattr(m, name))

    flags = merged_flags([record.flags for record in records]) + few_samples_flag(len(records), wanted)
    return records[0].model_copy(
        update={
            "measurement": first.model_copy(
                update={
                    "samples_ns": joined("samples_ns"),
                    "processes": joined("processes"),
                    "cpu_ns": None if first.cpu_ns is None else joined("cpu_ns"),
                    "isolated_ns": joined("isolated_ns"),
                    "discarded_rounds": sum(m.discarded_rounds for m in measured),
                    "telemetry": joined("telemetry"),
                }
            ),
            "flags": flags,
            "measure_s": sum(record.measure_s for record in records),
        }
    )
