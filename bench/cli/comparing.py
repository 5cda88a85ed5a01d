"""Verbs for whoever changes code: ab (two sides in turns) and try (one kernel file)."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bench.cli._shared import RESULTS, Filters, app, say
from bench.cli.checking import show
from bench.tables import Format, write_rows

if TYPE_CHECKING:
    from bench.ab_worker import Side
    from bench.case import Case
    from bench.trial import Trial

HERE = "."
"""Stands for the working tree with what is not committed."""


@app.command
def ab(
    base: str = "HEAD",
    head: str = HERE,
    *,
    between: tuple[str, str] | None = None,
    setting: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    sweep: str = "smoke",
    filters: Filters = Filters(),
    device: Literal["cpu", "cuda"] = "cpu",
    repository: Path = Path(),
    base_python: str = sys.executable,
    exact: Annotated[bool, Parameter(negative="")] = False,
    margin: float = 0.03,
    load: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    kernels: Annotated[bool, Parameter(negative="")] = False,
    all: Annotated[bool, Parameter(negative="")] = False,
    strict: Annotated[bool, Parameter(negative="")] = False,
    format: Format = "table",
) -> int:
    """Did a change make it worse? Two revisions in turns, cell by cell: exit code 3 if so, 5 if nothing was compared.

    Without arguments: what is not committed against HEAD, in less than two minutes.

    Args:
        base: Git revision to compare with; a dot is the working tree.
        head: Git revision that may be worse; a dot is the working tree.
        between: Two implementations instead: the second against the first, both in the working tree.
        setting: Environment variable NAME=VALUE that only the second side has; both sides are the working tree. May be
            given several times.
        sweep: Name of a sweep or path of a TOML file: its timed problems are compared.
        device: Where to measure.
        repository: Checkout whose revisions these are.
        base_python: Python of the first side, where it needs an environment of its own.
        exact: Bytes, errors, counts and statuses alone; no times. Seconds instead of minutes.
        margin: Changes of time within it do not matter; 0.03 is 3 %.
        load: Python file with an implementation of yours. May be given several times.
        kernels: Also compile the Triton kernels of both sides (minutes where they changed): registers, spills, shared
            memory.
        all: Also list what is fine.
        strict: Exit code 4 where something is unclear.
        format: How to write the outcomes to stdout; github writes annotations.
    """
    from bench.ab import compare_sides, compiled_kernels, judged
    from bench.check_output import headline

    with ExitStack() as stack:
        stack.enter_context(_tidy_if_ended())
        a, b = _sides(base, head, between, setting, repository, base_python, load, stack)
        cases = _cases(sweep, device, filters, between, load)
        say(f"{len(cases)} cells: {a.title} against {b.title}")
        compiled = (compiled_kernels(a), compiled_kernels(b)) if kernels else ((), ())
        pairings = compare_sides(a, b, cases, device=device, margin=lambda case: margin, exact=exact, say=say)
        found = judged(pairings, compiled)
    show(found, [one for one in found.outcomes if all or one.severity is not None or one.metric == "time"], format)
    say(f"{b.title} against {a.title}: {headline(found)}")
    return found.exit_code(strict)


@contextmanager
def _tidy_if_ended() -> Iterator[None]:
    """Let SIGTERM, which ends a job of CI, unwind the stack: it would leave work trees behind in the repository."""
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _sides(
    base: str,
    head: str,
    between: tuple[str, str] | None,
    setting: tuple[str, ...],
    repository: Path,
    base_python: str,
    load: tuple[Path, ...],
    stack: ExitStack,
) -> tuple[Side, Side]:
    """The two sides; work trees of revisions last as long as the stack."""
    from bench.ab_worker import Side
    from bench.errors import UsageError
    from bench.revisions import checkout, commit_of, unchanged

    load = tuple(path.resolve() for path in load)
    settings = dict(word.split("=", 1) for word in setting if "=" in word)
    if len(settings) != len(setting):
        raise UsageError(f"--setting must be NAME=VALUE, got {', '.join(setting)}. Give each name once.")
    python = shutil.which(base_python)
    if python is None:
        raise UsageError(f"--base-python must be a Python that can be started, got {base_python!r}. Check the path.")
    python = str(Path(python).absolute())  # not what it links to, which is no virtual environment
    if between is not None or settings:
        if (base, head) != ("HEAD", HERE):
            raise UsageError(
                "sides must be two revisions, or --between and --setting in the working tree, got both with "
                f"{base!r} and {head!r}. Leave out one of them."
            )
        first, second = between or (None, None)
        tree, shown = repository.resolve(), " ".join(setting)
        return (
            Side(title=first or "as it is", tree=tree, python=python, implementation=first, load=load),
            Side(title=second or shown, tree=tree, implementation=second, settings=settings, load=load),
        )
    commits = {name: commit_of(name, repository) for name in (base, head) if name != HERE}
    if base == head or (
        len({*commits.values()}) == 1 and (len(commits) == 2 or unchanged(repository, next(iter(commits.values()))))
    ):
        raise UsageError(
            f"sides must differ, got {base!r} and {head!r}, which hold the same. Change something, or name two "
            "revisions, --between or --setting."
        )
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attention-bench-ab-")))
    trees = [
        repository.resolve() if name == HERE else stack.enter_context(checkout(name, repository, folder))
        for name in (base, head)
    ]
    titles = ["the working tree" if name == HERE else name for name in (base, head)]
    return (
        Side(title=titles[0], tree=trees[0], python=python, load=load),
        Side(title=titles[1], tree=trees[1], load=load),
    )


def _cases(
    sweep: str, device: str, filters: Filters, between: tuple[str, str] | None, load: tuple[Path, ...]
) -> list[Case]:
    """The timed cells of the sweep."""
    from bench.case import Case
    from bench.errors import NothingSelectedError
    from bench.implementation import implementations
    from bench.registry import load_file
    from bench.sweep import Selection, load_sweep, plan

    for path in load:
        load_file(path)
    selection = Selection(filters.implementation, filters.not_implementation, filters.problem, filters.not_problem)
    found = load_sweep(sweep, device)
    if between is None:
        cases = [case for case in plan(found, selection, device)[0] if case.timed]
    else:
        for name in between:
            implementations.get(name)
        problems = [one for one, timed in found.problems if timed and selection.takes_problem(one)]
        cases = [Case(problem, between[1]) for problem in problems]
    if not cases:
        raise NothingSelectedError(f"sweep must have a timed cell, got none in {sweep!r}. Change -i, -p or --sweep.")
    return cases


@app.command(name="try")
def try_(
    file: Path,
    *,
    set: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    against: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    device: Literal["cpu", "cuda"] | None = None,
    results: Path = RESULTS,
    format: Format = "table",
) -> int:
    """Is the kernel in a file right, and how fast is it beside the best there is? One shape, within seconds.

    Exit code 1 if it is wrong, or does not take that shape.

    Args:
        file: Python file with @register_implementation.
        set: Change a field of the problem, which is B1-H4-T512-d64-float32-fwd-full: mask=causal, seqlen=1024.
        against: Implementation to set it against; by default the fastest that is right. May be given several times.
        device: Where to measure; by default a GPU if torch sees one.
        results: Folder of the results file.
        format: How to write the answer to stdout.
    """
    from bench.problem import Problem, expand_fields
    from bench.progress import listener
    from bench.sweep import parse_override
    from bench.trial import loaded_names, registered_names, trial_of

    load: tuple[Path, ...] = ()
    names = registered_names(file)
    if not names:
        names, load = loaded_names(file), (file.resolve(),)
    fields = {"seqlen": 512, "num_heads": 4} | dict(parse_override(text) for text in set)
    problem = Problem(**expand_fields({n: v[0] if isinstance(v, list) else v for n, v in fields.items()}))
    rows = []
    for name in names:
        progress = listener()
        try:
            found = trial_of(
                name,
                problem,
                load=load,
                folder=results,
                command=shlex.join(["attention-bench", *sys.argv[1:]]),
                device=device,
                listener=progress,
                rivals=against,
            )
        finally:
            progress.close()
        rows.append(_answer(found))
    write_rows(rows, format, sys.stdout)
    return 1 if any(row["status"] not in ("ok", "verified") for row in rows) else 0


def _answer(found: Trial) -> dict[str, Any]:
    """The row of one implementation."""
    from bench.analysis import latency_summary
    from bench.outcome import time_text

    measured, agreement = found.record.measurement, found.record.agreement
    error = None if agreement is None else agreement.tensors.get("out")
    return {
        "implementation": found.name,
        "problem": found.record.problem.key,
        "status": found.record.status,
        "latency_ms": None if measured is None else latency_summary(measured).median_ms,
        "peak_bytes": None if measured is None or measured.memory is None else measured.memory.peak_bytes,
        "out_max_abs": None if error is None else error.max_abs,
        "against": found.rival,
        "found": found.reason if found.comparison is None else time_text(found.comparison),
    }
