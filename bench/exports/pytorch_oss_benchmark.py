"""Records of the PyTorch OSS benchmark database, schema v3: one per number.

Source: PyTorch wiki, "PyTorch OSS benchmark infra", "Benchmark results format". Its uploader adds repository, commit
and job. ``model`` is what is computed and ``backend`` who computes it, as dashboards compare back ends per model.
``extra_info`` holds text alone, which is what the database stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.exports import Files, Number, by_run, each_number, provenance, register_export
from bench.record import Measurement, Record
from bench.results import Run


@register_export(
    "pytorch-oss-benchmark",
    summary="JSON records of the PyTorch OSS benchmark database, schema v3, for the PyTorch HUD.",
)
def pytorch_oss_benchmark(runs: Sequence[Run]) -> Files:
    """One file per run."""
    return by_run(runs, lambda run: [_record(run, *found) for found in each_number(run)])


def _record(run: Run, record: Record, measurement: Measurement, number: Number) -> dict[str, Any]:
    problem, environment = record.problem, run.header.environment
    about = {"unit": number.unit, "lower": number.lo, "upper": number.hi}
    torch = environment.packages.get("torch")
    return {
        "benchmark": {
            "name": "attention-bench",
            "mode": "inference" if problem.direction == "fwd" else "training",
            "dtype": problem.dtype,
            "extra_info": {
                "device": "cpu" if record.device == "cpu" else "cuda",
                "arch": environment.cpu if record.device == "cpu" else record.device,
                "run_id": run.run_id,
                **provenance(record, measurement),
            },
        },
        "model": {"name": problem.key, "type": "attention", "backend": record.implementation},
        "metric": {
            "name": number.name,
            "benchmark_values": [number.value],
            "extra_info": {name: str(value) for name, value in about.items() if value not in (None, "")},
        },
        "dependencies": {} if torch is None else {"torch": {"version": torch}},
    }
