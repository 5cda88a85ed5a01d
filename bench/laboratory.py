"""Carries out the soundness experiments: observes the units that the notebook lacks, judges, writes the findings."""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.environment import read_environment
from bench.errors import BenchError, NothingSelectedError
from bench.gate import Score, mutant_rows
from bench.notebook import GATE, Note, append, read_notes
from bench.results import timestamp
from bench.soundness import Context, Experiment, Finding, experiments

SAME_MACHINE = ("cpu", "cores", "torch")
"""What of a note's machine must be as here for its observations to say something of this machine."""


def run_soundness(
    notebook: Path,
    *,
    quick: bool,
    only: Sequence[str] = (),
    units: Sequence[str] = (),
    seconds: float | None = None,
    say: Callable[[str], None],
) -> list[Note]:
    """Observe what is missing, then judge every chosen experiment on all that the notebook holds.

    Args:
        notebook: file to append to.
        quick: only the small part of the units.
        only: regular expressions; an experiment whose name one of them finds is chosen. Empty: all.
        units: regular expressions on the keys of units. Empty: all.
        seconds: start no further unit after this long. None: until all are done.
        say: told what is going on.

    Returns:
        The findings.

    Raises:
        NothingSelectedError: if nothing is chosen.
    """
    chosen = [member for name, member in experiments.items() if not only or any(re.search(p, name) for p in only)]
    if not chosen:
        raise NothingSelectedError(
            f"experiment filter must leave at least one, got none of {', '.join(experiments.names())}. Change --only."
        )
    started = time.monotonic()
    machine = _machine()
    known = [note for note in read_notes(notebook) if note.type == "observation"]
    elsewhere = sum(any(note.machine.get(name) != machine[name] for name in SAME_MACHINE) for note in known)
    if elsewhere:
        say(
            f"{elsewhere} of {len(known)} units in {notebook} come from another machine and are not observed again; "
            "name a new file with --notebook to prove this one"
        )
    observed = {(note.experiment, note.unit) for note in known}
    for member in chosen:
        missing = [
            unit
            for unit in member().units(quick)
            if (member.name, unit) not in observed and (not units or any(re.search(p, unit) for p in units))
        ]
        for number, unit in enumerate(missing, start=1):
            if seconds is not None and time.monotonic() - started > seconds:
                if seconds:
                    say("time is up; run again to observe the rest")
                break
            say(f"{member.name} {unit} ({number} of {len(missing)})")
            _observe(member, unit, notebook, machine, say)
    return [_judge(member, notebook, machine) for member in chosen]


def _observe(
    member: type[Experiment], unit: str, notebook: Path, machine: dict[str, Any], say: Callable[[str], None]
) -> None:
    """Carry out one unit and note it; a unit that fails is told and left for another time."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="attention-bench-soundness-") as folder:
        try:
            observation = member().observe(unit, Context(folder=Path(folder), say=lambda text: None))
        except (BenchError, RuntimeError, OSError, EOFError) as error:
            say(f"{member.name} {unit} failed: {type(error).__name__}: {error}")
            return
    seconds = round(time.monotonic() - began, 1)
    append(notebook, Note("observation", member.name, unit, timestamp(), machine, seconds, observation))


def _judge(member: type[Experiment], notebook: Path, machine: dict[str, Any]) -> Note:
    """Judge what the notebook holds and note the finding."""
    notes = [n for n in read_notes(notebook) if n.type == "observation" and n.experiment == member.reads]
    observations = {note.unit: note.content for note in notes}
    finding = member().judge(observations) if observations else Finding(None, "nothing was observed")
    whole = set(experiments.get(member.reads)().units(False)) <= observations.keys()
    content = {
        "title": member.title,
        "target": member.target,
        # A part of the units can miss a target, never meet it.
        "met": finding.met if whole or finding.met is not True else None,
        "found": finding.found,
        "rows": [dict(row) for row in finding.rows],
        "units": len(observations),
    }
    note = Note("finding", member.name, "", timestamp(), notes[-1].machine if notes else machine, 0.0, content)
    append(notebook, note)
    return note


def note_gate(scores: Sequence[Score], notebook: Path, *, quick: bool, seconds: float) -> Note:
    """Store the score of the correctness gate as a finding.

    Args:
        scores: every mutant in every setting that was tried.
        notebook: file to append to.
        quick: whether only a part of the settings was tried, which can miss the target and never meet it.
        seconds: what it took.

    Raises:
        OutputError: if the notebook cannot be written.
    """
    counted = [score for score in scores if not score.same]
    missed = [score for score in counted if not score.caught_by]
    rows = [row | {"smallest_separation": _finite(row["smallest_separation"])} for row in mutant_rows(scores)]
    settings = len({score.problem.key for score in scores})
    refused = f"{len(counted) - len(missed)} of {len(counted)} broken results refused"
    found = f"{refused}: {len(rows)} faults in {settings} settings"
    if missed:
        found += f"; missed: {', '.join(f'{score.mutant} on {score.problem.key}' for score in missed[:5])}"
    content = {
        "title": "Does the gate refuse every broken attention?",
        "target": "all that change the function beyond rounding, and never the correct computation",
        "met": False if missed else None if quick else True,
        "found": found,
        "rows": rows,
        "units": settings,
    }
    note = Note("finding", GATE, "", timestamp(), _machine(), round(seconds, 1), content)
    append(notebook, note)
    return note


def _finite(value: float | None) -> float | None:
    """None for an error that is not finite, which JSON cannot hold."""
    return value if value is not None and math.isfinite(value) else None


def _machine() -> dict[str, Any]:
    """What a reader must know of the machine; no host name."""
    environment = read_environment("cpu", "warm", None, None)
    return {
        "cpu": environment.cpu,
        "cores": environment.cores,
        "torch": environment.packages.get("torch"),
        "attention_bench": environment.packages.get("attention-bench"),
        "commit": environment.git_commit,
        "dirty": environment.git_dirty,
    }
