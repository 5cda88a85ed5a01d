from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from bench.errors import BenchError
from bench.implementation import implementations
from bench.masks import attended_pairs, masks
from bench.problem import Problem
from bench.record import FlagName, Status
from bench.registry import load_file

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(
    path for folder in ("", "docs", "docs/decisions", "results", "reports") for path in (ROOT / folder).glob("*.md")
)


def blocks(page: str, language: str) -> list[str]:
    """The fenced code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def command_lines() -> list[list[str]]:
    """Every call of the command in the pages, as arguments; in blocks and in running text."""
    found = []
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        inline = re.findall(r"(?<!`)`(attention-bench [^`]+)`(?!`)", page)
        in_blocks = [line for block in blocks(page, "sh") for line in block.splitlines()]
        for line in inline + in_blocks:
            words = shlex.split(line, comments=True)
            if words and words[0].endswith("attention-bench"):
                found.append(words[1:])
    return found


def test_generated_documents_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0), f"run scripts/generate_docs.py\n{done.stdout}{done.stderr}"


def test_every_documented_command_line_parses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bench.cli import app

    lines = command_lines()
    assert len(lines) >= 8
    for words in lines:
        command, _, ignored = app.parse_args(words, exit_on_error=False, print_error=False)
        assert callable(command), words
        assert not ignored, words


def test_every_verb_has_help_and_stands_in_the_readme() -> None:
    from bench.cli import app

    verbs = [name for name in app if not name.startswith("-")]
    assert {"run", "measure", "verify", "list", "report"} <= set(verbs)
    for verb in verbs:
        assert app[verb].help, verb
        assert re.search(rf"attention-bench {verb}\b|`{verb}`", README), verb


def test_the_readme_tables_name_every_sweep_family_and_measuring_option() -> None:
    from dataclasses import fields

    from bench.cli.measuring import Measuring
    from bench.cli.reading import Family
    from bench.sweep import sweep_names

    verbs = README.partition("## Verbs")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| `([^`]+)` \|", verbs, re.MULTILINE))
    assert {name for name in sweep_names() if not name.endswith("_cuda")} <= rows
    (families,) = re.findall(r"^\| `list FAMILY` \| (.*?) \|", verbs, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", families)) == set(get_args(Family))
    named = set(re.findall(r"`--([a-z-]+)", verbs))
    assert {field.name.replace("_", "-") for field in fields(Measuring)} <= named


def test_the_methodology_gives_each_check_and_each_rule_its_line() -> None:
    from bench.checks import checks
    from bench.numerics import LSE_LIMIT_EPS, NOISE_DEVIATIONS, SCORE_ALLOWANCE
    from bench.rules import RULES

    page = (ROOT / "docs" / "methodology.md").read_text(encoding="utf-8")
    for name in (*checks.names(), *RULES):
        assert re.search(rf"^\| `?{name}`? \|", page, re.MULTILINE), name
    assert (LSE_LIMIT_EPS, NOISE_DEVIATIONS, SCORE_ALLOWANCE) == (16, 5, 2**-9), "methodology.md justifies these"
    assert "16 · ε(float32)" in page and "five standard deviations" in page and "2⁻⁹" in page


def test_families_that_grow_by_a_file_stand_in_the_contributing_guide() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for contract, example in re.findall(r"^\| an? [^|]+ \| `[^`]+` \| `([^`]+)` \| `([^`]+)` \|", guide, re.MULTILINE):
        assert (ROOT / contract).is_file() and (ROOT / example).is_file(), (contract, example)
    for family in ("implementations", "masks", "sweeps", "checks", "mutants", "metrics", "plots", "probes", "claims"):
        assert f"{family}/NAME" in guide, family


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_readme_explains_every_status_and_flag() -> None:
    for name in (*get_args(Status), *get_args(FlagName)):
        assert f"`{name}`" in README, name


def test_the_readme_lists_the_exit_codes_of_the_errors() -> None:
    section = README.partition("## Exit codes")[2].partition("\n## ")[0]
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    raised = {error.exit_code for error in [BenchError, *subclasses(BenchError)]}
    assert listed == raised | {0, 3, 4, 130}, "3 and 4 are answers of check and ab, not errors"


def subclasses(parent: type[BenchError]) -> list[type[BenchError]]:
    direct = parent.__subclasses__()
    return direct + [below for child in direct for below in subclasses(child)]


def test_the_implementation_of_the_readme_works(tmp_path: Path, clean_registry: Callable[[Any], None]) -> None:
    from bench.calls import make_step
    from bench.inputs import make_inputs
    from bench.numerics import agree
    from bench.reference import naive_yardstick, reference

    clean_registry(implementations)
    path = tmp_path / "my_attention.py"
    (code,) = blocks(README, "python")
    path.write_text(code, encoding="utf-8")
    load_file(path)
    member = implementations.get("textbook")
    problem = Problem(seqlen_q=17, seqlen_k=33, head_dim=8, scale=0.3)
    assert member.unsupported(problem, "cpu") is None
    assert member.unsupported(Problem(seqlen=8, mask="causal"), "cpu") is not None
    inputs = make_inputs(problem, member.layout)
    result = make_step(member.prepare(problem, inputs), problem, inputs, member.layout).run()
    exact, naive = reference(problem, inputs), naive_yardstick(problem, inputs)
    assert agree(problem, exact, naive, result.tensors()).passed


def test_the_mask_of_the_contributing_guide_works(tmp_path: Path, clean_registry: Callable[[Any], None]) -> None:
    clean_registry(masks)
    path = tmp_path / "my_mask.py"
    (code,) = blocks((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "python")
    path.write_text(code, encoding="utf-8")
    load_file(path)
    problem = Problem(seqlen_q=3, seqlen_k=5, mask="diagonal")
    assert problem.attended_pairs == 3 * 4
    assert attended_pairs(problem.mask & masks.get("causal")(), problem.mask_shape) == 3 * 4


def test_make_lists_every_target_and_ci_calls_them() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    shown = subprocess.run(["make"], cwd=ROOT, env=outside, capture_output=True, text=True, check=True).stdout
    assert [line.split()[1] for line in shown.splitlines()] == targets
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    called = re.findall(r"^make (\S+)", script, re.MULTILINE)
    assert called[:3] == ["test", "lint", "types"]
    assert set(called) <= set(targets)


def test_every_dependency_is_pinned_and_the_promised_ones_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["dependencies"] + project["optional-dependencies"]["test"]
    names = {re.match(r"[\w.-]+", requirement)[0].lower() for requirement in declared}  # type: ignore[index]  # it matches
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert names <= {name.lower() for name in pinned}
    assert {"torch", "triton", "pandas", "matplotlib", "pytest-benchmark", "nvidia-ml-py"} <= names
