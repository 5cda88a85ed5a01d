"""`profile`: bad input ends before anything runs, a folder holds what was found, and stored results are left alone."""

from __future__ import annotations

import json

import pytest

from bench.cli import main
from bench.digest import load_digest
from bench.implementation import implementations
from bench.problem import Problem


def run(capsys, *words):
    with pytest.raises(SystemExit) as caught:
        main(["profile", *words])
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-i", "naive"], "--problem"),
        (["-p", "T64"], "--implementation"),
        (["-i", "naive", "-p", "short"], "T2048"),
        (["-i", "navie", "-p", "T64"], "naive"),
        (["-i", "naive", "-i", "navie", "-p", "T64"], "did you mean naive"),
        (["-i", "naive", "-p", "T64", "--tool", "torhc"], "torch"),
        (["-i", "naive", "-p", "T64", "--across-seqlen", "1k"], "--across-seqlen"),
        (["-i", "naive", "-p", "T64", "--across-seqlen", "64,0"], "at least 1"),
    ],
)
def test_bad_input_is_told_with_exit_code_2_and_writes_nothing(capsys, tmp_path, words, told):
    code, out, err = run(capsys, *words, "-o", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert told in err
    assert not (tmp_path / "out").exists()


def test_a_cell_that_cannot_be_computed_ends_with_5(capsys, tmp_path):
    code, _, err = run(capsys, "-i", "sdpa_flash", "-p", "T64-d64:32", "-o", str(tmp_path))
    assert code == 5
    assert "head_dim_v" in err


def test_a_second_cell_that_cannot_be_computed_ends_before_the_first_runs(capsys, tmp_path):
    code, _, err = run(capsys, "-i", "naive", "-i", "sdpa_flash", "-p", "T64-d64:32", "-o", str(tmp_path / "out"))
    assert code == 5
    assert "head_dim_v" in err
    assert not (tmp_path / "out").exists()


LOADED = """
from bench.implementation import implementations
from implementations.naive import Naive

class Mine(Naive):
    name = "mine"

implementations.add("mine", Mine())
"""


def test_a_file_with_an_implementation_is_loaded_once_however_many_cells_there_are(capsys, tmp_path, clean_registry):
    clean_registry(implementations)
    file = tmp_path / "mine.py"
    file.write_text(LOADED)
    words = ["-i", "mine", "-i", "mine", "-p", "T32", "--across-seqlen", "32,64,32", "--tool", "memory"]
    code, out, _ = run(capsys, *words, "--load", str(file), "-o", str(tmp_path / "out"), "--format", "markdown")
    assert code == 0
    assert out.count("| mine |") == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"mine-B1-H4-T{length}-d64-float32-fwd-full" for length in (32, 64)
    }


def test_a_named_tool_that_is_no_use_for_the_cell_says_why_and_ends_with_1(capsys, tmp_path):
    code, _, err = run(capsys, "-i", "naive", "-p", "T32", "--tool", "nsys", "-o", str(tmp_path))
    assert code == 1
    assert "nsys gives nothing: nsys looks at GPU kernels" in err


def test_memory_alone_is_a_digest_a_text_and_a_figure(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "-i", "naive", "-p", "T64", "--tool", "memory", "-o", "out", "--format", "markdown")
    assert code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"digest.json", "digest.md", "memory_timeline.png"}
    assert {path.name for path in tmp_path.iterdir()} == {"out"}, "no results are touched"
    digest = load_digest(tmp_path / "out")
    problem = Problem(seqlen=64)
    assert digest.memory.peak_bytes == 2 * problem.all_pairs * 4 + problem.output_bytes
    assert (digest.total_ms, digest.ceilings) == (None, None)
    assert "| peak memory | 197 kB |" in out
    assert "digest.md" in err


@pytest.mark.slow
def test_cells_side_by_side_share_a_figure_and_have_folders_of_their_own(capsys, tmp_path):
    words = ["-i", "naive", "-i", "sdpa_flash", "-p", "T64", "--across-seqlen", "64,128", "-o", str(tmp_path)]
    code, out, _ = run(capsys, *words, "--format", "json")
    assert code == 0
    rows = json.loads(out)
    assert {row["implementation"] for row in rows} == {"naive", "sdpa_flash"}
    folders = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len(folders) == 4
    assert {load_digest(folder).problem.seqlen_k for folder in folders} == {64, 128}
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".png"] == ["stage_shares-fwd-float32-full.png"]


@pytest.mark.slow
def test_a_named_tool_that_is_not_here_ends_with_1(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, err = run(capsys, "-i", "naive", "-p", "T64", "--tool", "callgrind", "-o", str(tmp_path))
    assert code == 1
    assert "apt install valgrind" in err
