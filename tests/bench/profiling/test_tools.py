"""Tools that need what is not here say so and how to get it; what they print is understood."""

from __future__ import annotations

import json
import os
import sys
from textwrap import dedent

import pytest
from planted_profile import digest

from bench.digest import Tool, save_digest
from bench.errors import NothingSelectedError, Unavailable, UnknownNameError, Unsupported
from bench.kernel_report import Shipped
from bench.problem import Problem
from bench.profiling import Absence, Found, Subject, tools
from bench.profiling import _outside as outside
from bench.profiling import _session as session
from bench.profiling._ncu_metrics import DRAM, METRICS, OCCUPANCY, TENSOR, TIME, figures, read_result
from bench.profiling._session import Machine, chosen_tools, look, profile_cell
from bench.profiling._target import read_subject, write_subject
from bench.profiling.callgrind import read_annotated
from bench.profiling.ncu import SCRIPT
from bench.profiling.proton import read_hatchet
from bench.profiling.static import chosen, count_lines, lines_text
from implementations.triton_flash import TritonFlash

CPU = Subject(Problem(seqlen=64), "naive", "cpu")
GPU = Subject(Problem(seqlen=64), "naive", "cuda")


def absence(name, subject):
    return tools.get(name)().absence(subject)


def test_every_tool_says_what_it_gives_and_whether_it_is_asked_for():
    for name, tool in tools.items():
        assert tool.name == name
        assert tool.summary and isinstance(tool.default, bool)
    assert chosen_tools([]) == ["memory", "ncu", "proton", "static", "torch"]
    assert chosen_tools(["all"]) == tools.names()
    assert chosen_tools(["nsys", "memory"]) == ["memory", "nsys"]


def test_a_tool_that_is_none_is_told_the_nearest():
    with pytest.raises(UnknownNameError, match="torch"):
        chosen_tools(["torhc"])


@pytest.mark.parametrize("name", ["ncu", "nsys", "proton"])
def test_tools_for_gpus_are_no_use_on_a_cpu(name):
    found = absence(name, CPU)
    assert found is not None and not found.applicable and "CPU" in found.reason


@pytest.mark.parametrize(("name", "program"), [("nsys", "nsys"), ("ncu", "ncu")])
def test_a_program_that_is_not_there_is_named_with_the_way_to_get_it(monkeypatch, name, program):
    monkeypatch.setenv("PATH", "/nowhere")
    found = absence(name, GPU)
    assert found is not None and found.applicable
    assert program in found.reason and "CUDA toolkit" in found.fix


def test_callgrind_is_no_use_on_a_gpu_nor_for_a_long_problem(monkeypatch):
    assert not absence("callgrind", GPU).applicable
    assert "T512" in absence("callgrind", Subject(Problem(seqlen=4096), "naive", "cpu")).fix
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt install valgrind" in absence("callgrind", CPU).fix


@pytest.mark.parametrize("tool", ["torch", "memory", "callgrind"])
def test_what_is_interpreted_is_not_profiled(tool):
    found = absence(tool, Subject(Problem(seqlen=64), "triton_flash", "cpu"))
    assert found is not None and not found.applicable


@pytest.mark.parametrize(
    ("line", "admin", "forbidden"),
    [
        ("RmProfilingAdminOnly: 1", False, True),
        ("RmProfilingAdminOnly: 1", True, False),
        ("RmProfilingAdminOnly: 0", False, False),
    ],
)
def test_forbidden_counters_are_found_beforehand_with_the_fix(tmp_path, monkeypatch, line, admin, forbidden):
    parameters = tmp_path / "params"
    parameters.write_text(f"ResmanDebugLevel: 4294967295\n{line}\n")
    monkeypatch.setattr(outside, "_is_admin", lambda: admin)
    found = outside.counters_forbidden(parameters)
    assert (found is not None) == forbidden
    if found is not None:
        assert "ERR_NVGPUCTRPERM" in found.reason
        assert "NVreg_RestrictProfilingToAdminUsers=0" in found.fix and "SYS_ADMIN" in found.fix


def test_a_driver_that_says_nothing_is_not_held_against_the_user(tmp_path):
    assert outside.counters_forbidden(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("bits", "admin"), [("0000000000000000", False), ("000001ffffffffff", True), ("0000004000000000", True)]
)
def test_the_right_to_count_is_read_off_the_process(tmp_path, bits, admin):
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nCapEff:\t{bits}\n")
    assert outside._is_admin(status) == admin


def test_a_failing_program_is_quoted(tmp_path):
    with pytest.raises(Unavailable, match=r"code 3.*no luck"):
        outside.told("tool", [sys.executable, "-c", "print('no luck'); raise SystemExit(3)"], tmp_path)
    with pytest.raises(Unavailable, match="shorter problem"):
        outside.told("tool", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, limit_s=0.2)
    with pytest.raises(Unavailable, match="cannot be started"):
        outside.told("tool", ["/nowhere/tool"], tmp_path)


