"""Verbs that look at the harness and the machine instead of attention: soundness, doctor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bench.cli._shared import app, say
from bench.notebook import LOCAL
from bench.tables import Format, write_rows


@app.command
def soundness(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    only: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    unit: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    time_budget: str | None = None,
    judge: Annotated[bool, Parameter(negative="")] = False,
    notebook: Path = LOCAL,
    format: Format = "table",
) -> int:
    """Prove the harness itself: false alarms on identical code, power, coverage, agreement, exact bytes.

    Observations are appended to one file; a run that stopped goes on where it was.

    Args:
        quick: Only a small part, in about three minutes.
        only: Regular expression; only experiments whose name it finds. May be given several times.
        unit: Regular expression; only units whose key it finds. May be given several times.
        time_budget: Start nothing more after this long (90s, 5m, 2h).
        judge: Observe nothing; judge again what the file holds.
        notebook: File that observations and findings are appended to.
        format: How to write the findings to stdout.
    """
    from bench.laboratory import run_soundness
    from bench.sweep import parse_duration

    seconds = None if time_budget is None else parse_duration(time_budget)
    notes = run_soundness(notebook, quick=quick, only=only, units=unit, seconds=0 if judge else seconds, say=say)
    answers = {True: "met", False: "MISSED", None: "too little observed"}
    rows = [
        {
            "experiment": note.experiment,
            "outcome": answers[note.content["met"]],
            "found": note.content["found"],
            "target": note.content["target"],
            "units": note.content["units"],
        }
        for note in notes
    ]
    write_rows(rows, format, sys.stdout)
    return 1 if any(note.content["met"] is False for note in notes) else 0


@app.command
def doctor(
    *,
    device: Literal["cpu", "cuda"] | None = None,
    allocator: Literal["warm", "default"] = "warm",
    format: Format = "table",
) -> int:
    """The environment, and what would spoil a measurement here, with the fix. Exit code 1 if none should be made.

    Args:
        device: What will be measured; by default a GPU if torch is built for one.
        allocator: Setting of the CPU allocator that will be used.
        format: How to write what was looked at to stdout.
    """
    from bench.doctor import diagnose, fatal_reason

    diagnoses = diagnose(device, allocator)
    order = ("fatal", "warning", "note", "fine")
    rows = [found.model_dump() for found in sorted(diagnoses, key=lambda found: order.index(found.level))]
    write_rows(rows, format, sys.stdout)
    return 1 if fatal_reason(diagnoses) else 0
