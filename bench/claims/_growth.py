"""Ladders of sizes, and how time grows along them: what the claims on cost have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, prod
from statistics import linear_regression

from bench.analysis import process_medians_ms
from bench.claims import Case, Scope, Verdict
from bench.claims._beyond_cache import beyond_cache
from bench.claims._ladders import square
from bench.metrics import Row
from bench.plots import LADDER, Reading, grouped
from bench.problem import Problem
from bench.scaling import (
    MIN_FIT_LENGTHS,
    MIN_LENGTHS,
    MIN_SHARE,
    MIN_SPAN,
    TOLERANCE,
    TimeFit,
    fit_latencies,
)

NAIVE, FLASH = "naive", ("online_softmax", "sdpa_flash", "triton_flash")
"""Whose cost the theory speaks of: one that stores scores, and those that do not."""
MEASURED = ("naive", "online_softmax", "sdpa_flash")
"""Those of them that are timed on every device."""
GPU_ONLY = ("triton_flash",)
"""Those that on a CPU are only shown to be right."""
SHORT_LENGTH = 128
"""Up to here a call costs more than its pairs do, whatever a fit says."""
DOUBTED_SHARE = 0.25
"""A ladder with more of its cells disturbed by others refutes nothing."""
DISTURBED = frozenset({"contended", "throttled"})
"""Flags of cells whose time is not theirs alone."""

Medians = tuple[tuple[int, tuple[tuple[int, float], ...]], ...]
"""Size, and by process number the median latency in milliseconds."""

_CONSTANT = (*(name for name in LADDER if name != "shape"), "seqlen_q", "seqlen_k", "implementation")
"""Columns that are constant along a ladder, but for the sizes that its axis frees."""
_SIZES = {
    "batch_size": "B",
    "num_heads_q": "H",
    "seqlen_q": "T_q",
    "seqlen_k": "T_k",
    "head_dim": "d_k",
    "head_dim_v": "d_v",
}


@dataclass(frozen=True)
class Axis:
    """What grows along a ladder."""

    symbol: str
    """As in formulas."""
    expected: int
    """Exponent that the theory gives time."""
    factors: tuple[str, ...]
    """Columns whose product is the size."""
    free: tuple[str, ...]
    """Columns that differ along the ladder."""

    def size(self, row: Row) -> int:
        """Where on the axis a row lies."""
        return prod(int(row[name]) for name in self.factors)


LENGTH = Axis("T", 2, ("seqlen_q",), ("seqlen_q", "seqlen_k"))
"""As many queries as keys."""
LINEAR_AXES = (
    Axis("T_k", 1, ("seqlen_k",), ("seqlen_k",)),
    Axis("T_q", 1, ("seqlen_q",), ("seqlen_q",)),
    Axis("d_k", 1, ("head_dim",), ("head_dim",)),
    Axis("d_v", 1, ("head_dim_v",), ("head_dim_v",)),
    Axis("B·H", 1, ("batch_size", "num_heads_q"), ("batch_size", "num_heads_q", "num_heads_kv")),
)
"""Everything else that the number of products is proportional to."""


@dataclass(frozen=True)
class Ladder:
    """Rows of one implementation that differ in the size of one axis alone."""

    axis: Axis
    rows: tuple[Row, ...]
    """Soundly timed, by ascending size."""
    fit: TimeFit
    """Its law of growth."""

    @property
    def implementation(self) -> str:
        """Whose rows they are."""
        return str(self.rows[0]["implementation"])

    @property
    def decidable(self) -> bool:
        """Whether there are sizes enough, wide enough apart, for a verdict."""
        sizes = self.fit.lengths
        return len(sizes) >= MIN_LENGTHS and sizes[-1] >= MIN_SPAN * sizes[0]

    @property
    def exponent(self) -> str:
        """With its 95 % interval: ``T_k^1.02 [0.98, 1.06]``."""
        symbol = f"({self.axis.symbol})" if "·" in self.axis.symbol else self.axis.symbol
        return self.fit.text.replace("T^", f"{symbol}^")

    @property
    def constants(self) -> str:
        """What does not differ along the ladder: ``float32, B=1, H=1, d_k=64, d_v=64``."""
        row = self.rows[0]
        sizes = [f"{symbol}={row[name]}" for name, symbol in _SIZES.items() if name not in self.axis.free]
        if row["num_heads_kv"] != row["num_heads_q"]:
            sizes.append(f"H_q/H_kv={row['num_heads_q'] // row['num_heads_kv']}")
        special = [
            "" if row["direction"] == "fwd" else row["direction"],
            "" if row["distribution"] == "normal" else f"{row['distribution']} inputs",
            "" if row["scale"] is None else f"scale {row['scale']:g}",
        ]
        return ", ".join(str(part) for part in (row["dtype"], *sizes, *special) if part)

    @property
    def cells(self) -> tuple[str, ...]:
        """Keys of the rows."""
        return tuple(str(row["cell_key"]) for row in self.rows)

    def fitted_ms(self, size: float) -> float:
        """Latency that the law gives; the ladder must have been fitted."""
        share, floor = self.fit.power_share or 0.0, self.fit.floor_ms or 0.0
        return float(floor * (1 + share / (1 - share) * (size / self.fit.lengths[-1]) ** (self.fit.exponent or 0.0)))

    def plain_line(self) -> tuple[float, float]:
        """Exponent and factor (milliseconds) of the straight line through the logarithms: the fit that misleads."""
        line = linear_regression([log(n) for n in self.fit.lengths], [log(ms) for ms in self.fit.latencies_ms])
        return line.slope, exp(line.intercept)


def problem(scope: Scope, length: int, **fields: object) -> Problem:
    """A square problem, but for ``fields``, that keeps the device busy.

    One head fills too little of a GPU, where SDPA's flash kernel also takes half precision alone.
    """
    device = {} if scope.device == "cpu" else {"num_heads": 16, "dtype": "float16"}
    return square(length, **(device | fields))


def measured(scope: Scope) -> tuple[str, ...]:
    """Those of the theory that are timed in this scope."""
    return MEASURED if scope.device == "cpu" else MEASURED + GPU_ONLY


def cases(problems: Iterable[Problem], names: Sequence[str], ladder: str = "") -> list[Case]:
    """Each problem with each of the named implementations; ``ladder`` names what is climbed together beside lengths."""
    return [Case(one, name, ladder=ladder) for one in problems for name in names]


def square_ladders(reading: Reading) -> list[Ladder]:
    """Ladders of the sequence length with as many queries as keys, where every pair is visible."""
    found = []
    for rows in reading.timed_ladders.values():
        first = rows[0]
        bears = first["shape"] == "square" and first["mask"] == "full"
        if bears and (fit := reading.fit(first)) is not None:  # a fit of every other ladder would take most of the time
            found.append(_ladder(LENGTH, rows, fit))
    return [one for one in found if one.rows]


def linear_ladders(reading: Reading) -> list[Ladder]:
    """Ladders of the other sizes, of all pairs, with as many rungs as a fit needs."""
    rows = [
        {**row, "sharing": row["num_heads_q"] // row["num_heads_kv"]}
        for row in reading.rows
        if row["sound"] and row["mask"] == "full"
    ]
    found = []
    for axis in LINEAR_AXES:
        constant = (*(name for name in _CONSTANT if name not in axis.free), "sharing")
        for group in grouped(rows, *constant).values():
            # Two cells may have the same product of batch and heads; the law says that either will do.
            by_size = {axis.size(row): row for row in sorted(group, key=lambda row: str(row["cell_key"]))}
            if len(by_size) >= MIN_FIT_LENGTHS:
                medians = tuple((size, _medians(reading, row)) for size, row in sorted(by_size.items()))
                found.append(_ladder(axis, by_size.values(), _fit(medians, axis.expected)))
    return [one for one in found if one.rows]


def that_decide(ladders: Sequence[Ladder]) -> list[Ladder]:
    """Those that can be decided, and where an implementation of the theory has none along an axis, its short ones.

    Rows that happen to differ in a size, measured for something else, are no experiment on it.
    """
    decided = {(one.implementation, one.axis) for one in ladders if one.decidable}
    named = (NAIVE, *FLASH)
    return [
        one
        for one in ladders
        if one.decidable or (one.implementation in named and (one.implementation, one.axis) not in decided)
    ]


def verdict(reading: Reading, one: Ladder) -> tuple[Verdict, str]:
    """The fit's verdict, unless something other than the pairs explains a refutation."""
    fit, row = one.fit, one.rows[0]
    if one.axis is LENGTH and fit.lengths[-1] <= SHORT_LENGTH:
        return "INCONCLUSIVE", f"up to T={SHORT_LENGTH} overhead dominates"
    steep = fit.interval90 is not None and fit.interval90[1] > one.axis.expected + TOLERANCE
    cache = beyond_cache(reading, one) if steep and fit.verdict != "CONFIRMED" else None
    if cache is not None and fit.verdict == "INCONCLUSIVE":
        return fit.verdict, f"{fit.reason}; {cache.text}"
    if fit.verdict != "REFUTED" or fit.power_share is None or fit.interval95 is None:
        return fit.verdict, fit.reason
    if fit.power_share < MIN_SHARE:
        return "INCONCLUSIVE", f"overhead dominates: the power term is {fit.power_share:.0%} of the longest latency"
    disturbed = sum(not DISTURBED.isdisjoint(row["flag_names"]) for row in one.rows)
    if disturbed > DOUBTED_SHARE * len(one.rows):
        return "INCONCLUSIVE", f"{disturbed} of {len(one.rows)} cells were disturbed by other work on the machine"
    allocators = {run.run_id: run.header.environment.allocator for run in reading.runs}
    steeper = fit.interval95[0] > one.axis.expected
    if steeper and row["device"] == "cpu" and allocators[row["run_id"]] != "warm":
        return "INCONCLUSIVE", "page faults: what is measured is the cost of the default allocator, not of the pairs"
    if cache is not None and cache.explains:
        return "INCONCLUSIVE", f"caches explain it better than a power does: {cache.text}"
    return fit.verdict, fit.reason


def _ladder(axis: Axis, rows: Iterable[Row], fit: TimeFit) -> Ladder:
    by_size = {axis.size(row): row for row in rows}
    return Ladder(axis, tuple(by_size[size] for size in fit.lengths), fit)  # a clock that read 0 is not in the fit


def _medians(reading: Reading, row: Row) -> tuple[tuple[int, float], ...]:
    """Median latency in milliseconds of each process."""
    measurement = reading.record(row).measurement
    return () if measurement is None else tuple(process_medians_ms(measurement).items())


@lru_cache(maxsize=256)
def _fit(medians: Medians, expected: int) -> TimeFit:
    """The fit; remembered, since judging and drawing ask for the same ones and each takes a third of a second."""
    return fit_latencies({size: dict(by_process) for size, by_process in medians}, expected)
