"""Statements of the theory, each CONFIRMED, REFUTED or INCONCLUSIVE: the contract, one file per claim.

A claim says which rows it needs, judges rows, and draws its figure. It never measures: the command line hands what all
claims need to the runner, and any stored run can be judged again. So a claim judges whatever rows it is given that bear
on its statement, whether they were measured for it or by another sweep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

from bench.case import Case, Pair
from bench.evidence import Evidence
from bench.plots import Drawing, Reading
from bench.record import Record
from bench.registry import Registry
from bench.results import Run
from bench.scaling import Verdict
from bench.verdicts import Comparison, decide

__all__ = [
    "Answer",
    "Case",
    "Claim",
    "Drawing",
    "Hearing",
    "Judged",
    "Needs",
    "Pair",
    "Scope",
    "Verdict",
    "claims",
    "hear",
]

SWEEP = "claims"
"""Name of the sweep that asks for all that the claims need."""
FAILED = ("incorrect", "out_of_memory", "timeout", "crashed", "error")
"""Statuses of cells that were asked for and have no result; ``unsupported`` and ``unavailable`` are answers."""
NAMED_FAILURES = 3
"""Missing rows that are named; more are counted."""

claims: Registry[type[Claim]] = Registry("claims", "claim", "bench.claims")
"""``@claims.register("name")`` on a class in a file of its own adds it."""


@dataclass(frozen=True)
class Scope:
    """For what rows are asked."""

    device: str = "cpu"
    """``cpu`` or ``cuda``."""
    quick: bool = False
    """Whether all claims together have two minutes instead of twelve."""


@dataclass(frozen=True)
class Needs:
    """Rows that a claim asks for."""

    cases: tuple[Case, ...] = ()
    """Cells: a problem with an implementation, timed unless said otherwise."""
    pairs: tuple[Pair, ...] = ()
    """Paired comparisons; a pair that two claims ask for has the same name in both."""
    demonstrations: tuple[str, ...] = ()
    """Entries of ``bench.demonstrations``, by name."""


@dataclass(frozen=True)
class Answer:
    """What the rows say of one subject of a claim."""

    subject: str
    """Of whom or what, as in ``naive, full, head_dim 64``."""
    verdict: Verdict
    found: str
    """What was seen, with its interval: ``T^1.98 [1.93, 2.03]``."""
    reason: str
    """Why the verdict is what it is."""
    rows: tuple[str, ...] = ()
    """What it rests on: cell keys, names of pairs and of demonstrations."""


@dataclass(frozen=True)
class Hearing:
    """What a claim judges: cells with their fits, pairs and demonstrations of stored runs."""

    reading: Reading

    @cached_property
    def _evidence(self) -> dict[tuple[str, str], Evidence]:
        """By kind and name; a later run replaces an earlier one, and nothing replaces something only if it has rows."""
        found: dict[tuple[str, str], Evidence] = {}
        for run in self.reading.runs:
            for one in reversed(run.evidence):
                if one.rows or (one.kind, one.name) not in found:
                    found[one.kind, one.name] = one
        return found

    def pair(self, name: str) -> Comparison | None:
        """Ratio B over A of a pair with its interval over processes; None if it was not measured."""
        found = self._evidence.get(("pair", name))
        if found is None or found.rows is None:
            return None
        return decide([float(str(row["log_ratio"])) for row in found.rows])

    def demonstration(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Rows of a demonstration; empty if it was not carried out."""
        found = self._evidence.get(("demonstration", name))
        return () if found is None or found.rows is None else found.rows

    @cached_property
    def _records(self) -> dict[tuple[object, str], Record]:
        """By problem and implementation."""
        return {(one.problem, one.implementation): one for run in self.reading.runs for one in run.records}

    def lacking(self, claim: Claim) -> list[Answer]:
        """One INCONCLUSIVE answer if rows that a run of the claims owes this one are not there, so that none is missed
        silently; other sweeps owe nothing.
        """
        asked = [run.header for run in self.reading.runs if run.header.sweep == SWEEP]
        if not asked:
            return []
        device = "cpu" if asked[-1].environment.device == "cpu" else "cuda"
        needs = claim.needs(Scope(device, quick=all("--quick" in header.command.split() for header in asked)))
        here = {name for _, name in self._records}
        owed = {
            f"{case.implementation} on {case.problem.key}": self._why_no_cell(case)
            for case in needs.cases
            if case.implementation in here
        }
        owed |= {
            pair.name: self._why_no_rows("pair", pair.name)
            for pair in needs.pairs
            if {pair.a.implementation, pair.b.implementation} <= here
        }
        owed |= {name: self._why_no_rows("demonstration", name) for name in needs.demonstrations}
        missing = [f"{name} ({why})" for name, why in owed.items() if why]
        if not missing:
            return []
        more = f"; and {len(missing) - NAMED_FAILURES} more" if len(missing) > NAMED_FAILURES else ""
        found = f"{len(missing)} of {len(owed)} are missing"
        return [Answer("rows it asks for", "INCONCLUSIVE", found, "; ".join(missing[:NAMED_FAILURES]) + more)]

    def _why_no_cell(self, case: Case) -> str:
        """Why a cell has no result; empty if it has one."""
        record = self._records.get((case.problem, case.implementation))
        if record is None:
            return "not measured"
        return f"{record.status}: {record.reason}" if record.status in FAILED else ""

    def _why_no_rows(self, kind: str, name: str) -> str:
        """Why a pair or a demonstration has no rows; empty if it has some."""
        found = self._evidence.get((kind, name))
        return "not measured" if found is None else found.reason or ""

    def missing(self, claim: Claim) -> str:
        """Why pairs and demonstrations of a claim have no rows, in one line; empty if none of them failed."""
        failed = {key: one.reason for key, one in self._evidence.items() if one.reason}
        if not failed:
            return ""
        needs = claim.needs(Scope())
        names = [("pair", pair.name) for pair in needs.pairs] + [("demonstration", n) for n in needs.demonstrations]
        return "; ".join(f"{key[1]}: {failed[key]}" for key in names if key in failed)


