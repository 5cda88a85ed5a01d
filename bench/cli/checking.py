"""Verbs that hold the code against what it was: check, baseline, history."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bench.cli._shared import RESULTS, Filters, app, say
from bench.tables import Format, write_rows

if TYPE_CHECKING:
    from bench.case import Case
    from bench.header import Environment
    from bench.outcome import Outcome
    from bench.policy import Policy
    from bench.progress import Bar, Plain
    from bench.recheck import Measuring
    from bench.regression import Check
    from bench.results import Run
    from bench.state import State, Subject
    from bench.sweep import Selection

BASELINES = Path("results/baselines")


@Parameter(name="*")
@dataclass(frozen=True)
class Extras:
    """What check and baseline share."""

    exact: Annotated[bool, Parameter(negative="")] = False
    """Bytes, errors, counts, statuses and exact claims alone; no times. Seconds instead of minutes."""
    mutants: Annotated[bool, Parameter(negative="")] = False
    """Score the correctness gate as well (minutes)."""
    kernels: Path | None = None
    """JSON file with what a compiler says of the kernels, as `attention-bench kernels --format json` writes it. They
    are held against those of the baseline; if it has none, against kernels.lock.json."""
    policy: Path = Path("pyproject.toml")
    """TOML file with the table [tool.attention-bench.check]."""
    device: Literal["cpu", "cuda"] | None = None
    """Where to measure; by default a GPU if torch sees one."""
    results: Path = RESULTS
    """Folder of results files."""
    load: Annotated[tuple[Path, ...], Parameter(negative="")] = ()
    """Python file with an implementation of yours. May be given several times."""


@app.command
def baseline(
    *,
    run: str | None = None,
    sweep: str | None = None,
    extras: Extras = Extras(),
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
) -> int:
    """Record what later states of the code are held against: results/baselines/<machine>.jsonl, to be committed.

    Refused from a dirty tree, from unstable rows, and from fewer processes than a verdict needs.

    Args:
        run: Take a stored run instead of measuring: a run id, a beginning of one, a path, or latest.
        sweep: Name or path of what to measure; by default what the policy says.
        output: File to write; by default results/baselines/<machine>.jsonl.
    """
    from dataclasses import replace

    from bench.baseline import SUITE, refuse_as_baseline, refuse_dirty, write_state
    from bench.fresh_process import variables
    from bench.policy import read_policy
    from bench.recheck import measure
    from bench.results import find_run, read_run
    from bench.revisions import has_changes
    from bench.state import machine_name, state_of
    from bench.verdicts import LOOKS

    policy = read_policy(extras.policy)
    extra = _extra(extras)
    named = sweep or policy.sweep
    if run is None:
        refuse_dirty(_environment(extras).git_dirty, SUITE)
        refuse_dirty(has_changes(Path()), "the folder that it is called in")  # of whoever uses the suite
        how = _how(named, extras.device, "warm", extras.exact, extras, policy)
        with variables(policy.variables):
            found = _listening(lambda listener: measure(how, LOOKS[-1], listener))
    else:
        found = read_run(find_run(run, extras.results))
        named = sweep or found.header.sweep
    state = replace(state_of(found, policy, extra, timed=not extras.exact), sweep=named)
    complete = found.end is not None and found.end.outcome == "complete"
    refuse_as_baseline(state, found.header, complete, policy.margin)
    path = output or BASELINES / f"{machine_name(found.header.environment)}.jsonl"
    write_state(state, path)
    times = f"margin of times {100 * state.margin:.1f} %" if state.timed else "no times"
    say(f"baseline of {len(state.subjects)} subjects, {times}; commit it:")
    print(path)
    return 0


@app.command
def check(
    *,
    candidate: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    baseline: Path | None = None,
    filters: Filters = Filters(),
    extras: Extras = Extras(),
    strict: Annotated[bool, Parameter(negative="")] = False,
    all: Annotated[bool, Parameter(negative="")] = False,
    summary: Path | None = None,
    comment: Path | None = None,
    junit: Path | None = None,
    format: Format = "table",
) -> int:
    """Hold the code against a baseline: exit code 3 if it is worse, 5 if nothing could be compared.

    Exit code 4, with --strict alone, if something is in doubt; doubts are listed in any case. Filters choose cells:
    with them claims are left out, and kernels and mutants are judged where they are asked for.

    Args:
        candidate: Stored run to judge instead of measuring now: a run id, a beginning of one, a path, or latest. A
            second and a third one are further looks at cells that the first left unclear or slower.
        baseline: File of the baseline; by default results/baselines/<machine>.jsonl.
        strict: Exit code 4 where something is unclear or cannot be compared.
        all: Also list what is fine.
        summary: Write a summary in Markdown to this file, as for $GITHUB_STEP_SUMMARY.
        comment: Write the few cells that matter in Markdown to this file, as for a comment.
        junit: Write JUnit XML to this file.
        format: How to write the outcomes to stdout; github writes annotations.
    """
    from bench.baseline import read_state
    from bench.check_output import counts_text, headline, markdown
    from bench.check_output.junit import junit as junit_text
    from bench.fresh_process import variables
    from bench.policy import read_policy
    from bench.results import find_run, read_run
    from bench.state import machine_name

    policy = read_policy(extras.policy)
    runs = [read_run(find_run(name, extras.results)) for name in candidate]
    if baseline is None:
        environment = runs[0].header.environment if runs else _environment(extras)
        baseline = BASELINES / f"{machine_name(environment)}.jsonl"
    before = read_state(baseline)
    extra = _extra(extras)
    if extras.kernels is not None:
        before = _with_kernels(before)
    with variables(policy.variables):
        found, after = _checked(before, runs, policy, filters, extras, extra)
    show(found, [one for one in found.outcomes if all or one.severity is not None], format)
    for path, text in ((summary, markdown.summary), (comment, markdown.comment)):
        if path is not None:
            _write(path, text(found, before, after))
    if junit is not None:
        _write(junit, junit_text(found, strict))
    say(f"{headline(found)}; baseline {baseline}")
    say(counts_text(found))
    return found.exit_code(strict)


def show(found: Check, outcomes: Sequence[Outcome], style: Format) -> None:
    """Write outcomes to stdout; the style ``github`` writes annotations instead."""
    from bench.check_output import rows
    from bench.check_output.github import workflow_commands

    if style == "github":
        for line in workflow_commands(found):
            print(line)
    else:
        write_rows(rows(outcomes, style), style, sys.stdout)


def _checked(
    before: State, runs: list[Run], policy: Policy, filters: Filters, extras: Extras, extra: list[Subject]
) -> tuple[Check, State]:
    """The check of stored runs, or of what is measured now, with the candidate's state."""
    from bench.regression import check as compare
    from bench.state import state_of
    from bench.sweep import Selection

    cells = Selection(filters.implementation, filters.not_implementation, filters.problem, filters.not_problem)
    problems = Selection(filters.problem, filters.not_problem)  # of their keys, which are texts like names
    exact, filtered = extras.exact or not before.timed, cells != Selection()
    asked = {"claim": False, "kernel": extras.kernels is not None, "mutants": extras.mutants}

    def takes(key: str) -> bool:
        name, _, problem = key.partition(" ")
        if name in asked:  # filters choose cells; what is none is judged with all of them, or where it was asked for
            return asked[name] or not filtered
        return cells.takes_implementation(name) and problems.takes_implementation(problem)

    def judged(looks: Sequence[Run]) -> tuple[Check, State]:
        states = [state_of(run, policy, extra if run is looks[0] else (), timed=not exact) for run in looks]
        return compare(before, states, policy, exact=exact, takes=takes), states[0]

    if runs:
        return judged(runs)
    how = _how(before.sweep, extras.device or before.device, before.allocator, exact, extras, policy, cells)
    if not exact:
        beside = _beside(before, how, policy, extra, takes)
        if beside is not None:
            return beside
    return judged(_measured(how, before.controls, lambda looks: judged(looks)[0].unsettled))


