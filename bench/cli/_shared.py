"""What verbs share: the app, the filters, the folders, and how anything is said."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from bench import __version__

if TYPE_CHECKING:
    from bench.notebook import Note
    from bench.report.stored_profiles import Profiles
    from bench.results import Run

app = App(
    name="attention-bench",
    help="How fast, how large and how wrong is each attention implementation here, and does it follow the theory?",
    version=__version__,
    help_format="plaintext",
)

RESULTS = Path("results/runs")
REPORTS = Path("reports")


@Parameter(name="*")
@dataclass(frozen=True)
class Filters:
    """Which cells: regular expressions, searched for; the capital letter excludes."""

    implementation: Annotated[tuple[str, ...], Parameter(name=["--implementation", "-i"], negative="")] = ()
    """Only implementations that match."""
    not_implementation: Annotated[tuple[str, ...], Parameter(name=["--not-implementation", "-I"], negative="")] = ()
    """No implementation that matches."""
    problem: Annotated[tuple[str, ...], Parameter(name=["--problem", "-p"], negative="")] = ()
    """Only problems whose key matches."""
    not_problem: Annotated[tuple[str, ...], Parameter(name=["--not-problem", "-P"], negative="")] = ()
    """No problem whose key matches."""


def say(text: str) -> None:
    """Tell the user something on stderr; stdout is for data."""
    print(text, file=sys.stderr, flush=True)


def stored(names: Sequence[str], results: Path, filters: Filters) -> list[Run]:
    """Stored runs with only the cells that the filters let through."""
    from bench.comparison import selected
    from bench.results import find_run, read_run
    from bench.sweep import Selection

    runs = [read_run(find_run(name, results)) for name in names]
    selection = Selection(filters.implementation, filters.not_implementation, filters.problem, filters.not_problem)
    return selected(runs, selection.takes_implementation, selection.takes_problem)


def report_folder(runs: Sequence[Run], output: Path) -> Path:
    """Where the report of these runs goes; a run id comes out of a file, so it is made safe for a name."""
    from bench.figure_style import slug

    return output / "+".join(slug(run.run_id) for run in runs)[:200]


def build(paths: Sequence[Path], output: Path, *, redact: bool = False, profiles: Path | None = None) -> Path:
    """Build the report of stored runs, say its findings, and return the page; profiles lie among the reports."""
    from bench.results import read_run

    runs = [read_run(path) for path in paths]
    shown, notes, known = _presented(runs, redact, profiles or output)
    page, said = _built(shown, notes, known, report_folder(shown, output))  # the id of a run may name its machine
    say(said)
    return page


def build_in(
    runs: Sequence[Run], folder: Path, *, redact: bool = False, figures: bool = True, profiles: Path | None = None
) -> tuple[Path, str]:
    """Page, figures and ``summary.md`` of runs in a folder; returns the page and its findings, one a line.

    Profiles of the runs' cells come out of the folder ``profiles``; None shows none.
    """
    return _built(*_presented(runs, redact, profiles), folder, figures=figures)


def _presented(
    runs: Sequence[Run], redact: bool, profiles: Path | None
) -> tuple[Sequence[Run], Sequence[Note], Profiles]:
    """Runs, the findings of the notebook and profiles as a report may show them."""
    from bench.notebook import present_findings
    from bench.report.redaction import presentable, redacted, redacted_profiles
    from bench.report.stored_profiles import NO_PROFILES, find_profiles

    shown, notes = [presentable(run) for run in runs], present_findings()
    known = NO_PROFILES if profiles is None else find_profiles(shown, profiles)
    if not redact:
        return shown, notes, known
    return *redacted(shown, notes), redacted_profiles(known, shown)


def _built(
    shown: Sequence[Run], notes: Sequence[Note], known: Profiles, folder: Path, *, figures: bool = True
) -> tuple[Path, str]:
    from dataclasses import replace

    from bench.report import Material, build_report, summary_text
    from bench.report.summary import write_summary

    material = replace(Material.of(shown), notes=notes, profiles=known)
    page = build_report(shown, folder, material=material, figures=figures)
    write_summary(material, folder)
    return page, summary_text(shown, material=material)
