"""What a run finds out beside its cells: pairs of arms, demonstrations. One line of evidence each.

The runner carries out inquiries after its cells, one by one; one that fails costs only itself, one that an earlier run
answered is taken over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from bench.case import Arm, Pair
from bench.demonstrations import demonstrations
from bench.errors import BenchError
from bench.evidence import Evidence
from bench.fresh_call import in_fresh_process
from bench.paired import compare_pairs
from bench.registry import load_file
from bench.timing import FULL

PLAN = replace(
    FULL,
    warmup_calls=2,
    warmup_ns=30_000_000,
    longest_warmup_ns=300_000_000,
    arm_budget_ns=100_000_000,
    min_rounds=10,
    max_rounds=200,
    isolated_blocks=0,
)
"""Each process of a pair: a third of what a verdict on a regression takes, less for calls beyond 10 ms."""
LOOKS = (6, 12)
"""Processes of a pair; more of them where six leave it UNCLEAR."""

RIGHT = ("ok", "verified")
"""Statuses of cells that were shown to be right."""
NOT_MEASURED = "not measured"
"""In place of the status of a cell that this run did not get to."""

Answer = list[dict[str, Any]]


@dataclass(frozen=True)
class Inquiry:
    """One thing to find out."""

    kind: Literal["pair", "demonstration"]
    name: str
    carry_out: Callable[[Path], Answer]
    """Takes a scratch folder and gives the rows of the evidence."""
    arms: tuple[Arm, ...] = ()
    """What it times; not carried out unless each was shown to compute the right function."""
    quick: bool = False
    """Whether only a part of the rows is asked for."""


def pair_inquiry(pair: Pair, device: str, allocator: str, load: tuple[Path, ...] = ()) -> Inquiry:
    """Compare the arms of ``pair`` in fresh processes."""

    def carry_out(folder: Path) -> Answer:
        result = compare_pairs(
            [pair], folder=folder, seed=0, plan=PLAN, looks=LOOKS, device=device, allocator=allocator, load=load
        )[pair.name]
        if result.error is not None or not result.samples:
            raise BenchError(result.error or "no process measured the pair")
        return [
            {"log_ratio": one.estimate, "a_ms": median(one.ns["a"]) / one.calls / 1e6, "rounds": len(one.ns["a"])}
            for one in result.samples
        ]

    return Inquiry("pair", pair.name, carry_out, (pair.a, pair.b))


def demonstration_inquiry(name: str, quick: bool, allocator: str, load: tuple[Path, ...] = ()) -> Inquiry:
    """Carry out a demonstration in a fresh process."""

    def carry_out(folder: Path) -> Answer:
        log = folder / f"{name}.log"
        rows: Answer = in_fresh_process(demonstrate, name, quick, load, log=log, allocator=allocator)
        return rows

    return Inquiry("demonstration", name, carry_out, quick=quick)


def demonstrate(name: str, quick: bool, load: tuple[Path, ...]) -> Answer:
    """In a worker: the rows of a demonstration, with the unpackaged implementations of ``load`` at hand."""
    for path in load:
        load_file(path)
    return demonstrations.get(name)(quick)


def pursue(
    inquiries: Sequence[Inquiry],
    earlier: Sequence[Evidence],
    folder: Path,
    status: Callable[[Arm], str],
    stopped: Callable[[], bool],
    write: Callable[[Evidence], None],
    say: Callable[[str], None],
) -> None:
    """Write one line of evidence for each inquiry, in their order.

    Args:
        inquiries: with different names within each kind.
        earlier: evidence of earlier runs, newest first; what has rows is taken over, unless it is a part and the whole
            is asked for, or an arm of it has been found wrong since.
        folder: scratch.
        status: of the cell of an arm.
        stopped: whether to start no further one.
        write: takes each line.
        say: is told what is going on.
    """
    kept: dict[tuple[str, str, bool], Evidence] = {}
    for one in earlier:
        if one.rows:
            kept.setdefault((one.kind, one.name, one.quick), one)
    for number, inquiry in enumerate(inquiries, start=1):
        found = {arm: status(arm) for arm in inquiry.arms}
        wrong = set(found.values()) - {*RIGHT, NOT_MEASURED}
        known = kept.get((inquiry.kind, inquiry.name, False)) or kept.get((inquiry.kind, inquiry.name, inquiry.quick))
        if known is not None and not wrong:
            write(known)
            continue
        if stopped():
            return
        doubts = [
            f"{arm.implementation} is {found[arm]} on {arm.problem.key}" for arm in found if found[arm] not in RIGHT
        ]
        if doubts:
            write(_evidence(inquiry, None, "; ".join(doubts), 0.0))
            continue
        say(f"{inquiry.kind} {inquiry.name} ({number} of {len(inquiries)})")
        write(_answered(inquiry, folder))


def _answered(inquiry: Inquiry, folder: Path) -> Evidence:
    """Carry out one inquiry; a failure is its reason."""
    began, rows, reason = time.monotonic(), None, None
    try:
        rows = tuple(inquiry.carry_out(folder)) or None
        reason = None if rows else "it gave no rows"
    except (BenchError, RuntimeError, MemoryError, OSError, EOFError) as error:
        reason = f"{type(error).__name__}: {error}"
    seconds = round(time.monotonic() - began, 3)
    return _evidence(inquiry, rows, reason, seconds)


def _evidence(
    inquiry: Inquiry, rows: tuple[dict[str, Any], ...] | None, reason: str | None, seconds: float
) -> Evidence:
    return Evidence(
        kind=inquiry.kind, name=inquiry.name, rows=rows, reason=reason, seconds=seconds, quick=inquiry.quick
    )
