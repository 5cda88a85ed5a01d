"""The command line: verbs and their options, each handing over to one function elsewhere.

Data go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 a case or the tool failed, 2 usage
or bad input, 5 nothing selected or nothing comparable, 130 interrupted.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from bench import __version__
from bench.errors import BenchError, UsageError
from bench.tables import Format, write_rows

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

Family = Literal["implementations", "masks", "sweeps", "checks", "mutants", "metrics", "probes", "plots"]


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


@Parameter(name="*")
@dataclass(frozen=True)
class Measuring:
    """What to measure, on what, for how long."""

    sweep: str | None = None
    """Name of a sweep (see `list sweeps`) or path of a TOML file; without it, default (and smoke for verify)."""
    set: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """Change an axis of the sweep: seqlen=128,256 or 'mask=["full","causal"]'. May be given several times."""
    device: Literal["cpu", "cuda"] | None = None
    """Where to measure; by default a GPU if torch sees one."""
    allocator: Literal["warm", "default"] = "warm"
    """CPU allocator: warm keeps memory in the process; default gives it back and pays page faults on every call."""
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = RESULTS
    """Folder of the results file."""
    load: Annotated[tuple[Path, ...], Parameter(negative="")] = ()
    """Python file with an implementation of yours. May be given several times."""
    dry_run: Annotated[bool, Parameter(negative="")] = False
    """Show the plan and stop."""
    time_budget: str | None = None
    """Stop cleanly after this long (90s, 5m, 1h), coarse lengths first."""
    resume: str | None = None
    """Measure only what this earlier run lacks: a run id, a path, or auto for the latest."""
    case_timeout: float = 120.0
    """Seconds after which a single call or verification is ended."""
    seed: int = 0
    """Seed of the order within rounds."""


@app.command
def run(
    *,
    filters: Filters = Filters(),
    measuring: Measuring = Measuring(),
    reports: Path = REPORTS,
    format: Format | None = None,
) -> int:
    """Plan, verify, measure and report: what `make bench` calls.

    Parameters
    ----------
    reports: Folder that the report is written to.
    format: Also write every cell to stdout in this format.
    """
    _ensure_folder(reports)
    path, code = _measure(filters, measuring, timed=True)
    if path is None:
        return code
    _show(path, format)
    page = _report([path], reports)
    _say(f"report: {page}")
    return code


@app.command
def measure(*, filters: Filters = Filters(), measuring: Measuring = Measuring(), format: Format | None = None) -> int:
    """As `run`, without the report.

    Parameters
    ----------
    format: Also write every cell to stdout in this format.
    """
    path, code = _measure(filters, measuring, timed=True)
    if path is not None:
        _show(path, format)
    return code


@app.command
def verify(
    *,
    filters: Filters = Filters(),
    measuring: Measuring = Measuring(),
    mutants: Annotated[bool, Parameter(negative="")] = False,
    by: Literal["mutant", "setting"] = "mutant",
    quick: Annotated[bool, Parameter(negative="")] = False,
    format: Format = "table",
) -> int:
    """Check every implementation against the float64 reference, without timing it.

    Parameters
    ----------
    mutants: Score the gate itself instead: every deliberately broken attention against every check.
    by: With --mutants, a row per mutant, or per setting with the rules R1 to R11 of others beside it.
    quick: With --mutants, lengths up to 192 alone.
    format: How to write the cells to stdout.
    """
    if mutants:
        return _score_gate(by, quick, format)
    path, code = _measure(filters, measuring, timed=False)
    if path is not None:
        _show(path, format)
    return code


@app.command(name="list")
def list_(
    family: Family,
    *,
    probe: Annotated[bool, Parameter(negative="")] = False,
    load: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    format: Format = "table",
) -> int:
    """List what there is, with what is known without importing torch.

    Parameters
    ----------
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
        from bench.runner import describe_machine

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

    Parameters
    ----------
    runs: Run ids, beginnings of them, paths, or latest.
    results: Folder that run ids are looked up in.
    output: Folder that the report is written to.
    """
    from bench.results import find_run

    _ensure_folder(output)
    print(_report([find_run(name, results) for name in runs], output))
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

    Parameters
    ----------
    runs: Run ids, beginnings of them, paths, or latest.
    results: Folder that run ids are looked up in.
    format: How to write the table to stdout.
    """
    from dataclasses import asdict

    from bench.comparison import rank as standings

    write_rows([asdict(standing) for standing in standings(_stored(runs, results, filters))], format, sys.stdout)
    _say("one number per implementation hides where it wins and loses; look at the figures before choosing")
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

    Parameters
    ----------
    before: The earlier run: an id, a beginning of one, or a path.
    after: The later run.
    results: Folder that run ids are looked up in.
    format: How to write the table to stdout.
    """
    from dataclasses import asdict

    from bench.comparison import compare as changes
    from bench.comparison import differences

    first, second = _stored((before, after), results, filters)
    for name, (old, new) in differences(first, second).items():
        _say(f"times are not compared: {name} differs, {old} and {new}")
    write_rows([asdict(change) for change in changes(first, second)], format, sys.stdout)
    _say("the runs were not interleaved: on a shared machine only large changes of time mean anything; bytes are exact")
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    try:
        code = app(
            [a for a in arguments if a != "--debug"],
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        _say(f"error: {error}")
        code = UsageError.exit_code
    except BenchError as error:
        if debug:
            raise
        _say(f"error: {error}")
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # `| head` closed stdout: not our failure
        sys.stdout = None
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _score_gate(by: str, quick: bool, style: Format) -> int:
    """Write the mutant table; exit code 1 if a mutant is missed."""
    from bench.gate import mutant_rows, run_gate, summary_rows

    scores = run_gate(quick, _say)
    write_rows(mutant_rows(scores) if by == "mutant" else summary_rows(scores), style, sys.stdout)
    return 1 if any(not score.caught_by and not score.same for score in scores) else 0


def _measure(filters: Filters, measuring: Measuring, *, timed: bool) -> tuple[Path | None, int]:
    """Carry out a run; returns the results file (None for a dry run) and the exit code."""
    from bench.progress import listener
    from bench.registry import load_file
    from bench.results import find_run, read_run
    from bench.runner import Request, plan_lines
    from bench.runner import run as run_request
    from bench.sweep import Selection, load_sweep, parse_duration

    for path in measuring.load:
        load_file(path)
    name = measuring.sweep or ("default" if timed else "smoke")
    selection = Selection(filters.implementation, filters.not_implementation, filters.problem, filters.not_problem)
    request = Request(
        sweep=lambda device: load_sweep(name, device, measuring.set),
        selection=selection,
        command=shlex.join(["attention-bench", *sys.argv[1:]]),
        output=measuring.output,
        device=measuring.device,
        allocator=measuring.allocator,
        timed=timed,
        case_timeout_s=measuring.case_timeout,
        time_budget_s=None if measuring.time_budget is None else parse_duration(measuring.time_budget),
        resume=None if measuring.resume is None else read_run(find_run(measuring.resume, measuring.output)),
        load=measuring.load,
        seed=measuring.seed,
    )
    if measuring.dry_run:
        for line in plan_lines(request):
            print(line)
        return None, 0
    progress = listener()
    try:
        path = run_request(request, progress)
    finally:
        progress.close()
    _say(f"results: {path}")
    failed = [r for r in read_run(path).records if r.status in ("incorrect", "crashed", "error", "timeout")]
    return path, 1 if failed else 0


def _stored(names: Sequence[str], results: Path, filters: Filters) -> list[Run]:
    """Stored runs with only the cells that the filters let through."""
    from bench.comparison import selected
    from bench.results import find_run, read_run
    from bench.sweep import Selection

    runs = [read_run(find_run(name, results)) for name in names]
    selection = Selection(filters.implementation, filters.not_implementation, filters.problem, filters.not_problem)
    return selected(runs, selection.takes_implementation, selection.takes_problem)


def _show(path: Path, style: Format | None) -> None:
    if style is None:
        return
    from bench.analysis import frame
    from bench.results import read_run
    from bench.tables import frame_rows

    write_rows(frame_rows(frame([read_run(path)]), style), style, sys.stdout)


def _report(paths: Sequence[Path], output: Path) -> Path:
    from bench.report import build_report, summary_text
    from bench.results import read_run

    runs = [read_run(path) for path in paths]
    page = build_report(runs, output / "+".join(run.run_id for run in runs))
    _say(summary_text(runs))
    return page


def _ensure_folder(folder: Path) -> None:
    from bench.results import ensure_folder

    ensure_folder(folder)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