def test_counters_that_are_forbidden_only_when_they_are_read_are_told_with_the_fix(tmp_path):
    code = "print('==ERROR== ERR_NVGPUCTRPERM'); print('a'); print('b'); print('c'); raise SystemExit(1)"
    with pytest.raises(Unavailable, match=r"ERR_NVGPUCTRPERM.*NVreg_RestrictProfilingToAdminUsers=0"):
        outside.told("ncu", [sys.executable, "-c", code], tmp_path)


def test_a_subject_survives_its_file(tmp_path):
    subject = Subject(Problem(seqlen=64, mask="causal", dtype="bfloat16"), "naive", "cpu")
    assert read_subject(write_subject(subject, tmp_path / "subject.json")) == subject


def test_figures_of_counters_have_units_and_what_is_missing_is_none():
    stall = next(name for name in METRICS if "long_scoreboard" in name)
    other = next(name for name in METRICS if "barrier" in name)
    found = figures({TIME: 2e6, DRAM: 4e6, OCCUPANCY: 50.0, TENSOR: None, stall: 3.0, other: 1.0})
    assert found["time_ms"] == 2.0
    assert found["bandwidth_gb_per_s"] == 2.0
    assert found["occupancy_share"] == 0.5
    assert found["tensor_core_share"] is None
    assert found["main_stall"] == "long_scoreboard"
    assert figures({})["main_stall"] is None


NSIGHT = """
import contextlib, json, os, sys
import pandas

annotate = contextlib.contextmanager(lambda name: iter([print("annotated", name)]))

class analyze:
    @staticmethod
    def kernel(*, metrics, replay_mode, output_prefix, runs):
        def decorate(function):
            def collect():
                assert function() is None
                open(output_prefix + "0.ncu-rep", "w").close()
                rows = [{"Annotation": "x", "Metric": name, "AvgValue": 7.0, "Kernel": "k"} for name in metrics]
                rows[-1]["AvgValue"] = float("nan")
                return type("ProfileResults", (), {"to_dataframe": lambda self: pandas.DataFrame(rows)})()
            return collect
        return decorate
"""


def test_counters_come_from_the_package_that_runs_ncu(tmp_path, monkeypatch):
    package = tmp_path / "packages"
    package.mkdir()
    (package / "nsight.py").write_text(dedent(NSIGHT))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")]))
    file = write_subject(CPU, tmp_path / "subject.json")
    text = outside.told("ncu", [*outside.target(file, 0, SCRIPT)[:-1], str(tmp_path / "ncu-")], tmp_path)
    row = read_result(text, "call")
    assert row.figures["time_ms"] == 7e-6
    assert row.figures["bandwidth_gb_per_s"] == 1.0
    assert row.figures["stall_lg_throttle_warps"] is None
    assert (tmp_path / "ncu-0.ncu-rep").exists()


def test_a_target_that_prints_no_table_is_an_error_with_its_end():
    with pytest.raises(Unavailable, match="ERR_NVGPUCTRPERM"):
        read_result("==ERROR== ERR_NVGPUCTRPERM", "call")


def test_kernels_of_proton_are_the_leaves_of_its_tree_added_up():
    def leaf(name, time_ns, count):
        return {
            "frame": {"name": name, "type": "function"},
            "metrics": {"time (ns)": time_ns, "count": count},
            "children": [],
        }

    scope = {"frame": {"name": "call"}, "metrics": {}, "children": [leaf("forward", 3e6, 10), leaf("small", 1e5, 10)]}
    tree = [
        {"frame": {"name": "ROOT"}, "metrics": {}, "children": [scope, leaf("forward", 1e6, 10)]},
        {"CUDA": {"0": {}}},
    ]
    rows = read_hatchet(tree, calls=10)
    assert [row.name for row in rows] == ["forward", "small"]
    assert rows[0].figures == {"time_ms": pytest.approx(0.4), "launches": 2.0}


ANNOTATED = """
--------------------------------------------------------------------------------
Ir
--------------------------------------------------------------------------------
1,234,567 (100.0%)  PROGRAM TOTALS

--------------------------------------------------------------------------------
Ir                  file:function
--------------------------------------------------------------------------------
1,000,000 (81.00%)  ???:mkldnn_sgemm_kernel [/usr/lib/libtorch_cpu.so]
  300,000 (24.30%)  ???:at::(anonymous namespace)::attend<float, 32l>(at::Tensor const&)::{lambda#2}::operator()
  200,000 (16.20%)  softmax.cpp:at::native::vec_softmax(float*, long) [/usr/lib/libtorch_cpu.so]
"""


def test_functions_of_callgrind_are_read_with_their_instructions():
    rows = read_annotated(ANNOTATED)
    assert [(row.name, row.figures["instructions"]) for row in rows] == [
        ("mkldnn_sgemm_kernel", 1e6),
        ("at::(anonymous namespace)::attend<float, 32l>(at::Tensor const&)::{lambda#2}::operator()", 3e5),
        ("at::native::vec_softmax(float*, long)", 2e5),
    ]


