"""What page, figures and summary are made of, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench.claims import Judged, hear
from bench.errors import NothingSelectedError
from bench.notebook import Note, latest_findings, present_findings
from bench.plots import Reading
from bench.report.cells import CellTable, cell_table
from bench.report.stored_profiles import NO_PROFILES, Profiles
from bench.results import Run, uncollected


@dataclass(frozen=True)
class Material:
    """The runs, their rows, and what was judged on them."""

    reading: Reading
    judged: list[Judged]
    notes: Sequence[Note] = ()
    """Latest findings of the soundness notebook; empty if there is none."""
    profiles: Profiles = NO_PROFILES
    """Stored profiles of the runs' cells."""

    @classmethod
    def of(cls, runs: Sequence[Run], notebook: Path | None = None) -> Material:
        """The runs' rows with the claims judged.

        Args:
            runs: what to show.
            notebook: soundness notebook; None takes what is known: the published one and this machine's own.

        Raises:
            NothingSelectedError: if the runs hold nothing.
            OutputError: if the notebook is none.
        """
        if not any(run.records or run.evidence for run in runs):
            names = ", ".join(str(run.path) for run in runs) or "no run"
            raise NothingSelectedError(
                f"report must have at least one cell, got none in {names}. Measure something first."
            )
        notes = present_findings() if notebook is None else latest_findings(notebook)
        reading = Reading(runs)
        with uncollected():
            return cls(reading, hear(runs, reading), notes)

    @property
    def runs(self) -> Sequence[Run]:
        """The runs, in the order in which they were given."""
        return self.reading.runs

    @cached_property
    def table(self) -> CellTable:
        """All cells with their columns."""
        return cell_table(self.reading)
