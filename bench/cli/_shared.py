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


def build(paths: Sequence[Path], output: Path) -> Path:
    """Build the report of stored runs, say its findings, and return the page."""
    from bench.report import Material, build_report, summary_text
    from bench.results import read_run

    runs = [read_run(path) for path in paths]
    material = Material.of(runs)
    page = build_report(runs, output / "+".join(run.run_id for run in runs), material=material)
    say(summary_text(runs, material=material))
    return page
