"""How long a check of 5,000 cells takes to read and decide: ``pytest benchmarks/bench_check.py --benchmark-only``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.baseline import read_state, write_state
from bench.policy import Policy
from bench.problem import Problem
from bench.record import Agreement, Measurement, Memory, Record, TensorError
from bench.regression import check
from bench.results import read_run
from bench.state import state_of

CELLS = 5_000
NAMES = ("sdpa_math", "naive", "online_softmax", "sdpa_flash")
PROCESSES, ROUNDS = 6, 10


def planted(name: str, seqlen: int, head_dim: int) -> Record:
    """A cell with six processes of ten samples."""
    problem = Problem(seqlen=seqlen, head_dim=head_dim)
    error = TensorError(max_abs=1e-6, rmse=1e-7, rel_rmse=1e-7, nonfinite=0, limit=2e-5)
    memory = Memory(
        peak_bytes=3 * problem.output_bytes,
        output_bytes=problem.output_bytes,
        workspace_bytes=2 * problem.output_bytes,
        mask_bytes=0,
        method="allocator_events",
    )
    count = PROCESSES * ROUNDS
    measurement = Measurement(
        samples_ns=tuple(1_000_000 + 1_009 * (seqlen + i) % 10_000 for i in range(count)),
        calls_per_sample=1,
        processes=tuple(i // ROUNDS for i in range(count)),
        clock="perf_counter",
        first_call_ns=1,
        prepare_ns=1,
        memory=memory,
    )
    return Record(
        problem=problem,
        implementation=name,
        implementation_version="2",
        device="cpu",
        status="ok",
        attended_pairs=problem.attended_pairs,
        empty_rows=0,
        flop=problem.flop,
        agreement=Agreement(passed=True, tensors={"out": error}),
        measurement=measurement,
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A results file of 5,000 cells and its baseline; the first line is that of the tests' file of schema 1."""
    folder = tmp_path_factory.mktemp("check")
    data = Path(__file__).parents[1] / "tests" / "data" / "schema_1.jsonl"
    first = data.read_text(encoding="utf-8").splitlines()[0]
    records = [
        planted(name, seqlen, head_dim)
        for head_dim in (16, 32, 64, 96, 128)
        for seqlen in range(64, 64 + CELLS // 5 // len(NAMES))
        for name in NAMES
    ]
    assert len(records) == CELLS
    run, baseline = folder / "run.jsonl", folder / "baseline.jsonl"
    header = json.loads(first) | {"schema_version": 3}
    lines = [json.dumps(header), *(json.dumps(record.model_dump(mode="json")) for record in records)]
    run.write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_state(state_of(read_run(run), Policy()), baseline)
    return run, baseline


@pytest.mark.benchmark(min_rounds=3, max_time=10)
def bench_check_of_5000_cells(benchmark: Callable[..., Any], stored: tuple[Path, Path]) -> None:
    run, baseline = stored

    def read_and_decide() -> int:
        policy = Policy()
        done = check(read_state(baseline), [state_of(read_run(run), policy)], policy)
        assert done.compared == 10 * CELLS, "eight numbers, the status and the time of each"
        return done.exit_code(strict=True)

    assert benchmark(read_and_decide) == 0


@pytest.mark.benchmark(min_rounds=3, max_time=10)
def bench_verb_check_of_5000_cells(benchmark: Callable[..., Any], stored: tuple[Path, Path]) -> None:
    """The whole command, with the start of Python and what it prints."""
    run, baseline = stored
    command = [sys.executable, "-m", "bench", "check", "--candidate", str(run), "--baseline", str(baseline), "--strict"]
    done = benchmark(
        subprocess.run, command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and f"{10 * CELLS:,} numbers were compared" in done.stderr, done.stderr