class Claim(Protocol):
    """One statement. Members have no state."""

    name: ClassVar[str]
    """As registered."""
    order: ClassVar[int]
    """Place in the table; the number by which documents call it."""
    statement: ClassVar[str]
    """What is claimed, in one sentence."""
    rule: ClassVar[str]
    """When it counts as CONFIRMED, as REFUTED, and as neither, in one or two sentences."""

    def needs(self, scope: Scope) -> Needs:
        """The rows to measure for it. Must not import torch."""
        ...

    def judge(self, hearing: Hearing) -> list[Answer]:
        """Pure: what the rows say, subject by subject; empty if no row bears on the statement."""
        ...

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Figures that can be read alone: the finding in the title, the experiment in the caption. May be empty."""
        ...


@dataclass(frozen=True)
class Judged:
    """A claim with its answers."""

    claim: Claim
    answers: tuple[Answer, ...]
    """At least one: without rows it is INCONCLUSIVE and says so."""
    heard: bool
    """Whether any row bears on the statement."""

    @property
    def verdict(self) -> Verdict:
        """REFUTED if one subject is, else INCONCLUSIVE if one subject is, else CONFIRMED."""
        verdicts = {answer.verdict for answer in self.answers}
        return next(verdict for verdict in ("REFUTED", "INCONCLUSIVE", "CONFIRMED") if verdict in verdicts)


def hear(runs: Sequence[Run], reading: Reading | None = None) -> list[Judged]:
    """Judge every claim on stored runs, in the order of the claims."""
    hearing = Hearing(reading or Reading(runs))
    members = sorted((member() for _, member in claims.items()), key=lambda claim: (claim.order, claim.name))
    return [_judged(claim, hearing) for claim in members]


def _judged(claim: Claim, hearing: Hearing) -> Judged:
    answers = tuple(claim.judge(hearing))
    if answers:
        return Judged(claim, (*answers, *hearing.lacking(claim)), heard=True)
    reason = hearing.missing(claim) or f"no rows; `attention-bench claims --only {claim.name}` measures them"
    return Judged(claim, (Answer("-", "INCONCLUSIVE", "nothing was measured", reason),), heard=False)
