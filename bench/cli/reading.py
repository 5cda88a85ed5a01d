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
) -> int:
    """Build the HTML page and the PNG figures of stored runs.

    Args:
        runs: Run ids, beginnings of them, paths, or latest.
        results: Folder that run ids are looked up in.
        output: Folder that the report is written to.
    """
    from bench.results import ensure_folder, find_run

    ensure_folder(output)
    print(build([find_run(name, results) for name in runs], output))
    return 0


@app.command
def rank(
    runs: tuple[str, ...] = ("latest",),
    *,
    filters: Filters = Filters(),
    results: Path = RESULTS,
    format: Format = "table",
) -> int:
    """Leader board: geometric mean of the time over that of the fastest, on the cells that all measured.

    Args:
        runs: Run ids, beginnings of them, paths, or latest.
        results: Folder that run ids are looked up in.
        format: How to write the table to stdout.
    """
    from dataclasses import asdict

    from bench.comparison import rank as standings

    write_rows([asdict(standing) for standing in standings(stored(runs, results, filters))], format, sys.stdout)
    say("one number per implementation hides where it wins and loses; look at the figures before choosing")
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
    """Two stored runs, cell by cell: time ratio, change of peak bytes, error ratio.

    Args:
        before: The earlier run: an id, a beginning of one, or a path.
        after: The later run.
        results: Folder that run ids are looked up in.
        format: How to write the table to stdout.
    """
    from dataclasses import asdict

    from bench.comparison import compare as changes
    from bench.comparison import differences

    first, second = stored((before, after), results, filters)
    for name, (old, new) in differences(first, second).items():
        say(f"times are not compared: {name} differs, {old} and {new}")
    write_rows([asdict(change) for change in changes(first, second)], format, sys.stdout)
    say("the runs were not interleaved: on a shared machine only large changes of time mean anything; bytes are exact")
    return 0