def _beside(
    before: State, how: Measuring, policy: Policy, extra: Sequence[Subject], takes: Callable[[str], bool]
) -> tuple[Check, State] | None:
    """The check where this tree and the baseline's own code take turns; None where they cannot."""
    from dataclasses import replace

    from bench.beside import times_beside, why_not
    from bench.recheck import measure
    from bench.regression import check as compare
    from bench.regression import differing_fields
    from bench.state import state_of

    names = {one.name.split(" ")[0] for key, one in before.subjects.items() if one.kind == "cell" and takes(key)}
    if reason := why_not(before, sorted(names), how.load):
        say(f"times are held against stored ratios to {' or '.join(before.controls)}: {reason}")
        return None
    run = _listening(lambda listener: measure(replace(how, exact=True), 1, listener))
    after = state_of(run, policy, extra, timed=False)
    times = None
    if not differing_fields(before, after):
        times = times_beside(before, run.records, policy, how.load, say=say)
    return compare(before, [after], policy, takes=takes, times=times), after


def _with_kernels(before: State) -> State:
    """The baseline with the kernels of the lock, unless it has its own."""
    from dataclasses import replace

    from bench.errors import UsageError
    from bench.kernel_lock import LOCK
    from bench.kernel_state import locked_kernels

    if any(one.kind == "kernel" for one in before.subjects.values()):
        return before
    if not LOCK.exists():
        raise UsageError(
            f"--kernels must have something to be held against, got none in the baseline and no {LOCK} here. "
            "Record them with `attention-bench baseline --kernels FILE`."
        )
    locked = {one.key: one for one in locked_kernels(LOCK, before.toolchain.get("triton"))}
    return replace(before, subjects={**before.subjects, **locked})


