"""What only a GPU can show. Run with ``pytest -m gpu``; skipped with its reason where torch sees no device."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from statistics import median

import pytest
import torch

from bench.calls import differentiable, make_step
from bench.clocks import LEAST_FLUSH_BYTES, clocks_for
from bench.errors import CaptureError, Unavailable, Unsupported
from bench.implementation import implementations
from bench.inputs import make_inputs
from bench.numerics import agree, failure_reason
from bench.probes import probe_for
from bench.problem import Problem
from bench.reference import naive_yardstick, reference

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


def per_call_ns(clock, run, calls, blocks=15):
    return median(clock.time_block(run, calls).ns for _ in range(blocks)) / calls


def gpu_clocks():
    main, others = clocks_for("cuda")
    return {clock.name: clock for clock in (main, *others)}


@pytest.mark.parametrize("name", ["cuda_event_cold", "cuda_event_hot", "cuda_graph"])
def test_a_call_takes_what_its_work_takes_whatever_the_block(name):
    clock, matrix = gpu_clocks()[name], torch.randn(4096, 4096, device="cuda")
    one, ten = (per_call_ns(clock, lambda: matrix @ matrix, calls) for calls in (1, 10))
    assert 0.7 < ten / one < 1.3


def test_clocks_of_a_long_kernel_agree_and_its_launch_is_short():
    clocks, matrix = gpu_clocks(), torch.randn(8192, 8192, device="cuda")
    product = {name: per_call_ns(clock, lambda: matrix @ matrix, 3) for name, clock in clocks.items()}
    assert product["cuda_graph"] == pytest.approx(product["cuda_event_hot"], rel=0.1)
    assert product["cuda_event_cold"] == pytest.approx(product["cuda_event_hot"], rel=0.2)
    assert product["host"] < 0.2 * product["cuda_graph"]


def test_a_flushed_cache_is_slower_for_what_would_fit_into_it():
    """Reading half of the L2 cache, which is several microseconds of work for memory."""
    clocks = gpu_clocks()
    source = torch.randn(torch.cuda.get_device_properties().L2_cache_size // 8, device="cuda")
    cold, hot = (per_call_ns(clocks[name], source.sum, 10) for name in ("cuda_event_cold", "cuda_event_hot"))
    assert cold > hot


def test_a_graph_hides_launching_that_the_host_pays_for():
    clocks, small = gpu_clocks(), torch.randn(64, device="cuda")

    def run():
        for _ in range(50):
            small.mul_(1.0)

    graph, host = (per_call_ns(clocks[name], run, 10) for name in ("cuda_graph", "host"))
    assert graph < host


def test_graphs_hold_memory_that_is_listed_and_given_back():
    clocks, matrix = gpu_clocks(), torch.randn(4096, 4096, device="cuda")

    def run():
        return matrix @ matrix

    clocks["cuda_graph"].time_block(run, 3)
    clocks["cuda_event_cold"].time_block(run, 1)
    assert clocks["cuda_graph"].excluded_bytes()["graph_pool"] >= 4096 * 4096 * 4
    assert clocks["cuda_event_cold"].excluded_bytes()["flush_buffer"] >= LEAST_FLUSH_BYTES
    del run
    gc.collect()
    assert clocks["cuda_graph"].excluded_bytes() == {}


def test_a_call_that_synchronises_is_refused_by_the_graph_and_spoils_nothing():
    clock, matrix = gpu_clocks()["cuda_graph"], torch.randn(256, 256, device="cuda")
    stream = torch.cuda.current_stream()
    with pytest.raises(CaptureError, match="synchroniz"):
        clock.time_block(lambda: matrix.sum().item(), 3)
    assert torch.cuda.current_stream() == stream
    assert torch.cuda.get_sync_debug_mode() == 0
    torch.cuda.empty_cache()
    torch.randn(8, device="cuda")
    assert clock.time_block(lambda: matrix @ matrix, 3).ns > 0


def test_gradients_within_a_step_can_be_replayed():
    problem = Problem(seqlen=1024, head_dim=64, dtype="bfloat16", direction="fwd_bwd")
    member = implementations.get("naive")
    inputs = differentiable(problem, make_inputs(problem, member.layout, "cuda"))
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    clocks = gpu_clocks()
    hot, graph = (per_call_ns(clocks[name], step.run, 5) for name in ("cuda_event_hot", "cuda_graph"))
    assert 0.5 < graph / hot < 1.1


def test_a_run_on_the_gpu_names_it(tmp_path):
    words = ["measure", "--sweep", "smoke", "--device", "cuda", "-o", tmp_path, "--format", "json", "-I", "flex"]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["device"] for row in rows} == {torch.cuda.get_device_name()}
    assert {row["clock"] for row in rows if row["status"] == "ok"} == {"cuda_event_cold"}
    assert {row["memory_method"] for row in rows if row["status"] == "ok"} == {"cuda_requested"}
