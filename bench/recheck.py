"""Measures what a baseline needs, and measures it again for a check: one sweep under the plan that a verdict wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.case import Case
from bench.inquiry import Inquiry
from bench.proof import claims_request
from bench.request import Listener, Request
from bench.results import Run, read_run
from bench.runner import run
from bench.state import Subject
from bench.sweep import Selection, Sweep, load_sweep
from bench.timing import FULL, SamplingPlan

EXACT = SamplingPlan(warmup_calls=1, warmup_ns=0, budget_ns=0, min_rounds=2, max_rounds=2)
"""As little timing as there can be: for bytes and errors alone."""
EVERYTHING = Selection()
MOST_LOOKS = 4
"""Two of six processes each to decide, two to confirm."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How to measure."""

    sweep: str
    """Name or path."""
    device: str | None
    allocator: str
    exact: bool
    """Whether times are left out."""
    command: str
    output: Path
    load: tuple[Path, ...] = ()
    selection: Selection = EVERYTHING
    """Cells of the sweep; of times all are measured, since a ratio depends on what runs beside it."""
    claims: tuple[str, ...] = ()
    """Claims whose demonstrations are carried out as well."""


def measure(how: Measuring, processes: int, listener: Listener, cases: tuple[Case, ...] | None = None) -> Run:
    """Measure the sweep, or these cells, and read the run back.

    Args:
        how: what and where.
        processes: fresh ones for each cell; where times are left out, one.
        listener: told of progress.
        cases: None measures the sweep.
    """

    def sweep(device: str) -> Sweep:
        plain = load_sweep(how.sweep, device)
        # Not by ladder: the processes of one problem follow one another, as those of the baseline did.
        return replace(plain, cases=cases, full=not how.exact, quick_ceilings=True, time_budget_s=None)

    def inquiries(device: str) -> Sequence[Inquiry]:
        if not how.claims or cases is not None:
            return ()
        only = [f"^{name}$" for name in how.claims]
        wanted = claims_request(only, quick=True, command="", output=how.output, allocator=how.allocator, load=how.load)
        return wanted.inquiries(device)

    request = Request(
        sweep=sweep,
        selection=how.selection if how.exact else EVERYTHING,
        command=how.command,
        output=how.output,
        device=how.device,
        allocator=how.allocator,
        sampling=EXACT if how.exact else replace(FULL, processes=(processes,)),
        load=how.load,
        inquiries=inquiries,
    )
    return read_run(run(request, listener))


def settle(
    first: Run,
    unsettled: Callable[[Sequence[Run]], Sequence[str]],
    again: Callable[[tuple[Case, ...]], Run],
    controls: Sequence[str],
) -> list[Run]:
    """Look again at cells that are not settled, in fresh processes, until they are or have been looked at often enough.

    Args:
        first: the first look.
        unsettled: keys of the cells that all looks so far leave unsettled.
        again: measures cells.
        controls: implementations that have to be measured beside them.
    """
    runs = [first]
    while len(runs) < MOST_LOOKS and (keys := unsettled(runs)):
        runs.append(again(beside(first, keys, controls)))
    return runs


def beside(run: Run, keys: Sequence[str], controls: Sequence[str]) -> tuple[Case, ...]:
    """The cells of these keys, and the controls on the same problems."""
    wanted = {record.problem for record in run.records if f"{record.implementation} {record.problem.key}" in keys}
    return tuple(
        Case(record.problem, record.implementation)
        for record in run.records
        if record.problem in wanted
        and (record.implementation in controls or f"{record.implementation} {record.problem.key}" in keys)
    )


def mutant_subject(say: Callable[[str], None]) -> Subject:
    """The score of the correctness gate, from its quick part (minutes)."""
    from bench.gate import run_gate

    counted = [score for score in run_gate(True, say) if not score.same]
    caught = sum(bool(score.caught_by) for score in counted)
    return Subject("mutants", "quick", values={"mutants_caught": caught, "mutants_missed": len(counted) - caught})
