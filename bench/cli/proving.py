"""Verbs that prove: claims of the theory, the soundness of the harness, the state of the machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bench.cli._shared import REPORTS, RESULTS, app, build, say
from bench.notebook import LOCAL
from bench.tables import Format, write_rows


@app.command(name="claims")
def claims_(
    runs: tuple[str, ...] = (),
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    only: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    device: Literal["cpu", "cuda"] | None = None,
    allocator: Literal["warm", "default"] = "warm",
    time_budget: str | None = None,
    resume: str | None = None,
    load: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    results: Annotated[Path, Parameter(name=["--results", "-o"])] = RESULTS,
    reports: Path = REPORTS,
    format: Format = "table",
) -> int:
    """The statements of the theory, each CONFIRMED, REFUTED or INCONCLUSIVE, with evidence.

    Without runs, measures what the claims need, judges it and builds the report; with runs, judges those. Exit code 1
    if a claim is refuted.

    Args:
        runs: Stored runs to judge: run ids, beginnings of them, paths, or latest.
        quick: Fewer and shorter rows, in less than two minutes.
        only: Regular expression; only claims whose name it finds. May be given several times.
        device: Where to measure; by default a GPU if torch sees one.
        allocator: CPU allocator: warm keeps memory in the process; default gives it back.
        time_budget: Stop cleanly after this long (90s, 5m, 1h).
        resume: Measure only what this earlier run lacks: a run id, a path, or auto for the latest.
        load: Python file with an implementation of yours. May be given several times.
        results: Folder of results files.
        reports: Folder that the report is written to.
        format: How to write the verdicts to stdout.
    """
    from bench.claims import hear
    from bench.proof import chosen_claims
    from bench.results import find_run, read_run

    chosen = {claim.name for claim in chosen_claims(only)}
    paths = [find_run(name, results) for name in runs]
    if not paths:
        paths = [_measure_claims(only, quick, device, allocator, time_budget, resume, load, results)]
        say(f"report: {build(paths, reports)}")
    judged = [one for one in hear([read_run(path) for path in paths]) if one.claim.name in chosen]
    rows = [
        {
            "claim": f"{one.claim.order} {one.claim.name}",
            "subject": answer.subject,
            "verdict": answer.verdict,
            "found": answer.found,
            "reason": answer.reason,
            **({} if format == "table" else {"statement": one.claim.statement}),
            "rows": len(answer.rows) if format == "table" else " ".join(answer.rows),
        }
        for one in judged
        for answer in one.answers
    ]
    write_rows(rows, format, sys.stdout)
    return 1 if any(one.verdict == "REFUTED" for one in judged) else 0


def _measure_claims(
    only: tuple[str, ...],
    quick: bool,
    device: str | None,
    allocator: str,
    time_budget: str | None,
    resume: str | None,
    load: tuple[Path, ...],
    results: Path,
) -> Path:
    """Carry out the run that the claims need; returns its file."""
    from bench.progress import listener
    from bench.proof import claims_request
    from bench.registry import load_file
    from bench.results import find_run, read_chain
    from bench.runner import run
    from bench.units import parse_duration

    for path in load:
        load_file(path)
    request = claims_request(
        only,
        quick=quick,
        command=shlex.join(["attention-bench", *sys.argv[1:]]),
        output=results,
        device=device,
        allocator=allocator,
        time_budget_s=None if time_budget is None else parse_duration(time_budget),
        resume=None if resume is None else read_chain(find_run(resume, results)),
        load=load,
    )
    progress = listener()
    try:
        path = run(request, progress)
    finally:
        progress.close()
    say(f"results: {path}")
    return path


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
        quick: Only a small part, in three to four minutes.
        only: Regular expression; only experiments whose name it finds. May be given several times.
        unit: Regular expression; only units whose key it finds. May be given several times.
        time_budget: Start nothing more after this long (90s, 5m, 2h).
        judge: Observe nothing; judge again what the file holds.
        notebook: File that observations and findings are appended to.
        format: How to write the findings to stdout.
    """
    from bench.laboratory import run_soundness
    from bench.units import parse_duration

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
