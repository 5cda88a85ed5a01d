"""JSON of pytest-benchmark, written and read: ``pytest-benchmark compare A.json B.json``.

Seconds, as that tool has them. Beside its own fields each benchmark carries the whole record (``extra_info``, without
the samples, which its ``stats`` hold), and the file the header of the run and the cells that have no time, so that
:func:`read` gives back the run that was exported. It reads what ``pytest benchmarks --benchmark-json`` writes as well,
since ``benchmarks/`` leaves the same fields there. Other benchmarks in a file are passed over, and a file of others
alone is refused: their times come without a verified result.

Source: pytest-benchmark 5, ``pytest_benchmark/plugin.py`` and ``stats.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.errors import BenchError, OutputError
from bench.evidence import Evidence
from bench.exports import Files, by_run, cell_name, register_export, timed_cells
from bench.header import RunEnd, RunHeader
from bench.record import Measurement, Record
from bench.results import Run
from bench.units import NS_PER_S, ns_to_s

KEY = "attention_bench"
"""Where our fields stand, in the file and in the ``extra_info`` of each benchmark."""


@register_export(
    "pytest-benchmark", summary="JSON that `pytest-benchmark compare` reads and `import` takes back whole."
)
def pytest_benchmark(runs: Sequence[Run]) -> Files:
    """One file per run."""
    return by_run(runs, _content)


def _content(run: Run) -> dict[str, Any]:
    from pytest_benchmark import __version__

    environment, timed = run.header.environment, timed_cells(run)
    names = {cell_name(record) for record, _ in timed}
    rest = [record for record in run.records if cell_name(record) not in names]
    return {
        "machine_info": {
            "node": environment.hostname,
            "system": environment.os,
            "python_version": environment.python,
            "cpu": {"brand_raw": environment.cpu, "count": environment.cores},
            "device": environment.device,
        },
        "commit_info": {
            "id": environment.git_commit or "unversioned",
            "dirty": environment.git_dirty,
            "project": "attention-bench",
        },
        "benchmarks": [_benchmark(record, measurement) for record, measurement in timed],
        "datetime": run.header.started_at,
        "version": __version__,
        KEY: {
            "header": run.header.model_dump(mode="json"),
            "cells_without_a_time": [record.model_dump(mode="json") for record in rest],
            "evidence": [line.model_dump(mode="json") for line in run.evidence],
            "end": run.end.model_dump(mode="json") if run.end is not None else None,
        },
    }


def _benchmark(record: Record, measurement: Measurement) -> dict[str, Any]:
    from pytest_benchmark.stats import Stats

    stats = Stats()
    for ns in measurement.samples_ns:
        stats.update(ns_to_s(ns) / measurement.calls_per_sample)
    fields = record.model_dump(mode="json")
    del fields["measurement"]["samples_ns"], fields["measurement"]["calls_per_sample"]
    return {
        "group": record.problem.key,
        "name": cell_name(record),
        "fullname": f"attention-bench::{cell_name(record)}",
        "params": {"implementation": record.implementation, "problem": record.problem.key},
        "param": cell_name(record),
        "extra_info": {KEY: fields},
        "options": {"timer": measurement.clock},
        "stats": stats.as_dict() | {"data": stats.data, "iterations": measurement.calls_per_sample},
    }


def read(path: Path) -> tuple[Run, int]:
    """The run in a file that this export wrote, or that ``pytest benchmarks --benchmark-json`` did.

    Returns:
        The run, and how many benchmarks were passed over because they hold no record.

    Raises:
        OutputError: if it cannot be read, or holds benchmarks that are not ours.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        ours = content[KEY]
        known = [benchmark for benchmark in content["benchmarks"] if KEY in benchmark["extra_info"]]
        if not known:
            raise ValueError("it holds no cell")
        timed, end = [_record(index, benchmark) for index, benchmark in enumerate(known)], ours.get("end")
        run = Run(
            path=path,
            header=RunHeader.model_validate(ours["header"]),
            records=timed + [Record.model_validate(fields) for fields in ours.get("cells_without_a_time", ())],
            end=None if end is None else RunEnd.model_validate(end),
            evidence=[Evidence.model_validate(line) for line in ours.get("evidence", ())],
        )
        return run, len(content["benchmarks"]) - len(known)
    except OSError as error:
        raise OutputError(f"file must be readable, got {str(path)!r} ({error.strerror}). Check the path.") from error
    except (KeyError, TypeError, AttributeError, ValueError, BenchError) as error:
        what = f"no {error} in it" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise OutputError(
            f"file must be pytest-benchmark's JSON of attention-bench, got {str(path)!r} ({what}). Times without a "
            "verified result are not imported: write the file with `attention-bench export`, or run `benchmarks/`."
        ) from error


def _record(index: int, benchmark: dict[str, Any]) -> Record:
    """A record from its fields and the samples in the stats."""
    stats, fields = benchmark["stats"], benchmark["extra_info"][KEY]
    calls, data = stats["iterations"], stats["data"]
    measurement = fields["measurement"] | {
        "samples_ns": [round(seconds * calls * NS_PER_S) for seconds in data],
        "calls_per_sample": calls,
    }
    # pytest-benchmark takes one benchmark after the other: a process number of its own for each says that no sample
    # of one is the partner of another's.
    measurement.setdefault("processes", [index] * len(data))
    return Record.model_validate(fields | {"measurement": measurement})
