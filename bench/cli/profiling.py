"""The verb that looks into one cell: profile."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bench.cli._shared import REPORTS, app, say
from bench.errors import UsageError
from bench.tables import Format, write_rows

if TYPE_CHECKING:
    from bench.digest import Digest
    from bench.problem import Problem
    from bench.profiling import Subject
    from bench.profiling._session import Machine


@app.command
def profile(
    *,
    implementation: Annotated[tuple[str, ...], Parameter(name=["--implementation", "-i"], negative="")],
    problem: Annotated[str, Parameter(name=["--problem", "-p"])],
    tool: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    across_seqlen: str | None = None,
    device: Literal["cpu", "cuda"] | None = None,
    load: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    output: Annotated[Path | None, Parameter(name=["--output", "-o", "--out"])] = None,
    format: Format = "table",
) -> int:
    """Where the time and the memory of a cell go: stages of the theory, allocations by tensor, kernels.

    Writes digest.md and digest.json, the native file of each tool and how to open it, and figures, and shows the stages
    on stdout, or kernels where there are no stages. A profiler slows what it looks at, so nothing here enters stored
    results. Exit code 1 if a tool breaks or one that was named gives nothing, 5 if a cell cannot be computed here.

    Args:
        implementation: Name of the implementation. May be given several times, to see them side by side.
        problem: Key of the problem, as tables show it, or part of one: T2048, H8-T4096-d128-bfloat16-fwd_bwd-causal.
        tool: torch, memory, static, proton, ncu, nsys, callgrind or all; by default the first five. May be given
            several times.
        across_seqlen: Profile the problem at these lengths, 256,512,1024,2048, and draw the shares of its stages.
        device: Where to run; by default a GPU if torch sees one.
        load: Python file with an implementation of yours. May be given several times.
        output: Folder of the files; by default one of its own in reports.
        format: How to write the stages to stdout; json, jsonl and csv hold all figures.
    """
    from bench.digest_text import kernel_rows, side_by_side, stage_rows
    from bench.errors import NothingSelectedError
    from bench.figure_style import slug
    from bench.problem_key import parse_problem
    from bench.profiling._session import chosen_tools

    if not implementation:
        raise UsageError("profile must be given an implementation, got none. Name one with -i, for example `-i naive`.")
    names = chosen_tools(tool)
    problems = _at_lengths(parse_problem(problem), across_seqlen)
    cells = _cells(list(dict.fromkeys(implementation)), problems, device, load)
    folder = output or REPORTS / slug("profile", *implementation, problem, across_seqlen)
    digests, refused = [], False
    for subject, known in cells:
        own = folder if len(cells) == 1 else folder / slug(subject.implementation, subject.problem.key)
        try:
            digests.append(_profiled(subject, known, names, own))
        except NothingSelectedError as error:  # what its library refuses is known only when it is called
            if len(cells) == 1:
                raise
            say(str(error))
            refused = True
    if len(digests) > 1 and any(digest.total_ms is not None for digest in digests):
        _draw_shares(digests, folder)
    people = format in ("table", "markdown", "github")
    rows = side_by_side(digests) if people else [row for digest in digests for row in stage_rows(digest)]
    write_rows(rows or [row for digest in digests for row in kernel_rows(digest)], format, sys.stdout)
    states = [one for digest in digests for one in digest.tools]
    asked = set(tool) - {"all"}
    for one in states:
        if one.status == "not_applicable" and one.name in asked:
            say(f"{one.name} gives nothing: {one.reason}")
    if refused:
        return NothingSelectedError.exit_code
    return int(any(one.status == "failed" or (one.name in asked and one.status != "done") for one in states))


def _cells(
    names: Sequence[str], problems: Sequence[Problem], device: Literal["cpu", "cuda"] | None, load: tuple[Path, ...]
) -> list[tuple[Subject, Machine]]:
    """Every cell with what is known of its implementation here; the first that cannot be computed ends it."""
    import tempfile

    from bench.fresh_call import in_fresh_process
    from bench.implementation import implementations
    from bench.profiling import Subject
    from bench.profiling._session import check, machines
    from bench.registry import load_file

    for file in load:
        load_file(file)
    for name in names:
        implementations.get(name)  # an unknown name ends here, with the nearest ones
    with tempfile.TemporaryDirectory(prefix="attention-bench-") as scratch:
        known = in_fresh_process(machines, names, device, load, log=Path(scratch) / "machine.log")
    cells = [(Subject(one, name, known[name].device, load), known[name]) for name in names for one in problems]
    for cell in cells:
        check(*cell)
    return cells


def _profiled(subject: Subject, known: Machine, names: Sequence[str], folder: Path) -> Digest:
    """Profile one cell, write its folder, and say what is in it."""
    from bench.digest import save_digest
    from bench.digest_text import save_text
    from bench.environment import read_environment
    from bench.figure_style import figure_style
    from bench.plots import save
    from bench.profile_figures import draw_memory_timeline
    from bench.profiling._session import profile_cell
    from bench.results import ensure_folder

    ensure_folder(folder)
    here = read_environment(known.device_name, "default", None, None)
    origin = {"cpu": here.cpu, "git_commit": here.git_commit, "git_dirty": here.git_dirty}
    digest = profile_cell(subject, known, names, folder).model_copy(update=origin)
    figures = []
    if digest.memory is not None:
        with figure_style():
            drawing = draw_memory_timeline(digest)
        figures.append(save(drawing, folder).name)
    save_digest(digest, folder)
    text = save_text(digest, folder, figures)
    for tool in digest.tools:
        if tool.status in ("failed", "unavailable"):
            say(f"{tool.name} {tool.status}: {tool.reason}{f' ({tool.fix})' if tool.fix else ''}")
    say(f"profile: {text}")
    return digest


def _draw_shares(digests: Sequence[Digest], folder: Path) -> None:
    """The figure of all cells together."""
    from bench.figure_style import figure_style
    from bench.plots import save
    from bench.profile_figures import draw_stage_shares

    with figure_style():
        drawing = draw_stage_shares(digests)
    say(f"figure: {save(drawing, folder)}")


def _at_lengths(problem: Problem, across: str | None) -> list[Problem]:
    """The problem, or the same at other lengths; where queries and keys differ in number, the keys change."""
    if across is None:
        return [problem]
    try:
        lengths = [int(text) for text in across.split(",")]
    except ValueError:
        raise UsageError(
            f"--across-seqlen must be lengths such as 256,512,1024, got {across!r}. Separate whole numbers by commas."
        ) from None
    square = problem.seqlen_q == problem.seqlen_k
    fields = problem.model_dump(mode="json")
    kind = type(problem)
    unique = dict.fromkeys(lengths)
    return [kind(**fields | {"seqlen_k": n, "seqlen_q": n if square else problem.seqlen_q}) for n in unique]