def _measured(
    how: Measuring,
    controls: Sequence[str],
    unsettled: Callable[[Sequence[Run]], Sequence[str]],
) -> list[Run]:
    """The baseline's sweep measured now, with further looks at what that leaves unsettled."""
    from bench.recheck import measure, settle
    from bench.verdicts import LOOKS

    def look(cases: tuple[Case, ...] | None) -> Run:
        if cases:
            say(f"{len(cases)} cells are measured again in fresh processes")
        return _listening(lambda listener: measure(how, LOOKS[0], listener, cases))

    return settle(look(None), unsettled, look, controls)


def _how(
    sweep: str,
    device: str | None,
    allocator: str,
    exact: bool,
    extras: Extras,
    policy: Policy,
    cells: Selection | None = None,
) -> Measuring:
    """How to measure what a baseline holds; exact claims need no times and are part of whole exact baselines alone."""
    from bench.recheck import Measuring
    from bench.sweep import Selection

    chosen = cells or Selection()
    return Measuring(
        sweep=sweep,
        device=device,
        allocator=allocator,
        exact=exact,
        command=shlex.join(["attention-bench", *sys.argv[1:]]),
        output=extras.results,
        load=extras.load,
        selection=chosen,
        claims=policy.exact_claims if exact and chosen == Selection() else (),
    )


def _listening(work: Callable[[Plain | Bar], Run]) -> Run:
    """Measure with progress shown."""
    from bench.progress import listener

    progress = listener()
    try:
        return work(progress)
    finally:
        progress.close()


def _extra(extras: Extras) -> list[Subject]:
    """Kernels and mutants, as far as they were asked for."""
    from bench.registry import load_file

    for path in extras.load:
        load_file(path)
    found: list[Subject] = []
    if extras.kernels is not None:
        from bench.kernel_state import kernel_subjects

        found += kernel_subjects(_read(extras.kernels), f"--kernels {extras.kernels}")
    if extras.mutants:
        from bench.recheck import mutant_subject  # with all that measures

        found.append(mutant_subject(say))
    return found


def _environment(extras: Extras) -> Environment:
    """What this machine is, before anything is measured."""
    from bench.environment import read_environment
    from bench.machine import describe_machine

    if extras.device == "cpu":
        return read_environment("cpu", "warm", None, None)
    machine = describe_machine(extras.device, "warm", extras.load)
    return read_environment(machine.device_name, "warm", machine.threads, machine.build)


def _read(path: Path) -> str:
    from bench.errors import OutputError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OutputError(
            f"--kernels must name a file of text, got {str(path)!r} ({error}). Check the path."
        ) from error


def _write(path: Path, text: str) -> None:
    from bench.errors import OutputError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"output file must be writable, got {str(path)!r} ({error.strerror}). Name another one."
        ) from error
