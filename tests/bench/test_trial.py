"""The loop of whoever writes a kernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.errors import OutputError, UsageError
from bench.implementation import implementations
from bench.trial import loaded_names

ROOT = Path(__file__).resolve().parents[2]


def textbook(folder: Path, change: tuple[str, str] = ("", "")) -> Path:
    """The implementation of the README, with something in it replaced."""
    (code,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    path = folder / "my_kernel.py"
    path.write_text(code.replace(*change) if change[0] else code, encoding="utf-8")
    return path


def test_the_implementations_of_a_file_are_named(tmp_path, clean_registry):
    clean_registry(implementations)
    assert loaded_names(textbook(tmp_path)) == ["textbook"]


def test_a_file_without_one_is_an_error_with_the_next_step(tmp_path, clean_registry):
    clean_registry(implementations)
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(UsageError, match="must register at least one implementation, got none"):
        loaded_names(tmp_path / "empty.py")
    with pytest.raises(OutputError, match="--load must name a Python file"):
        loaded_names(tmp_path / "missing.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code", "status", "found"),
    [
        (("", ""), 0, "ok", r"(slower|faster) by|unchanged|unclear"),
        (("problem.softmax_scale *", "1.01 * problem.softmax_scale *"), 1, "incorrect", "incorrect: "),
        (('problem.mask.spec == "full"', 'problem.mask.spec == "none"'), 1, "unsupported", "takes only the full mask"),
    ],
)
def test_a_file_is_verified_and_set_against_the_best_there_is(tmp_path, change, code, status, found):
    path = textbook(tmp_path, change)
    command = [sys.executable, "-m", "bench", "try", str(path), "--set", "seqlen=128", "--device", "cpu"]
    command += ["--results", str(tmp_path / "runs"), "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["implementation"], row["status"]) == ("textbook", status)
    assert re.search(found, row["found"]), row
    assert (row["against"] is None) == bool(code)
