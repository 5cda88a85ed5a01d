"""The workflows: their commands exist, jobs have few rights and limits, no failure is hidden, clocks are unlocked."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = {path.stem: path for path in sorted((GITHUB / "workflows").glob("*.yml"))}
FILES = [*WORKFLOWS.values(), *GITHUB.glob("actions/*/action.yml")]
TARGETS = set(re.findall(r"^([a-z][a-z-]*):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
LIMIT_MINUTES = {"check": 15, "comment": 5, "gpu": 60}


def load(path: Path) -> dict[str, Any]:
    """A workflow, or an action, as plain data."""
    content: dict[str, Any] = YAML(typ="safe").load(path)
    return content


def jobs(name: str) -> dict[str, dict[str, Any]]:
    return load(WORKFLOWS[name])["jobs"]


def steps(path: Path) -> list[dict[str, Any]]:
    content = load(path)
    if "runs" in content:
        return content["runs"]["steps"]
    return [step for job in content["jobs"].values() for step in job["steps"]]


def scripts() -> list[str]:
    return [step["run"] for path in FILES for step in steps(path) if "run" in step]


ALL_JOBS = [(name, job) for name in WORKFLOWS for job in jobs(name)]


def test_there_are_the_workflows_that_docs_ci_describes() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert set(WORKFLOWS) == set(LIMIT_MINUTES)
    for name in WORKFLOWS:
        assert f"`{name}.yml`" in page


def test_each_make_target_that_a_workflow_calls_exists() -> None:
    called = {word for script in scripts() for word in re.findall(r"\bmake ([a-z-]+)", script)}
    assert {"setup", "lint", "types", "test", "claims", "bench", "baseline", "test-gpu"} <= called
    assert called <= TARGETS


def commands(text: str) -> list[str]:
    """Calls of attention-bench in a script, without what the shell does with their output."""
    return re.findall(r"\.venv/bin/attention-bench ([^>|\n]+)", text)


def parses(line: str) -> bool:
    """Whether the command line takes these words."""
    from cyclopts import CycloptsError

    from bench.cli import app

    try:
        command, _, ignored = app.parse_args(shlex.split(line), exit_on_error=False, print_error=False)
    except CycloptsError:
        return False
    return callable(command) and not ignored


def test_each_command_that_a_workflow_calls_parses() -> None:
    lines = [line for script in scripts() for line in commands(script)]
    targets = {"bench": "run", "claims": "claims", "baseline": "baseline"}
    for script in scripts():
        for target, words in re.findall(r"make (bench|claims|baseline) ARGS='?([^'\n]+)", script):
            lines.append(f"{targets[target]} {words}")
    assert len(lines) >= 8
    assert [line for line in lines if not parses(line)] == []


def test_the_ten_lines_of_the_documentation_are_ten_and_parse() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "ci.md").read_text(encoding="utf-8"), re.S | re.M)
    assert len(block.splitlines()) == 10
    (job,) = YAML(typ="safe").load(block)["jobs"].values()
    lines = [line for step in job["steps"] for line in commands(step.get("run", ""))]
    assert len(lines) == 2
    assert [line for line in lines if not parses(line)] == []


@pytest.mark.parametrize("script", scripts())
def test_each_script_is_valid_shell_without_expressions(script: str) -> None:
    """An expression inside a script is text that somebody else may have written, run as code."""
    assert "${{" not in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(("name", "job"), ALL_JOBS)
def test_each_job_has_a_limit_and_asks_for_its_own_rights(name: str, job: str) -> None:
    held = jobs(name)[job]
    assert load(WORKFLOWS[name])["permissions"] == {}
    assert held["timeout-minutes"] <= LIMIT_MINUTES[name]
    writes = {right for right, level in held["permissions"].items() if level != "read"}
    assert writes == {("comment", "comment"): {"pull-requests"}, ("gpu", "baseline"): {"contents"}}.get(
        (name, job), set()
    )


def test_nothing_hides_a_failure() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert "continue-on-error" not in text
        assert not re.search(r"\|\| *true\b", text)
    for path in FILES:
        for step in steps(path):
            if "upload-artifact" in step.get("uses", ""):
                assert step["with"]["if-no-files-found"] == "error"


def test_only_actions_of_github_are_used_and_each_has_a_version() -> None:
    used = {step["uses"] for path in FILES for step in steps(path) if "uses" in step}
    assert used
    for action in used - {"./.github/actions/setup"}:
        assert re.fullmatch(r"actions/[a-z-]+@(v\d+|[0-9a-f]{40})", action), action


def test_a_checkout_leaves_no_token_behind() -> None:
    for path in FILES:
        for step in steps(path):
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def test_no_workflow_runs_foreign_code_with_rights_or_on_the_gpu_machine() -> None:
    for name, path in WORKFLOWS.items():
        events = load(path)["on"]
        assert "pull_request_target" not in events
        if "workflow_run" in events:
            assert not any("uses" in step for step in steps(path)), "it must not check anything out"
            assert "comparison/comment.md" in path.read_text(encoding="utf-8")
        for job in jobs(name).values():
            if "self-hosted" in job["runs-on"] and "pull_request" in job.get("if", "pull_request"):
                assert "github.event.label.name == 'gpu'" in job["if"]
                assert "github.event.pull_request.head.repo.full_name == github.repository" in job["if"]
                assert job["environment"] == "gpu"


def test_clocks_that_are_locked_are_always_unlocked() -> None:
    locked = 0
    for name in WORKFLOWS:
        for job in jobs(name).values():
            runs = [step.get("run", "") for step in job["steps"]]
            lock = [index for index, run in enumerate(runs) if "--lock-gpu-clocks" in run]
            unlock = [index for index, run in enumerate(runs) if "--reset-gpu-clocks" in run]
            assert len(lock) == len(unlock)
            for start, end in zip(lock, unlock, strict=True):
                assert start < end
                assert job["steps"][end]["if"] == "always()"
                locked += 1
    assert locked == 2
    assert load(WORKFLOWS["gpu"])["concurrency"] == {"group": "gpu", "cancel-in-progress": False}


def test_what_is_uploaded_is_one_page_or_one_table() -> None:
    uploads = [s["with"] for path in FILES for s in steps(path) if "upload-artifact" in s.get("uses", "")]
    assert sorted(upload["path"] for upload in uploads) == ["comment.md", *["reports/*/index.html"] * 2]
    assert all(upload.get("retention-days", 99) <= 30 for upload in uploads)


def test_the_page_that_is_uploaded_holds_nothing_of_the_environment() -> None:
    """Secrets reach a job as variables; of those, a run keeps only a list that is written down."""
    from bench.environment import ALLOWED_VARIABLES, allowed_variables

    kept = allowed_variables(
        {"GITHUB_TOKEN": "s", "AWS_SECRET_ACCESS_KEY": "s", "HOME": "/root", **dict.fromkeys(ALLOWED_VARIABLES, "1")}
    )
    assert set(kept) == set(ALLOWED_VARIABLES)
    assert not [name for name in ALLOWED_VARIABLES if re.search("TOKEN|SECRET|KEY|PASSWORD|HOME|USER", name)]
