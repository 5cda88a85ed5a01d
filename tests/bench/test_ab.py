"""Two sides in turns: what is decided, confirmed and named, with sides that follow a script; once with real trees."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import ab
from bench.ab import Pairing, compare_sides, judged
from bench.ab_worker import Side, working
from bench.case import Case
from bench.cli import main
from bench.clocks import Block
from bench.errors import BenchError, UsageError
from bench.problem import Problem
from bench.revisions import checkout, commit_of, has_changes, unchanged
from bench.state import Subject
from bench.timing import SamplingPlan

ROOT = Path(__file__).resolve().parents[2]
SHORT = SamplingPlan(warmup_calls=1, warmup_ns=0, budget_ns=0, min_rounds=6, max_rounds=6)
CASES = [Case(Problem(seqlen=length), name) for length in (64, 128) for name in ("naive", "sdpa_math")]
KEYS = [f"{case.implementation} {case.problem.key}" for case in CASES]
A, B = Side(title="a", tree=Path("a")), Side(title="b", tree=Path("b"))
ROW = {"peak_bytes": 1000, "out_max_abs": 1e-6, "out_rmse": 1e-7, "flop": 7, "attended_pairs": 3}


class Scripted:
    """A side whose answers are planted; one process of it drifts from the next by half a percent."""

    def __init__(self, side, script):
        self.side, self.script, self.overhead_ns = side, script, 0
        self.started = 1

    @contextmanager
    def fresh(self):
        if self.side.title == "a":
            self.script["process"] += 1
        self.rng = random.Random(f"{self.side.title} {self.script['process']}")
        self.level = 1_000_000 * (1 + self.rng.uniform(-0.005, 0.005))
        yield

    def ready(self):
        pass

    def ask(self, what, fields, name, verify):
        self.key = f"{name} {Problem(**fields).key}"
        planted = self.script.get((self.side.title, self.key), {})
        if "prepare" in planted:
            raise planted["prepare"]
        if not verify:  # as the real one: it does not know that it is wrong
            return {"status": "ok"}
        return {"status": "ok", "row": dict(ROW), "ran": "aten::x"} | planted.get("answer", {})

    def time_block(self, calls):
        planted = self.script.get((self.side.title, self.key), {})
        if "block" in planted:
            raise planted["block"]
        factor = planted.get("slower", lambda number: 1.0)(self.script["process"])
        return Block(round(self.level * factor * (1 + self.rng.uniform(-0.01, 0.01))), None)

    def end(self):
        pass

    def start(self):
        self.started += 1


@pytest.fixture
def measured(monkeypatch):
    """Runs the comparison under a script; returns the check and how many processes there were."""

    def run(exact=False, **planted):
        script = {("b", KEYS[0]): planted} if planted else {}
        script["process"] = -1

        @contextmanager
        def scripted(side, device, allocator):
            yield Scripted(side, script)

        monkeypatch.setattr(ab, "working", scripted)
        pairings = compare_sides(A, B, CASES, plan=SHORT, exact=exact)
        return judged(pairings), script["process"] + 1

    return run


def outcome(done, metric, key=KEYS[0]):
    (one,) = [one for one in done.outcomes if (one.subject, one.metric) == (key, metric)]
    return one


def test_identical_sides_are_unchanged_after_six_pairs(measured):
    done, processes = measured()
    assert (done.exit_code(strict=True), processes) == (0, 6)
    assert done.counts["UNCHANGED"] == len(CASES)
    assert done.counts["SAME"] == len(CASES) * (1 + len(ROW))


def test_exact_verifies_one_pair_times_nothing_and_finds_a_byte(measured):
    done, processes = measured(exact=True)
    assert (done.exit_code(strict=True), processes) == (0, 1)
    assert done.counts == {"SAME": len(CASES) * (1 + len(ROW))}, "no time is said to be unchanged"
    done, processes = measured(exact=True, answer={"row": ROW | {"peak_bytes": 1001}})
    assert (outcome(done, "peak_bytes").name, done.exit_code(strict=False), processes) == ("REGRESSED", 3, 1)
    done, _ = measured(exact=True, answer={"status": "incorrect", "reason": "out is off"})
    assert (outcome(done, "status").name, done.exit_code(strict=False)) == ("REGRESSED", 3)


def test_a_time_that_cannot_be_taken_is_a_doubt_and_not_left_out(measured):
    done, _ = measured(slower=lambda process: 0)
    one = outcome(done, "time")
    assert (one.name, one.text) == ("NOT COMPARABLE", "a clock read 0")
    assert done.exit_code(strict=True) == 4


def test_what_is_wrong_on_both_sides_is_a_doubt_with_its_reason():
    one = Pairing(CASES[0])
    one.answers = {side: {"status": "incorrect", "reason": "off by one", "row": dict(ROW)} for side in ("a", "b")}
    done = judged([one])
    assert (outcome(done, "status").text, done.exit_code(strict=True)) == ("incorrect, as before: off by one", 4)


def test_an_implementation_that_neither_side_has_is_said_to_be_left_out():
    one = Pairing(CASES[0])
    one.answers = {"a": {"status": None}, "b": {"status": None}}
    done = judged([one])
    assert (outcome(done, "").name, done.exit_code(strict=False)) == ("NOT COMPARABLE", 5)


def test_a_slower_side_is_found_and_confirmed_by_fresh_pairs(measured):
    done, processes = measured(slower=lambda process: 1.12)
    assert (done.exit_code(strict=False), processes) == (3, 12)
    one = outcome(done, "time")
    assert one.name == "REGRESSED"
    assert one.text.startswith("slower by 1") and one.text.endswith("fresh processes say so too")
    assert [other.name for other in done.severe("fail")] == ["REGRESSED"]


def test_a_faster_side_is_an_improvement(measured):
    done, _ = measured(slower=lambda process: 0.8)
    assert (outcome(done, "time").name, done.exit_code(strict=True)) == ("IMPROVED", 0)


def test_what_fresh_pairs_do_not_find_again_is_no_regression(measured):
    done, processes = measured(slower=lambda process: 1.12 if process < 6 else 1.0)
    assert (outcome(done, "time").name, processes) == ("NOT CONFIRMED", 12)
    assert (done.exit_code(strict=False), done.exit_code(strict=True)) == (0, 4)


def test_an_unclear_cell_gets_six_more_pairs(measured):
    done, processes = measured(slower=lambda process: 1.06 if process == 0 else 1.0)
    assert processes == 12
    assert outcome(done, "time").name == "UNCHANGED", "one estimate on each side is left out of twelve"


@pytest.mark.parametrize(
    ("row", "metric", "name"),
    [
        ({"peak_bytes": 1001}, "peak_bytes", "REGRESSED"),
        ({"out_max_abs": 1.3e-6}, "out_max_abs", "REGRESSED"),
        ({"out_rmse": 1.3e-7}, "out_rmse", "REGRESSED"),
        ({"flop": 8}, "flop", "CHANGED"),
    ],
)
def test_bytes_errors_and_counts_are_compared_exactly(measured, row, metric, name):
    done, _ = measured(answer={"row": ROW | row})
    assert (outcome(done, metric).name, done.exit_code(strict=False)) == (name, 3)


def test_a_side_that_is_wrong_dies_or_lacks_the_implementation_has_no_time_but_a_name(measured):
    for planted, name, code in (
        ({"answer": {"status": "incorrect", "reason": "out is off"}}, "REGRESSED", 3),
        ({"answer": {"status": "unsupported", "reason": "no"}}, "REGRESSED", 3),
        ({"prepare": BenchError("boom")}, "REGRESSED", 3),
        ({"prepare": EOFError()}, "REGRESSED", 3),
        ({"block": EOFError()}, "REGRESSED", 3),
    ):
        done, _ = measured(**planted)
        assert outcome(done, "status").name == name, planted
        assert done.exit_code(strict=False) == code
        assert not [one for one in done.outcomes if (one.subject, one.metric) == (KEYS[0], "time")], planted
        assert not any("time" in one.text for one in done.outcomes if one.subject == KEYS[0]), planted
        assert outcome(done, "time", KEYS[1]).name == "UNCHANGED", "the other cells are not affected"
    done, _ = measured(answer={"status": None, "reason": "there is no such implementation"})
    assert outcome(done, "").name == "MISSING"


def test_a_side_that_is_only_verified_has_no_time(measured):
    done, _ = measured(answer={"status": "verified", "reason": "something slower stands in"})
    assert outcome(done, "status").name == "CHANGED"
    assert not [one for one in done.outcomes if (one.subject, one.metric) == (KEYS[0], "time")]


def test_an_implementation_that_only_the_head_has_fails_if_it_is_wrong():
    def pairing(status):
        one = Pairing(CASES[0])
        one.answers = {"a": {"status": None}, "b": {"status": status, "reason": "off by one", "row": dict(ROW)}}
        return judged([one])

    wrong, right = pairing("incorrect"), pairing("ok")
    assert (outcome(wrong, "").name, wrong.exit_code(strict=False)) == ("NEW", 3)
    assert "off by one" in outcome(wrong, "").text
    assert outcome(right, "").severity == "note"


def test_one_register_that_one_side_spills_is_found():
    def compiled(spill_bytes):
        return [Subject("kernel", "k", values={"registers": 255, "spill_bytes": spill_bytes, "shared_bytes": 0})]

    assert judged([], kernels=(compiled(0), compiled(0))).exit_code(strict=True) == 0
    done = judged([], kernels=(compiled(0), compiled(4)))
    assert (outcome(done, "spill_bytes", "kernel k").name, done.exit_code(strict=False)) == ("ROSE FROM ZERO", 3)


@pytest.fixture
def repository(tmp_path):
    """A checkout with one commit, under a name with a space."""
    folder = tmp_path / "a repository"
    folder.mkdir()

    def git(*words):
        who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        done = subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True)
        return done.stdout

    git("init", "-q", "-b", "main")
    (folder / "file").write_text("1\n")
    git("add", "-A")
    git("commit", "-qm", "first")
    return folder, git


def test_a_work_tree_is_made_and_removed(repository, tmp_path):
    folder, git = repository
    git("branch", "topic/one")
    with checkout("topic/one", folder, tmp_path / "trees") as one, checkout("HEAD", folder, tmp_path / "others") as two:
        assert one != two and (one / "file").read_text() == (two / "file").read_text() == "1\n"
    assert len(git("worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("name", ["nothing", "--help", "HEAD^{tree}", ""])
def test_a_revision_that_git_does_not_know_is_an_error(repository, tmp_path, name):
    with (
        pytest.raises(UsageError, match=re.escape(f"revision must be one that git knows, got {name!r}")),
        checkout(name, repository[0], tmp_path / "trees"),
    ):
        pass
    assert not (tmp_path / "trees").exists()


def test_without_git_the_next_step_is_named(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"git must be installed to compare revisions.*--between"):
        commit_of("HEAD", repository[0])


def test_equal_sides_are_refused_before_anything_is_measured(repository, capsys, monkeypatch):
    folder, git = repository
    git("branch", "other")

    def ends(*words):
        with pytest.raises(SystemExit) as caught:
            main(["ab", *words, "--repository", str(folder)])
        return caught.value.code, capsys.readouterr().err

    for words in ((), ("HEAD", "other"), ("main", "main"), ("main", ".")):
        code, said = ends(*words)
        assert code == 2 and "which hold the same" in said, words
    code, said = ends("main", "other", "--between", "naive", "sdpa_math")
    assert code == 2 and "got both with 'main' and 'other'" in said
    code, said = ends("--setting", "X=1", "--base-python", "/no/such/python")
    assert code == 2 and "--base-python must be a Python that can be started" in said
    assert has_changes(folder) is False and has_changes(folder.parent) is None
    (folder / "file").write_text("2\n")
    assert has_changes(folder) is True
    git("checkout", "file")
    (folder / "new").write_text("")
    assert has_changes(folder) is False, "a results file of this machine is no change of the code"
    assert not unchanged(folder, commit_of("HEAD", folder)), "a file that git does not know yet is a change"


@pytest.mark.slow
def test_a_side_that_runs_other_code_than_it_should_is_refused(tmp_path):
    with working(Side(title="empty", tree=tmp_path), "cpu", "warm") as worker, pytest.raises(BenchError):
        worker.ready()


@pytest.mark.slow
def test_a_job_that_is_ended_leaves_no_work_tree_behind(repository):
    folder, git = repository
    for name in ("bench", "implementations"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    git("add", "-A")
    git("commit", "-qm", "second")
    (folder / "file").write_text("2\n")
    command = [sys.executable, "-m", "bench", "ab", "-i", "^naive$", "--repository", str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert "cells: HEAD against the working tree" in process.stderr.readline()
    assert len(git("worktree", "list").splitlines()) == 2
    process.terminate()
    process.communicate()
    assert process.returncode == 143
    assert len(git("worktree", "list").splitlines()) == 1


@pytest.mark.slow
def test_a_deliberately_bad_commit_is_caught(tmp_path, monkeypatch):
    """A copy of this checkout; its second commit computes the weights of naive nine times and keeps them.

    So often that a busy machine does not hide it: once more is 18 % there, within the noise of six processes.
    """
    for name in ("bench", "implementations"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))

    def git(*words):
        who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "good")
    path = tmp_path / "implementations" / "naive.py"
    code = path.read_text(encoding="utf-8")
    step = "weights = torch.softmax(scores, dim=-1)"
    assert code.count(step) == 1
    path.write_text(
        code.replace(step, f"{step}; kept = [torch.softmax(scores, dim=-1) for _ in range(8)]"), encoding="utf-8"
    )
    git("commit", "-qam", "bad")
    (tmp_path / "tiny.toml").write_text('[axes]\nseqlen = 512\nmask = "full"\n')
    command = [sys.executable, "-m", "bench", "ab", "HEAD~1", "HEAD", "--base-python", sys.executable]
    command += ["--sweep", "tiny.toml", "-i", "^naive$", "-i", "math"]
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}

    def ab(*more):
        words = [*command, *more]
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = ab("--exact", "--format", "json")
    assert done.returncode == 3, done.stdout + done.stderr
    found = {(row["name"], row["metric"], row["subject"].split()[0]) for row in json.loads(done.stdout)}
    assert found == {("REGRESSED", "peak_bytes", "naive")}, "no clock has a part in it"
    done = ab()
    assert done.returncode == 3, done.stdout + done.stderr
    assert "slower by" in done.stdout and "peak_bytes" in done.stdout
    assert "sdpa_math" not in "".join(line for line in done.stdout.splitlines(keepends=True) if "fail" in line)
    assert (
        "tree-HEAD"
        not in subprocess.run(
            ["git", "-C", str(tmp_path), "worktree", "list"], capture_output=True, text=True, check=True
        ).stdout
    ), "work trees are removed"
