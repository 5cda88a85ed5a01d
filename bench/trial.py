"""The loop of whoever writes a kernel: is this file right, and how fast beside the best there is, on one shape?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.case import Arm, Case, Pair
from bench.errors import BenchError, RegistryError, UsageError
from bench.implementation import implementations, untimed
from bench.paired import compare_pairs
from bench.problem import Problem
from bench.record import Record
from bench.registry import load_file
from bench.request import Listener, Request
from bench.results import read_run
from bench.runner import run
from bench.sweep import Selection, Sweep, planned_implementations
from bench.timing import SamplingPlan
from bench.verdicts import LOOKS, MARGIN, Comparison, decide

SCREEN = SamplingPlan(warmup_ns=10_000_000, budget_ns=0, arm_budget_ns=30_000_000, min_rounds=6, max_rounds=60)
"""Verifies all and finds out who is fastest."""
PAIRED = SamplingPlan(
    warmup_calls=5, warmup_ns=20_000_000, budget_ns=0, arm_budget_ns=60_000_000, min_rounds=20, max_rounds=200
)
SLOW_TO_PREPARE = ("flex", "naive_compiled")
"""Not tried by themselves: they compile for longer than the answer may take."""


@dataclass(frozen=True)
class Trial:
    """The answer."""

    name: str
    """Implementation that the file holds."""
    record: Record
    """Verified and timed, or why not."""
    rival: str | None
    """Fastest verified implementation there is; None if none was."""
    comparison: Comparison | None
    """Time over the rival's; None without a rival, or where the file is not right."""
    reason: str | None = None
    """Why there is none."""


def registered_names(path: Path) -> list[str]:
    """Implementations that the registry found in a file by itself: the suite's own, or an installed plug-in's."""
    owners = {name: sys.modules.get(implementations.owner(name)) for name in implementations.names()}
    files = {name: getattr(owner, "__file__", None) for name, owner in owners.items()}
    return [name for name, file in files.items() if file is not None and Path(file).resolve() == path.resolve()]


def loaded_names(path: Path) -> list[str]:
    """Implementations that a file adds to the registry.

    Raises:
        UsageError: if it adds none, or names that are taken.
    """
    before = set(implementations.names())
    try:
        load_file(path)
    except RegistryError as error:
        raise UsageError(
            f"file must register names of its own, got {str(path)!r}: {error} If it is an installed package's, "
            "install that with `pip install --editable`, so that this file is the one that runs."
        ) from error
    added = [name for name in implementations.names() if name not in before]
    if not added:
        raise UsageError(
            f"file must register at least one implementation, got none in {str(path)!r}. "
            "Put @register_implementation before the class."
        )
    return added


def trial_of(
    name: str,
    problem: Problem,
    *,
    load: tuple[Path, ...],
    folder: Path,
    command: str,
    device: str | None,
    listener: Listener,
    rivals: Sequence[str] = (),
    looks: Sequence[int] = LOOKS[:1],
    say: Callable[[str], None] = lambda text: None,
) -> Trial:
    """Verify ``name`` beside all others on one problem, then set it against the fastest that is right.

    Args:
        name: implementation to judge.
        problem: the shape.
        load: its file, for every process to load; empty where the registry finds it by itself.
        folder: of the results file and of logs.
        command: repeats it.
        device: None takes a GPU if torch sees one.
        listener: told of progress.
        rivals: who it is set against; without any, everybody but those that compile for long.
        looks: pairs of processes.
        say: told after each process.

    Raises:
        UsageError: if a rival is unknown, or is ``name`` itself.
    """
    for rival in rivals:
        implementations.get(rival)
    if name in rivals:
        raise UsageError(f"--against must name somebody else, got {name} for {name}. Leave it out.")
    request = Request(
        sweep=lambda kind: _one_shape(name, problem, rivals, kind),
        selection=Selection(),
        command=command,
        output=folder,
        device=device,
        sampling=SCREEN,
        load=load,
    )
    stored = read_run(run(request, listener))
    (mine,) = [record for record in stored.records if record.implementation == name]
    others = [record for record in stored.records if record.implementation != name and record.measurement is not None]
    if mine.measurement is None:
        return Trial(name, mine, None, None, f"{mine.status}: {mine.reason}")
    if not others:
        rest = [f"{one.implementation} is {one.status}: {one.reason}" for one in stored.records if one is not mine]
        return Trial(name, mine, None, None, f"nobody to set it against: {'; '.join(rest) or 'there is no other'}")
    rival = min(others, key=_median_ns).implementation
    pair = Pair("try", Arm(problem, rival), Arm(problem, name))
    kind = "cpu" if stored.header.environment.device == "cpu" else "cuda"
    found = compare_pairs([pair], folder=folder, seed=0, plan=PAIRED, looks=looks, device=kind, load=load, say=say)[
        pair.name
    ]
    if found.error is not None:
        raise BenchError(f"pair must be measured, got {found.error}. Run it again.")
    return Trial(name, mine, rival, decide(found.estimates, MARGIN))


def _one_shape(name: str, problem: Problem, rivals: Sequence[str], device: str) -> Sweep:
    """The implementation beside its rivals on one problem: those that were asked for, or all that can be timed."""
    others = rivals or [
        other
        for other in planned_implementations(Selection(), device, skip=SLOW_TO_PREPARE)
        if untimed(implementations.get(other), problem, device) is None  # it may take long to verify, for nothing
    ]
    chosen = [name, *(other for other in others if other != name)]
    return Sweep(
        name="try",
        title=f"{name} on one shape",
        prose="",
        problems=((problem, True),),
        quick_ceilings=True,
        cases=tuple(Case(problem, one) for one in chosen),
    )


def _median_ns(record: Record) -> float:
    from statistics import median

    measured = record.measurement
    assert measured is not None, "only measured records get here"
    return median(measured.samples_ns) / measured.calls_per_sample
