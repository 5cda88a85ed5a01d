"""The fastest implementation of the same problem in the same run, and what it does differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.analysis import PairedRatio, fastest, latency_summary, paired_ratio
from bench.digest import Digest
from bench.explanation._cell import Cell, Refusal, Sentence, Support, interval_text, time_support, undecided
from bench.record import Measurement, Record
from bench.standings import sound_measurement
from bench.units import format_bytes, significant

TOPIC = "the best on this problem"
MOST_UNKNOWN = 0.05
"""Share of the time of all stages whose bytes are not known, up to which the sum of the others is told."""
DIFFERENT = 0.05
"""Workspaces that differ by less, over the larger one, are not a difference."""


def best(cell: Cell) -> Iterator[Sentence | Refusal]:
    """Who is fastest, by how much, and how the two differ in memory and operators."""
    cells = dict(cell.rivals)
    own = sound_measurement(cell.record)
    if cell.time is not None and own is not None:
        cells[cell.name] = own
    if not cells or (len(cells) == 1 and cell.name in cells):
        yield Refusal(TOPIC, "the run has no sound time of another implementation on this problem")
        return
    medians = {name: latency_summary(measured).median_ms for name, measured in cells.items()}
    name, clear = fastest(medians, lambda one, other: paired_ratio(cells[one], cells[other]))
    if cell.name not in cells:
        measured = cell.of(name)
        text = f"{name} has a time on this problem, {interval_text(latency_summary(cells[name]))}"
        also = f", the fastest of {len(cells)}" if len(cells) > 1 and clear else ""
        yield Sentence(TOPIC, f"{text}{also}.", (time_support(measured, f"record of {name}"),))
        return
    if name == cell.name:
        yield _ahead(cell, cells, medians, clear)
        return
    yield _behind(cell, cells, name, clear)
    yield from _memory(cell, name)
    yield from _operators(cell.record, cell.of(name))
    yield from _profiles(cell, name)


def _ahead(cell: Cell, cells: dict[str, Measurement], medians: dict[str, float], clear: bool) -> Sentence:
    """The cell is fastest, or seems to be."""
    pairs = {name: paired_ratio(cells[name], cells[cell.name]) for name in cells if name != cell.name}
    second = min(pairs, key=medians.__getitem__)
    told = _told(pairs[second], medians[second] / medians[cell.name])
    support = _pair_support(cell, second, told)
    next_one = f"the next, {second}, takes {told} its time"
    if clear and _decided(pairs[second]):
        return Sentence(TOPIC, f"It is the fastest of {len(cells)}: {next_one}.", support)
    doubtful = ", ".join(name for name, pair in pairs.items() if not _decided(pair))
    text = f"It has the least median of {len(cells)}, but is not told apart from {doubtful}: {next_one}."
    return undecided(TOPIC, text, support)


def _behind(cell: Cell, cells: dict[str, Measurement], name: str, clear: bool) -> Sentence:
    """Another one is fastest, or seems to be."""
    pair = paired_ratio(cells[cell.name], cells[name])
    own, other = (latency_summary(cells[one]).median_ms for one in (cell.name, name))
    told = f"this one takes {_told(pair, own / other)} its time"
    support = _pair_support(cell, name, _told(pair, own / other))
    if not _decided(pair):
        return undecided(TOPIC, f"{name} may be the fastest of {len(cells)}, but is not told apart: {told}.", support)
    if clear:
        return Sentence(TOPIC, f"{name} is the fastest of {len(cells)}: {told}.", support)
    return Sentence(TOPIC, f"{name} is faster, if perhaps not the fastest of {len(cells)}: {told}.", support)


def _decided(pair: PairedRatio | None) -> bool:
    """Whether the first one of a pair is slower beyond doubt."""
    return pair is not None and pair.lo > 1 and pair.verdict in (None, "REGRESSED")


def _memory(cell: Cell, name: str) -> Iterator[Sentence]:
    """The difference of their workspaces and mask tensors, in score matrices as well."""
    measured = cell.record.measurement, cell.of(name).measurement
    own, other = (None if one is None else one.memory for one in measured)
    if own is None or other is None:
        return
    problem = cell.record.problem
    matrix, forward = problem.all_pairs * problem.element_bytes, problem.direction == "fwd"
    sizes = (other.workspace_bytes, own.workspace_bytes)
    support = (
        Support(f"record of {name}", "measurement.memory.workspace_bytes", sizes[0]),
        Support("record", "measurement.memory.workspace_bytes", sizes[1]),
    )
    if abs(sizes[0] - sizes[1]) > DIFFERENT * max(sizes):
        here, there = (f"{format_bytes(size)} ({significant(size / matrix)} score matrices)" for size in sizes)
        never = f": {name} never holds all scores" if sizes[0] < matrix <= sizes[1] and forward else ""
        yield Sentence(TOPIC, f"{name} works in {here}, this one in {there}{never}.", support)
    if own.mask_bytes != other.mask_bytes:
        text = f"{name} has {format_bytes(other.mask_bytes)} of mask tensors, this one {format_bytes(own.mask_bytes)}."
        masks = (Support(f"record of {name}", "measurement.memory.mask_bytes", other.mask_bytes),)
        yield Sentence(TOPIC, text, (*masks, Support("record", "measurement.memory.mask_bytes", own.mask_bytes)))


def _operators(own: Record, other: Record) -> Iterator[Sentence | Refusal]:
    """What each dispatched in its verified call."""
    ran = [() if one.agreement is None else one.agreement.ran for one in (own, other)]
    if not all(ran):
        names = [one.implementation for one, seen in zip((own, other), ran, strict=True) if not seen]
        yield Refusal(TOPIC, f"the operators of {' and '.join(names)} are not known (agreement.ran is empty)")
        return
    if set(ran[0]) != set(ran[1]):
        text = f"{other.implementation} dispatches {', '.join(ran[1])}; this one {', '.join(ran[0])}."
        support = (Support(f"record of {other.implementation}", "agreement.ran", ", ".join(ran[1])),)
        yield Sentence(TOPIC, text, (*support, Support("record", "agreement.ran", ", ".join(ran[0]))))


def _profiles(cell: Cell, name: str) -> Iterator[Sentence | Refusal]:
    """How much the operators of each read and write, and how many there are; only where both were profiled."""
    other = cell.others.get(name)
    if cell.digest is None or other is None:
        if cell.digest is not None or other is not None:
            missing = name if other is None else cell.name
            yield Refusal(TOPIC, f"what their profiles differ in is not known: there is none of {missing}")
        return
    counts = [
        (digest.operators, "operators") if digest.launches is None else (digest.launches, "GPU kernels")
        for digest in (cell.digest, other)
    ]
    moved = [_moved_bytes(digest) for digest in (cell.digest, other)]
    if None not in moved:
        here, there = (format_bytes(count) for count in moved)
        text = f"By their profiles, operators read and write {here} here and {there} there, counting each operand once."
        yield Sentence(TOPIC, text, _both("sum of stages[].moved_bytes", moved, name))
    if None not in (counts[0][0], counts[1][0]) and counts[0][1] == counts[1][1]:
        text = f"A call of this one is {counts[0][0]} {counts[0][1]}, one of {name} {counts[1][0]}."
        yield Sentence(TOPIC, text, _both(counts[0][1], [count for count, _ in counts], name))


def _moved_bytes(digest: Digest) -> int | None:
    """Bytes that the operators read and write; None where stages that take time have none."""
    if sum(stage.share for stage in digest.stages if stage.moved_bytes is None) > MOST_UNKNOWN:
        return None
    known = [stage.moved_bytes for stage in digest.stages if stage.moved_bytes is not None]
    return sum(known) if known else None


def _both(field: str, values: Sequence[int | None], name: str) -> tuple[Support, ...]:
    return Support("digest", field, values[0]), Support(f"digest of {name}", field, values[1])


def _told(pair: PairedRatio | None, ratio: float) -> str:
    """The paired ratio with its interval, or that of medians."""
    return (
        f"{pair.text} ({pair.scope})" if pair is not None else f"{significant(ratio)}x (medians; no round timed both)"
    )


def _pair_support(cell: Cell, other: str, told: str) -> tuple[Support, ...]:
    return (
        time_support(cell.record),
        time_support(cell.of(other), f"record of {other}"),
        Support("run", f"paired ratio with {other}", told),
    )
