"""The registry under pytest-benchmark: ``pytest benchmarks --benchmark-only``.

For comparing two states of a checkout with pytest-benchmark's own tools (``--benchmark-autosave``,
``--benchmark-compare``). Each implementation is verified on the problem in set-up; the timer waits for the
device. Published numbers come from ``attention-bench run``, which interleaves and isolates.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest
import torch

from bench.calls import Step, differentiable, make_step
from bench.errors import Unavailable, Unsupported
from bench.exports.pytest_benchmark import KEY
from bench.implementation import Implementation, implementations, refusal, untimed
from bench.inputs import make_inputs
from bench.numerics import agree, failure_reason
from bench.problem import Problem
from bench.record import Agreement
from bench.reference import Reference, naive_yardstick, reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES: dict[str, tuple[dict[str, Any], ...]] = {
    "cpu": (
        {"seqlen": 512},
        {"seqlen": 512, "mask": "causal"},
        {"seqlen_q": 1, "seqlen_k": 2048, "num_heads_q": 8, "num_heads_kv": 2, "mask": "causal"},
        {"seqlen": 256, "direction": "fwd_bwd"},
    ),
    "cuda": (
        {"seqlen": 2048, "dtype": "bfloat16"},
        {"seqlen": 2048, "dtype": "bfloat16", "mask": "causal"},
        {"seqlen_q": 1, "seqlen_k": 8192, "num_heads_q": 8, "num_heads_kv": 2, "dtype": "bfloat16", "mask": "causal"},
        {"seqlen": 1024, "dtype": "bfloat16", "direction": "fwd_bwd"},
    ),
}
PROBLEMS = tuple(Problem(**fields) for fields in SHAPES[DEVICE])


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


def prepared(member: Implementation, problem: Problem) -> tuple[Step, str, Agreement, dict[str, int]]:
    """A verified step, the library's version, the errors, and what getting there took, in nanoseconds."""
    try:
        version = member.version()
        refused = refusal(member, problem, DEVICE)
        reason = untimed(member, problem, DEVICE) if refused is None else refused[1]
        if reason is not None:
            raise Unsupported(reason)
        inputs = differentiable(problem, make_inputs(problem, member.layout, DEVICE))
        start = timer()
        step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
        ready = timer()
        result = step.run()
        done = timer()
    except (Unavailable, Unsupported) as error:
        pytest.skip(f"{type(error).__name__.lower()}: {error}")
    agreement = agree(problem, *truth(problem), result.tensors())
    assert agreement.passed, failure_reason(agreement)
    spent = {"prepare_ns": round((ready - start) * 1e9), "first_call_ns": round((done - ready) * 1e9)}
    return step, version, agreement, spent


@pytest.mark.filterwarnings("default")  # a warning of a library is no failure of a benchmark
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key)
@pytest.mark.parametrize("name", implementations.names())
@pytest.mark.benchmark(timer=timer, max_time=0.5, min_rounds=6, warmup=True, warmup_iterations=2)
def bench_implementation(benchmark: Any, name: str, problem: Problem) -> None:
    benchmark.group = problem.key
    step, version, agreement, spent = prepared(implementations.get(name), problem)
    benchmark.extra_info[KEY] = {  # a record without its samples: what `attention-bench import` makes a cell of
        "problem": problem.model_dump(mode="json"),
        "implementation": name,
        "implementation_version": version,
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu",
        "status": "ok",
        "attended_pairs": problem.attended_pairs,
        "empty_rows": problem.empty_rows,
        "flop": problem.flop,
        "agreement": agreement.model_dump(mode="json"),
        "measurement": {"clock": "pytest_benchmark", "memory": None, **spent},
    }
    benchmark(step.run)
