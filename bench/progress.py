"""Progress on stderr: a bar on a terminal, otherwise a plain line now and then."""

from __future__ import annotations

import sys
import time

from bench.record import Record
from bench.units import format_seconds

PLAIN_EVERY_S = 10.0
"""Seconds between plain lines."""


class Plain:
    """Lines for logs. Failures are shown when they happen."""

    def __init__(self) -> None:
        self.cells = self.done = 0
        self.started = self.last = time.monotonic()

    def planned(self, cells: int, note: str) -> None:
        self.cells = cells
        self._say(f"{note}: {cells} cells")

    def finished(self, record: Record) -> None:
        self.done += 1
        if record.status in ("incorrect", "crashed", "error", "timeout", "out_of_memory"):
            self._say(f"{record.status}: {record.implementation} on {record.problem.key}: {record.reason}")
        now = time.monotonic()
        if now - self.last >= PLAIN_EVERY_S or self.done == self.cells:
            self.last = now
            self._say(f"{self.done} of {self.cells} cells after {format_seconds(now - self.started)}")

    def note(self, text: str) -> None:
        self._say(text)

    def close(self) -> None:
        """Nothing to tidy up."""

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Bar:
    """A bar with what was measured last; for terminals."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.console = Console(stderr=True)
        self.progress = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=self.console,
        )
        self.task = self.progress.add_task("starting", total=None)

    def planned(self, cells: int, note: str) -> None:
        self.console.print(f"{note}: {cells} cells", markup=False)
        self.progress.update(self.task, total=cells)
        self.progress.start()

    def finished(self, record: Record) -> None:
        self.progress.update(self.task, advance=1, description=f"{record.implementation} {record.problem.key}")
        if record.status in ("incorrect", "crashed", "error", "timeout", "out_of_memory"):
            text = f"{record.status}: {record.implementation} on {record.problem.key}: {record.reason}"
            self.console.print(text, markup=False)

    def note(self, text: str) -> None:
        self.console.print(text, markup=False)

    def close(self) -> None:
        self.progress.stop()


def listener(quiet: bool = False) -> Plain | Bar:
    """What suits stderr. Decided by whether it is a terminal, not by colour settings."""
    return Bar() if sys.stderr.isatty() and not quiet else Plain()
