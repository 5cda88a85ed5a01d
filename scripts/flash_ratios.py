"""Our Triton kernels beside PyTorch's on the cells of one run: ``flash_ratios.py RUN [FOLDER]`` (RUN may be latest).

``x_sdpa_flash`` and ``x_sdpa_cudnn`` are the time of these kernels over ours, paired round by round, with the interval
of the pairs: above 1, ours is faster. ``over_full`` is our time under a causal mask over that without one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.analysis import latency_summary, paired_ratio
from bench.errors import BenchError
from bench.problem import Problem
from bench.record import Measurement
from bench.results import Run, find_run, read_run
from bench.standings import sound_measurement
from bench.tables import write_rows

OURS, OTHERS = "triton_flash", ("sdpa_flash", "sdpa_cudnn")


def ratio_rows(run: Run) -> Iterator[dict[str, Any]]:
    """One row per timed cell of ours."""
    cells = {(r.problem, r.implementation): m for r in run.records if (m := sound_measurement(r)) is not None}
    for (problem, name), own in cells.items():
        if name != OURS:
            continue
        ms = latency_summary(own).median_ms
        row: dict[str, Any] = {"problem": problem.key, "ms": round(ms, 4), "tflops": round(problem.flop / ms / 1e9, 1)}
        for other in OTHERS:
            row[f"x_{other}"] = _speed(own, cells.get((problem, other)))
        row["over_full"] = _over_full(problem, ms, cells)
        row["workspace_mib"] = None if own.memory is None else round(own.memory.workspace_bytes / 2**20, 1)
        yield row


def _speed(own: Measurement, other: Measurement | None) -> str | None:
    """The other's time over ours with its interval; None where they share no round."""
    pair = None if other is None else paired_ratio(other, own)
    return None if pair is None else f"{pair.ratio:.2f} [{pair.lo:.2f}, {pair.hi:.2f}]"


def _over_full(problem: Problem, ms: float, cells: dict[tuple[Problem, str], Measurement]) -> float | None:
    if problem.mask.spec != "causal":
        return None
    full = cells.get((Problem(**(problem.model_dump() | {"mask": "full"})), OURS))
    return None if full is None else round(ms / latency_summary(full).median_ms, 3)


def main(name: str, folder: Path) -> int:
    """Print card, versions and the table."""
    run = read_run(find_run(name, folder))
    rows = list(ratio_rows(run))
    machine = run.header.environment
    versions = ", ".join(f"{package} {machine.packages.get(package)}" for package in ("torch", "triton"))
    print(f"{run.run_id} on {machine.device}: {versions}")
    if rows:
        write_rows(rows, "markdown", sys.stdout)
        return 0
    statuses = {record.status for record in run.records if record.implementation == OURS}
    print(f"no cell of {OURS} was timed: {', '.join(sorted(statuses)) or 'it was not asked for'}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(f"arguments must be RUN and perhaps FOLDER, got {sys.argv[1:]}.")
    try:
        sys.exit(main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) == 3 else "results/runs")))
    except BenchError as error:
        sys.exit(f"error: {error}")
