"""The case of E12, and how others measure it: torch in a worker, pyperf by running this module.

A module of its own that imports no experiment, so that nobody's wall time holds what the others import.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from bench.calls import make_step
from bench.implementation import implementations
from bench.inputs import make_inputs, place_inputs
from bench.problem import Problem

PROBLEM = Problem(seqlen=384)
IMPLEMENTATION = "sdpa_flash"
"""About 1 ms on two cores."""
MODULE = "bench.soundness._cost_case"


def build_call() -> Callable[[], object]:
    """The callable that everybody times."""
    member = implementations.get(IMPLEMENTATION)
    inputs = place_inputs(make_inputs(PROBLEM), member.layout, "cpu")
    return make_step(member.prepare(PROBLEM, inputs), PROBLEM, inputs, member.layout).run


def adaptive_ratio() -> tuple[float, float]:
    """In a fresh process: ``adaptive_autorange`` of one arm and then of the other, both the same callable.

    Returns:
        Log of the ratio of the medians; seconds spent on importing ``torch.utils.benchmark``, to be taken off.
    """
    start = time.perf_counter()
    import torch
    from torch.utils.benchmark import Timer

    import_s = time.perf_counter() - start
    medians = []
    for _ in range(2):
        timer = Timer("run()", globals={"run": build_call()}, num_threads=torch.get_num_threads())
        medians.append(timer.adaptive_autorange().median)
    return math.log(medians[1] / medians[0]), import_s


def main() -> None:
    """Run by pyperf: its manager starts this module again as each worker, and only a worker builds the call."""
    import pyperf

    runner = pyperf.Runner(program_args=("-m", MODULE))
    runner.bench_func("case", build_call() if runner.is_worker() else lambda: None)


if __name__ == "__main__":
    main()
