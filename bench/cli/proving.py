"""Verbs that look at the harness and the machine instead of attention: soundness, doctor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bench.cli._shared import app, say
from bench.tables import Format, write_rows

NOTEBOOK = Path("results/soundness.jsonl")


@app.command
def soundness(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    only: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    unit: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    time_budget: str | None = None,
    judge: Annotated[bool, Parameter(negative="")] = False,
    notebook: Path = NOTEBOOK,
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
