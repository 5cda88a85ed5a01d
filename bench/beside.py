"""The times of a check where the code of the baseline is at hand: its commit and this tree take turns.

A stored ratio to a control carries the state of the machine on the day it was stored; two processes that take turns see
the same machine (docs/methodology.md, "Against a baseline", has numbers).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import bench
from bench.ab import Pairing, compare_sides
from bench.ab_worker import Side
from bench.case import Case
from bench.errors import UsageError
from bench.implementation import implementations
from bench.outcome import Outcome, outcome
from bench.policy import Policy
from bench.record import Record
from bench.revisions import checkout, commit_of
from bench.state import State

TREE = Path(bench.__file__).resolve().parents[1]
"""What runs here; the root of a checkout, unless it was installed from a package."""


def why_not(baseline: State, names: Sequence[str], load: Sequence[Path], tree: Path = TREE) -> str | None:
    """Why the baseline's code cannot be measured beside this one; None if it can.

    Args:
        baseline: what it is held against.
        names: implementations that will be measured.
        load: files of the caller.
        tree: what runs here.
    """
    if baseline.commit is None:
        return "the baseline names no commit"
    foreign = [str(path) for path in load if not path.resolve().is_relative_to(tree)]
    known = implementations.names()  # what is gone by now is named by the check
    foreign += [name for name in names if name in known and not _source(name).is_relative_to(tree)]
    if foreign:
        return f"the code of {', '.join(foreign)} is no part of the checkout, so its earlier state is unknown"
    try:
        commit_of(baseline.commit, tree)
    except UsageError:
        return f"commit {baseline.commit[:12]} is not in this checkout"
    return None


def times_beside(
    baseline: State,
    records: Sequence[Record],
    policy: Policy,
    load: Sequence[Path] = (),
    *,
    tree: Path = TREE,
    say: Callable[[str], None] = lambda text: None,
) -> list[Outcome]:
    """The outcome of every cell that can have a time.

    Args:
        baseline: its commit must be in the checkout (:func:`why_not`).
        records: of the candidate: one per cell.
        policy: margins.
        load: files of the caller; the baseline has its own state of them.
        tree: root of the checkout.
        say: told of progress.
    """
    cases = [
        Case(record.problem, record.implementation)
        for record in records
        if record.status == "ok" and f"{record.implementation} {record.problem.key}" in baseline.subjects
    ]
    if not cases or baseline.commit is None:
        return []

    def margin(case: Case) -> float:
        override = policy.overriding("time", f"{case.implementation} {case.problem.key}")
        tolerated = None if override is None else override.tolerance
        return policy.margin if tolerated is None else max(policy.margin, tolerated)

    with (
        tempfile.TemporaryDirectory(prefix="attention-bench-check-") as folder,
        checkout(baseline.commit, tree, Path(folder)) as before,
    ):
        theirs = (before / path.resolve().relative_to(tree) for path in load)
        a = Side(title=baseline.commit[:12], tree=before, load=tuple(path for path in theirs if path.exists()))
        b = Side(title="this tree", tree=tree, load=tuple(path.resolve() for path in load))
        say(f"times: {len(cases)} cells of {b.title} take turns with {a.title}")
        pairings = compare_sides(
            a, b, cases, device=baseline.device, allocator=baseline.allocator, margin=margin, say=say
        )
    return [one.time or _untimed(one, a.title) for one in pairings]


def _untimed(one: Pairing, commit: str) -> Outcome:
    """Why a cell has no time on both sides."""
    failed = [answer for answer in one.answers.values() if answer["status"] != "ok"]
    reasons = [f"{answer['status'] or 'missing'}: {answer.get('reason')}" for answer in failed]
    text = f"no time beside {commit}: {', '.join(reasons) or one.untimed}"
    return outcome(one.key, "time", "NOT COMPARABLE", text)


def _source(name: str) -> Path:
    """The file that registers an implementation."""
    return Path(sys.modules[implementations.owner(name)].__file__ or ".").resolve()
