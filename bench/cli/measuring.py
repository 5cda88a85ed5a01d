"""Verbs that measure: run, measure, verify."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bench.cli._shared import REPORTS, RESULTS, Filters, app, build, say
from bench.tables import Format, write_rows

if TYPE_CHECKING:
    from bench.sweep import Selection


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
    energy: Annotated[bool, Parameter(negative="")] = False
    """Also measure energy per call, where a meter can be read: at least 4 s for each cell."""
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

    Args:
        reports: Folder that the report is written to.
        format: Also write every cell to stdout in this format.
    """
    from bench.results import ensure_folder

    ensure_folder(reports)
    path, code = _measure(filters, measuring, timed=True)
    if path is None:
        return code
    _show(path, format)
    page = build([path], reports)
    say(f"report: {page}")
    return code


@app.command
def measure(*, filters: Filters = Filters(), measuring: Measuring = Measuring(), format: Format | None = None) -> int:
    """As `run`, without the report.

    Args:
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
    campaign: Annotated[bool, Parameter(negative="")] = False,
    quick: Annotated[bool, Parameter(negative="")] = False,
    format: Format = "table",
) -> int:
    """Check every implementation against the float64 reference, without timing it.

    Args:
        mutants: Score the gate itself instead: every deliberately broken attention against every check.
        by: With --mutants, a row per mutant, or per setting with the rules R1 to R11 of others beside it.
        campaign: Score the gate the other way round: no correct implementation may be refused, on the problems of 200
            seeds up to 256 positions and of 5 seeds at 16384.
        quick: With --mutants, lengths up to 192 alone; with --campaign, 20 seeds up to 256 positions.
        format: How to write the cells to stdout.
    """
    if mutants:
        return _score_gate(by, quick, format)
    if campaign:
        return _refuse_nothing(filters, measuring, quick, format)
    path, code = _measure(filters, measuring, timed=False)
    if path is not None:
        _show(path, format)
    return code


def _score_gate(by: str, quick: bool, style: Format) -> int:
    """Write the mutant table and keep the score for reports; exit code 1 if a mutant is missed."""
    import time

    from bench.gate import mutant_rows, run_gate, summary_rows
    from bench.laboratory import note_gate
    from bench.notebook import LOCAL

    started = time.monotonic()
    scores = run_gate(quick, say)
    note_gate(scores, LOCAL, quick=quick, seconds=time.monotonic() - started)
    say(f"the score is kept in {LOCAL}")
    write_rows(mutant_rows(scores) if by == "mutant" else summary_rows(scores), style, sys.stdout)
    return 1 if any(not score.caught_by and not score.same for score in scores) else 0


def _refuse_nothing(filters: Filters, measuring: Measuring, quick: bool, style: Format) -> int:
    """Write the table of the campaign; exit code 1 if a correct implementation was refused."""
    from bench.refusals import LONG_SEEDS, SEEDS, run_campaign, summary_rows

    judged = run_campaign(
        SEEDS[:20] if quick else SEEDS,
        say,
        long_seeds=() if quick else LONG_SEEDS,
        selection=_selection(filters),
        device=measuring.device or "cpu",
    )
    write_rows(summary_rows(judged), style, sys.stdout)
    return 1 if any(one.verdict == "refused" for one in judged) else 0


def _measure(filters: Filters, measuring: Measuring, *, timed: bool) -> tuple[Path | None, int]:
    """Carry out a run; returns the results file (None for a dry run) and the exit code."""
    from bench.dry_run import plan_lines
    from bench.progress import listener
    from bench.registry import load_file
    from bench.request import Request
    from bench.results import find_run, read_chain, read_run
    from bench.runner import run as run_request
    from bench.sweep import load_sweep
    from bench.units import parse_duration

    for path in measuring.load:
        load_file(path)
    name = measuring.sweep or ("default" if timed else "smoke")
    request = Request(
        sweep=lambda device: load_sweep(name, device, measuring.set),
        selection=_selection(filters),
        command=shlex.join(["attention-bench", *sys.argv[1:]]),
        output=measuring.output,
        device=measuring.device,
        allocator=measuring.allocator,
        timed=timed,
        case_timeout_s=measuring.case_timeout,
        time_budget_s=None if measuring.time_budget is None else parse_duration(measuring.time_budget),
        resume=None if measuring.resume is None else read_chain(find_run(measuring.resume, measuring.output)),
        load=measuring.load,
        energy=measuring.energy,
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
    say(f"results: {path}")
    failed = [r for r in read_run(path).records if r.status in ("incorrect", "crashed", "error", "timeout")]
    return path, 1 if failed else 0


def _show(path: Path, style: Format | None) -> None:
    if style is None:
        return
    from bench.analysis import frame
    from bench.results import read_run
    from bench.tables import frame_rows

    write_rows(frame_rows(frame([read_run(path)]), style), style, sys.stdout)


def _selection(filters: Filters) -> Selection:
    from bench.sweep import Selection

    return Selection(filters.implementation, filters.not_implementation, filters.problem, filters.not_problem)


@app.command
def frontier(
    limit: str,
    *,
    filters: Filters = Filters(),
    set: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    device: Literal["cpu", "cuda"] = "cpu",
    records: tuple[str, ...] = (),
    results: Path = RESULTS,
    load: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    call_seconds: float = 30.0,
    format: Format = "table",
) -> int:
    """The longest sequence that fits into a memory limit, per implementation: predicted, then tried in fresh processes.

    Args:
        limit: Memory for inputs, mask tensors and the call together, for example 2GiB.
        set: Change a field of the problem, which is B1-H4-d64-float32-fwd-full: mask=causal, num_heads=8.
        device: Where to try.
        records: Stored runs from whose peaks a law is fitted: run ids, beginnings of them, paths, or latest. Without
            any, the implementation's own law predicts.
        results: Folder that run ids are looked up in.
        load: Python file with an implementation of yours. May be given several times.
        call_seconds: A call that takes longer than this is watched for a while and not completed.
        format: How to write the table to stdout.
    """
    from dataclasses import asdict

    from bench.fitting_limit import find_limit
    from bench.frontier import at_length, predict
    from bench.implementation import implementations, untimed
    from bench.problem import Problem, expand_fields
    from bench.registry import load_file
    from bench.results import find_run, read_run
    from bench.sweep import parse_override, planned_implementations
    from bench.units import parse_bytes

    limit_bytes = parse_bytes(limit)
    for path in load:
        load_file(path)
    fields = {"seqlen": 1024, "num_heads": 4} | dict(parse_override(text) for text in set)
    problem = Problem(**expand_fields({name: v[0] if isinstance(v, list) else v for name, v in fields.items()}))
    stored = [record for name in records for record in read_run(find_run(name, results)).records]
    rows = []
    for name in planned_implementations(_selection(filters), device, skip=("flex", "naive_compiled")):
        why = untimed(implementations.get(name), problem, device)
        if why is not None and not filters.implementation:  # calls that long would be watched for hours
            say(f"{name}: left out, as it {why}; ask for it with -i {name}")
            continue
        predicted = predict(name, problem, limit_bytes, stored, device)
        found = find_limit(
            name,
            lambda length: at_length(problem, length),
            limit_bytes,
            predicted.seqlen,
            device=device,
            load=load,
            call_s=call_seconds,
        )
        say(f"{name}: predicted {found.predicted_seqlen} by {predicted.source}, completed {found.verified_seqlen}")
        rows.append(asdict(found) | {"prediction_by": predicted.source})
    write_rows(rows, format, sys.stdout)
    return 1 if any(row["verified_seqlen"] is None for row in rows) else 0
