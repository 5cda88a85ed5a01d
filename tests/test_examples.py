"""Every example runs as its first lines say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(name, *arguments, folder):
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_each_example_runs_and_says_how(path, tmp_path):
    assert f"python examples/{path.name}" in path.read_text("utf-8")
    done = run(path.name, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_heat_map_has_the_worked_numbers_and_writes_a_picture(tmp_path):
    done = run("heatmap.py", "pictures/map.png", folder=tmp_path)
    said = {line[:8].strip(): line[8:].strip() for line in done.stdout.splitlines()}
    cases = json.loads((ROOT / "tests" / "chapter" / "golden.json").read_text("utf-8"))["cases"]
    (case,) = [case for case in cases if case["name"] == "heatmap_three_tokens"]
    assert json.loads(said["row sums"]) == case["expected"]["row_sums"]
    assert json.loads(said["output"]) == [[round(x, 6) for x in row] for row in case["expected"]["out"]]
    assert said["picture"] == "pictures/map.png"
    assert (tmp_path / "pictures" / "map.png").read_bytes().startswith(b"\x89PNG")
