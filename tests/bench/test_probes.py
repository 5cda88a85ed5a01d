"""Peak memory is exact on planted allocations, and the CUDA probe subtracts what was there before."""

from __future__ import annotations

import pytest
import torch

from bench.calls import differentiable, make_step
from bench.implementation import AttentionInputs, AttentionOutput, Call, implementations
from bench.inputs import make_inputs
from bench.probes import probe_for, read_step, working_operators
from bench.probes.allocator_events import AllocatorEvents
from bench.probes.cuda_requested import CudaRequested
from bench.problem import Problem


def bytes_tensor(count):
    return torch.empty(count, dtype=torch.uint8)


def nested():
    a = bytes_tensor(1 << 16)
    b = bytes_tensor(1 << 18)
    del a
    return bytes_tensor(1 << 10), b


def freed_before_the_peak():
    bytes_tensor(1 << 20)
    return bytes_tensor(1 << 19)


def view_of_a_larger_one():
    return bytes_tensor(1 << 20)[:16]


@pytest.mark.parametrize(
    ("run", "peak", "output"),
    [
        (lambda: bytes_tensor(64), 64, 64),
        (lambda: bytes_tensor(256 << 20), 256 << 20, 256 << 20),
        (nested, (1 << 16) + (1 << 18), (1 << 10) + (1 << 18)),
        (freed_before_the_peak, 1 << 20, 1 << 19),
        (view_of_a_larger_one, 1 << 20, 1 << 20),
        (lambda: None, 0, 0),
    ],
)
def test_planted_allocations_are_read_to_the_byte_every_time(run, peak, output):
    probe = AllocatorEvents()
    readings = {probe.read(run) for _ in range(5)}
    assert {(reading.peak_bytes, reading.output_bytes) for reading in readings} == {(peak, output)}


def test_cases_do_not_see_one_another_in_either_order():
    """256 MiB and then 64 MiB, with 30 MiB of inputs alive: each reads its own, whichever comes first."""
    inputs = bytes_tensor(30 << 20)
    probe = AllocatorEvents()
    sizes = [256 << 20, 64 << 20, 256 << 20]
    assert [probe.read(lambda size=size: bytes_tensor(size)).peak_bytes for size in sizes] == sizes
    del inputs


def test_releasing_older_tensors_during_the_call_is_not_negative_memory():
    held = [bytes_tensor(1 << 20)]

    def run():
        held.clear()
        return bytes_tensor(1 << 10)

    reading = AllocatorEvents().read(run)
    assert reading.peak_bytes >= 0
    assert reading.output_bytes >= 0


def test_the_cpu_has_an_exact_probe():
    probe, reason = probe_for("cpu")
    assert (probe.name, reason) == ("allocator_events", None)


