"""What only a GPU can show. Run with ``pytest -m gpu``; skipped with its reason where torch sees no device."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from bench.calls import differentiable, make_step
from bench.errors import Unavailable, Unsupported
from bench.implementation import implementations
from bench.inputs import make_inputs
from bench.numerics import agree, failure_reason
from bench.probes import probe_for
from bench.problem import Problem
from bench.reference import naive_yardstick, reference
from bench.clocks import cuda_clock

pytestmark = pytest.mark.gpu

PROBLEMS = [
    Problem(seqlen=129, head_dim=64, dtype="bfloat16", mask="causal", direction="fwd_bwd"),
    Problem(seqlen=1024, head_dim=128, dtype="float16", mask="full"),
    Problem(seqlen_q=64, seqlen_k=300, head_dim=64, dtype="bfloat16", mask="padding(0.5)", batch_size=2),
    Problem(seqlen=256, num_heads_q=8, num_heads_kv=2, head_dim=64, dtype="bfloat16", mask="causal", direction="bwd"),
    Problem(seqlen_q=1, seqlen_k=777, num_heads_q=8, num_heads_kv=1, head_dim=128, dtype="bfloat16", mask="causal"),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key)
@pytest.mark.parametrize("name", implementations.names())
def test_agrees_with_float64_or_says_why_not(name, problem):
    member = implementations.get(name)
    if "cuda" not in member.devices or member.unsupported(problem, "cuda") is not None:
        return
    if problem.direction != "fwd" and not member.backward:
        return
    inputs = differentiable(problem, make_inputs(problem, member.layout, "cuda"))
    try:
        member.version()
        call = member.prepare(problem, inputs)
    except (Unavailable, Unsupported) as error:
        assert str(error)
        return
    got = make_step(call, problem, inputs, member.layout).run().tensors()
    logical = make_inputs(problem)
    agreement = agree(problem, reference(problem, logical), naive_yardstick(problem, logical), got)
    assert agreement.passed, failure_reason(agreement)


def test_the_memory_probe_is_exact():
    probe, reason = probe_for("cuda")
    assert probe is not None, reason
    readings = {probe.read(lambda: torch.empty(12345, dtype=torch.uint8, device="cuda")).peak_bytes for _ in range(5)}
    assert readings == {12345}


@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_naive_peak_follows_its_law(direction):
    problem = Problem(seqlen=1024, dtype="float32", direction=direction)
    member = implementations.get("naive")
    inputs = differentiable(problem, make_inputs(problem, member.layout, "cuda"))
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    step.run()
    probe, _ = probe_for("cuda")
    predicted = member.predicted_peak_bytes(problem, "cuda")
    assert probe.read(step.run).peak_bytes == pytest.approx(predicted, rel=0.05)


def test_events_time_the_work_and_not_the_launch():
    clock, matrix = cuda_clock(), torch.randn(4096, 4096, device="cuda")
    one = min(clock.time_block(lambda: matrix @ matrix, 1) for _ in range(10))
    ten = min(clock.time_block(lambda: matrix @ matrix, 10) for _ in range(10))
    assert 7 < ten / one < 13


def test_a_run_on_the_gpu_names_it(tmp_path):
    words = ["measure", "--sweep", "smoke", "--device", "cuda", "-o", tmp_path, "--format", "json", "-I", "flex"]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["device"] for row in rows} == {torch.cuda.get_device_name()}
    assert {row["clock"] for row in rows if row["status"] == "ok"} == {"cuda_event"}
    assert {row["memory_method"] for row in rows if row["status"] == "ok"} == {"cuda_requested"}
