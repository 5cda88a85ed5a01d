"""What the compiler made of Triton kernels: resources, the mix of the hottest loop, and its lines of source."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from linecache import getline
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar

from bench.digest import KernelRow
from bench.disassembly import lined
from bench.errors import Unavailable
from bench.implementation import Precompiled, implementations
from bench.kernel_lock import KernelFacts
from bench.kernel_report import Shipped, compile_all, compile_source, shipped_configurations
from bench.lifeline import end_with_parent
from bench.machine_code import Mix, hot_loop, read_sass
from bench.problem import Problem
from bench.profiling import Absence, Found, Subject, register_tool

LINES = "hot_loop.md"
TARGET = "sm_90"
"""Compiled for where the device at hand is no GPU."""
_MARK = re.compile(r'^\s*//## File "(?P<file>[^"]+)", line (?P<line>\d+)')

Line = tuple[str, str, int, str, int]
"""Kernel, file, line, its text, instructions."""


@register_tool
class Static:
    """Kernels as they are compiled, on any machine."""

    name: ClassVar[str] = "static"
    summary: ClassVar[str] = "compiled Triton kernels: registers, hottest loop, lines of source; needs no GPU"
    default: ClassVar[bool] = True

    def absence(self, subject: Subject) -> Absence | None:
        """It needs an implementation with Triton kernels, and Triton."""
        if not isinstance(subject.member, Precompiled):
            return Absence(f"{subject.implementation} ships no Triton kernels", applicable=False)
        if find_spec("triton") is None:
            return Absence("no triton is installed", "`pip install triton` (it ships for Linux)")
        return None

    def look(self, subject: Subject, folder: Path) -> Found:
        """Compile the kernels of the problem's dtype, width and direction, unless that was done before."""
        target = _target(subject.device)
        wanted = chosen(shipped_configurations(), subject.implementation, subject.problem, target)
        if not wanted:
            what = f"{subject.problem.dtype}, head_dim {subject.problem.head_dim} on {target}"
            raise Unavailable(f"no configuration is shipped for {what}. See `attention-bench kernels`.")
        compiled = list(compile_all(wanted))
        failures = [f"{one.shipped.configuration.name}: {one.failure}" for one in compiled if one.failure]
        if failures:
            raise Unavailable("; ".join(failures))
        rows = tuple(row(facts) for one in compiled for facts in one.facts)
        if not target.startswith("sm_"):
            return Found(parts={"kernels": rows})
        context = get_context("spawn")
        with ProcessPoolExecutor(1, context, initializer=_enter) as pool:
            lines = [line for one in wanted for line in pool.submit(hot_lines, one).result()]
        (folder / LINES).write_text(lines_text(lines, target))
        return Found(files={LINES: "any editor"}, parts={"kernels": rows})


def chosen(shipped: Sequence[Shipped], implementation: str, problem: Problem, target: str) -> list[Shipped]:
    """For each direction the configurations of the narrowest head that holds the problem's: a kernel each."""
    directions = ("fwd", "bwd") if problem.direction == "fwd_bwd" else (problem.direction,)
    dtypes = (problem.dtype, "half") if problem.element_bytes == 2 else (problem.dtype,)
    found = []
    for direction in directions:
        fitting = [
            one
            for one in shipped
            if one.implementation == implementation
            and one.configuration.direction == direction
            and one.configuration.dtype in dtypes
            and one.configuration.target == target
            and one.configuration.head_dim >= max(problem.head_dim, problem.head_dim_v)
        ]
        narrowest = min((one.configuration.head_dim for one in fitting), default=0)
        found += [one for one in fitting if one.configuration.head_dim == narrowest]
    return found


def row(facts: KernelFacts) -> KernelRow:
    """A kernel's facts as figures."""
    loop = facts.loop or Mix(0)
    return KernelRow(
        tool="static",
        name=facts.kernel,
        figures={
            "target": facts.target,
            "configuration": facts.configuration,
            "registers": facts.registers,
            "spilled_bytes": facts.stack_bytes,
            "shared_bytes": facts.shared_bytes,
            "occupancy_share": facts.occupancy,
            "loop_instructions": loop.instructions,
            "loop_matrix_instructions": loop.matrix_total,
            "loop_exponentials": loop.exponentials,
            "loop_loads": sum(loop.loads.values()),
            "loop_stores": sum(loop.stores.values()),
        },
    )


def hot_lines(shipped: Shipped) -> list[Line]:
    """Lines of the source that the hottest loop of each kernel comes from; run where kernels are not interpreted."""
    member = implementations.get(shipped.implementation)
    assert isinstance(member, Precompiled), "chosen among those that are"
    found = []
    for source in member.kernel_sources(shipped.configuration.name):
        assembly, metadata = compile_source(source)
        counts = count_lines(lined(assembly))
        found += [
            (str(metadata.name), Path(file).name, line, getline(file, line).strip(), count)
            for (file, line), count in counts.most_common()
        ]
    return found


def count_lines(text: str) -> Counter[tuple[str, int]]:
    """Instructions of the hottest loop by file and line, from a disassembly that tells them."""
    code = read_sass(text)
    loop = {id(one) for one in hot_loop(code) or ()}
    counts: Counter[tuple[str, int]] = Counter()
    place, position = ("unknown", 0), 0
    for line in text.splitlines():
        if mark := _MARK.match(line):
            place = (mark["file"], int(mark["line"]))
        elif read_sass(line).instructions:
            counts[place] += id(code.instructions[position]) in loop
            position += 1
    return +counts


def lines_text(lines: Sequence[Line], target: str) -> str:
    """The table of lines, in Markdown."""
    rows = [
        f"| {kernel} | {file}:{line} | `{text.replace('|', chr(92) + '|')}` | {count} |"
        for kernel, file, line, text, count in lines
    ]
    head = [f"Instructions of the hottest loop by line of source, compiled for {target}.", ""]
    return "\n".join([*head, "| kernel | source | line | instructions |", "|---|---|---|---:|", *rows, ""])


def _enter() -> None:
    """In the process that compiles, before anything is imported."""
    end_with_parent()
    os.environ["TRITON_INTERPRET"] = "0"


def _target(device: str) -> str:
    if device != "cuda":
        return TARGET
    import torch

    major, _ = torch.cuda.get_device_capability()
    return "gfx942" if torch.version.hip else f"sm_{major}0"
