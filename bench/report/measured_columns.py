"""Columns of the table of cells that only some runs have numbers for: shown where at least one cell does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.analysis import latency_summary
from bench.metrics import Row
from bench.plots import Reading
from bench.record import Measurement, Record
from bench.report.field import Field, Kind, number

Value = Callable[[Row, Record], tuple[float | None, str]]
"""The number of a cell; where a measured cell has none, the reason."""


@dataclass(frozen=True)
class Column:
    """One column."""

    title: str
    about: str
    value: Value
    kind: Kind

    def field(self, row: Row, record: Record, unmeasured: str) -> Field:
        """What the cell shows."""
        value, reason = self.value(row, record)
        return number(value, self.kind, unmeasured if record.measurement is None else reason)


def present_columns(reading: Reading) -> list[Column]:
    """The columns that some cell has a number or, for another clock or energy, at least a reason for."""
    cells = [(row, reading.record(row)) for row in reading.rows]
    measured = [(row, record) for row, record in cells if record.measurement is not None]
    clocks = dict.fromkeys(other.clock for _, record in measured for other in _measurement(record).others)
    energy = ENERGY if any(_measurement(record).energy is not None for _, record in measured) else []
    there = [column for column in COLUMNS if any(column.value(*cell)[0] is not None for cell in measured)]
    return [*(_clock_column(clock) for clock in clocks), *there, *energy]


def _plain(name: str, reason: str) -> Value:
    return lambda row, record: (row[name], reason)


def _clock_column(clock: str) -> Column:
    """Latency under another clock protocol, under its own name; it is compared with nothing."""

    def value(row: Row, record: Record) -> tuple[float | None, str]:
        others = record.measurement.others if record.measurement else ()
        other = next((other for other in others if other.clock == clock), None)
        if other is None or not other.samples_ns:
            return None, (other.reason if other else None) or "this clock was not asked"
        return latency_summary(other).median_ms, ""

    return Column(clock, f"median per call by the clock {clock}; never mixed with the latency", value, "ms")


def _joules(row: Row, record: Record) -> tuple[float | None, str]:
    energy = record.measurement.energy if record.measurement else None
    return (None, "energy was not asked for") if energy is None else (energy.joules_per_call, energy.reason or "")


def _resident(row: Row, record: Record) -> tuple[float | None, str]:
    memory = record.measurement.memory if record.measurement else None
    return row["vm_hwm_bytes"], (memory and memory.vm_hwm_reason) or "this run did not ask for it"


def _measurement(record: Record) -> Measurement:
    assert record.measurement is not None, "only measured records get here"
    return record.measurement


ENERGY = (
    Column("energy", "per call, above idle where that was known", _joules, "joule"),
    Column("energy ±", "half-width: one update of the meter at each end", _plain("energy_uncertainty_j", "-"), "joule"),
)
FORWARD, CUDA = "there is no backward call", "a column of CUDA"
_ROWS: tuple[tuple[str, str, Kind, str, str], ...] = (
    ("discarded", "discarded_rounds", "count", "-", "rounds left out because the device slowed down"),
    (
        "wall/CPU",
        "wall_over_cpu",
        "number",
        "this clock reads no CPU time",
        "wall time over CPU time of the calling thread; well above 1 where others held the cores",
    ),
    (
        "alone/interleaved",
        "isolated_over_interleaved",
        "number",
        "no blocks on their own",
        "median of blocks on their own over that of blocks between those of others",
    ),
    ("first call", "first_call_ms", "ms", "-", "the call after preparing; never part of the samples"),
    ("prepare", "prepare_ms", "ms", "-", "masks, scratch, and what compilation the sizes still need"),
    (
        "set-up",
        "setup_ms",
        "ms",
        "no certificate problem",
        "preparing and first calling the certificate problem in a fresh process: compilation, above all",
    ),
    ("kept", "saved_bytes", "bytes", FORWARD, "what forward keeps for backward beyond the output"),
    ("backward peak", "backward_peak_bytes", "bytes", FORWARD, "most that lives while gradients are computed"),
    ("allocated", "allocated_bytes", "bytes", CUDA, "peak as handed out by the caching allocator"),
    ("reserved", "reserved_bytes", "bytes", CUDA, "most that the caching allocator took from the device"),
    ("device used", "device_used_bytes", "bytes", CUDA, "in use on the whole device, by anybody"),
)
COLUMNS = (
    *(Column(title, about, _plain(name, reason), kind) for title, name, kind, reason, about in _ROWS),
    Column("VmHWM", "resident high-water mark: a cross-check of the peak", _resident, "bytes"),
)
"""All others, in the order in which they are shown."""
