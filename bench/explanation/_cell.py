"""One cell of a run with what stands beside it: what every topic of an explanation reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from bench.analysis import LatencySummary, latency_summary
from bench.digest import Digest
from bench.header import Ceilings
from bench.record import Measurement, Record
from bench.results import Run
from bench.standings import sound_measurement
from bench.units import format_ms, significant

WORTHLESS = ("impossible", "clocks_disagree")
"""Flags after which a time explains nothing: it cannot be, or nobody knows which clock is right."""
SLOWED = ("throttled", "contended")
"""Flags of a call that took longer than it needs. A limit that takes half of such a time takes half of the true one as
well; that something else takes the rest does not follow."""
DOUBTED = (*SLOWED, "not_steady")
"""Flags after which a time is compared with no other one."""
STRETCHED = 1.25
"""A call that takes so many times longer under the profiler is stretched by it, or was disturbed meanwhile."""
ANOTHER_TIME = 1.5
"""A call that takes so many times longer, or less, when it is profiled is not in the state that the run timed."""


@dataclass(frozen=True)
class Support:
    """A number that a sentence rests on."""

    source: str
    """Where it lies: ``record``, ``ceilings``, ``digest``, ``run``, or the record of a neighbour, by its name."""
    field: str
    """Name of the field, or the formula in names of fields."""
    value: float | int | str | None
    """What it is."""


@dataclass(frozen=True)
class Sentence:
    """One statement, with the numbers it follows from."""

    topic: str
    text: str
    support: tuple[Support, ...]
    certain: bool = True
    """False where intervals overlap, or nothing explains enough: the text says what is open."""


def undecided(topic: str, text: str, support: tuple[Support, ...]) -> Sentence:
    """A sentence on what the data leave open."""
    return Sentence(topic, f"INCONCLUSIVE: {text[0].lower()}{text[1:]}", support, certain=False)


@dataclass(frozen=True)
class Refusal:
    """A statement that is not made, because what it needs is not there."""

    topic: str
    reason: str
    """What is missing, and how to get it where there is a way."""


Topic = Callable[["Cell"], Iterator[Sentence | Refusal]]
"""What is said of a cell under one heading. It yields sentences whose data are there, and a refusal for the others."""


@dataclass(frozen=True)
class Cell:
    """A record among those of its run."""

    run: Run
    record: Record
    digest: Digest | None
    """Its profile, made on the same device with the same versions; None where there is none."""
    digest_reason: str | None = None
    """Why there is none."""
    others: Mapping[str, Digest] = field(default_factory=dict)
    """Profiles of other implementations on the same problem, by name."""

    @property
    def name(self) -> str:
        """The implementation."""
        return self.record.implementation

    @property
    def ceilings(self) -> Ceilings | None:
        """What the machine of the run can do."""
        return self.run.header.ceilings

    @cached_property
    def time(self) -> LatencySummary | None:
        """Latency; None where the cell has no time that explains anything."""
        return None if self.no_time else _summary(self.record)

    @property
    def no_time(self) -> str | None:
        """Why :attr:`time` is None; None where it is not."""
        if self.record.measurement is None:
            return f"the cell has no time: its status is {self.record.status}"
        for flag in self.record.flags:
            if flag.name in WORTHLESS:
                return f"its time explains nothing: it is flagged {flag.name} ({flag.reason})"
        return "the clock read 0" if _summary(self.record) is None else None

    @property
    def slowed(self) -> str | None:
        """The flag that says that the call was slower than it is, with its reason; None without one."""
        return _flag(self.record, SLOWED)

    @property
    def doubted(self) -> str | None:
        """The flag after which the time is compared with no neighbour, with its reason; None without one."""
        return _flag(self.record, DOUBTED)

    @property
    def profile_doubt(self) -> str | None:
        """Why the profile may not speak of the time of this record; None where it does, or where there is none."""
        digest, time = self.digest, self.time
        if digest is None or digest.unprofiled_ms is None:
            return None
        plain_ms = digest.unprofiled_ms
        if digest.total_ms is not None and digest.total_ms > STRETCHED * plain_ms:
            return f"a call took {format_ms(digest.total_ms)} under the profiler, and {format_ms(plain_ms)} without"
        if time is not None and not time.lo_ms / ANOTHER_TIME <= plain_ms <= time.hi_ms * ANOTHER_TIME:
            return f"a call took {format_ms(plain_ms)} when it was profiled, and {interval_text(time)} in the run"
        return None

    @property
    def touched_bytes(self) -> int | None:
        """Bytes that the call works on: inputs, results and workspace; None where memory was not measured."""
        return touched_bytes(self.record)

    @cached_property
    def lengths(self) -> list[Record]:
        """Cells of the same implementation that differ in length alone, this one left out, by work."""
        own = _apart_from_length(self.record)
        found = [
            other
            for other in self.run.records
            if other.implementation == self.name
            and other.device == self.record.device
            and other.problem != self.record.problem
            and _apart_from_length(other) == own
        ]
        return sorted(found, key=lambda other: other.flop)

    @cached_property
    def ladder(self) -> list[Record]:
        """Those of :attr:`lengths` whose times can be compared with."""
        return [other for other in self.lengths if usable(other)]

    @cached_property
    def rivals(self) -> dict[str, Measurement]:
        """Measurements of the other implementations on the same problem and device whose times explain anything."""
        return {
            other.implementation: measured
            for other in self.run.records
            if other.problem == self.record.problem
            and other.device == self.record.device
            and other.implementation != self.name
            and _flag(other, WORTHLESS) is None
            and (measured := sound_measurement(other)) is not None
            and latency_summary(measured).median_ms > 0
        }

    def of(self, implementation: str) -> Record:
        """The record of another implementation on the same problem."""
        return next(
            other
            for other in self.run.records
            if other.problem == self.record.problem and other.implementation == implementation
        )


def _flag(record: Record, names: Collection[str]) -> str | None:
    """The first flag of these names, with its reason."""
    return next((f"{flag.name} ({flag.reason})" for flag in record.flags if flag.name in names), None)


def usable(record: Record) -> bool:
    """Whether the time of a neighbour can be compared with."""
    return _summary(record) is not None and not any(flag.name in (*WORTHLESS, *DOUBTED) for flag in record.flags)


def touched_bytes(record: Record) -> int | None:
    """Bytes that a call works on; None where its memory was not measured."""
    memory = None if record.measurement is None else record.measurement.memory
    return None if memory is None else record.problem.least_bytes + memory.workspace_bytes


def timed(record: Record) -> LatencySummary:
    """Latency of a record that is known to have one."""
    assert record.measurement is not None, "sound cells are measured"
    return latency_summary(record.measurement)


def time_support(record: Record, source: str = "record") -> Support:
    """The latency of a record as support."""
    return Support(source, "measurement.samples_ns (median per call)", interval_text(timed(record)))


def interval_text(summary: LatencySummary) -> str:
    """``39.9 ms [39.2, 40.6]``, all three in the unit that is shown."""
    unit, factor = ("s", 1e-3) if format_ms(summary.median_ms).endswith(" s") else ("ms", 1.0)
    middle, low, high = (significant(ms * factor) for ms in (summary.median_ms, summary.lo_ms, summary.hi_ms))
    return f"{middle} {unit} [{low}, {high}]"


def percent(share: float) -> str:
    """``62%``, ``0.31%``: two significant digits."""
    return f"{significant(100 * share, 2 if share < 0.995 else 3)}%"


def length_text(record: Record) -> str:
    """``T=1024``, or both lengths where they differ."""
    problem = record.problem
    square = problem.seqlen_q == problem.seqlen_k
    return f"T={problem.seqlen_k}" if square else f"Tq={problem.seqlen_q}, Tk={problem.seqlen_k}"


def _summary(record: Record) -> LatencySummary | None:
    """The latency, where there is one above 0."""
    if record.measurement is None:
        return None
    summary = latency_summary(record.measurement)
    return summary if summary.lo_ms > 0 else None


def _apart_from_length(record: Record) -> object:
    """What neighbours in length have in common: for a square problem that they are square, else the queries."""
    problem = record.problem
    lengths = "square" if problem.seqlen_q == problem.seqlen_k else problem.seqlen_q
    return lengths, problem.model_copy(update={"seqlen_q": 1, "seqlen_k": 1}).model_dump(mode="json")
