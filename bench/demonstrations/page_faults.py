"""What glibc's allocator does to naive attention: time and page faults per call, memory kept or given back."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from statistics import median

from bench.demonstrations import Rows, demonstrations
from bench.environment import ALLOCATORS, worker_variables
from bench.errors import BenchError
from bench.fresh_process import start
from bench.implementation import implementations
from bench.inputs import make_inputs
from bench.lifeline import end_worker
from bench.problem import Problem

LENGTHS = (128, 176, 256, 368, 512, 720, 1024, 1456, 2048)
"""From 1,456 on a tensor of scores is larger than 32 MiB, above which glibc maps and unmaps in any case; below, it
depends on what was freed before."""
LONGER = (2896,)
"""Left out in quick runs."""
CALLS = 7
"""Timed one by one at each length, after two that warm up; odd, so that the median is one of them."""


@demonstrations.register("page_faults")
def page_faults(quick: bool) -> Rows:
    """Naive attention in float32 with four heads of width 64, in one fresh process for each allocator setting.

    Returns:
        One row per setting and length: ``allocator``, ``seqlen``, ``latency_ms`` (median), ``page_faults`` (median per
        call: pages of the process that the kernel had to supply), ``score_pages`` (pages that scores and weights fill).

    Raises:
        BenchError: if a process ends without an answer.
    """
    lengths = LENGTHS if quick else LENGTHS + LONGER
    return [row for allocator in ALLOCATORS for row in _in_own_process(allocator, lengths)]


def _in_own_process(allocator: str, lengths: tuple[int, ...]) -> Rows:
    """glibc reads its settings once, when a process starts."""
    names = {name for setting in ALLOCATORS.values() for name in setting}
    settings = dict.fromkeys(names) | worker_variables(allocator)
    process, receiver = start(_measure, lengths, settings=settings)
    try:
        return [{"allocator": allocator, **row} for row in receiver.recv()]
    except EOFError:
        raise BenchError(
            f"process with the {allocator} allocator must give its rows, got none. Look for free memory."
        ) from None
    finally:
        end_worker(process)


def _measure(lengths: tuple[int, ...], sender: Connection) -> None:
    """In that process: send the rows."""
    sender.send(list(_rows(lengths)))


def _rows(lengths: tuple[int, ...]) -> Iterator[dict[str, float]]:
    import torch

    for length in lengths:
        problem = Problem(seqlen=length)
        call = implementations.get("naive").prepare(problem, make_inputs(problem))
        seconds, faults = [], []
        with torch.inference_mode():
            for _ in range(CALLS + 2):
                before, began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
                call.run()
                seconds.append(time.perf_counter() - began)
                faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        yield {
            "seqlen": length,
            "latency_ms": 1e3 * median(seconds[2:]),
            "page_faults": float(median(faults[2:])),
            "score_pages": 2 * problem.all_pairs * problem.element_bytes / resource.getpagesize(),
        }
