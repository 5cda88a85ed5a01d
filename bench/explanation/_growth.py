"""How the cell stands among neighbours: shorter ones, those within the cache, and the one that sees every pair."""

from __future__ import annotations

from collections.abc import Iterator

from bench.explanation._cell import (
    Cell,
    Refusal,
    Sentence,
    Support,
    length_text,
    percent,
    time_support,
    timed,
    touched_bytes,
    undecided,
    usable,
)
from bench.explanation._limits import calling_share, neighbour, place, place_support
from bench.record import Record
from bench.units import format_bytes, significant

TOPIC = "growth"
MOST_CALLING = 0.25
"""Share of what does not grow up to which it cannot be why a mask saves no time."""


def growth(cell: Cell) -> Iterator[Sentence | Refusal]:
    """Whether time grows with the work, and whether a pair costs more beyond the cache."""
    if cell.time is None:
        yield Refusal(TOPIC, cell.no_time or "")
        return
    if cell.doubted is not None:
        yield Refusal(TOPIC, f"its time is compared with no other one: it is flagged {cell.doubted}")
        return
    other = neighbour(cell)
    if other is None:
        yield Refusal(TOPIC, f"the run has no cell of {cell.name} of another length with half or twice the FLOP")
    else:
        yield _with_work(cell, other)
    yield from _beyond_cache(cell)
    yield from _hidden_pairs(cell)


def _with_work(cell: Cell, other: Record) -> Sentence:
    """Time and FLOP from the shorter to the longer one."""
    small, large = sorted((cell.record, other), key=lambda record: record.flop)
    low, high, work = timed(small), timed(large), large.flop / small.flop
    least, most = high.lo_ms / low.hi_ms, high.hi_ms / low.lo_ms
    source = f"record at {length_text(large)}"
    support = (
        time_support(small, f"record at {length_text(small)}"),
        time_support(large, source),
        Support(source, f"flop over that at {length_text(small)}", round(work, 6)),
    )
    between = f"From {length_text(small)} to {length_text(large)} the FLOP grow {significant(work)}-fold"
    told = f"{significant(high.median_ms / low.median_ms)}x [{significant(least)}, {significant(most)}]"
    if least <= 1 <= most:
        return undecided(
            TOPIC, f"{between}; whether the time grows at all is open, the intervals overlap: {told}.", support
        )
    if most < 1:
        return Sentence(TOPIC, f"{between}, and the time falls: {told}.", support)
    how = "as they do, within its interval"
    if not least <= work <= most:
        how = "faster than they" if least > work else "less than they"
    return Sentence(TOPIC, f"{between}, and the time grows {how}: {told}.", support)


def _beyond_cache(cell: Cell) -> Iterator[Sentence]:
    """What a pair costs here, over what it costs at the longest length whose data fit into the last cache."""
    size = None if cell.ceilings is None else cell.ceilings.cache_bytes
    pairs = cell.record.attended_pairs
    if place(cell) != "bandwidth" or cell.time is None or not pairs or size is None:
        return
    inside = [
        other
        for other in cell.ladder
        if 0 < other.attended_pairs < pairs and (touched := touched_bytes(other)) is not None and touched <= size
    ]
    if not inside:
        return
    other = inside[-1]
    fewer, beside = other.attended_pairs / pairs, timed(other)
    low, high = cell.time.lo_ms / beside.hi_ms * fewer, cell.time.hi_ms / beside.lo_ms * fewer
    support = (time_support(cell.record), time_support(other, f"record at {length_text(other)}"), *place_support(cell))
    middle = cell.time.median_ms / beside.median_ms * fewer
    told = (
        f"{significant(middle)}x [{significant(low)}, {significant(high)}] what one costs at {length_text(other)}. "
        f"There the {format_bytes(touched_bytes(other))} that a call touches fit into the last cache of "
        f"{format_bytes(size)}, "
        f"here it touches {format_bytes(cell.touched_bytes)}"
    )
    if low <= 1 <= high:
        yield undecided(TOPIC, f"Whether a pair costs more here is open, the intervals overlap: {told}.", support)
    else:
        yield Sentence(TOPIC, f"A pair costs {told}.", support)


def _hidden_pairs(cell: Cell) -> Iterator[Sentence]:
    """Under a mask: whether the pairs that it hides cost time, by the cell that sees all of them."""
    record, time = cell.record, cell.time
    seen = record.attended_pairs / record.problem.all_pairs
    other = _unmasked(cell)
    if time is None or other is None or not 0 < seen < 1:
        return
    full, middle = timed(other), (1 + seen) / 2
    low, high = time.lo_ms / full.hi_ms, time.hi_ms / full.lo_ms
    support = (
        time_support(record),
        time_support(other, "record with mask full"),
        Support("record", "attended_pairs / problem.all_pairs", round(seen, 6)),
    )
    text = (
        f"It sees {percent(seen)} of the pairs and takes {percent(time.median_ms / full.median_ms)} [{percent(low)}, "
        f"{percent(high)}] of its time with mask full"
    )
    # What does not grow with the work takes as long under either mask, so that it looks as if hidden pairs cost time.
    calling = calling_share(cell, time)
    if high < middle:
        yield Sentence(TOPIC, f"{text}: most hidden pairs cost nothing.", support)
    elif low > middle and not isinstance(calling, str) and calling.hi <= MOST_CALLING:
        yield Sentence(
            TOPIC,
            f"{text}: hidden pairs cost nearly as much as visible ones.",
            tuple(dict.fromkeys(support + calling.support)),
        )
    else:
        yield undecided(TOPIC, f"{text}: whether hidden pairs cost time is open.", support)


def _unmasked(cell: Cell) -> Record | None:
    """The cell of the same implementation that sees every pair of the same sizes, if its time can be used."""
    wanted = cell.record.problem.model_dump(mode="json") | {"mask": "full"}
    for other in cell.run.records:
        same = other.implementation == cell.name and other.device == cell.record.device and usable(other)
        if same and other.problem.model_dump(mode="json") == wanted:
            return other
    return None
