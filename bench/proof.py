"""Puts what the claims need to the runner: one run that holds all rows, which the claims then judge."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench.case import Case
from bench.claims import SWEEP, Claim, Needs, Scope, claims
from bench.errors import NothingSelectedError
from bench.implementation import implementations
from bench.inquiry import Inquiry, demonstration_inquiry, pair_inquiry
from bench.request import Request
from bench.results import Run
from bench.sweep import Selection, Sweep
from bench.timing import SamplingPlan

PLAN = SamplingPlan(budget_ns=300_000_000, min_rounds=6, max_rounds=30, processes=(7,))
"""Rounds of one problem; seven processes, so that one that something disturbed does not widen every interval."""
QUICK = SamplingPlan(budget_ns=70_000_000, min_rounds=6, max_rounds=20, processes=(3,))
TITLE = "Claims of the theory"
PROSE = "What the claims ask for: ladders of lengths, widths and batches, paired comparisons, numerical demonstrations."


def chosen_claims(only: Sequence[str]) -> list[Claim]:
    """Claims whose name one of the regular expressions finds; all if there is none.

    Raises:
        NothingSelectedError: if none is left.
    """
    found = [member() for name, member in claims.items() if not only or any(re.search(p, name) for p in only)]
    if not found:
        raise NothingSelectedError(
            f"claim filter must leave at least one, got none of {', '.join(claims.names())}. Change --only."
        )
    return sorted(found, key=lambda claim: claim.order)


def joint_needs(members: Sequence[Claim], scope: Scope) -> Needs:
    """What all of them need, each thing once, in the order of the claims.

    A cell is timed if one of them times it. The arms of pairs are verified as cells, so that none is timed unverified.
    Claims name implementations of which the theory speaks; those that are not here are not asked for.
    """
    needs, known = [claim.needs(scope) for claim in members], set(implementations.names())
    pairs = {p.name: p for one in needs for p in one.pairs if {p.a.implementation, p.b.implementation} <= known}
    arms = [arm for pair in pairs.values() for arm in (pair.a, pair.b)]
    cases = [case for one in needs for case in one.cases if case.implementation in known]
    timed: dict[tuple[object, str], Case] = {}
    for case in cases + [Case(arm.problem, arm.implementation, timed=False) for arm in arms]:
        key = (case.problem, case.implementation)
        if key not in timed or case.timed:
            timed[key] = case
    names = dict.fromkeys(name for one in needs for name in one.demonstrations)
    return Needs(tuple(timed.values()), tuple(pairs.values()), tuple(names))


def claims_request(
    only: Sequence[str],
    *,
    quick: bool,
    command: str,
    output: Path,
    device: str | None = None,
    allocator: str = "warm",
    time_budget_s: float | None = None,
    resume: Run | None = None,
    load: tuple[Path, ...] = (),
) -> Request:
    """The run that measures what the chosen claims need; arguments as those of :class:`bench.request.Request`."""
    members = chosen_claims(only)

    def sweep(device: str) -> Sweep:
        cases = joint_needs(members, Scope(device, quick)).cases
        problems = dict.fromkeys(case.problem for case in cases)
        return Sweep(
            name=SWEEP,
            title=TITLE,
            prose=PROSE,
            problems=tuple((problem, True) for problem in problems),
            quick_ceilings=True,
            cases=cases,
        )

    def inquiries(device: str) -> list[Inquiry]:
        needs = joint_needs(members, Scope(device, quick))
        pairs = [pair_inquiry(pair, device, allocator, load) for pair in needs.pairs]
        return pairs + [demonstration_inquiry(name, quick, allocator, load) for name in needs.demonstrations]

    return Request(
        sweep=sweep,
        selection=Selection(),
        command=command,
        output=output,
        device=device,
        allocator=allocator,
        sampling=QUICK if quick else PLAN,
        time_budget_s=time_budget_s,
        resume=resume,
        load=load,
        inquiries=inquiries,
    )
