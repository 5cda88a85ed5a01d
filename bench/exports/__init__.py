"""Stored runs in the formats of tools people already use: the contract of the export family.

An export turns runs into files and measures nothing. Whatever it writes is a number that was measured: cells without a
sound time (any status but ``ok``, the flag ``impossible``, a clock that read 0) are no benchmarks in the eyes of
another tool and are left out, or stay with their reason where the format has a place for one. A number that is missing
is left out, never written as 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.analysis import CONFIDENCE, latency_summary
from bench.errors import NothingSelectedError
from bench.record import Measurement, Record
from bench.registry import Registry
from bench.results import Run
from bench.standings import sound_measurement

__all__ = [
    "Export",
    "Files",
    "Number",
    "by_run",
    "cell_name",
    "each_number",
    "exports",
    "json_bytes",
    "numbers",
    "provenance",
    "register_export",
    "sound_time",
    "timed_cells",
]

Files = dict[str, bytes]
"""Contents by path, relative to where the export goes; ``/`` separates folders."""

exports: Registry[Export] = Registry("exports", "export", "bench.exports")


@dataclass(frozen=True, kw_only=True)
class Export:
    """One format."""

    name: str
    """What ``export --to`` calls it."""
    summary: str
    """One sentence for ``attention-bench list exports``."""
    files: Callable[[Sequence[Run]], Files]
    """The files that hold these runs, at least one."""


def register_export(
    name: str, *, summary: str
) -> Callable[[Callable[[Sequence[Run]], Files]], Callable[[Sequence[Run]], Files]]:
    """Decorator that registers a function from runs to files under ``name``."""

    def add(files: Callable[[Sequence[Run]], Files]) -> Callable[[Sequence[Run]], Files]:
        exports.add(name, Export(name=name, summary=summary, files=files))
        return files

    return add


@dataclass(frozen=True)
class Number:
    """One exported number of a cell; less is better for each of them."""

    name: str
    """``latency_ms``, ``peak_bytes`` or ``out_max_abs``, as in the table of results."""
    title: str
    """What is shown to people."""
    unit: str
    """``ms``, ``B``, or empty."""
    value: float
    lo: float | None = None
    """Lower end of the 95 % interval of ``value``; None where there is none: too few samples, or an exact count."""
    hi: float | None = None
    """Upper end of that interval."""


def timed_cells(run: Run) -> list[tuple[Record, Measurement]]:
    """The cells that have a sound time, each once: of two records of a cell the later one counts.

    Raises:
        NothingSelectedError: if there is none.
    """
    cells = {(record.implementation, record.problem.key): record for record in run.records}
    found = [(record, sound) for record in cells.values() if (sound := sound_time(record)) is not None]
    if not found:
        raise NothingSelectedError(
            f"export must have at least one measured cell, got none in {run.run_id}. Select others with -i or -p, or "
            "choose a table (csv, parquet), which holds every status."
        )
    return found


def sound_time(record: Record) -> Measurement | None:
    """The measurement of a cell, unless it is ``impossible`` or its clock read 0."""
    sound = sound_measurement(record)
    return sound if sound is not None and latency_summary(sound).median_ms > 0 else None


def cell_name(record: Record) -> str:
    """A name that no other cell of a run has and that stays the same from run to run."""
    return f"{record.implementation}/{record.problem.key}"


def numbers(record: Record, measurement: Measurement) -> list[Number]:
    """What a cell has of time, memory and error.

    Rates such as TFLOP/s follow from the time: beside it they would raise every alarm twice.
    """
    latency = latency_summary(measurement)
    known = latency.coverage >= CONFIDENCE
    ends = (latency.lo_ms, latency.hi_ms) if known else (None, None)
    found = [Number("latency_ms", "latency", "ms", latency.median_ms, *ends)]
    if measurement.memory is not None:
        found.append(Number("peak_bytes", "peak memory", "B", measurement.memory.peak_bytes))
    out = record.agreement.tensors.get("out") if record.agreement is not None else None
    if out is not None and out.max_abs is not None:
        found.append(Number("out_max_abs", "largest error", "", out.max_abs))
    return found


def provenance(record: Record, measurement: Measurement) -> dict[str, str]:
    """How a cell's time came about, as text by name."""
    said = {
        "samples": str(len(measurement.samples_ns)),
        "calls_per_sample": str(measurement.calls_per_sample),
        "processes": str(len(set(measurement.processes))),
        "clock": measurement.clock,
        "flags": ", ".join(flag.name for flag in record.flags),
        "version": record.implementation_version or "",
    }
    return {name: text for name, text in said.items() if text}


def by_run(runs: Sequence[Run], content: Callable[[Run], Any]) -> Files:
    """One JSON file per run, named after it."""
    return {f"{run.run_id}.json": json_bytes(content(run)) for run in runs}


def each_number(run: Run) -> Iterable[tuple[Record, Measurement, Number]]:
    """Every number of every timed cell."""
    return ((record, sound, number) for record, sound in timed_cells(run) for number in numbers(record, sound))


def json_bytes(value: Any) -> bytes:
    """JSON as it goes to disk; NaN and infinity are refused."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
