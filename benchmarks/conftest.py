"""Puts the run into the JSON file, so that ``attention-bench import`` makes a results file of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.environment import read_environment
from bench.exports.pytest_benchmark import KEY
from bench.header import RunHeader
from bench.record import SCHEMA_VERSION
from bench.results import new_run_id, timestamp


def pytest_benchmark_update_json(config: pytest.Config, benchmarks: list[Any], output_json: dict[str, Any]) -> None:
    environment = read_environment(
        torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "default",  # the interpreter that runs pytest has the allocator it was started with
        torch.get_num_threads(),
        torch.version.cuda or torch.version.hip or "cpu",
        torch.get_float32_matmul_precision(),
    )
    header = RunHeader(
        schema_version=SCHEMA_VERSION,
        run_id=new_run_id(),
        started_at=timestamp(),
        command=f"pytest {' '.join(config.invocation_params.args)}",
        sweep="benchmarks",
        sweep_title="The registry under pytest-benchmark",
        sweep_prose="One implementation after the other in one process: not interleaved, not isolated.",
        cells=len(benchmarks),
        environment=environment,
    )
    output_json[KEY] = {"header": header.model_dump(mode="json")}
