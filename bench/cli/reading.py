"""Verbs that read what was measured, or what there is: list, report, rank, compare."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bench.cli._shared import REPORTS, RESULTS, Filters, app, build, say, stored
from bench.tables import Format, write_rows

Family = Literal[
    "implementations",
    "masks",
    "sweeps",
    "checks",
    "mutants",
    "metrics",
    "probes",
    "plots",
    "claims",
    "demonstrations",
    "exports",
    "profilers",
]


@app.command(name="list")
def list_(
    family: Family,
    *,
    probe: Annotated[bool, Parameter(negative="")] = False,
    load: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    format: Format = "table",
) -> int:
    """List what there is, with what is known without importing torch.

    Args:
        family: What to list.
        probe: Ask the libraries themselves whether each implementation is available (imports torch).
        load: Python file with an implementation of yours.
        format: How to write the list to stdout.
    """
    from bench.catalogue import catalogue

    for path in load:
        from bench.registry import load_file

        load_file(path)
    versions = None
    if probe:
        from bench.machine import describe_machine

        versions = describe_machine(None, "default", load).versions
    write_rows(catalogue(family, versions), format, sys.stdout)
    return 0


@app.command
def report(
    runs: tuple[str, ...] = ("latest",),
    *,
    results: Path = RESULTS,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = REPORTS,
    profiles: Path | None = None,
    redact: Annotated[bool, Parameter(negative="")] = False,
    watch: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Build the HTML page, the PNG figures and a Markdown summary of stored runs.

    Args:
        runs: Run ids, beginnings of them, paths, or latest.
        results: Folder that run ids are looked up in.
        output: Folder that the report is written to.
        profiles: Folder that profiles of the runs' cells are looked up in, at any depth; by default the output.
        redact: Leave out host names, user names, paths, git remotes and identifiers of GPUs, everywhere.
        watch: Build again whenever the run has got further, until it has ended; for one run. Figures come at the end.
    """
    from bench.errors import UsageError
    from bench.results import ensure_folder, find_run

    ensure_folder(output)
    paths = [find_run(name, results) for name in runs]
    if watch and len(paths) != 1:
        raise UsageError(f"--watch must follow one run, got {len(paths)}. Name the one that is under way.")
    looked = profiles or output
    print(_watch(paths[0], output, redact, looked) if watch else build(paths, output, redact=redact, profiles=looked))
    return 0


def _watch(path: Path, output: Path, redact: bool, profiles: Path) -> Path:
    """Follow a run; says the page's path as soon as it is there."""
    import os

    from bench.cli._shared import build_in, report_folder
    from bench.report.redaction import redacted
    from bench.report.watching import watch
    from bench.results import Run, read_run

    os.nice(10)  # what is being measured goes first
    runs = [read_run(path)]
    folder = report_folder(redacted(runs)[0] if redact else runs, output)
    say(f"open {folder / 'index.html'}; Ctrl-C ends the watch, not the run")

    def build_once(run: Run, beside: Path, ended: bool) -> Path:
        page, said = build_in([run], beside, redact=redact, figures=ended, profiles=profiles)
        if ended:
            say(said)
        return page

    return watch(path, build_once, folder, say)


@app.command
def rank(
    runs: tuple[str, ...] = ("latest",),
    *,
    filters: Filters = Filters(),
    baseline: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    results: Path = RESULTS,
    format: Format = "table",
) -> int:
    """Leader board: geometric mean of the time over that of the fastest, on the cells that all measured.

    Args:
        runs: Run ids, beginnings of them, paths, or latest.
        baseline: Also state the speed over the best of these implementations, cell by cell. May be given several times.
        results: Folder that run ids are looked up in.
        format: How to write the table to stdout.
    """
    from dataclasses import asdict

    from bench.standings import CAUTION
    from bench.standings import rank as standings

    found = standings(stored(runs, results, filters), baseline)
    write_rows([asdict(standing) for standing in found], format, sys.stdout)
    say(CAUTION)
    return 0


@app.command
def compare(
    before: str,
    after: str = "latest",
    *,
    filters: Filters = Filters(),
    results: Path = RESULTS,
    format: Format = "table",
) -> int:
    """Two stored runs, cell by cell, the most significant change first: time ratio, peak bytes, error ratio.

    Args:
        before: The earlier run: an id, a beginning of one, or a path.
        after: The later run.
        results: Folder that run ids are looked up in.
        format: How to write the table to stdout.
    """
    from dataclasses import asdict

    from bench.comparison import compare as changes
    from bench.report.compare import said

    first, second = stored((before, after), results, filters)
    found = changes(first, second)
    write_rows([asdict(change) for change in found], format, sys.stdout)
    say(said(first, second, found))
    say("the runs were not interleaved: on a shared machine only large changes of time mean anything; bytes are exact")
    return 0
