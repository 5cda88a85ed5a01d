"""The table of cells: every row with its numbers and its reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.metrics import Row, metrics
from bench.plots import Reading
from bench.record import Agreement, Record
from bench.report.field import Field, Kind, number, words
from bench.report.measured_columns import Column, present_columns
from bench.report.speed import WORDS, Against, against_fastest
from bench.units import significant

BYTES = ("peak_bytes", "output_bytes", "workspace_bytes", "mask_bytes")

DERIVED = (
    "tflops",
    "tflops_dense",
    "tflops_halved",
    "tflops_with_softmax",
    "time_per_pair_ns",
    "peak_score_matrices",
)
"""Metrics with a column of their own."""


class Head(NamedTuple):
    """One column of the table."""

    title: str
    about: str
    kind: Kind = "text"


@dataclass(frozen=True)
class CellRow:
    """One row of the table."""

    row: Row
    record: Record
    fields: list[Field]

    @property
    def impossible(self) -> bool:
        """Whether its time cannot be believed."""
        return self.row["latency_ms"] is not None and not self.row["sound"]


@dataclass(frozen=True)
class CellTable:
    """All cells with their columns."""

    heads: list[Head]
    rows: list[CellRow]


def cell_table(reading: Reading) -> CellTable:
    """All cells, in the order of the runs."""
    against, columns = against_fastest(reading), present_columns(reading)
    several = len(reading.runs) > 1
    shown = []
    for row in reading.rows:
        record = reading.record(row)
        fields = _fields(row, record, against.get((row["run_id"], row["cell_key"])), columns)
        if several:
            fields.append(Field(row["run_id"], row["run_id"], number=False))
        shown.append(CellRow(row, record, fields))
    return CellTable([*_heads(columns), *([Head("run", "which run measured it")] if several else [])], shown)


def _heads(columns: Sequence[Column]) -> list[Head]:
    return [
        Head("implementation", "who computed it, and the version of its library"),
        Head("problem", "batch, heads, length, width, dtype, direction, mask"),
        Head("status", "what became of the cell, with the reason and any flags"),
        Head("latency", "median per call", "ms"),
        Head("interval", "of the median, in ms: 95 % or more from six samples on; within run if one process"),
        Head("n", "samples", "count"),
        Head("processes", "fresh processes behind the interval; one says nothing of the next", "count"),
        Head(
            "against fastest", "time over that of the fastest on the problem, paired; a verdict from several processes"
        ),
        Head("peak", "largest live memory of one call beyond inputs and mask tensors", "bytes"),
        Head("output", "bytes of the result", "bytes"),
        Head("workspace", "peak minus output", "bytes"),
        Head("mask", "bytes of mask tensors built before the call", "bytes"),
        Head("error", "largest absolute difference of the output from float64", "error"),
        Head("of limit", "that error over its limit", "percent"),
        Head("RMSE/naive", "root mean square error over that of naive arithmetic in the same dtype", "number"),
        Head(
            "valid, padded", "largest error over valid and over padded queries apart, for self-attention with padding"
        ),
        Head(
            "checks", "structured checks passed at this size, and the small problem that certified the implementation"
        ),
        Head(
            "same bits", "whether a repeated call gave the same bits (again), and a batch item computed alone (alone)"
        ),
        Head("ran", "operators that the verified call dispatched: the receipt"),
        *(Head(metrics.get(name).title, f"{metrics.get(name).better} is better", "number") for name in DERIVED),
        *(Head(column.title, column.about, column.kind) for column in columns),
    ]


def _fields(row: Row, record: Record, against: Against | None, columns: Sequence[Column]) -> list[Field]:
    flags = record.flags
    why = row["reason"] or f"status {row['status']}"
    unmeasured = f"not measured: {why}"
    peak_why = unmeasured if row["latency_ms"] is None else "this device offers no exact method"
    error_why = "no finite error" if row["out_nonfinite"] else f"not verified: {why}"
    state = row["status"].replace("_", " ") + (f": {row['reason']}" if row["reason"] else "")
    state += f" ({', '.join(flag.name for flag in flags)})" if flags else ""
    share = row["out_max_abs"] / row["out_limit"] if row["out_max_abs"] is not None and row["out_limit"] else None
    version = f" {row['implementation_version']}" if row["implementation_version"] else ""
    low, high = row["latency_lo_ms"], row["latency_hi_ms"]
    interval = None if low is None else f"[{significant(low)}, {significant(high)}]"
    return [
        Field(row["implementation"] + version, row["implementation"], number=False),
        Field(row["problem"], row["problem"], number=False),
        Field(state, row["status"], "; ".join(f"{f.name}: {f.reason}" for f in flags), number=False),
        number(row["latency_ms"], "ms", unmeasured),
        Field(interval, high - low) if interval else Field("-", "", unmeasured),
        number(row["samples"], "count", unmeasured),
        number(row["processes"], "count", unmeasured),
        _against(row, against, unmeasured),
        *(number(row[name], "bytes", peak_why) for name in BYTES),
        number(row["out_max_abs"], "error", error_why),
        number(share, "percent", error_why if row["out_max_abs"] is None else "judged by no limit"),
        number(row["out_rmse_over_naive"], "number", "no naive arithmetic to compare with"),
        *_gate_fields(record.agreement, f"not verified: {why}"),
        *(number(metrics.get(name).value(row), "number", unmeasured) for name in DERIVED),
        *(column.field(row, record, unmeasured) for column in columns),
    ]


def _against(row: Row, against: Against | None, unmeasured: str) -> Field:
    """The paired ratio to the fastest, with the verdict where several processes allow one."""
    if against is None:
        if row["latency_ms"] is None:
            return Field("-", "", unmeasured)
        return Field("-", "", "nothing else was timed on this problem" if row["sound"] else "its time is impossible")
    pair, best = against
    if best is row:
        return Field("fastest", 1.0)
    if pair is None:
        ratio = row["latency_ms"] / best["latency_ms"]
        return Field(f"~{significant(ratio)}x", ratio, "ratio of two medians: no round timed both")
    if pair.verdict is None:
        return Field(
            pair.text, pair.ratio, "one process: no verdict, and the interval says nothing of the next process"
        )
    told = f"{pair.text} {WORDS[pair.verdict]}"
    return Field(told, pair.ratio, f"{pair.processes} processes, coverage of the interval {pair.coverage:.1%}")


def _gate_fields(agreement: Agreement | None, unverified: str) -> list[Field]:
    """What the gate saw beside the errors: rows apart, checks, bits and the receipt."""
    if agreement is None:
        return [Field("-", "", unverified, number=False)] * 4
    rows = [f"{name} {error.max_abs:.2g}" for name, error in agreement.rows.items() if error.max_abs is not None]
    passed = [name for name, result in agreement.checks.items() if result.passed]
    failed = [name for name, result in agreement.checks.items() if not result.passed]
    checks = f"{len(passed)} of {len(agreement.checks)}" if agreement.checks else ""
    checks += f" (failed: {', '.join(failed)})" if failed else ""
    certified = f"certified on {agreement.certificate}" if agreement.certificate else "no certificate"
    bits = {"again": agreement.deterministic, "alone": agreement.batch_invariant}
    said = ", ".join(name if same else f"not {name}" for name, same in bits.items() if same is not None)
    return [
        words(", ".join(rows), "no padded queries"),
        Field(checks or "-", checks, f"{', '.join(passed) or 'none at this size'}; {certified}", number=False),
        words(said, "could not be tried"),
        words(", ".join(agreement.ran), "this device has no probe, or the call was refused before it"),
    ]


def status_counts(rows: Iterable[Row]) -> tuple[list[str], list[tuple[str, list[int]]]]:
    """Statuses that occur, and for each implementation how many cells have each."""
    rows = list(rows)
    statuses = list(dict.fromkeys(row["status"] for row in rows))
    names = sorted({row["implementation"] for row in rows})
    counts = {(name, status): 0 for name in names for status in statuses}
    for row in rows:
        counts[row["implementation"], row["status"]] += 1
    return statuses, [(name, [counts[name, status] for status in statuses]) for name in names]


def reasons(rows: Sequence[Row], limit: int = 40) -> list[tuple[str, str, str, int]]:
    """Implementation, status, reason and number of cells for what is not ``ok``, the most frequent first."""
    counts: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row["status"] != "ok":
            key = (row["implementation"], row["status"], row["reason"] or "")
            counts[key] = counts.get(key, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return [(*key, count) for key, count in ranked[:limit]]
