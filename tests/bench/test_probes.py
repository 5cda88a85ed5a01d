"""Peak memory is exact on planted allocations, and the CUDA probe subtracts what was there before."""

from __future__ import annotations

import pytest
import torch

from bench.probes import probe_for, working_operators
from bench.probes.allocator_events import AllocatorEvents
from bench.probes.cuda_requested import CudaRequested


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
    """Counters of an allocator that holds 1,000 bytes already and whose past peak was 9,000."""

    def __init__(self):
        self.current, self.peak, self.log = 1000, 9000, []

    def synchronize(self):
        self.log.append("synchronize")

    def reset_peak_memory_stats(self):
        self.log.append("reset")
        self.peak = self.current

    def memory_stats(self):
        return {"requested_bytes.all.current": self.current, "requested_bytes.all.peak": self.peak}

    def change(self, count):
        self.current += count
        self.peak = max(self.peak, self.current)


def test_cuda_peak_is_reset_and_the_start_is_subtracted():
    cuda = FakeCuda()

    def run():
        cuda.log.append("run")
        cuda.change(700)
        cuda.change(-500)

    reading = CudaRequested(cuda).read(run)
    assert (reading.peak_bytes, reading.output_bytes) == (700, 200)
    assert cuda.log[:4] == ["synchronize", "reset", "run", "synchronize"]


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
