"""Results of airspeed velocity: what ``asv publish`` and ``asv compare`` read.

Three benchmarks, ``attention.time_latency`` (seconds), ``attention.peakmem_peak_bytes`` and ``attention.track_error``,
each with the parameters implementation and problem. All runs make one tree: ``benchmarks.json`` knows every parameter
of any of them, and runs of one machine, commit and environment share a file, in which the later run counts. A cell
without a number is null: a gap in asv's graphs, "failed" in ``asv compare``. asv orders commits by their repository;
the date in the file is that of the measurement, since a run does not know when its commit was made.

Source: asv 0.6, ``asv/results.py``, ``asv/benchmarks.py`` and ``asv/machine.py`` (api versions 2, 2 and 1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import product
from typing import Any

from bench.analysis import latency_summary
from bench.errors import UsageError
from bench.exports import Files, json_bytes, numbers, register_export, timed_cells
from bench.record import Measurement, Record
from bench.results import Run
from bench.units import ms_to_s, ns_to_s

BENCHMARKS = {  # number: name, type and unit of asv
    "latency_ms": ("attention.time_latency", "time", "seconds"),
    "peak_bytes": ("attention.peakmem_peak_bytes", "peakmemory", "bytes"),
    "out_max_abs": ("attention.track_error", "track", "largest absolute error"),
}
VERSION = "1"
"""Results of different versions are not set against each other."""

Cells = dict[tuple[str, str], tuple[Record, Measurement]]


@register_export("asv", summary="A results folder of airspeed velocity (asv publish); needs runs of clean commits.")
def asv(runs: Sequence[Run]) -> Files:
    """``benchmarks.json``, and per machine ``machine.json`` and one file for each commit and environment.

    Raises:
        UsageError: if a run does not belong to a clean commit.
    """
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.header.started_at):
        groups.setdefault(_file_name(run), []).append(run)
    cells = {name: _cells(group) for name, group in groups.items()}
    files = {"benchmarks.json": json_bytes(_benchmarks(_axes({key for found in cells.values() for key in found})))}
    for name, group in groups.items():
        machine = _machine(group[-1])
        files[f"{machine['machine']}/machine.json"] = json_bytes(machine | {"version": 1})
        files[name] = json_bytes(_results(group[-1], cells[name]))
    return files


def _file_name(run: Run) -> str:
    environment = run.header.environment
    if environment.git_commit is None or environment.git_dirty is not False:
        state = "no commit" if environment.git_commit is None else "uncommitted changes"
        raise UsageError(
            f"asv results must come from a clean commit, got {state} in {run.run_id}. "
            "Commit, measure again, and export that run."
        )
    return f"{_machine(run)['machine']}/{environment.git_commit[:8]}-{_environment_name(run)}.json"


def _environment_name(run: Run) -> str:
    """What tells results of one commit on one machine apart, as part of a file name."""
    environment = run.header.environment
    parts = (environment.python, environment.packages.get("torch") or "no-torch", environment.device)
    return re.sub(r"[^\w.+-]+", "-", f"py{parts[0]}-torch{parts[1]}-{parts[2]}-{environment.allocator}")


def _machine(run: Run) -> dict[str, Any]:
    environment = run.header.environment
    return {
        "machine": re.sub(r"[^\w.-]+", "-", environment.hostname),
        "os": environment.os,
        "cpu": environment.cpu,
        "num_cpu": str(environment.cores),
        "ram": "" if environment.memory_bytes is None else str(environment.memory_bytes),
    }


def _cells(group: Sequence[Run]) -> Cells:
    return {
        (record.implementation, record.problem.key): (record, measurement)
        for run in group
        for record, measurement in timed_cells(run)
    }


def _axes(keys: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """The values of both parameters."""
    implementations, problems = zip(*keys, strict=True)
    return sorted(set(implementations)), sorted(set(problems))


def _quoted(axes: tuple[list[str], list[str]]) -> list[list[str]]:
    """Values of parameters as asv writes them: as Python would print them."""
    return [[repr(value) for value in axis] for axis in axes]


def _benchmarks(axes: tuple[list[str], list[str]]) -> dict[str, Any]:
    described: dict[str, Any] = {
        name: {
            "name": name,
            "type": kind,
            "unit": unit,
            "version": VERSION,
            "param_names": ["implementation", "problem"],
            "params": _quoted(axes),
            "code": "",
            "timeout": 0,
        }
        for name, kind, unit in BENCHMARKS.values()
    }
    return described | {"version": 2}


def _results(run: Run, cells: Cells) -> dict[str, Any]:
    environment, axes = run.header.environment, _axes(cells)
    started_ms = round(datetime.fromisoformat(run.header.started_at).timestamp() * 1000)
    order = list(product(*axes))
    values = {number: [_value(cells.get(key), number) for key in order] for number in BENCHMARKS}
    samples = [[_seconds(cells[key][1]) if key in cells else None for key in order], None, None]
    results = {
        BENCHMARKS[number][0]: [values[number], _quoted(axes), VERSION, started_ms, taken]
        for (number, taken) in zip(BENCHMARKS, samples, strict=True)
        if any(value is not None for value in values[number])
    }
    python = environment.python.rpartition(".")[0]
    settings = {"python": python, "device": environment.device, "allocator": environment.allocator}
    torch = {"torch": environment.packages.get("torch") or ""}  # series of other versions are other graphs
    return {
        "commit_hash": environment.git_commit,
        "env_name": _environment_name(run),
        "date": started_ms,
        "params": _machine(run) | settings | torch,
        "python": python,
        "requirements": torch,
        "env_vars": {},
        "result_columns": ["result", "params", "version", "started_at", "samples"],
        "results": results,
        "durations": {},
        "version": 2,
    }


def _value(cell: tuple[Record, Measurement] | None, name: str) -> float | None:
    if cell is None:
        return None
    if name == "latency_ms":
        return ms_to_s(latency_summary(cell[1]).median_ms)
    return next((number.value for number in numbers(*cell) if number.name == name), None)


def _seconds(measurement: Measurement) -> list[float]:
    """Seconds per call of each sample."""
    return [ns_to_s(ns) / measurement.calls_per_sample for ns in measurement.samples_ns]
