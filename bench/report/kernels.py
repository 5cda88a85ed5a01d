"""What the shipped Triton kernels compiled to: the section of the page, out of ``kernels.lock.json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.kernel_lock import KernelFacts, present_lock, read_lock
from bench.kernel_table import NOTES, long_rows, short_rows
from bench.occupancy import LIMITS
from bench.report.field import Field

COMMAND = "attention-bench kernels"
"""Compiles what this section shows."""
NO_LOOP = "the kernel has no loop that multiplies"
NO_MATRIX = "no matrix instruction: products of float32 in full precision use none, and other kernels multiply nothing"
REASONS = {"matrix": NO_MATRIX, "matrix/exp": f"{NO_MATRIX}; or no exponential beside them", "matrix/load": NO_MATRIX}
NUMBERS = ("matrix/exp", "matrix/load", "local", "loop")
"""Columns of numbers that a kernel without a loop has none for."""
RESOURCES, MEMORY = "Resources and the hottest loop", "Loads, stores and code"
MEMORY_HEADS = ("configuration", "kernel", "loads", "stores", "loop loads", "loop", "code KB")


@dataclass(frozen=True)
class KernelTable:
    """One table of a target."""

    title: str
    heads: list[str]
    rows: list[list[Field]]


@dataclass(frozen=True)
class KernelSection:
    """The section of the page."""

    release: str
    """Version of Triton that compiled the kernels."""
    targets: list[tuple[str, str, list[KernelTable]]]
    """Name of a target, its limits in words, and its tables with a row for each kernel."""
    spills: str
    """In a sentence, which kernels spill."""
    notes: tuple[str, ...] = NOTES
    command: str = COMMAND


def kernel_section(path: Path | None = None) -> KernelSection | None:
    """The section, of the newest version of Triton in the lock; None where there is no lock or it is empty.

    Args:
        path: the lock; None takes that of the current folder or of the checkout.

    Raises:
        OutputError: if the file is none of ours.
    """
    path = path or present_lock()
    held = read_lock(path) if path is not None and path.exists() else {}
    lock = {release: facts for release, facts in held.items() if facts}
    if not lock:
        return None
    release = max(lock, key=lambda text: [int(part) for part in text.split("+")[0].split(".") if part.isdigit()])
    facts = sorted(lock[release].values(), key=_order)
    targets = [
        (target, limits.explained(), _tables(chosen))
        for target, limits in LIMITS.items()
        if (chosen := [one for one in facts if one.target == target])
    ]
    return KernelSection(release, targets, _spills(facts))


def _order(one: KernelFacts) -> tuple[bool, bool, str, int, str]:
    """Forward before backward, half precision before float32, narrow heads before wide ones."""
    family = one.configuration.removesuffix(f"-{one.head_dim}")
    return one.direction != "fwd", one.dtype == "float32", family, one.head_dim, one.kernel


def _tables(facts: Sequence[KernelFacts]) -> list[KernelTable]:
    rows = long_rows(facts)
    resources = list(short_rows(facts[:1])[0])
    return [
        KernelTable(title, list(heads), [[_field(row[head], head) for head in heads] for row in rows])
        for title, heads in ((RESOURCES, resources), (MEMORY, MEMORY_HEADS))
    ]


def _field(value: object, head: str) -> Field:
    """A cell of the table; a dash has a reason."""
    if isinstance(value, int | float):
        return Field(f"{value:,}" if isinstance(value, int) else f"{value:.4g}", value)
    if value is None:
        return Field("-", "", REASONS.get(head, NO_LOOP), number=head in NUMBERS)
    return Field(str(value), str(value), number=False)


def _spills(facts: Sequence[KernelFacts]) -> str:
    spilling = sorted(one.configuration for one in facts if one.stack_bytes)
    if not spilling:
        return f"None of {len(facts)} kernels spills a register."
    return f"{len(spilling)} of {len(facts)} kernels spill registers: {', '.join(spilling)}."
