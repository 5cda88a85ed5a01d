"""The loop of whoever writes a kernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import progress
from bench.errors import OutputError, UnknownNameError, UsageError
from bench.implementation import implementations
from bench.problem import Problem
from bench.trial import _one_shape, loaded_names, registered_names, trial_of

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


def test_a_file_that_the_registry_knows_by_itself_needs_no_loading(tmp_path):
    assert registered_names(ROOT / "implementations" / "naive.py") == ["naive"]
    assert registered_names(tmp_path / "missing.py") == []


def test_a_file_with_a_name_that_is_taken_is_refused_with_the_way_out(tmp_path):
    copy = tmp_path / "copy.py"
    copy.write_text((ROOT / "implementations" / "naive.py").read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"got 'naive' from both implementations\.naive and .*--editable"):
        loaded_names(copy)


def try_naive(tmp_path, *against):
    return trial_of(
        "naive",
        Problem(seqlen=64),
        load=(),
        folder=tmp_path,
        command="try",
        device="cpu",
        listener=progress.listener(),
        rivals=against,
    )


def test_a_rival_that_is_the_kernel_itself_or_unknown_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(UsageError, match="--against must name somebody else, got naive for naive"):
        try_naive(tmp_path, "sdpa_math", "naive")
    with pytest.raises(UnknownNameError, match="sdpa_math"):
        try_naive(tmp_path, "sdpa_meth")
    assert not list(tmp_path.iterdir())


def test_who_is_never_timed_here_is_no_rival_unless_asked_for():
    def rivals(*asked, device="cpu"):
        return [case.implementation for case in _one_shape("naive", Problem(seqlen=64), asked, device).cases][1:]

    assert "triton_flash" not in rivals() and {"sdpa_math", "sdpa_flash"} <= set(rivals())
    assert "triton_flash" in rivals(device="cuda")
    assert rivals("triton_flash") == ["triton_flash"], "the answer then says why there is no time"


@pytest.mark.slow
def test_an_implementation_of_the_suite_itself_can_be_tried_and_who_has_no_time_is_named(tmp_path):
    command = [
        sys.executable,
        "-m",
        "bench",
        "try",
        "implementations/naive.py",
        "--set",
        "seqlen=64",
        "--device",
        "cpu",
    ]
    command += ["--results", str(tmp_path), "--format", "json", "--against", "triton_flash"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["implementation"], row["status"], row["against"]) == ("naive", "ok", None)
    assert row["found"].startswith("nobody to set it against: triton_flash is ")


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
