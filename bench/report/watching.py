"""A report that follows a run under way: built again whenever the results file has grown, until the run has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench.errors import OutputError
from bench.results import Run, read_run

POLL_S = 2.0
"""Seconds between two looks at the file; a look costs one ``stat``."""
SHARE = 4
"""The pause is at least so many times what building took: building takes at most a fifth of one core from the run."""
RELOAD_S = 10
"""Seconds after which the page loads itself again while the run is under way."""

_HEAD = '<meta charset="utf-8">'


def watch(
    path: Path,
    build: Callable[[Run, Path, bool], Path],
    folder: Path,
    tell: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Keep the report of a run up to date until the file has its last line; returns the page.

    The page in ``folder`` is exchanged whole, so a browser never sees half of one, and loads itself again until the run
    has ended.

    Args:
        path: results file of the run.
        build: makes the report of a run in a folder; told whether the run has ended; returns the page.
        folder: where the report is.
        tell: told of each build.
        sleep: waits for so many seconds.

    Raises:
        OutputError: if the file is or becomes no results file, or the folder cannot be written.
    """
    seen: tuple[int, int] | None = None
    while True:
        state = _state(path)
        if state == seen:
            sleep(POLL_S)
            continue
        started = time.monotonic()
        run = read_run(path)
        if run.end is None and not (run.records or run.evidence):  # there is nothing to build a page of
            seen = state
            sleep(POLL_S)
            continue
        page = _exchange(run, build, folder)
        tell(f"{len(run.records)} of {run.header.cells} cells{'' if run.end is None else ', and the run has ended'}")
        if run.end is not None:
            return page
        seen = state
        sleep(max(POLL_S, SHARE * (time.monotonic() - started)))


def _state(path: Path) -> tuple[int, int]:
    """When and how large the file is."""
    try:
        found = path.stat()
    except OSError as error:
        raise OutputError(
            f"watched results file must stay in place, got {str(path)!r} ({error.strerror}). Watch another run."
        ) from error
    return found.st_mtime_ns, found.st_size


def _exchange(run: Run, build: Callable[[Run, Path, bool], Path], folder: Path) -> Path:
    """Build beside the report, then put each file in its place, the page last."""
    ended = run.end is not None
    beside = folder / ".next"
    page = build(run, beside, ended)
    if not ended:
        text = page.read_text(encoding="utf-8")
        reload = f'{_HEAD}\n<meta http-equiv="refresh" content="{RELOAD_S}">'
        page.write_text(text.replace(_HEAD, reload, 1), encoding="utf-8")
    try:
        for file in sorted(beside.iterdir(), key=lambda file: file.name == page.name):
            file.replace(folder / file.name)
        beside.rmdir()
    except OSError as error:
        raise OutputError(
            f"report folder must be writable, got {str(folder)!r} ({error.strerror}). Choose another with --output."
        ) from error
    return folder / page.name