SASS = """
	//## File "/a/forward.py", line 10
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
	//## File "/a/forward.py", line 20
        /*0010*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0020*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
	//## File "/a/forward.py", line 21 inlined at "/a/forward.py", line 90
        /*0030*/                   MUFU.EX2 R5, R4 ;
        /*0040*/               @P0 BRA `(.L_x_0) ;
	//## File "/a/forward.py", line 30
        /*0050*/                   EXIT ;
"""


def test_instructions_of_the_hottest_loop_are_counted_by_line_of_source():
    counts = count_lines(SASS)
    assert counts == {("/a/forward.py", 20): 2, ("/a/forward.py", 21): 2}
    text = lines_text([("attend", "forward.py", 20, "a | b", 2)], "sm_90")
    assert r"| attend | forward.py:20 | `a \| b` | 2 |" in text


def test_the_narrowest_configuration_that_fits_is_chosen_for_each_direction():
    shipped = [Shipped("triton_flash", one) for one in TritonFlash().kernel_configurations()]
    problem = Problem(seqlen=64, head_dim=64, dtype="bfloat16", direction="fwd_bwd")
    found = [one.configuration for one in chosen(shipped, "triton_flash", problem, "sm_90")]
    assert {(one.direction, one.head_dim, one.dtype) for one in found} == {("fwd", 64, "half"), ("bwd", 64, "half")}
    wider = chosen(shipped, "triton_flash", Problem(seqlen=64, head_dim=96, dtype="float32"), "sm_90")
    assert {one.configuration.head_dim for one in wider} == {128}
    assert chosen(shipped, "naive", problem, "sm_90") == []


def test_a_cell_that_cannot_be_computed_is_said_before_anything_runs(tmp_path):
    known = Machine("cpu", "cpu", "2.13.0", None)
    with pytest.raises(NothingSelectedError, match="naive"):
        profile_cell(CPU, Machine("cpu", "cpu", None, "library not there"), ["torch"], tmp_path)
    narrow = Subject(Problem(seqlen=64, head_dim=64, head_dim_v=32), "sdpa_flash", "cpu")
    with pytest.raises(NothingSelectedError, match="head_dim_v"):
        profile_cell(narrow, known, ["torch"], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_digest_of_no_tool_has_a_state_for_each_and_no_figures(tmp_path):
    digest = profile_cell(CPU, Machine("cpu", "cpu", "2.13.0", None), ["nsys"], tmp_path)
    states = {tool.name: tool.status for tool in digest.tools}
    assert states == dict.fromkeys(tools.names(), "not_asked") | {"nsys": "not_applicable"}
    assert (digest.total_ms, digest.memory, digest.stages) == (None, None, ())


def test_what_an_earlier_profile_left_does_not_stand_beside_a_new_one(tmp_path):
    earlier = digest(tools=(Tool(name="torch", status="done", files={"trace.json.gz": "Perfetto"}),))
    save_digest(earlier, tmp_path)
    for name in ("trace.json.gz", "memory_timeline.png", "digest.md", "torch.log", "notes.txt"):
        (tmp_path / name).touch()
    profile_cell(CPU, Machine("cpu", "cpu", "2.13.0", None), ["nsys"], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt"}, "the new digest is written by its caller"
    (tmp_path / "digest.json").write_text("{}")
    (tmp_path / "trace.json.gz").touch()
    profile_cell(CPU, Machine("cpu", "cpu", "2.13.0", None), ["nsys"], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "trace.json.gz"}, "whose it is is not known"


class Refusing:
    name, summary, default = "refusing", "its library refuses", True

    def absence(self, subject):
        return None

    def look(self, subject, folder):
        raise Unsupported("no kernel for this width.")


def test_what_a_library_refuses_is_no_failure_of_the_tool(clean_registry, tmp_path, monkeypatch):
    clean_registry(tools)
    tools.add("refusing", Refusing)
    monkeypatch.setattr(session, "in_fresh_process", lambda function, *arguments, log: function(*arguments))
    with pytest.raises(NothingSelectedError, match=r"naive on B1-H4-T64.*: no kernel for this width\. Name another"):
        profile_cell(CPU, Machine("cpu", "cpu", "2.13.0", None), ["refusing"], tmp_path)


class Broken:
    name, summary, default = "broken", "breaks", False

    def absence(self, subject):
        return None

    def look(self, subject, folder):
        raise ValueError("no such counter\nand more")


class Whole(Broken):
    name = "whole"

    def absence(self, subject):
        return Absence("never used")

    def look(self, subject, folder):
        return Found(files={"a.txt": "any editor"})


def test_what_a_tool_breaks_on_becomes_its_state(clean_registry, tmp_path):
    clean_registry(tools)
    tools.add("broken", Broken)
    tools.add("whole", Whole)
    found = look("broken", CPU, tmp_path)
    assert (found.status, found.reason, found.fix) == ("failed", "ValueError: no such counter", "see broken.log")
    assert look("whole", CPU, tmp_path).files == {"a.txt": "any editor"}
    assert json.dumps(dict(look("whole", CPU, tmp_path).files))
