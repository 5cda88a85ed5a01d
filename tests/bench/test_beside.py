"""A check whose times come from turns with the baseline's own code: where that can be, and what is made of it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import planted
import pytest
from planted_states import records

from bench import beside
from bench.ab import Pairing
from bench.beside import TREE, times_beside, why_not
from bench.cli import main
from bench.policy import Override, Policy
from bench.regression import check, differing_fields
from bench.state import state_of

POLICY = Policy()
SAME = (0.001, -0.002, 0.0, 0.003, -0.001, 0.002)
SLOWER = tuple(0.1 + value for value in SAME)


@pytest.fixture
def tree(tmp_path):
    """A checkout with one commit."""
    (tmp_path / "kernel.py").write_text("")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
        who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)
    done = subprocess.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return tmp_path, done.stdout.strip()


def state(commit="0" * 40, **fields):
    return replace(state_of(planted.run(records()), POLICY), commit=commit, **fields)


@pytest.fixture
def turns(monkeypatch):
    """Stands in for the two sides; tells what it was asked, and answers with planted logarithms of B over A."""
    asked = {}

    def answer(estimates=SAME, fresh=(), answers=None):
        def compare_sides(a, b, cases, **how):
            asked.update(how, a=a, b=b, cases=cases)
            fine = {side: {"status": "ok"} for side in "ab"}
            return [
                Pairing(case, how["margin"](case), fine | (answers or {}), list(estimates), list(fresh))
                for case in cases
            ]

        monkeypatch.setattr(beside, "compare_sides", compare_sides)
        return asked

    return answer


def test_code_that_is_not_at_hand_is_named(tree, monkeypatch):
    folder, commit = tree
    monkeypatch.setattr(beside, "_source", lambda name: folder / "kernel.py")
    assert why_not(state(commit), ["naive"], [folder / "kernel.py"], folder) is None
    assert why_not(state(None), ["naive"], [], folder) == "the baseline names no commit"
    assert why_not(state("a" * 40), ["naive"], [], folder) == "commit aaaaaaaaaaaa is not in this checkout"
    outside = folder.parent / "mine.py"
    assert str(outside) in why_not(state(commit), ["naive"], [outside], folder), "its earlier state is nowhere"
    monkeypatch.setattr(beside, "_source", lambda name: Path("/site-packages/other.py"))
    assert "the code of naive is no part of the checkout" in why_not(state(commit), ["naive"], [], folder)
    assert why_not(state(commit), ["gone"], [], folder) is None, "what is gone has no code to compare"


def test_a_package_is_no_checkout(tmp_path):
    assert "is not in this checkout" in why_not(state(), [], [], tmp_path)


def test_implementations_of_the_suite_belong_to_its_checkout():
    assert beside._source("naive") == TREE / "implementations" / "naive.py"


def test_cells_of_both_are_measured_with_the_files_of_each(tree, turns):
    folder, commit = tree
    (folder / "new.py").write_text("")
    asked = turns()
    found = times_beside(state(commit), records(), POLICY, [folder / "kernel.py", folder / "new.py"], tree=folder)
    assert {one.name for one in found} == {"UNCHANGED"} and len(found) == len(records())
    a, b = asked["a"], asked["b"]
    assert (a.title, b.tree, b.load) == (commit[:12], folder, (folder / "kernel.py", folder / "new.py"))
    assert a.tree != folder and a.load == (a.tree / "kernel.py",), "the commit has no new.py"
    assert not a.tree.exists(), "work trees are removed"
    first = f"{records()[0].implementation} {records()[0].problem.key}"
    before = state(commit)
    only = replace(before, subjects={first: before.subjects[first]})
    assert [one.subject for one in times_beside(only, records(), POLICY, tree=folder)] == [first]
    failed = [one.model_copy(update={"status": "error"}) for one in records()]
    assert times_beside(before, failed, POLICY, tree=folder) == []


def test_slower_counts_once_fresh_pairs_say_so(tree, turns):
    folder, commit = tree
    before = state(commit)
    for fresh, name, code in ((SLOWER, "REGRESSED", 3), (SAME, "NOT CONFIRMED", 0), ((), "NOT CONFIRMED", 0)):
        turns(SLOWER, fresh)
        times = times_beside(before, records(), POLICY, tree=folder)
        found = check(before, [before], POLICY, times=times)
        assert {one.name for one in times} == {name} and found.exit_code(strict=False) == code
        assert found.unsettled == ()


def test_the_margin_is_that_of_the_policy_and_its_overrides(tree, turns):
    folder, commit = tree
    key = f"{records()[0].implementation} {records()[0].problem.key}"
    why = {"reason": "planted for the test", "expires": "2999-01-01"}
    policy = Policy(margin=0.05, override=(Override(metric="time", cell=f"^{key}$", tolerance=0.2, **why),))
    turns(SLOWER, SLOWER)
    found = {one.subject: one.name for one in times_beside(state(commit), records(), policy, tree=folder)}
    assert found.pop(key) == "UNCHANGED" and set(found.values()) == {"REGRESSED"}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"a": {"status": None, "reason": "there is no such implementation"}}, "missing: there is no such"),
        ({"b": {"status": "crashed", "reason": "the process died"}}, "crashed: the process died"),
    ],
)
def test_a_cell_without_a_time_on_one_side_says_why(tree, turns, answers, said):
    folder, commit = tree
    turns(SAME, answers=answers)
    found = times_beside(state(commit), records(), POLICY, tree=folder)
    assert {one.name for one in found} == {"NOT COMPARABLE"} and said in found[0].text


def test_what_differs_between_the_machines_is_said_and_nothing_is_timed(tree):
    before = state(tree[1])
    other = replace(before, machine={**before.machine, "cpu": "Another"}, toolchain={**before.toolchain, "torch": "9"})
    assert differing_fields(before, before) == ""
    said = differing_fields(before, other)
    assert "cpu differs (Another, was" in said and "torch differs (9, was" in said


@pytest.mark.slow
def test_check_takes_turns_with_the_commit_of_the_baseline(tmp_path, monkeypatch, capsys):
    """This checkout against its own last commit, one cell: nothing is worse, and the sides were named."""
    commit = subprocess.run(
        ["git", "-C", str(TREE), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (tmp_path / "tiny.toml").write_text('[axes]\nseqlen = 64\nmask = "full"\n')
    monkeypatch.chdir(tmp_path)
    only = ("--device", "cpu", "--sweep", str(tmp_path / "tiny.toml"))
    monkeypatch.setattr("bench.cli.checking._environment", lambda extras: planted.environment())
    monkeypatch.setattr("bench.revisions.has_changes", lambda folder: False)
    monkeypatch.setattr("bench.baseline.refuse_as_baseline", lambda *words: None)  # on a machine that may be busy
    with pytest.raises(SystemExit):
        main(["baseline", *only, "-o", "base.jsonl"])
    with pytest.raises(SystemExit) as ended:
        main(["check", "--device", "cpu", "--baseline", "base.jsonl", "-i", "^(naive|sdpa_math)$", "--all"])
    said = capsys.readouterr()
    assert f"2 cells of this tree take turns with {commit[:12]}" in said.err
    assert ended.value.code == 0, said.out + said.err
