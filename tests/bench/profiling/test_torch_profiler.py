"""A profiled call: its stages are those of the implementation, and they add up to what the clock says."""

from __future__ import annotations

import gzip
import json

import pytest

from bench.problem import Problem
from bench.profiling import Subject, torch_profiler
from bench.profiling._operators import CALL, Operand, read_calls
from bench.profiling._roofs import Limits, ceilings_for
from bench.profiling.torch_profiler import TRACE, TorchProfiler, _steps, undisturbed

SHARE = 0.03
"""How far the stages may be from the profiled total."""


def look(name, folder, **fields):
    problem = Problem(**dict(seqlen=256, mask="causal") | fields)
    return TorchProfiler().look(Subject(problem, name, "cpu"), folder)


@pytest.fixture(scope="module")
def naive(tmp_path_factory):
    """Naive's gradients, looked at once."""
    folder = tmp_path_factory.mktemp("naive")
    return look("naive", folder, direction="fwd_bwd"), folder


def test_stages_add_up_to_the_total_that_another_clock_measured(naive, tmp_path):
    found = naive[0].parts
    for _ in range(3):  # somebody else may get the processor between the two clocks
        added = sum(stage.time_ms for stage in found["stages"]) / found["total_ms"]
        if abs(added - 1) <= SHARE:
            break
        found = look("naive", tmp_path, direction="fwd_bwd").parts
    assert added == pytest.approx(1, abs=SHARE)


def test_naive_goes_through_every_stage_forward_and_back(naive):
    found = {(stage.name, stage.half): stage for stage in naive[0].parts["stages"]}
    wanted = {"score product", "scale and mask", "softmax", "value product"}
    assert {name for name, half in found if half == "forward"} >= wanted
    assert {name for name, half in found if half == "backward"} >= wanted
    assert not [name for name, _ in found if name == "other"]
    problem = Problem(seqlen=256)
    forward = found["score product", "forward"].flop + found["value product", "forward"].flop
    assert forward == problem.flop, "dense: naive computes hidden pairs too"
    assert found["score product", "backward"].flop == 2 * found["score product", "forward"].flop


def test_the_trace_names_the_call_and_is_compressed(naive):
    with gzip.open(naive[1] / TRACE) as file:
        events = json.load(file)["traceEvents"]
    names = [event.get("name") for event in events]
    assert names.count(CALL) >= naive[0].parts["steps"]
    assert "aten::_softmax" in names


@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_the_fused_kernel_is_one_stage_in_both_halves(tmp_path, direction):
    found = look("sdpa_flash", tmp_path, direction=direction).parts["stages"]
    half = "forward" if direction == "fwd" else "backward"
    assert [stage.half for stage in found if stage.name == "fused attention"] == [half]
    assert not {stage.name for stage in found} & {"softmax", "score product", "value product", "other"}


def test_gradients_alone_know_the_stages_of_the_forward_call_before_them(tmp_path):
    found = look("naive", tmp_path, direction="bwd").parts["stages"]
    assert {stage.half for stage in found if stage.name != "overhead"} == {"backward"}
    assert {"score product", "value product", "softmax"} <= {stage.name for stage in found}


@pytest.mark.parametrize("direction", ["fwd", "fwd_bwd"])
def test_online_softmax_has_nothing_that_is_not_known(tmp_path, direction):
    found = look("online_softmax", tmp_path, direction=direction, seqlen=640).parts["stages"]
    assert "other" not in {stage.name for stage in found}
    assert {"score product", "softmax", "value product", "layout copies"} <= {stage.name for stage in found}


def test_as_many_calls_are_profiled_as_a_trace_may_hold():
    assert _steps(1e6, 10) == 20
    assert _steps(4e8, 10) == 2
    assert _steps(1e3, 30_000) == 2
    assert _steps(1e12, 10**9) == 1


def test_a_call_that_lost_the_processor_is_left_out():
    calls = [[number] for number in range(5)]
    assert undisturbed(calls, [10, 500, 11, 12, 300]) == ([[0], [2], [3]], [10, 11, 12])
    assert undisturbed([["only"]], [7]) == ([["only"]], [7])


def test_a_trace_that_no_viewer_opens_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_profiler, "MOST_TRACE_BYTES", 100)
    found = look("naive", tmp_path, seqlen=32)
    assert found.files == {} and list(tmp_path.iterdir()) == []
    assert "not kept, as it has" in found.parts["notes"]["trace"]


def test_a_slow_call_is_not_repeated_for_context(monkeypatch):
    walls = iter([2_000_000_000, 400_000_000, 400_000_000, 400_000_000, 1, 1, 1, 1, 1])
    monkeypatch.setattr(torch_profiler, "_wall_ns", lambda step, subject: next(walls))
    assert [len(torch_profiler._plain(None, None)) for _ in range(3)] == [1, 3, 5]


def test_ceilings_know_memory_beyond_the_cache():
    found = ceilings_for("cpu", "float32")
    assert found.bytes_per_s >= found.memory_bytes_per_s
    limits = Limits(found, "float32", 1.0)
    assert limits.bandwidth(1 << 10) == found.bytes_per_s
    assert limits.bandwidth(1 << 50) == found.memory_bytes_per_s


class Node:
    """An event of the profiler."""

    def __init__(self, name, start, duration, children=(), tag="TorchOp", **fields):
        self.name, self.start_time_ns, self.duration_time_ns, self.children = name, start, duration, children
        self.tag = type("Tag", (), {"name": tag})
        self.correlation_id = fields.pop("correlation_id", 0)
        self.extra_fields = type("Fields", (), {"inputs": [], "sequence_number": -1} | fields)


def test_own_times_add_up_to_the_range_and_allocations_take_none():
    inner = Node("aten::empty", 12, 5, [Node("[memory]", 13, 0, tag="Allocation")])
    tree = [Node(CALL, 10, 100, [Node("aten::bmm", 11, 60, [inner]), Node("aten::view", 80, 10)])]
    (call,) = read_calls(tree, {})
    assert {one.name: one.own_ns for one in call} == {CALL: 30, "aten::bmm": 55, "aten::empty": 5, "aten::view": 10}
    assert call[2].within == (CALL, "aten::bmm")


def test_gradients_in_another_thread_belong_to_the_call_that_waits_for_them():
    gradient = Node("autograd::engine::evaluate_function: X", 20, 5, sequence_number=4)
    late = Node("autograd::engine::evaluate_function: X", 200, 5)
    (call,) = read_calls([Node(CALL, 10, 100), gradient, late], {})
    assert [(one.name, one.sequence) for one in call] == [(CALL, None), (gradient.name, 4)]
    assert call[1].backward


def test_an_operand_reads_repeated_elements_once():
    assert Operand((2, 3), 4, 3).distinct_bytes == 12
