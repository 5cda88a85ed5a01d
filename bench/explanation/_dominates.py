"""What the time and the memory of the cell go to: by its profile, and by what its record bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from bench.analysis import bandwidth_roof
from bench.digest import Digest, Stage
from bench.explanation._cell import Cell, Refusal, Sentence, Support, percent, time_support, undecided
from bench.explanation._limits import BEATEN
from bench.units import format_bytes, format_ms, ms_to_s

T = TypeVar("T")

TOPIC = "what dominates"
PARTS = 3
"""Stages and owners that are named."""
ALL_OF_IT = 0.9
"""No further part is named once these take so much."""


def dominates(cell: Cell) -> Iterator[Sentence | Refusal]:
    """Stages and owners of the peak from the profile; without one, what the workspace would take."""
    if cell.digest is None:
        yield Refusal(TOPIC, cell.digest_reason or "there is no profile of this cell")
    else:
        yield from _stages(cell.digest, cell.profile_doubt)
        yield from _calls(cell.digest)
        yield from _owners(cell, cell.digest)
    yield from _workspace(cell)


def _stages(digest: Digest, doubt: str | None) -> Iterator[Sentence | Refusal]:
    if digest.total_ms is None or not digest.stages:
        yield Refusal(TOPIC, "the profile has no stages: torch's profiler did not run")
        return
    named = _leading([(stage.share, stage) for stage in digest.stages])
    told = "; ".join(f"{stage.label} {percent(stage.share)}{_roofed(stage)}" for stage in named)
    state = "" if doubt is None else f" It may be another time: {doubt}."
    yield Sentence(
        TOPIC,
        f"By its profile, its time goes to {told}.{state}",
        (
            *(Support("digest", f"stages[{stage.label}].time_ms", stage.time_ms) for stage in named),
            Support("digest", "total_ms", digest.total_ms),
        ),
    )


def _roofed(stage: Stage) -> str:
    """``(31% of the bandwidth roof)``, where there is a roof."""
    if stage.roof in (None, "overhead"):
        return ""
    if stage.roof_fraction is not None and stage.roof_fraction > BEATEN:
        return f" (beats the {stage.roof} roof, which was measured too low)"
    of = "near" if stage.roof_fraction is None else f"{percent(stage.roof_fraction)} of"
    return f" ({of} the {stage.roof} roof)"


def _calls(digest: Digest) -> Iterator[Sentence]:
    """How many things a call starts."""
    for count, field, what in (
        (digest.operators, "operators", "operators"),
        (digest.launches, "launches", "GPU kernels"),
    ):
        if count is not None:
            told = what.removesuffix("s") if count == 1 else what
            yield Sentence(TOPIC, f"A call is {count} {told}.", (Support("digest", field, count),))


def _owners(cell: Cell, digest: Digest) -> Iterator[Sentence]:
    """Who owns the peak; only where the profile's peak is the record's."""
    timeline, measured = digest.memory, cell.record.measurement
    if timeline is None or not timeline.peak_bytes:
        return
    named = _leading([(owner.peak_bytes / timeline.peak_bytes, owner) for owner in timeline.owners])
    told = ", ".join(f"{owner.name} {percent(owner.peak_bytes / timeline.peak_bytes)}" for owner in named)
    support = [Support("digest", f"memory.owners[{owner.name}].peak_bytes", owner.peak_bytes) for owner in named]
    support.append(Support("digest", "memory.peak_bytes", timeline.peak_bytes))
    if measured is not None and measured.memory is not None:
        support.append(Support("record", "measurement.memory.peak_bytes", measured.memory.peak_bytes))
        if measured.memory.peak_bytes != timeline.peak_bytes:
            both = f"{timeline.peak_bytes} B in the profile, {measured.memory.peak_bytes} B in the record"
            yield undecided(TOPIC, f"Who owns the peak is open, as it is another one: {both}.", tuple(support))
            return
    yield Sentence(TOPIC, f"Its peak of {format_bytes(timeline.peak_bytes)} is owned by {told}.", tuple(support))


def _workspace(cell: Cell) -> Iterator[Sentence]:
    """What passing over the workspace takes, were it done once each way. It is a condition, and said as one."""
    time, measured = cell.time, cell.record.measurement
    if time is None or cell.ceilings is None or measured is None or measured.memory is None:
        return
    workspace, touched = measured.memory.workspace_bytes, cell.touched_bytes
    if not workspace or touched is None:
        return
    bandwidth = bandwidth_roof(cell.ceilings, touched)
    least_ms = 2 * workspace / bandwidth * 1000
    share = [2 * workspace / bandwidth / ms_to_s(ms) for ms in (time.median_ms, time.hi_ms, time.lo_ms)]
    if share[0] >= 1:  # then not every byte of it is written and read
        return
    yield Sentence(
        TOPIC,
        f"Each time that its workspace of {format_bytes(workspace)} is written whole and read whole takes at least "
        f"{format_ms(least_ms)}, {percent(share[0])} [{percent(share[1])}, {percent(share[2])}] of its time.",
        (
            Support("record", "measurement.memory.workspace_bytes", workspace),
            Support("ceilings", f"bandwidth of {touched} B or more, bytes_per_s", bandwidth),
            time_support(cell.record),
        ),
    )


def _leading(parts: list[tuple[float, T]]) -> list[T]:
    """The largest parts, until they are nearly all."""
    named: list[T] = []
    covered = 0.0
    for share, part in sorted(parts, key=lambda item: -item[0]):
        if len(named) == PARTS or covered >= ALL_OF_IT:
            break
        named.append(part)
        covered += share
    return named
