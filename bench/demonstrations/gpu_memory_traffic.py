"""Bytes that attention moves between a GPU's memory and its L2 cache, by the counters that NVIDIA's ``ncu`` reads.

Each implementation runs in a process of its own under ``ncu``, which sums what every kernel read and wrote. The cache
is left as the kernel before left it, as in ordinary use.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys

from bench.ceilings import cache_bytes
from bench.demonstrations import Rows, demonstrations
from bench.demonstrations.memory_traffic import longest_length, traffic_rows
from bench.errors import Unavailable
from bench.implementation import implementations
from bench.inputs import make_inputs
from bench.problem import Problem

COMPARED = ("naive", "sdpa_flash", "triton_flash")
"""Those of them that there are; ``online_softmax`` starts a thousand small kernels, each of which is profiled alone."""
CALLS = 6
METRICS = "dram__bytes_read.sum,dram__bytes_write.sum"
LIMIT_S = 120
"""Of one process under the profiler."""


@demonstrations.register("gpu_memory_traffic")
def gpu_memory_traffic(quick: bool) -> Rows:
    """Traffic of the GPU's memory for one head of width 64 in float16, at a length whose scores exceed the L2 cache.

    Returns:
        Rows as those of ``memory_traffic``, one per implementation; ``quick`` changes nothing.
    """
    import torch

    cache = cache_bytes("cuda") if torch.cuda.is_available() else None
    problem = Problem(seqlen=longest_length(cache, "float16"), num_heads=1, dtype="float16")
    rows: Rows = []
    for name in (name for name in COMPARED if name in implementations.names()):
        moved, reason = None, None
        try:
            moved = profiled_bytes(name, problem.seqlen_q)
        except Unavailable as refused:
            reason = str(refused)
        rows += traffic_rows("cuda", problem, cache, {name: moved}, reason)
    return rows


def profiled_bytes(name: str, length: int) -> list[float]:
    """Bytes that the GPU's memory moved in each of :data:`CALLS` calls.

    Raises:
        Unavailable: if the profiler is missing, is refused the counters, or its output is not understood.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise Unavailable("ncu, which reads a GPU's counters, is not on the PATH; it is part of the CUDA toolkit")
    code = f"from {__name__} import run_profiled; run_profiled({name!r}, {length})"
    options = ["--csv", "--print-units", "base", "--profile-from-start", "off", "--cache-control", "none"]
    command = [ncu, *options, "--metrics", METRICS, sys.executable, "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"ncu gave no answer: {error}") from None
    lines = done.stdout.splitlines()
    table = [line for line in lines if line.startswith('"')]
    if done.returncode or not table:
        said = [line for line in (*lines, *done.stderr.splitlines()) if line.strip()]
        loud = [line for line in said if "==ERROR==" in line] or said
        raise Unavailable(f"ncu counted nothing (exit code {done.returncode}): {loud[-1] if loud else 'no output'}")
    return bytes_by_call(table)


def bytes_by_call(table: list[str]) -> list[float]:
    """Sums over the kernels of each call.

    Args:
        table: lines of the profiler's CSV, one per kernel and metric, the column names first.

    Raises:
        Unavailable: if the calls did not all start as many kernels.
    """
    by_kernel: dict[int, float] = {}
    for row in csv.DictReader(table):
        kernel = int(row["ID"])
        by_kernel[kernel] = by_kernel.get(kernel, 0.0) + float(row["Metric Value"].replace(",", ""))
    kernels = [by_kernel[kernel] for kernel in sorted(by_kernel)]
    each, rest = divmod(len(kernels), CALLS)
    if rest or not each:
        raise Unavailable(f"ncu saw {len(kernels)} kernels in {CALLS} calls, which are not as many in each")
    return [sum(kernels[first : first + each]) for first in range(0, len(kernels), each)]


def run_profiled(name: str, length: int) -> None:
    """In the process under the profiler: the calls, after two that warm up."""
    import torch

    member = implementations.get(name)
    problem = Problem(seqlen=length, num_heads=1, dtype="float16")
    call = member.prepare(problem, make_inputs(problem, member.layout, "cuda"))
    with torch.inference_mode():
        for _ in range(2):
            call.run()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        for _ in range(CALLS):
            call.run()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