class FakeCuda:
    """A caching allocator: blocks of 512 bytes, segments of 2 MiB. It holds 1,000 bytes; its past peak was 9,000."""

    device_bytes = 80 << 30
    used_by_others = 3 << 30

    def __init__(self):
        self.log = []
        self.current = {"requested_bytes": 1000, "allocated_bytes": 1024, "reserved_bytes": 6 << 20}
        self.peak = {name: 9 * count for name, count in self.current.items()}

    def synchronize(self):
        self.log.append("synchronize")

    def reset_peak_memory_stats(self):
        self.log.append("reset")
        self.peak = dict(self.current)

    def empty_cache(self):
        self.log.append("empty")
        self.current["reserved_bytes"] = -(-self.current["allocated_bytes"] // (2 << 20)) * (2 << 20)

    def memory_stats(self):
        states = {"current": self.current, "peak": self.peak}
        return {f"{name}.all.{state}": n for state, counts in states.items() for name, n in counts.items()}

    def mem_get_info(self):
        return self.device_bytes - self.used_by_others - self.current["reserved_bytes"], self.device_bytes

    def change(self, count):
        """Ask for ``count`` bytes, or release them."""
        self.current["requested_bytes"] += count
        self.current["allocated_bytes"] += (-(-abs(count) // 512) * 512) * (1 if count > 0 else -1)
        short = self.current["allocated_bytes"] - self.current["reserved_bytes"]
        if short > 0:
            self.current["reserved_bytes"] += -(-short // (2 << 20)) * (2 << 20)
        self.peak = {name: max(self.peak[name], n) for name, n in self.current.items()}


def test_cuda_peak_is_reset_and_the_start_is_subtracted():
    cuda = FakeCuda()

    def run():
        cuda.log.append("run")
        cuda.change(700)
        cuda.change(-500)

    reading = CudaRequested(cuda).read(run, receipt=False)
    assert (reading.peak_bytes, reading.output_bytes) == (700, 200)
    assert cuda.log == ["synchronize", "empty", "reset", "run", "synchronize"]


def test_cuda_columns_are_apart_and_in_their_own_grain():
    cuda = FakeCuda()

    def run():
        cuda.change(3 << 20)
        cuda.change(1)

    reading = CudaRequested(cuda).read(run, receipt=False)
    assert reading.peak_bytes == (3 << 20) + 1
    assert reading.allocated_bytes == (3 << 20) + 512
    assert reading.reserved_bytes == 2 << 20, "the segment that was there before had 2 MiB less 1 KiB to spare"
    assert reading.device_used_bytes == FakeCuda.used_by_others + (4 << 20)


@pytest.mark.parametrize("flush_bytes", [0, 256 << 20])
def test_what_the_harness_holds_is_in_no_column_of_the_call(flush_bytes):
    cuda = FakeCuda()
    cuda.change(flush_bytes)  # a flush buffer, or the pool of a captured graph
    reading = CudaRequested(cuda).read(lambda: cuda.change(4096), receipt=False)
    assert (reading.peak_bytes, reading.allocated_bytes) == (4096, 4096)
    assert reading.reserved_bytes <= 2 << 20


def test_a_second_case_on_the_same_device_reads_its_own_peak():
    cuda = FakeCuda()

    def case(count):
        cuda.change(count)
        cuda.change(-count)

    probe = CudaRequested(cuda)
    sizes = (256 << 20, 64 << 20, 256 << 20)
    readings = [probe.read(lambda size=size: case(size), receipt=False) for size in sizes]
    assert tuple(reading.peak_bytes for reading in readings) == sizes
    assert readings[1].reserved_bytes < readings[0].reserved_bytes == readings[2].reserved_bytes


LANES, LENGTH, WIDTH = 2, 64, 16
"""Heads folded into the batch, positions, and head width of the spelled-out attention below."""


def spelled_out(q, k, v):
    """Softmax that subtracts the maximum, one operator per step, nothing in place."""
    scores = torch.bmm(q, k.transpose(1, 2)) * 0.25
    weights = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return torch.bmm(weights / weights.sum(dim=-1, keepdim=True), v)


def read_gradients(attend, direction):
    problem = Problem(num_heads=LANES, seqlen=LENGTH, head_dim=WIDTH, direction=direction)
    inputs = AttentionInputs(
        *(torch.randn(LANES, LENGTH, WIDTH).requires_grad_() for _ in range(3)), torch.randn(LANES, LENGTH, WIDTH)
    )
    call = Call(lambda: AttentionOutput(attend(inputs.q, inputs.k, inputs.v)))
    probe = AllocatorEvents()
    step = make_step(call, problem, inputs, "bhsd")
    readings = [read_step(probe, step, problem, inputs) for _ in range(3)]
    assert readings[0] == readings[1] == readings[2]
    return readings[0]


MATRIX, ROWS, OUT = LANES * LENGTH**2 * 4, LANES * LENGTH * 4, LANES * LENGTH * WIDTH * 4


@pytest.mark.parametrize("direction", ["bwd", "fwd_bwd"])
def test_saved_for_backward_follows_the_law_of_naive_softmax(direction):
    """Exponentials and weights, the sums, and the places of the maxima in int64: 2 matrices and 3 rows of float32."""
    saved = read_gradients(spelled_out, direction).saved_bytes
    scale = 8  # the Python number, kept as a float64
    assert saved == 2 * MATRIX + 3 * ROWS + scale


SAVES = {
    "nothing but inputs": (lambda q, k, v: q * k + v, 0),
    "views of an input": (lambda q, k, v: q.view(-1).view_as(q) * k * v, OUT),
    "a copy of an input": (lambda q, k, v: q.clone() * k + v, OUT),
    "one storage in two views": (lambda q, k, v: (lambda e: e.view(-1).view_as(e) * e + k + v)(q.exp()), OUT),
    "its own output": (lambda q, k, v: torch.exp(q + k + v), 0),
}
"""Functions of q, k and v, and the bytes that they keep beyond ``out``."""


@pytest.mark.parametrize("name", SAVES)
def test_memory_is_counted_not_tensors(name):
    attend, kept = SAVES[name]
    reading = read_gradients(attend, "fwd_bwd")
    assert reading.saved_bytes == kept
    assert reading.backward_peak_bytes >= OUT + kept


def test_what_a_custom_function_keeps_outside_of_autograds_list_is_counted_too():
    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.hidden = q.exp()
            return ctx.hidden + k + v

        @staticmethod
        def backward(ctx, dout):
            return dout * ctx.hidden, dout, dout

    reading = read_gradients(Keeps.apply, "fwd_bwd")
    assert reading.saved_bytes == OUT


@pytest.mark.parametrize("name", ["naive", "online_softmax", "sdpa_flash", "sdpa_math"])
def test_the_halves_fit_the_whole(name):
    """The gradients of a retained graph rise above what is kept; both at once peak in one of the halves."""
    member, readings = implementations.get(name), {}
    for direction in ("fwd", "bwd", "fwd_bwd"):
        problem = Problem(num_heads=2, seqlen=256, direction=direction)
        inputs = differentiable(problem, make_inputs(problem, member.layout))
        step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
        readings[direction] = read_step(AllocatorEvents(), step, problem, inputs)
    forward, backward, both = readings.values()
    assert (forward.saved_bytes, forward.backward_peak_bytes) == (None, None)
    assert backward.saved_bytes == both.saved_bytes > 0
    assert backward.backward_peak_bytes == problem.output_bytes + backward.saved_bytes + backward.peak_bytes
    assert both.backward_peak_bytes <= min(both.peak_bytes, backward.backward_peak_bytes)


def test_no_cuda_is_a_reason_not_a_zero():
    if torch.cuda.is_available():
        return
    probe, reason = probe_for("cuda")
    assert probe is None
    assert "cuda_requested" in reason


def test_receipt_names_the_fused_operator_or_else_the_arithmetic():
    assert working_operators({"aten::empty", "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::mul"}) == (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
    )
    assert working_operators({"aten::empty", "aten::bmm", "aten::_softmax"}) == ("aten::_softmax", "aten::bmm")
    assert working_operators({"## Call CompiledFxGraph f00d ##", "aten::view"}) == ("CompiledFxGraph",)
