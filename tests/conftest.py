"""What all tests share: builders of valid records and runs, and the one place where GPU tests are skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

# Triton's interpreter multiplies small tiles with NumPy, whose threads wait for one another: with one, the same
# products take a quarter of the CPU time. NumPy reads the variable once; processes that tests start do not get it.
with patch.dict(os.environ, {"OPENBLAS_NUM_THREADS": "1"}):
    import numpy as np  # noqa: F401

import pytest
from hypothesis import settings

from bench.header import Environment, RunEnd, RunHeader
from bench.problem import Problem
from bench.record import Agreement, Measurement, Memory, Record, TensorError
from bench.results import Run

# No deadline: the machine may be busy. In CI the examples are the same in every run, elsewhere they vary.
settings.register_profile("local", deadline=None, max_examples=100)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device, and torch sees none")


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """A builder of records that keep the rules; any field can be given."""
    return build_record


@pytest.fixture
def make_header() -> Callable[..., RunHeader]:
    """A builder of first lines; any field can be given."""
    return build_header


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """A builder of runs in memory from a list of records."""

    def build(records: list[Record], **header: Any) -> Run:
        fields: dict[str, Any] = {"cells": len(records)} | header
        first = build_header(**fields)
        statuses: dict[str, int] = {}
        for record in records:
            statuses[record.status] = statuses.get(record.status, 0) + 1
        end = RunEnd(ended_at="2026-11-30T09:50:00+00:00", outcome="complete", wall_s=60.0, statuses=statuses)
        return Run(path=tmp_path / f"{first.run_id}.jsonl", header=first, records=list(records), end=end)

    return build


@pytest.fixture
def clean_registry() -> Iterator[Callable[..., None]]:
    """Restores a registry after a test that registers into it: call it with the registry first."""
    saved: list[tuple[Any, dict[str, Any], dict[str, str]]] = []

    def keep(registry: Any) -> None:
        registry.names()  # discover first, so that the saved state is complete
        saved.append((registry, dict(registry._members), dict(registry._owners)))

    yield keep
    for registry, members, owners in saved:
        registry._members, registry._owners = members, owners


def build_record(status: str = "ok", latency_ms: float = 1.0, **fields: Any) -> Record:
    """A record of ``status`` with what that status requires and nothing else."""
    problem = fields.pop("problem", None) or Problem(seqlen=256)
    measurement = Measurement(
        samples_ns=tuple(int(latency_ms * 1e6 * f) for f in (0.98, 0.99, 1.0, 1.0, 1.01, 1.02)),
        calls_per_sample=1,
        processes=(0,) * 6,
        clock="perf_counter",
        first_call_ns=2_000_000,
        prepare_ns=100_000,
        memory=build_memory(problem),
    )
    agreement = Agreement(
        passed=status != "incorrect", tensors={"out": build_error(), "lse": build_error(1e-6)}, ran=()
    )
    parts: dict[str, Any] = {"agreement": agreement, "measurement": measurement, "reason": f"is {status}"}
    wanted = {"ok": ("agreement", "measurement"), "verified": ("agreement", "reason")}
    wanted |= {"incorrect": ("agreement", "reason")}
    defaults = {
        "problem": problem,
        "implementation": "naive",
        "implementation_version": "2.13.0",
        "device": "cpu",
        "status": status,
        "attended_pairs": problem.attended_pairs,
        "empty_rows": problem.empty_rows,
        "flop": problem.flop,
    } | {name: parts[name] for name in wanted.get(status, ("reason",))}
    return Record(**(defaults | fields))


def build_memory(problem: Problem, **fields: Any) -> Memory:
    """Naive's law: two score matrices and the output."""
    scores = 2 * problem.all_pairs * problem.element_bytes
    defaults: dict[str, Any] = {
        "peak_bytes": scores + problem.output_bytes,
        "output_bytes": problem.output_bytes,
        "workspace_bytes": scores,
        "mask_bytes": 0,
        "predicted_peak_bytes": scores + problem.output_bytes,
        "method": "allocator_events",
    }
    return Memory(**(defaults | fields))


def build_error(max_abs: float = 3e-7, **fields: Any) -> TensorError:
    """Errors of a tensor that passes."""
    defaults: dict[str, Any] = {
        "max_abs": max_abs,
        "rmse": max_abs / 4,
        "rel_rmse": max_abs / 2,
        "nonfinite": 0,
        "limit": max_abs * 10,
        "rmse_over_naive": 1.0,
    }
    return TensorError(**(defaults | fields))


def build_header(run_id: str = "20261130T094512Z-3fa9", **fields: Any) -> RunHeader:
    """A first line."""
    environment = Environment(
        hostname="box",
        os="Linux 6.1",
        cpu="A processor",
        cores=2,
        memory_bytes=24 << 30,
        python="3.11.7",
        packages={"torch": "2.13.0", "triton": None},
        torch_threads=2,
        torch_build="cpu",
        gpus=None,
        gpus_reason="NVML library not found",
        device="cpu",
        allocator="warm",
        variables={"OMP_NUM_THREADS": "2"},
        git_commit=None,
        git_dirty=None,
    )
    defaults: dict[str, Any] = {
        "schema_version": 1,
        "run_id": run_id,
        "started_at": "2026-11-30T09:45:12+00:00",
        "command": "attention-bench run --sweep smoke",
        "sweep": "smoke",
        "sweep_title": "Smoke",
        "sweep_prose": "What it shows.",
        "cells": 0,
        "environment": environment,
    }
    return RunHeader(**(defaults | fields))
