"""The table of cells: every row with its numbers, its reasons and the command that repeats it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.metrics import Row, metrics
from bench.plots import Reading
from bench.record import Agreement, Record, RunHeader
from bench.report.findings import FAILED
from bench.units import format_bytes, format_ms, significant

MAX_ROWS = 1000
"""Rows in the page; a browser sorts and filters this many without a pause."""

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

# Options that choose cells or concern the original run alone, with the number of values each takes.
_DROPPED = {
    "-i": 1,
    "--implementation": 1,
    "-I": 1,
    "--not-implementation": 1,
    "-p": 1,
    "--problem": 1,
    "-P": 1,
    "--not-problem": 1,
    "--resume": 1,
    "--time-budget": 1,
    "--format": 1,
    "--dry-run": 0,
}


@dataclass(frozen=True)
class Field:
    """One field of the table: what is shown, what it sorts by, and for a dash the reason."""

    text: str
    sort: float | str = ""
    reason: str = ""
    number: bool = True


@dataclass(frozen=True)
class CellRow:
    """One row of the table."""

    looks: str
    """Classes of the row: its status, and ``impossible`` where its time cannot be believed."""
    fields: list[Field]
    command: str


@dataclass(frozen=True)
class CellTable:
    """Heads and rows, and a sentence on what was left out."""

    heads: list[tuple[str, str]]
    """Title and explanation of each column."""
    rows: list[CellRow]
    left_out: str


def repeat_command(record: Record, header: RunHeader) -> str:
    """The command line that measures this one cell again, quoted for a shell.

    It is the run's own command, so that sweep, axes, device and allocator stay, with its choice of cells
    replaced.
    """
    words = shlex.split(header.command) or ["attention-bench", "run"]
    kept, skip = [], 0
    for word in words:
        if skip:
            skip -= 1
        elif word.split("=", 1)[0] in _DROPPED:
            skip = 0 if "=" in word else _DROPPED[word]
        else:
            kept.append(word)
    return shlex.join([*kept, "-i", _exactly(record.implementation), "-p", _exactly(record.problem.key)])


def cell_table(reading: Reading) -> CellTable:
    """All cells, or the first :data:`MAX_ROWS` with the failed ones in front."""
    rows = reading.rows
    left_out = ""
    if len(rows) > MAX_ROWS:
        rows = sorted(rows, key=lambda row: FAILED.index(row["status"]) if row["status"] in FAILED else len(FAILED))
        files = ", ".join(str(run.path) for run in reading.runs)
        left_out = (
            f"{len(rows) - MAX_ROWS} of {len(rows)} cells are left out of this table to keep the page small, "
            f"failed cells last. All cells with their raw samples are in {files}."
        )
        rows = rows[:MAX_ROWS]
    headers = {run.run_id: run.header for run in reading.runs}
    shown = []
    for row in rows:
        record = reading.record(row)
        command = repeat_command(record, headers[row["run_id"]])
        shown.append(CellRow(_looks(row), _fields(row, record), command))
    return CellTable(_heads(), shown, left_out)


def _heads() -> list[tuple[str, str]]:
    return [
        ("implementation", "who computed it, and the version of its library"),
        ("problem", "batch, heads, length, width, dtype, direction, mask"),
        ("status", "what became of the cell, with the reason and any flags"),
        ("latency", "median per call"),
        ("interval", "of the median: 95 % or more from six samples on; within run if one process"),
        ("n", "samples"),
        ("peak", "largest live memory of one call beyond inputs and mask tensors"),
        ("output", "bytes of the result"),
        ("workspace", "peak minus output"),
        ("mask", "bytes of mask tensors built before the call"),
        ("error", "largest absolute difference of the output from float64"),
        ("of limit", "that error over its limit"),
        ("RMSE/naive", "root mean square error over that of naive arithmetic in the same dtype"),
        ("valid, padded", "largest error over valid and over padded queries apart, for self-attention with padding"),
        ("checks", "structured checks passed at this size, and the small problem that certified the implementation"),
        ("same bits", "whether a repeated call gave the same bits (again), and a batch item computed alone (alone)"),
        ("ran", "operators that the verified call dispatched: the receipt"),
        *((metrics.get(name).title, f"{metrics.get(name).better} is better") for name in DERIVED),
    ]


def _fields(row: Row, record: Record) -> list[Field]:
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
        Field(state, row["status"], "; ".join(flag.reason for flag in flags), number=False),
        _field(row["latency_ms"], format_ms, unmeasured),
        Field(interval, high - low) if interval else Field("-", "", unmeasured),
        _field(row["samples"], str, unmeasured),
        *(_field(row[name], format_bytes, peak_why) for name in BYTES),
        _field(row["out_max_abs"], "{:.2g}".format, error_why),
        _field(share, "{:.0%}".format, error_why if row["out_max_abs"] is None else "judged by no limit"),
        _field(row["out_rmse_over_naive"], significant, "no naive arithmetic to compare with"),
        *_gate_fields(record.agreement, f"not verified: {why}"),
        *(_field(metrics.get(name).value(row), significant, unmeasured) for name in DERIVED),
    ]


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
        _words(", ".join(rows), "no padded queries"),
        Field(checks or "-", checks, f"{', '.join(passed) or 'none at this size'}; {certified}", number=False),
        _words(said, "could not be tried"),
        _words(", ".join(agreement.ran), "this device has no probe, or the call was refused before it"),
    ]


def _words(text: str, reason: str) -> Field:
    """A text, or a dash with the reason."""
    return Field(text, text, number=False) if text else Field("-", "", reason, number=False)


def _looks(row: Row) -> str:
    impossible = row["latency_ms"] is not None and not row["sound"]
    return f"{row['status']} impossible" if impossible else str(row["status"])


def _field(value: float | None, show: object, reason: str) -> Field:
    """A number with its text, or a dash with the reason; a missing number is never 0."""
    assert callable(show)
    return Field("-", "", reason) if value is None else Field(show(value), float(value))


def _exactly(text: str) -> str:
    """A regular expression that matches ``text`` and nothing else; ``re.escape`` would also escape dashes."""
    escaped = re.sub(r"([\\.^$*+?{}()|[\]])", r"\\\1", text)
    return f"^{escaped}$"


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
