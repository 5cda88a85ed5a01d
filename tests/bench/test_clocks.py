"""Clocks on a fake device: what is queued, flushed and waited for, in which order, and what is divided by what."""

from __future__ import annotations

import gc
import inspect

import pytest
import torch
from fake_cuda import MS, US, FakeCuda

from bench.clocks import (
    LEAST_FLUSH_BYTES,
    LONGEST_SPIN_NS,
    CudaColdClock,
    CudaGraphClock,
    CudaHotClock,
    HostClock,
    PerfCounterClock,
    clocks_for,
    overhead_ns,
)
from bench.errors import BenchError, CaptureError


def cold(cuda):
    return CudaColdClock(cuda, cuda.now, cuda.buffer)


def hot(cuda):
    return CudaHotClock(cuda, cuda.now)


def graph(cuda):
    return CudaGraphClock(cuda, cuda.now)


def host(cuda):
    return HostClock(cuda, cuda.now)


DEVICE_CLOCKS = [cold, hot, graph]


def per_call(clock, run, calls, blocks=3):
    """The last of some blocks: the first teach the clock how long issuing takes."""
    return [clock.time_block(run, calls).ns for _ in range(blocks)][-1] / calls


def test_wall_clock_counts_every_call_and_restores_the_collector():
    calls = []
    block = PerfCounterClock().time_block(lambda: calls.append(gc.isenabled()), 5)
    assert calls == [False] * 5
    assert block.ns > 0
    assert block.cpu_ns is not None
    assert gc.isenabled()


def test_the_collector_comes_back_after_a_failure():
    with pytest.raises(ZeroDivisionError):
        PerfCounterClock().time_block(lambda: 1 / 0, 1)
    assert gc.isenabled()


@pytest.mark.parametrize("calls", [1, 10, 50])
@pytest.mark.parametrize("make", DEVICE_CLOCKS)
def test_the_work_is_timed_and_not_its_launch(make, calls):
    cuda = FakeCuda()
    cuda.launch(20 * MS)  # work of somebody else that is still queued
    assert per_call(make(cuda), lambda: cuda.launch(20 * MS), calls) == 20 * MS


@pytest.mark.parametrize("calls", [1, 3])
def test_a_cold_call_is_flushed_waited_for_and_queued_behind_a_spin_every_time(calls):
    cuda = FakeCuda()
    cold(cuda).time_block(lambda: cuda.launch(MS), calls)
    one = ["flush", "synchronize", "spin", "event", "call", "event", "synchronize"]
    assert cuda.log == [f"buffer {LEAST_FLUSH_BYTES}", *one * calls]


def test_a_hot_block_fills_the_cache_first_and_has_one_pair_of_events():
    cuda = FakeCuda()
    hot(cuda).time_block(lambda: cuda.launch(MS), 3)
    assert cuda.log == ["call", "synchronize", "spin", "event", "call", "call", "call", "event", "synchronize"]


def test_a_call_is_issued_to_an_idle_device_every_time():
    cuda = FakeCuda()
    host(cuda).time_block(lambda: cuda.launch(MS), 3)
    assert cuda.log == ["synchronize", "call"] * 3 + ["synchronize"]


def test_a_graph_is_rehearsed_captured_once_and_replayed_hot():
    cuda = FakeCuda()
    clock = graph(cuda)

    def run():
        cuda.launch(MS)

    clock.time_block(run, 3)
    replayed = ["replay", "synchronize", "spin", "event", "replay", "event", "synchronize"]
    assert cuda.log == ["synchronize", "on side", "call", "synchronize", "capture", *replayed]
    cuda.log.clear()
    clock.time_block(run, 3)
    assert cuda.log == replayed
    clock.time_block(run, 2)
    assert cuda.log.count("capture") == 1
    assert (cuda.current_stream(), cuda.sync_mode) == ("default", 0)


def test_cold_and_hot_differ_by_the_cache():
    cuda = FakeCuda()

    def run():
        cuda.launch(20 * US, cold_ns=60 * US)

    times = {make.__name__: per_call(make(cuda), run, 10) for make in DEVICE_CLOCKS}
    assert times == {"cold": 60 * US, "hot": 20 * US, "graph": 20 * US}


@pytest.mark.parametrize(
    ("l2_bytes", "flush_bytes"), [(6 << 20, 256 << 20), (50 << 20, 256 << 20), (200 << 20, 400 << 20)]
)
def test_the_flush_is_sized_by_the_device_and_reported(l2_bytes, flush_bytes):
    cuda = FakeCuda(l2_bytes)
    clock = cold(cuda)
    assert clock.excluded_bytes() == {}
    for _ in range(2):
        clock.time_block(lambda: cuda.launch(MS), 1)
    assert clock.excluded_bytes() == {"flush_buffer": flush_bytes}
    assert [entry for entry in cuda.log if entry.startswith("buffer")] == [f"buffer {flush_bytes}"]


