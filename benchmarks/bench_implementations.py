"""The registry under pytest-benchmark: ``pytest benchmarks --benchmark-only``.

For comparing two states of a checkout with pytest-benchmark's own tools (``--benchmark-autosave``,
``--benchmark-compare``). Each implementation is verified on the problem in set-up; the timer waits for the
device. Published numbers come from ``attention-bench run``, which interleaves and isolates.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import pytest
import torch

from bench.calls import differentiable, make_step
from bench.errors import Unavailable, Unsupported
from bench.implementation import implementations, refusal, untimed
from bench.inputs import make_inputs
from bench.numerics import agree, failure_reason
from bench.problem import Problem
from bench.reference import Reference, naive_yardstick, reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PROBLEMS = (
    Problem(seqlen=512),
    Problem(seqlen=512, mask="causal"),
    Problem(seqlen_q=1, seqlen_k=2048, num_heads_q=8, num_heads_kv=2, mask="causal"),
    Problem(seqlen=256, direction="fwd_bwd"),
)


def timer() -> float:
    """Seconds, once all work that was given to the device is done."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


@cache
def truth(problem: Problem) -> tuple[Reference, Reference]:
    """The float64 reference and the naive yardstick."""
    inputs = make_inputs(problem)
    return reference(problem, inputs), naive_yardstick(problem, inputs)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key)
@pytest.mark.parametrize("name", implementations.names())
@pytest.mark.benchmark(timer=timer, max_time=0.5, min_rounds=6, warmup=True, warmup_iterations=2)
def bench_implementation(benchmark: Callable[[Callable[[], object]], object], name: str, problem: Problem) -> None:
    benchmark.group = problem.key  # type: ignore[attr-defined]  # the fixture has no public type
    member = implementations.get(name)
    try:
        member.version()
        refused = refusal(member, problem, DEVICE)
        reason = untimed(member, problem, DEVICE) if refused is None else refused[1]
        if reason is not None:
            raise Unsupported(reason)
        inputs = differentiable(problem, make_inputs(problem, member.layout, DEVICE))
        step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    except (Unavailable, Unsupported) as error:
        pytest.skip(f"{type(error).__name__.lower()}: {error}")
    exact, naive = truth(problem)
    agreement = agree(problem, exact, naive, step.run().tensors())
    assert agreement.passed, failure_reason(agreement)
    benchmark(step.run)
