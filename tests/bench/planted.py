"""Runs and records with planted numbers, for the tests of everything that reads results."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.header import Ceilings, Environment, RunEnd, RunHeader
from bench.memory_law import naive_law_bytes
from bench.notebook import Note
from bench.problem import Problem
from bench.record import SCHEMA_VERSION, Agreement, CheckResult, Flag, Measurement, Memory, Record, TensorError
from bench.results import Run

LENGTHS = (128, 176, 256, 368, 512, 720, 1024, 1456, 2048, 2896, 4096)
"""Square-root-of-two steps, rounded to multiples of 16."""

TIME_LAWS: dict[str, Callable[[int], float]] = {
    "naive": lambda t: 0.05 + 1.0e-5 * t**2,
    "online_softmax": lambda t: 0.40 + 0.80e-5 * t**2,
    "sdpa_flash": lambda t: 0.02 + 0.66e-5 * t**2,
    "sdpa_math": lambda t: 0.06 + 0.95e-5 * t**2,
}
"""Milliseconds at head_dim 64, mask full."""

PAIR_BOUND = ("online_softmax", "sdpa_flash")
"""Implementations that are faster where fewer pairs are visible."""


def memory(implementation: str, problem: Problem) -> Memory:
    """Exact bytes resembling what the CPU shows."""
    scores, output = problem.all_pairs * problem.element_bytes, problem.output_bytes
    peaks = {
        "naive": naive_law_bytes(problem),
        "sdpa_math": 2 * scores + scores // 4 + output,
        "sdpa_flash": output + 300 * problem.seqlen_q + 30_000,
        "online_softmax": output + 2_400 * problem.seqlen_q + 100_000,
    }
    peak = peaks.get(implementation, 3 * output)
    dense_mask = 0 if str(problem.mask.spec) == "full" else problem.seqlen_q * problem.seqlen_k
    return Memory(
        peak_bytes=peak,
        output_bytes=output,
        workspace_bytes=peak - output,
        mask_bytes=dense_mask if implementation in ("naive", "sdpa_math") else 0,
        predicted_peak_bytes=peak,
        method="allocator_events",
    )


def agreement(
    error: float | None = 1e-6, *, limit: float | None = 2e-5, passed: bool = True, **extra: Any
) -> Agreement:
    """An agreement whose ``out`` has this largest error."""
    rmse = None if error is None else error / 8
    out = TensorError(
        max_abs=error,
        rmse=rmse,
        rel_rmse=rmse,
        nonfinite=extra.pop("nonfinite", 0),
        limit=limit,
        rmse_over_naive=0.9,
    )
    gate = {
        "checks": {"needle": CheckResult(passed=True, error=0.0, limit=1e-6)},
        "deterministic": True,
        "batch_invariant": True,
        "certificate": "B2-H4-T160-d64-float32-fwd-full",
        "ran": ("aten::planted_attention",),
    }
    return Agreement(passed=passed, tensors={"out": out}, **(gate | extra))


def record(
    implementation: str = "naive",
    seqlen: int = 1024,
    latency_ms: float | None = None,
    *,
    status: str = "ok",
    reason: str | None = None,
    error: float | None = 1e-6,
    peak: Memory | None = None,
    noise: float = 0.01,
    rounds: int = 7,
    processes: int = 1,
    flags: Iterable[tuple[str, str]] = (),
    judged: Agreement | None = None,
    measured: dict[str, Any] | None = None,
    **fields: Any,
) -> Record:
    """One cell; ``fields`` go to the problem, ``measured`` to the measurement. Samples scatter around ``latency_ms``
    with a fixed seed.
    """
    problem = Problem(**({"seqlen": seqlen} | fields))
    draw = random.Random(f"{implementation} {problem.key}")
    measurement = None
    if status == "ok":
        centre = TIME_LAWS.get(implementation, TIME_LAWS["naive"])(seqlen) if latency_ms is None else latency_ms
        samples = tuple(round(centre * 1e6 * (1 + draw.uniform(-noise, noise))) for _ in range(rounds * processes))
        plain = {
            "samples_ns": samples,
            "calls_per_sample": 1,
            "processes": tuple(index // rounds for index in range(rounds * processes)),
            "clock": "perf_counter",
            "first_call_ns": round(centre * 2e6),
            "prepare_ns": 10_000,
            "memory": memory(implementation, problem) if peak is None else peak,
        }
        measurement = Measurement(**(plain | (measured or {})))
    wants_agreement = status in ("ok", "verified", "incorrect")
    return Record(
        problem=problem,
        implementation=implementation,
        implementation_version=None if status == "unavailable" else "2.13.0",
        device="cpu",
        status=status,  # type: ignore[arg-type]  # any status, wrong ones too
        reason=None if status == "ok" else reason or f"planted {status}",
        flags=tuple(Flag(name=name, reason=why) for name, why in flags),  # type: ignore[arg-type]  # any flag name
        attended_pairs=problem.attended_pairs,
        empty_rows=problem.empty_rows,
        flop=problem.flop,
        agreement=judged or (agreement(error, passed=status != "incorrect") if wants_agreement else None),
        measurement=measurement,
        verify_s=0.02,
        measure_s=0.5 if status == "ok" else 0.0,
    )


def environment(**changes: Any) -> Environment:
    """A small CPU machine."""
    fields: dict[str, Any] = {
        "hostname": "planted-host",
        "os": "Linux 6.1",
        "cpu": "Planted CPU @ 2.00GHz",
        "cores": 2,
        "memory_bytes": 16_000_000_000,
        "python": "3.11.7",
        "packages": {"torch": "2.13.0", "numpy": "2.4.6", "flash_attn": None},
        "torch_threads": 2,
        "torch_build": "cpu",
        "gpus": None,
        "gpus_reason": "no NVIDIA driver",
        "device": "cpu",
        "allocator": "warm",
        "variables": {"MALLOC_MMAP_MAX_": "0"},
        "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "git_dirty": False,
    }
    return Environment(**(fields | changes))


def run(
    records: Iterable[Record],
    *,
    run_id: str = "20261130T120000Z-0001",
    wall_s: float | None = None,
    header: dict[str, Any] | None = None,
    **env: Any,
) -> Run:
    """A finished run that holds ``records``; ``header`` goes to its first line, ``env`` to the environment."""
    records = list(records)
    spent = sum(r.verify_s + r.measure_s for r in records)
    statuses: dict[str, int] = {}
    for cell in records:
        statuses[cell.status] = statuses.get(cell.status, 0) + 1
    plain = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "started_at": "2026-11-30T12:00:00+00:00",
        "command": "attention-bench run --sweep default",
        "sweep": "default",
        "sweep_title": "Time, memory and error by sequence length",
        "sweep_prose": "Naive attention stores all scores; the others need not.",
        "cells": len(records),
        "left_out": {"flex": "not part of the sweep default; ask for it with -i flex"},
        "environment": environment(**env),
        "ceilings": Ceilings(flop_per_s={"float32": 9.91e10, "bfloat16": 2.12e11}, bytes_per_s=7.12e10),
    }
    first = RunHeader(**(plain | (header or {})))
    end = RunEnd(
        ended_at="2026-11-30T12:05:00+00:00",
        outcome="complete",
        wall_s=spent / 0.6 if wall_s is None else wall_s,
        statuses=statuses,
    )
    return Run(path=Path(f"results/runs/{run_id}.jsonl"), header=first, records=records, end=end)


def notes(machine: dict[str, Any] | None = None, flagged: int = 0, met: bool | None = True) -> list[Note]:
    """Findings of the soundness notebook on identical code and on real extra work."""
    on = {"cpu": "Planted CPU @ 2.00GHz", "cores": 2, "torch": "2.13.0", "commit": "0123"} | (machine or {})
    alarms = [
        {"rule": rule, "flagged": count, "verdicts": 600, "percent": round(count / 6, 2), "upper_bound_percent": upper}
        for rule, count, upper in (
            ("this harness, before confirmation", flagged, 0.79),
            ("this harness, confirmed by fresh processes", 0, 0.5),
            ("pytest-benchmark mean:5%", 240, 43.4),
            ("criterion (bootstrap, 1 %)", 120, 22.9),
        )
    ]
    power = [
        {"injected_percent": size, "verdicts": 60, "regressed_percent": share, "pytest-benchmark mean:5%": "55 %"}
        for size, share in ((5.0, 93.3), (10.0, 100.0))
    ]
    return [
        Note(
            type="finding",
            experiment=name,
            unit="",
            at="2026-11-30T12:00:00+00:00",
            machine=on,
            seconds=0.0,
            content={"title": title, "target": target, "met": met, "found": found, "rows": rows, "units": 150},
        )
        for name, title, target, found, rows in (
            ("e01_identical_code", "How often?", "at most 1 of 600", f"{flagged} of 600 were flagged", alarms),
            ("e02_whole_suite", "Whole suites?", "0 of 30", "0 of 30 failed", []),
            ("e03_power", "Is real work found?", "+5 % in 80 %", "+5 % in 93 %", power),
        )
    ]


def ladder(
    law: Callable[[int], float],
    implementation: str = "naive",
    lengths: Iterable[int] = LENGTHS,
    **options: Any,
) -> list[Record]:
    """One implementation at several lengths, its milliseconds given by ``law``."""
    return [record(implementation, length, law(length), **options) for length in lengths]


def default_run() -> Run:
    """Resembles the default sweep: 66 problems, four implementations, and low precision verified."""
    records = []
    for head_dim in (64, 128):
        for mask in ("full", "causal", "padding(0.5)"):
            for length in LENGTHS:
                for name, law in TIME_LAWS.items():
                    share = 0.55 if name in PAIR_BOUND and mask != "full" else 1.0
                    width = 1.0 if head_dim == 64 else 1.6 if name in PAIR_BOUND else 1.25
                    if name == "sdpa_flash" and mask == "padding(0.5)" and head_dim == 128:
                        records.append(record(name, length, status="unsupported", mask=mask, head_dim=head_dim))
                        continue
                    latency = law(length) * share * width
                    records.append(record(name, length, latency, mask=mask, head_dim=head_dim, noise=0.03))
    for dtype, error in (("float16", 9e-4), ("bfloat16", 7e-3)):
        for length in (128, 256, 512, 1024):
            for name, factor in (
                ("naive", 1.0),
                ("online_softmax", 0.5),
                ("sdpa_flash", 0.5),
                ("sdpa_math", 0.7),
            ):
                judged = agreement(error * factor * (128 / length) ** 0.5, limit=error * 3)
                why = "errors only: low precision is not timed on the CPU"
                records.append(record(name, length, status="verified", reason=why, judged=judged, dtype=dtype))
    return run(records)
