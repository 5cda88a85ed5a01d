"""Verbs for the formats of other tools: export, import."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bench.cli._shared import RESULTS, Filters, app, say, stored
from bench.errors import OutputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.record import Line
    from bench.results import Run


@app.command
def export(
    runs: tuple[str, ...] = ("latest",),
    *,
    to: str,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    force: Annotated[bool, Parameter(negative="")] = False,
    filters: Filters = Filters(),
    results: Path = RESULTS,
) -> int:
    """Stored runs in a format of another tool (see `list exports`).

    Args:
        runs: Run ids, beginnings of them, paths, or latest.
        to: Name of the format.
        output: File to write, or a folder where there are several; without it, stdout.
        force: Write over files that are there.
        results: Folder that run ids are looked up in.
    """
    from bench.exports import exports

    member = exports.get(to)
    chosen = {run.run_id: run for run in stored(runs, results, filters)}.values()
    files = member.files(list(chosen))
    if output is not None:
        _write(_targets(files, output), force)
    elif len(files) == 1:
        sys.stdout.buffer.write(*files.values())
        sys.stdout.buffer.flush()
    else:
        raise UsageError(
            f"export to {to} must go to a folder, got {len(files)} files and no --output. Name one with -o."
        )
    say(_counts(chosen))
    return 0


@app.command(name="import")
def import_(file: Path, *, output: Annotated[Path, Parameter(name=["--output", "-o"])] = RESULTS) -> int:
    """Make a results file of a pytest-benchmark JSON of ours, from `export` or from `pytest benchmarks`.

    Args:
        file: JSON written by `export --to pytest-benchmark` or by `pytest benchmarks --benchmark-json FILE`.
        output: Folder of the results file.
    """
    from bench.exports.pytest_benchmark import read
    from bench.results import RunWriter

    run, passed_over = read(file)
    if (output / f"{run.run_id}.jsonl").exists():
        raise OutputError(f"run must not be there yet, got {run.run_id} in {str(output)!r}. Choose another -o.")
    lines: list[Line] = [run.header, *run.records, *run.evidence, *([run.end] if run.end else [])]
    with RunWriter(output, run.run_id) as writer:
        for line in lines:
            writer.write(line)
    if passed_over:
        say(f"{passed_over} benchmarks were passed over: they hold no verified result")
    print(writer.path)
    return 0


def _targets(files: Mapping[str, bytes], output: Path) -> dict[Path, bytes]:
    """Where each file goes: into the folder ``output``, or a single one to the file ``output``."""
    if len(files) == 1 and not output.is_dir():
        return {output: next(iter(files.values()))}
    return {output / name: content for name, content in files.items()}


def _write(targets: Mapping[Path, bytes], force: bool) -> None:
    """Write all files, or none if one is there and ``force`` is not given.

    Raises:
        OutputError: if a file is there, or cannot be written.
    """
    there = [path for path in targets if path.exists()]
    if there and not force:
        raise OutputError(f"export must not write over a file, got {str(there[0])!r}. Use --force, or another -o.")
    for path, content in targets.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            raise OutputError(
                f"export must go to a writable path, got {str(path)!r} ({error.strerror}). Choose another -o."
            ) from error


def _counts(runs: Iterable[Run]) -> str:
    """How many cells have a time, and what became of the others."""
    from bench.exports import sound_time

    records = [record for run in runs for record in run.records]
    others = Counter(
        "without a sound time" if record.status == "ok" else record.status
        for record in records
        if sound_time(record) is None
    )
    rest = "".join(f"; {count} {what}" for what, count in sorted(others.items()))
    return f"{len(records) - others.total()} of {len(records)} cells have a time{rest}"
