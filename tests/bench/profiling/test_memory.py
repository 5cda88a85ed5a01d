"""Every byte of the peak has an owner, and the peak is the memory probe's."""

from __future__ import annotations

import pytest

from bench.probes.allocator_events import AllocatorEvents, Change
from bench.problem import Problem
from bench.profiling import Subject, warmed
from bench.profiling.memory import of_snapshot, on_cpu, prepared, replayed, timeline

PROBLEM = dict(seqlen=192, num_heads=2, head_dim=16, mask="causal")
MATRIX = 2 * 192 * 192 * 4
OUT = 2 * 192 * 16 * 4


def look(name, **fields):
    """The timeline of an implementation's call, and the call."""
    subject = Subject(Problem(**PROBLEM | fields), name, "cpu")
    step, forward = prepared(subject)
    warmed(step, subject)
    return on_cpu(subject, step.run, forward), step


def owned(found):
    return {owner.name: owner.peak_bytes for owner in found.owners}


@pytest.mark.parametrize("direction", ["fwd", "fwd_bwd", "bwd"])
@pytest.mark.parametrize("name", ["naive", "online_softmax", "sdpa_flash", "sdpa_math"])
def test_the_peak_is_that_of_the_memory_probe_to_the_byte(name, direction):
    found, step = look(name, direction=direction)
    reading = AllocatorEvents().read(step.run)
    assert (found.peak_bytes, found.output_bytes) == (reading.peak_bytes, reading.output_bytes)


def test_naive_holds_scores_weights_and_out():
    found, _ = look("naive")
    wanted = {"scores": MATRIX, "weights": MATRIX, "out": OUT}
    assert {name: owned(found)[name] for name in wanted} == wanted
    assert set(owned(found)) <= {*wanted, "numbers"}


def test_gradients_of_naive_hold_the_weights_and_both_their_gradients():
    found, _ = look("naive", direction="fwd_bwd")
    wanted = {
        "weights, saved for backward": MATRIX,
        "gradient of weights": MATRIX,
        "gradient of scores": MATRIX,
        "out": OUT,
        "dv": OUT,
    }
    assert {name: owned(found).get(name) for name in wanted} == wanted
    assert {"dq", "dk"} <= {one.owner for one in found.lifetimes}


def test_gradients_alone_are_named_by_the_forward_call_before_them():
    found, _ = look("naive", direction="bwd")
    names = {one.owner for one in found.lifetimes}
    assert {"gradient of weights", "gradient of scores", "dq", "dk", "dv"} <= names
    assert not names & {"other", "scores", "weights"}


def test_gradients_that_look_the_same_are_not_told_apart():
    found, _ = look("naive", direction="fwd_bwd", seqlen=16)
    names = {one.owner for one in found.lifetimes}
    assert "gradient of weights or gradient of v" in names
    assert not names & {"gradient of weights", "gradient of v"}


def test_online_softmax_holds_a_tile_of_scores_and_no_matrix():
    found, _ = look("online_softmax", seqlen=1024)
    names = {one.owner for one in found.lifetimes}
    assert {"scores", "value sums", "copies", "out", "lse"} <= names
    assert "weights" not in names
    assert owned(found)["scores"] == 4 * 2 * 1024 * 512
    assert "scratch" not in names, "all that is taken in advance is known by what is written into it"


def test_the_flash_kernel_holds_its_workspace_and_the_log_sum_exp():
    found, _ = look("sdpa_flash")
    assert set(owned(found)) - {"numbers"} == {"workspace of the fused kernel", "log-sum-exp", "out"}
    assert owned(found)["log-sum-exp"] == 4 * 2 * 192


def test_what_the_flash_kernel_keeps_for_its_gradients_is_told_apart():
    found, _ = look("sdpa_flash", direction="fwd_bwd")
    assert "log-sum-exp, saved for backward" in owned(found)


def test_a_release_is_believed_only_of_a_block_whose_allocation_was_seen():
    found = [Change(1, 7, -64, ()), Change(2, 8, 32, ("aten::empty",)), Change(3, 9, 16, ()), Change(4, 8, -32, ())]
    allocations, peak_ns = replayed(found)
    assert [(one.address, one.stop_ns, one.at_peak) for one in allocations] == [(8, 4, True), (9, None, True)]
    assert peak_ns == 3
    assert [one.operator for one in allocations] == ["empty", "Python"]


def test_an_address_that_is_used_again_is_another_allocation():
    found = [Change(1, 7, 10, ()), Change(2, 7, -10, ()), Change(3, 7, 30, ())]
    allocations, _ = replayed(found)
    line = timeline("planted", allocations, ["a", "b"], (0, 3, 4))
    assert {owner.name: owner.peak_bytes for owner in line.owners} == {"b": 30}
    assert line.output_bytes == 30


def test_allocations_too_small_to_see_are_counted_and_stay_in_the_peak():
    found = [Change(1, 1, 1_000_000, ()), Change(2, 2, 10, ())]
    allocations, peak_ns = replayed(found)
    line = timeline("planted", allocations, ["large", "small"], (0, peak_ns, 5))
    assert (line.peak_bytes, len(line.lifetimes), line.omitted) == (1_000_010, 1, 1)
    assert {owner.name for owner in line.owners} == {"large", "small"}


def test_the_history_of_a_gpu_is_named_by_its_results_and_the_lines_that_made_it():
    frames = [
        {"filename": "/x/torch/functional.py", "name": "softmax", "line": 1},
        {"filename": "/y/implementations/naive.py", "name": "run", "line": 88},
    ]
    trace = [
        {"action": "segment_alloc", "addr": 1, "size": 1 << 21, "time_us": 1},
        {"action": "alloc", "addr": 1, "size": 512, "time_us": 2, "frames": frames},
        {"action": "alloc", "addr": 600, "size": 256, "time_us": 3, "frames": []},
        {"action": "free_requested", "addr": 1, "size": 512, "time_us": 4},
        {"action": "free_completed", "addr": 1, "size": 512, "time_us": 4},
    ]
    line = of_snapshot(trace, {600: "out"})
    assert {owner.name: owner.peak_bytes for owner in line.owners} == {"made in run (naive.py:88)": 512, "out": 256}
    assert (line.peak_bytes, line.output_bytes) == (768, 256)
