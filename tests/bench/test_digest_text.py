"""The Markdown of a digest holds its numbers, its files and why anything is missing."""

from __future__ import annotations

from planted_profile import CEILINGS, digest, overhead, stage

from bench.digest import KernelRow, Tool
from bench.digest_text import digest_text, kernel_rows, save_text, side_by_side, stage_rows
from bench.problem import Problem


def test_the_text_holds_stages_roofs_memory_files_and_absent_tools(tmp_path):
    text = save_text(digest(64), tmp_path, ["memory_timeline.png"]).read_text()
    assert "| softmax | 50.0 ms | 50.0% | 2 | 1.00e+06 | 500 kB | 2.00 | bandwidth | 50% | softmax_operator |" in text
    assert "add up to 100.0% of the profiled total" in text
    assert "100 GFLOP/s" in text and "10.0 GB/s beyond the last cache" in text
    assert "| scores | 65.5 kB | 33.3% | 1 |" in text
    assert "![memory_timeline.png](memory_timeline.png)" in text
    assert "- `trace.json.gz`: open in Perfetto" in text
    assert "- ncu (unavailable): no program ncu is found on PATH. To get it: install it." in text
    assert "nsys" not in text, "a tool that nobody asked for is no gap"


def test_a_tool_that_broke_is_told_with_its_log_and_no_way_to_get_it():
    broken = Tool(name="proton", status="failed", reason="RuntimeError: no.", fix="see proton.log")
    text = digest_text(digest(tools=(broken,)))
    assert "- proton (failed): RuntimeError: no (see proton.log).\n" in text


def test_names_of_templates_are_no_tags():
    rows = (KernelRow(tool="proton", name="void gemm<float, 4>(T*)", figures={"launches": 2.0}),)
    unknown = stage("other", 10.0, flop=None, moved_bytes=None, roof=None, roof_fraction=None, reason="what a<b> does")
    text = digest_text(digest(kernels=rows, stages=(unknown,)))
    assert "| void gemm\\<float, 4\\>(T\\*) |" in text and "what a\\<b\\> does" in text


def test_stages_that_do_not_add_up_are_said_to_be_off():
    assert "add up to 90.0% of the profiled total, which is off" in digest_text(digest(stages=(overhead(90.0),)))


def test_notes_and_every_rate_are_told():
    rates = CEILINGS.model_copy(update={"flop_per_s": {"bfloat16": 200e9, "float32": 100e9}})
    half = Problem(seqlen=64, dtype="bfloat16")
    text = digest_text(digest(problem=half, ceilings=rates, notes={"trace": "not kept"}))
    assert "bfloat16 products 200 GFLOP/s, float32 products 100 GFLOP/s; copies" in text
    assert "- trace: not kept." in text


def test_missing_figures_are_dashes_with_their_reason():
    unknown = stage("other", 10.0, flop=None, moved_bytes=None, roof=None, roof_fraction=None, reason="not known")
    text = digest_text(digest(stages=(unknown, overhead(90.0))))
    assert "| other | 10.0 ms | 10.0% | 2 | - | - | - | - | - |" in text
    assert "- other: not known." in text


def test_a_profile_of_one_tool_holds_only_what_that_gave():
    text = digest_text(digest(total_ms=None, stages=(), memory=None))
    assert "Where the time goes" not in text and "What the memory is" not in text


def test_kernels_have_a_table_for_each_tool_with_all_its_figures():
    rows = (
        KernelRow(tool="proton", name="a|b", figures={"time_ms": 0.5, "launches": 2.0}),
        KernelRow(tool="ncu", name="call", figures={"occupancy_share": None, "main_stall": "wait"}),
    )
    text = digest_text(digest(kernels=rows))
    assert "by proton" in text and "| a\\|b | 0.500 | 2 |" in text
    assert "by ncu" in text and "| call | - | wait |" in text


def test_cells_stand_side_by_side_with_stages_that_only_one_has():
    flash = digest(64, "sdpa_flash", (stage("fused attention", 97.0), overhead(3.0)))
    rows = {row["stage"]: row for row in side_by_side([digest(64), flash])}
    assert rows["softmax"] == {"stage": "softmax", "naive": "50.0 ms (50.0%)", "sdpa_flash": None}
    assert rows["overhead"]["sdpa_flash"] == "3.00 ms (3.0%)"
    assert list(rows)[-3:] == ["overhead", "profiled total", "peak memory"]


def test_cells_of_several_lengths_stand_one_below_another():
    flash = digest(128, "sdpa_flash", (stage("fused attention", 97.0), overhead(3.0)))
    first, second = side_by_side([digest(64), flash])
    assert (first["softmax"], first["fused attention"], first["overhead"]) == ("50.0%", None, "5.0%")
    assert (second["implementation"], second["fused attention"], second["softmax"]) == ("sdpa_flash", "97.0%", None)
    assert second["profiled total"] == "100 ms"


def test_files_get_every_figure_of_every_stage():
    rows = stage_rows(digest(64))
    assert [row["stage"] for row in rows] == ["softmax", "score product", "value product", "overhead"]
    assert rows[0]["flop_per_byte"] == 2.0
    assert rows[-1]["reason"] == "-"


def test_where_no_stage_was_looked_at_kernels_are_rows():
    rows = (KernelRow(tool="static", name="forward", figures={"registers": 240}),)
    only = digest(total_ms=None, stages=(), memory=None, kernels=rows)
    assert side_by_side([only]) == []
    assert kernel_rows(only) == [{"tool": "static", "name": "forward", "registers": 240}]
