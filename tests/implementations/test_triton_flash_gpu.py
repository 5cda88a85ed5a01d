"""Our Triton kernels on a GPU: the same answers, the same bits twice, memory by the law, and autotuning."""

from __future__ import annotations

import json

import pytest
import torch

pytest.importorskip("triton", reason="Triton ships for Linux alone")

from bench.calls import differentiable, make_step
from bench.implementation import implementations
from bench.inputs import make_inputs, place_inputs
from bench.numerics import agree, failure_reason
from bench.problem import Problem
from bench.reference import naive_yardstick, reference
from implementations.triton_flash import autotune

pytestmark = pytest.mark.gpu

PROBLEMS = [
    {"seqlen": 1000, "mask": "causal"},
    {"seqlen": 513, "head_dim": 128},
    {"seqlen": 257, "head_dim": 256, "mask": "causal"},
    {"seqlen": 300, "head_dim": 80, "head_dim_v": 40, "mask": "sliding_window(50)"},
    {"seqlen": 300, "head_dim": 1},
    {"seqlen_q": 5, "seqlen_k": 3000, "num_heads_q": 8, "num_heads_kv": 2, "mask": "causal"},
    {"seqlen": 400, "batch_size": 3, "num_heads_q": 6, "num_heads_kv": 2, "mask": "causal & padding(0.5)"},
    {"seqlen": 400, "mask": "document(7)"},
    {"seqlen": 200, "scale": -0.5, "mask": "causal"},
]


def step_of(problem, logical):
    member = implementations.get("triton_flash")
    inputs = differentiable(problem, place_inputs(logical, member.layout, "cuda"))
    return make_step(member.prepare(problem, inputs), problem, inputs, member.layout)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("fields", PROBLEMS, ids=str)
def test_results_and_gradients_are_right_and_repeat_bit_for_bit(fields, dtype):
    problem = Problem(**fields, dtype=dtype, direction="fwd_bwd")
    logical = make_inputs(problem)
    step = step_of(problem, logical)
    first, second = (step.run().tensors() for _ in range(2))
    agreement = agree(problem, reference(problem, logical), naive_yardstick(problem, logical), first)
    assert agreement.passed, failure_reason(agreement)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_notes_hold_the_blocks_of_every_kernel_and_what_compiling_took():
    problem = Problem(seqlen=256, head_dim=32, dtype="bfloat16", mask="causal", direction="fwd_bwd")
    first, second = (step_of(problem, make_inputs(problem)).call.notes for _ in range(2))
    assert first["blocks"] == "table" and {"fwd", "bwd_keys", "bwd_queries"} <= set(first)
    assert (first["compile_s"] > 0) == (first["compiled_kernels"] > 0), "none, if Triton's cache on disk has them all"
    assert second == first, "what was compiled earlier in the process is still told"


@pytest.mark.parametrize("direction", ["fwd", "bwd", "fwd_bwd"])
def test_the_peak_follows_the_law(direction):
    problem = Problem(seqlen=4096, dtype="bfloat16", mask="causal", direction=direction)
    step = step_of(problem, make_inputs(problem))
    step.run()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step.run()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    predicted = implementations.get("triton_flash").predicted_peak_bytes(problem, "cuda")
    assert peak == pytest.approx(predicted, rel=0.05)


def test_autotuning_keeps_the_answer_and_what_it_found(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_FLASH_AUTOTUNE", "1")
    monkeypatch.setenv("TRITON_FLASH_CACHE", str(tmp_path / "cache.json"))
    monkeypatch.setitem(autotune.GRID, "fwd", ((64, 128), (64,), (4, 8), (2,)))  # each is compiled: few are enough
    problem = Problem(seqlen=512, dtype="bfloat16", mask="causal")
    logical = make_inputs(problem)
    step = step_of(problem, logical)
    agreement = agree(problem, reference(problem, logical), naive_yardstick(problem, logical), step.run().tensors())
    assert agreement.passed, failure_reason(agreement)
    assert step.call.notes["blocks"] == "autotuned" and step.call.notes["autotune_s"] > 0
    (kept,) = json.loads((tmp_path / "cache.json").read_text()).values()
    assert kept["tried"] > 1 and kept["latency_ms"] > 0
