"""The command line: start-up without torch, exit codes, messages, and what a dry run shows."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import get_args

import pytest

from bench.cli import main
from bench.cli.reading import Family
from bench.sweep import load_sweep

HEAVY = ("torch", "pandas", "matplotlib", "triton", "scipy")


def run(capsys, *words):
    """Exit code, stdout and stderr of the command line in this process."""
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "--help"],
        ["measure", "--dry-run"],
        *(["list", family] for family in get_args(Family)),
    ],
)
def test_help_list_and_plan_never_import_the_heavy_packages(words):
    code = (
        "import sys\nfrom bench.cli import main\n"
        f"try: main({words!r})\nexcept SystemExit as e: assert not e.code, e.code\n"
        f"loaded = [m for m in {HEAVY!r} if m in sys.modules]\nassert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_start_up_takes_at_most_a_quarter_of_importing_torch():
    commands = {
        "torch": ["-c", "import torch"],
        "help": ["-m", "bench", "--help"],
        "list": ["-m", "bench", "list", "implementations"],
    }
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(5):  # in turns, so that a busy moment of the machine meets all of them
        for name, words in commands.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *words], check=True, capture_output=True)
            best[name] = min(best[name], time.perf_counter() - start)
    assert best["help"] / best["torch"] <= 0.25
    assert best["list"] / best["torch"] <= 0.25


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["measure", "--sweep", "defualt"], 2, "did you mean default"),
        (["measure", "--set", "mask=cusal"], 2, "did you mean causal"),
        (["measure", "--set", "seqlen=0"], 2, "seqlen_q must be at least 1, got 0"),
        (["measure", "--set", "head_dim=-3"], 2, "head_dim must be at least 1, got -3"),
        (["measure", "--set", "num_heads_kv=3"], 2, "num_heads_q must be a multiple of num_heads_kv"),
        (["measure", "--set", "dtype=float8"], 2, "dtype must be"),
        (["measure", "--set", "sequence=3"], 2, "axis must be a known name"),
        (["measure", "--sweep", "missing.toml"], 2, "sweep must be a readable file"),
        (["measure", "-i", "nothing"], 5, "implementation filter must leave at least one"),
        (["measure", "-p", "nothing"], 5, "problem filter must leave at least one"),
        (["measure", "-i", "("], 2, "filter must be a regular expression"),
        (["measure", "--time-budget", "soon"], 2, "time budget must be a positive duration"),
        (["measure", "--resume", "nothing"], 2, "run must name one results file"),
        (["measure", "--load", "nothing.py"], 2, "--load must name a Python file"),
        (["measure", "--device", "tpu"], 2, "tpu"),
        (["report", "nothing"], 2, "run must name one results file"),
        (["list", "nothing"], 2, "nothing"),
        (["nothing"], 2, "nothing"),
    ],
)
def test_bad_input_is_found_before_anything_is_measured(capsys, tmp_path, monkeypatch, words, code, says):
    monkeypatch.chdir(tmp_path)
    got, out, err = run(capsys, *words)
    assert (got, out) == (code, "")
    assert says in err
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*.jsonl"))


def test_malformed_toml_names_file_and_line(capsys, tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text("[axes]\nseqlen = [64\nmask = 'full'\n")
    code, _, err = run(capsys, "measure", "--sweep", str(path))
    assert code == 2
    assert "broken.toml" in err
    assert "line 3" in err


@pytest.mark.parametrize("verb", ["measure", "run"])
def test_an_output_folder_that_cannot_be_written_is_found_first(capsys, tmp_path, verb):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    code, _, err = run(capsys, verb, "--sweep", "smoke", "-o", str(blocked / "runs"))
    assert code == 2
    assert "output folder must be writable" in err


def test_a_report_folder_that_cannot_be_written_is_found_before_measuring(capsys, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    code, _, err = run(capsys, "run", "--sweep", "smoke", "-o", str(tmp_path / "runs"), "--reports", str(blocked))
    assert code == 2
    assert "output folder must be writable" in err
    assert not list(tmp_path.rglob("*.jsonl"))


def test_an_unusable_device_is_a_usage_error(capsys, tmp_path):
    import torch

    if torch.cuda.is_available():
        return
    code, _, err = run(capsys, "measure", "--device", "cuda", "--sweep", "smoke", "-o", str(tmp_path))
    assert code == 2
    assert "device must be one that torch can use" in err
    assert not list(tmp_path.glob("*.jsonl"))


def test_dry_run_shows_the_plan_and_measures_nothing(capsys, tmp_path):
    code, out, _ = run(capsys, "measure", "--dry-run", "--sweep", "default", "-o", str(tmp_path))
    assert code == 0
    assert f"{len(load_sweep('default').problems)} problems" in out
    assert "predicted peak" in out
    assert "left out: sdpa_cudnn" in out
    assert not list(tmp_path.iterdir())


def test_lists_come_in_every_format(capsys):
    import csv
    import io
    import json

    _, out, _ = run(capsys, "list", "masks", "--format", "json")
    names = [row["name"] for row in json.loads(out)]
    assert "causal" in names
    _, out, _ = run(capsys, "list", "masks", "--format", "csv")
    assert [row["name"] for row in csv.DictReader(io.StringIO(out))] == names
    _, out, _ = run(capsys, "list", "masks", "--format", "jsonl")
    assert [json.loads(line)["name"] for line in out.splitlines()] == names
    _, out, _ = run(capsys, "list", "masks", "--format", "markdown")
    assert out.startswith("| name |")


def test_every_family_says_in_a_sentence_what_each_member_is(capsys):
    import json

    for family in get_args(Family):
        _, out, _ = run(capsys, "list", family, "--format", "json")
        rows = json.loads(out)
        assert rows, family
        for row in rows:
            assert len(row.get("summary") or row["title"]) > 10, row
    _, out, _ = run(capsys, "list", "mutants", "--format", "json")
    assert len(json.loads(out)) >= 16
