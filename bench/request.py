"""What a run is asked to do, and who is told of its progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.errors import BenchError
from bench.inquiry import Inquiry
from bench.record import Record
from bench.results import Run
from bench.sweep import Selection, Sweep
from bench.timing import SamplingPlan


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything that a run needs to know."""

    sweep: Callable[[str], Sweep]
    """The sweep for a device type: on a GPU a sweep may have a variant of its own."""
    selection: Selection
    command: str
    """Command line that repeats the run; stored in its header."""
    output: Path
    """Folder of the results file."""
    device: str | None = None
    """``cpu`` or ``cuda``; None takes a GPU if torch sees one."""
    allocator: str = "warm"
    sampling: SamplingPlan | None = None
    """None takes the default plan with the sweep's time per problem."""
    timed: bool = True
    """False verifies without timing."""
    case_timeout_s: float = 120.0
    """A single call, block or verification that takes longer is ended."""
    time_budget_s: float | None = None
    """Stop cleanly after this; None takes the sweep's own budget, if it has one."""
    resume: Run | None = None
    """Earlier run whose valid cells are taken over."""
    load: tuple[Path, ...] = ()
    energy: bool = False
    """Whether to measure energy per call as well."""
    seed: int = 0
    inquiries: Callable[[str], Sequence[Inquiry]] = lambda device: ()
    """What to find out beside the cells, on a device type."""


class Listener(Protocol):
    """What is told of a run's progress; the command line draws it."""

    def planned(self, cells: int, note: str) -> None:
        """The plan is made."""

    def finished(self, record: Record) -> None:
        """A cell is done and written."""

    def note(self, text: str) -> None:
        """Something that the user should know."""


class Interrupted(BenchError):
    """The user stopped the run; every finished cell is on disk."""

    exit_code = 130
