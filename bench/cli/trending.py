"""The verb that looks back: history."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bench.cli._shared import REPORTS, RESULTS, Filters, app, say
from bench.tables import Format, write_rows


@app.command
def history(
    runs: tuple[str, ...] = (),
    *,
    metric: str = "time",
    filters: Filters = Filters(),
    policy: Path = Path("pyproject.toml"),
    results: Path = RESULTS,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = REPORTS / "history",
    format: Format = "table",
) -> int:
    """Trend of each cell over many runs, with the runs at which its level changed: a table, a figure and a page.

    Args:
        runs: Run ids, beginnings of them, paths, or latest; without any, every run of the folder.
        metric: time (over that of a control measured in the same rounds), or an exact number such as peak_bytes.
        policy: TOML file with the table [tool.attention-bench.check], which names controls and margin.
        results: Folder that run ids are looked up in.
        output: Folder that page and figure are written to.
        format: How to write the table to stdout.
    """
    from bench.comparison import selected
    from bench.errors import OutputError
    from bench.history import trends
    from bench.history.page import build_page, trend_rows
    from bench.policy import read_policy
    from bench.results import find_run, read_run
    from bench.sweep import Selection

    paths = [find_run(name, results) for name in runs] or sorted(results.glob("*.jsonl"))
    found = []
    for path in paths:
        try:
            found.append(read_run(path))
        except OutputError as error:
            if runs:
                raise
            say(f"left out: {error}")
    selection = Selection(filters.implementation, filters.not_implementation, filters.problem, filters.not_problem)
    rules = read_policy(policy)
    chosen = selected(found, lambda name: True, selection.takes_problem)  # controls are needed, whoever is asked for
    series = trends(chosen, metric, rules, selection.takes_implementation)
    write_rows(trend_rows(series, metric), format, sys.stdout)
    say(f"history: {build_page(series, metric, output)}")
    return 0
