"""Public case O29: a peak that is not reset between cases, in the wrong unit, or that cannot see tensors at all.

That a failed case gives its tensors back before the next one (O30) is in ``tests/cases/test_failure_isolation.py``.
"""

from __future__ import annotations

import resource
import sys
import tracemalloc
from functools import cache

import pytest
import torch

from bench.analysis import COLUMNS
from bench.calls import differentiable, make_step
from bench.errors import Unavailable
from bench.implementation import implementations
from bench.inputs import make_inputs
from bench.memory_law import naive_law_bytes
from bench.probes import probe_for, read_step
from bench.problem import Problem
from bench.record import Memory

MIB = 1 << 20


@cache
def probe():
    found, reason = probe_for("cpu")
    assert found is not None, reason
    return found


def allocate(count):
    return torch.empty(count, dtype=torch.uint8)


@pytest.mark.parametrize("sizes", [(256, 64), (64, 256), (256, 64, 256, 64)])
@pytest.mark.parametrize("kept", [False, True])
def test_o29_each_case_reads_its_own_peak_in_either_order(sizes, kept):
    inputs = allocate(30 * MIB).fill_(1)
    for size in sizes:

        def case(count=size * MIB):
            result = allocate(count)
            return result if kept else None

        reading = probe().read(case)
        assert reading.peak_bytes == size * MIB, "the inputs and the cases before are no part of it"
        assert reading.output_bytes == (size * MIB if kept else 0)
    assert int(inputs[-1]) == 1


def steps():
    for name, member in implementations.items():
        if name not in ("flex", "naive_compiled") and "cpu" in member.devices:
            for direction in ("fwd", "fwd_bwd"):
                if direction == "fwd" or member.backward:
                    yield name, direction


@pytest.mark.parametrize(("name", "direction"), list(steps()))
def test_o29_no_implementation_inherits_the_peak_of_a_larger_case(name, direction):
    member = implementations.get(name)
    try:
        member.version()
    except Unavailable:
        return

    def read(length):
        problem = Problem(seqlen=length, num_heads=2, direction=direction)
        inputs = differentiable(problem, make_inputs(problem, member.layout))
        step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
        step.run()
        return read_step(probe(), step, problem, inputs)

    small, large, again = read(128), read(768), read(128)
    assert small == again
    assert large.peak_bytes > small.peak_bytes


def test_o29_the_mark_of_getrusage_is_in_kib_and_never_falls():
    """The present fault, and why no figure here comes from it."""
    allocate(256 * MIB).fill_(1)
    first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    allocate(64 * MIB).fill_(1)
    second = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert second >= first, "the smaller case adds nothing: it would read as 0"
    assert second - first < 64 * MIB // 1024
    if sys.platform == "linux":
        assert 256 * MIB // 1024 < first < 256 * MIB, "KiB: as bytes it would be less than the tensor alone"


def test_o29_pythons_tracing_does_not_see_tensors():
    tracemalloc.start()
    try:
        held = allocate(64 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held.nbytes == 64 * MIB
    assert peak < MIB
    assert probe().read(lambda: allocate(64 * MIB)).peak_bytes == 64 * MIB


def test_o29_a_score_matrix_of_the_published_size():
    problem = Problem(batch_size=2, num_heads=8, seqlen=2048)
    scores = problem.all_pairs * problem.element_bytes
    assert scores == 268_435_456
    assert naive_law_bytes(problem) == 2 * scores + problem.output_bytes


@pytest.mark.parametrize("name", [name for name in Memory.model_fields if name not in ("method", "vm_hwm_reason")])
def test_o29_every_figure_of_memory_says_that_it_is_bytes(name):
    assert name.endswith("_bytes")
    assert name == "excluded_bytes" or COLUMNS[name] == "Int64"
