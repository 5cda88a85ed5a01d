"""Facts of kernels as rows for people and for programs, and what their columns mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.kernel_lock import KernelFacts
from bench.machine_code import Mix
from bench.occupancy import LIMITS

NOTES = (
    "launch: what a program works on, its warps and the stages of its pipeline. spilled: bytes of a thread's stack. "
    "resident: blocks that a multiprocessor holds at once, and their share of the warps that it can hold; limited by: "
    "what keeps it from holding more.",
    "matrix/exp, matrix/load, local: matrix instructions per exponential and per load, and accesses of local memory, "
    "in the hottest loop, the innermost that multiplies. Each instruction of the text counts once, so that ratios "
    "compare kernels only where their matrix instructions have one shape: HGMMA.64x128x16 does in four warps what "
    "takes each of them 16 times HMMA.16816.",
    "loads and stores: by memory and bytes that one instruction moves for a thread; async goes from global to shared "
    "memory past registers.",
)
"""What the columns mean."""


def short_rows(facts: Sequence[KernelFacts]) -> list[dict[str, Any]]:
    """A row for each kernel with what fits a terminal."""
    return [
        {
            "configuration": one.configuration,
            "kernel": one.kernel,
            "launch": f"{one.blocks} {one.num_warps}w {one.num_stages}s",
            "registers": one.registers,
            "spilled": one.stack_bytes,
            "shared KB": one.shared_bytes / 1024,
            "resident": f"{one.blocks_per_sm}, {100 * one.occupancy:.3g} %",
            "limited by": one.limited_by,
            "matrix": counted(one.mix.matrix),
            "matrix/exp": None if one.loop is None else one.loop.per_exponential,
            "matrix/load": None if one.loop is None else one.loop.per_load,
            "local": None if one.loop is None else one.loop.local_accesses,
        }
        for one in facts
    ]


def long_rows(facts: Sequence[KernelFacts]) -> list[dict[str, Any]]:
    """The same with loads and stores by width, size of the code and time of the compilation."""
    return [
        row
        | {
            "loads": counted(one.mix.loads),
            "stores": counted(one.mix.stores),
            "loop": None if one.loop is None else one.loop.instructions,
            "loop loads": None if one.loop is None else counted(one.loop.loads),
            "code KB": one.code_bytes / 1024,
            "compile s": one.compile_s,
        }
        for row, one in zip(short_rows(facts), facts, strict=True)
    ]


def full_rows(facts: Sequence[KernelFacts], *, flat: bool) -> list[dict[str, Any]]:
    """Everything under stable names, first what ``check --kernels`` reads; ``flat`` puts counts into words, for formats
    whose cells are text."""
    rows = []
    for one in facts:
        row: dict[str, Any] = {
            "kernel": one.kernel,
            "implementation": one.implementation,
            "configuration": one.configuration,
            "arch": one.target,
            "registers": one.registers,
            "spill_bytes": one.stack_bytes,
            "shared_bytes": one.shared_bytes,
        }
        shown = (*row, "target", "stack_bytes", "mix", "loop")
        row |= {name: value for name, value in asdict(one).items() if name not in shown}
        limits = LIMITS[one.target]
        row |= {"shared_limit_bytes": limits.shared_bytes_per_block, "registers_limit": limits.registers_per_thread}
        row |= _mix("", one.mix, flat) | _mix("loop_", one.loop, flat)
        rows.append(row)
    return rows


def explanations(targets: Iterable[str]) -> list[str]:
    """What the columns mean, and the limits of the targets with their sources."""
    return [*NOTES, *(f"{name}: {LIMITS[name].explained()}" for name in targets)]


def counted(counts: Mapping[str, int]) -> str | None:
    """``32 HGMMA.64x128x16``; None where there is nothing."""
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or None


def _mix(prefix: str, mix: Mix | None, flat: bool) -> dict[str, Any]:
    names = (
        *("instructions", "matrix", "exponentials", "loads", "stores", "local_accesses"),
        *("per_exponential", "per_load"),
    )
    values = {name: None if mix is None else getattr(mix, name) for name in names}
    row = {f"{prefix}{name}": counted(v) if flat and isinstance(v, Mapping) else v for name, v in values.items()}
    for name in ("per_exponential", "per_load"):
        row[f"{prefix}matrix_{name}"] = row.pop(f"{prefix}{name}")
    return row
