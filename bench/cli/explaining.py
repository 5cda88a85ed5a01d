"""The verb that says why a cell is as fast as it is: explain."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bench.cli._shared import REPORTS, RESULTS, app

if TYPE_CHECKING:
    from bench.record import Record
    from bench.results import Run


@app.command(name="explain")
def explain_(
    run: str,
    cell: str,
    *,
    implementation: Annotated[tuple[str, ...], Parameter(name=["--implementation", "-i"], negative="")] = (),
    results: Path = RESULTS,
    profiles: Path = REPORTS,
    format: Literal["text", "json", "markdown"] = "text",
) -> int:
    """Why a cell is as fast as it is, in sentences that follow from stored data, each with the numbers behind it.

    What the data do not tell is not said; the reason is.

    Args:
        run: A run id, a beginning of one, a path, or latest.
        cell: The problem: its key, or a regular expression that one key alone matches. Or a cell_key, or its beginning.
        implementation: Only implementations that match this regular expression. May be given several times.
        results: Folder that run ids are looked up in.
        profiles: Folder that stored profiles are looked up in, at any depth.
        format: How to write to stdout; json is an array with one object per cell.
    """
    from bench.explanation import explain, markdown_lines, stored_digest, text_lines
    from bench.results import find_run, read_run

    found = read_run(find_run(run, results))
    records = named_cells(found, cell, implementation)
    same = [record for record in found.records if record.problem == records[0].problem]
    digests = {record.implementation: stored_digest(found, record, profiles) for record in same}
    others = {name: digest for name, (digest, _) in digests.items() if digest is not None}
    explanations = [explain(found, record, *digests[record.implementation], others) for record in records]
    if format == "json":
        import json
        from dataclasses import asdict

        json.dump([asdict(one) for one in explanations], sys.stdout, indent=1, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")
    else:
        lines = text_lines if format == "text" else markdown_lines
        print("\n\n".join("\n".join(lines(one)) for one in explanations))
    return 0


def named_cells(run: Run, cell: str, implementations: Sequence[str] = ()) -> list[Record]:
    """Cells of the one problem that is named.

    Raises:
        UsageError: if several problems match, or a pattern is none.
        NothingSelectedError: if nothing does.
    """
    from bench.errors import NothingSelectedError, UsageError
    from bench.sweep import Selection

    takes = Selection(tuple(implementations), (), (), ()).takes_implementation
    records = [record for record in run.records if takes(record.implementation)]
    found = [record for record in records if record.problem.key == cell]
    if not found and re.fullmatch("[0-9a-f]{4,12}", cell):
        found = [record for record in records if record.cell_key.startswith(cell)]
    if not found:
        matches = Selection((), (), (cell,), ()).takes_problem
        found = [record for record in records if matches(record.problem)]
    problems = list(dict.fromkeys(record.problem.key for record in found))
    if not found:
        known = ", ".join(dict.fromkeys(record.problem.key for record in run.records)) or "none"
        raise NothingSelectedError(
            f"cell must be one of the run's, got {cell!r}{' with that -i' if implementations else ''}, which matches "
            f"none. Problems of {run.run_id}: {known}."
        )
    if len(problems) > 1:
        raise UsageError(
            f"cell must name one problem, got {cell!r}, which matches {len(problems)}: {', '.join(problems[:8])}"
            f"{' ...' if len(problems) > 8 else ''}. Give the whole key."
        )
    return found