@pytest.mark.parametrize("make", DEVICE_CLOCKS)
def test_launching_is_hidden_where_the_spin_is_long_enough(make):
    """40 launches of 5 us for 40 us of work: the host needs five times as long, and no clock of the device shows it."""
    cuda = FakeCuda()

    def run():
        for _ in range(40):
            cuda.launch(1 * US)

    assert per_call(make(cuda), run, 10) == 40 * US
    assert per_call(host(cuda), run, 10) == 200 * US


def test_where_the_spin_ends_too_early_the_host_shows_in_hot_and_not_in_the_graph():
    cuda = FakeCuda(launch_ns=20 * US)
    calls = 2 * LONGEST_SPIN_NS // (20 * US)

    def run():
        cuda.launch(1 * US)

    assert per_call(graph(cuda), run, 100) == 1 * US
    assert per_call(host(cuda), run, 10) == 20 * US
    assert per_call(hot(cuda), run, calls) > 5 * US


def test_a_call_that_synchronises_costs_the_host_its_work():
    cuda = FakeCuda()

    def run():
        cuda.launch(MS)
        cuda.item()

    assert host(cuda).time_block(run, 4).ns == 4 * (MS + 5 * US)
    assert per_call(hot(cuda), run, 4) >= MS


@pytest.mark.parametrize("make", [cold, hot, graph, host])
def test_an_error_of_queued_work_surfaces_at_its_own_block(make):
    cuda = FakeCuda()

    def fails():
        cuda.launch(MS)
        cuda.failure = "device-side failure"

    def works():
        cuda.launch(MS)

    clock = make(cuda)
    clock.time_block(works, 2)
    with pytest.raises(RuntimeError, match="device-side"):
        clock.time_block(fails, 2)
    cuda.failure = None
    assert per_call(clock, works, 2, blocks=1) in (MS, 5 * US)
    assert gc.isenabled()


def test_a_call_that_synchronises_is_refused_before_anything_is_captured():
    cuda = FakeCuda()
    clock = graph(cuda)
    with pytest.raises(CaptureError, match="got RuntimeError: called a synchronizing CUDA operation") as e:
        clock.time_block(cuda.item, 3)
    assert isinstance(e.value, BenchError)
    assert "capture" not in cuda.log
    assert (cuda.current_stream(), cuda.sync_mode) == ("default", 0)
    assert per_call(clock, lambda: cuda.launch(MS), 3) == MS


def test_a_capture_that_fails_names_its_first_error_and_is_the_last():
    cuda = FakeCuda()
    clock = graph(cuda)
    rehearsed = []

    def run():
        if rehearsed:
            cuda.item()
        rehearsed.append(True)

    with pytest.raises(CaptureError, match="got RuntimeError: operation not permitted when stream is capturing"):
        clock.time_block(run, 3)
    assert cuda.current_stream() == "default"
    assert clock.excluded_bytes() == {}
    cuda.log.clear()
    with pytest.raises(CaptureError, match="an earlier failure in this process"):
        clock.time_block(lambda: cuda.launch(MS), 3)
    assert cuda.log == []


def test_one_graph_is_held_at_a_time_and_none_for_a_callable_that_is_gone():
    cuda = FakeCuda()
    clock = graph(cuda)

    def first():
        cuda.launch(MS)

    def second():
        cuda.launch(2 * MS)

    assert clock.excluded_bytes() == {}
    for run, expected in ((first, MS), (second, 2 * MS), (first, MS)):
        assert per_call(clock, run, 3) == expected
        assert clock.excluded_bytes() == {"graph_pool": 2 << 20}
    del first, run
    gc.collect()
    assert clock.excluded_bytes() == {}


def test_a_cpu_has_one_clock_and_a_gpu_has_four_under_their_own_names():
    main, others = clocks_for("cpu")
    assert (main.name, others) == ("perf_counter", ())
    main, others = clocks_for("cuda", FakeCuda())
    assert main.name == "cuda_event_cold"
    assert [clock.name for clock in others] == ["cuda_event_hot", "host", "cuda_graph"]
    assert all(clock.most_calls > 0 and clock.excluded_bytes() == {} for clock in (main, *others))


def test_an_empty_block_costs_what_the_clock_costs():
    cuda = FakeCuda()
    assert overhead_ns(cold(cuda), repeats=3) == 0
    assert overhead_ns(PerfCounterClock()) >= 0


def test_choosing_clocks_for_a_gpu_touches_no_device():
    """A worker is forked from a process that has imported torch, and a device that was touched cannot be forked."""
    untouchable = object()
    assert len(clocks_for("cuda", untouchable)[1]) == 3


def test_torch_has_everything_that_is_used():
    ours = {"now", "launch", "item", "buffer", "_work"}
    assert {name for name in vars(FakeCuda) if not name.startswith("__") and not hasattr(torch.cuda, name)} == ours
    assert "stream" in inspect.signature(torch.cuda.graph).parameters
    assert all(hasattr(torch.cuda.CUDAGraph, name) for name in ("replay", "pool"))
    assert inspect.signature(torch.cuda.get_device_properties).bind()
