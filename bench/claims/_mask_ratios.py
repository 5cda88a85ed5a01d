"""Time with a causal mask over time without it, by length: from pairs, or from cells beside naive's.

A kernel that skips hidden blocks computes whole blocks along the diagonal. Their number grows as T and that of all
blocks as T², so its ratio is ``limit + slope / T`` from about one block on, whatever its block size: :func:`limit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot

from bench.case import Arm
from bench.claims import Hearing, Pair, Scope
from bench.claims._ladders import square
from bench.metrics import Row
from bench.plots import LADDER, Reading, grouped
from bench.problem import Problem
from bench.results import Run

NO_MASK, ALL_PERMITTED = "no mask", "an all-permitted mask"
"""What a causal mask is compared with."""
NEAR = 4
"""A limit rests on lengths from this part of the longest on, where overhead is small."""
LEAST_LENGTHS = 3
"""Of which a limit is taken: a straight line goes through any two."""


@dataclass(frozen=True)
class Ratio:
    """Time with a causal mask over time without, at one length."""

    seqlen: int
    ratio: float
    lo: float
    hi: float
    processes: int
    """What the interval covers; fewer than six pairs decide nothing."""

    @property
    def text(self) -> str:
        """``0.56 [0.55, 0.58] at T=4096``."""
        return f"{self.ratio:.2f} [{self.lo:.2f}, {self.hi:.2f}] at T={self.seqlen}"


@dataclass(frozen=True)
class Series:
    """Ratios of one implementation at lengths that differ in nothing else."""

    implementation: str
    without: str
    """:data:`NO_MASK` or :data:`ALL_PERMITTED`."""
    setting: str
    """What is constant: ``float32, H=4, d=64``."""
    relative: bool
    """Whether each ratio is over that of naive, whose mask costs something: cells of two problems are not interleaved,
    but those of one problem are."""
    lanes: int
    """Batch items times heads."""
    threads: int
    """Of the CPU, which share the lanes; 1 on a GPU."""
    ratios: tuple[Ratio, ...]
    """By ascending length."""
    rows: tuple[str, ...]
    """Names of pairs, or keys of cells."""

    @property
    def longest(self) -> Ratio:
        """At the longest length."""
        return self.ratios[-1]

    @property
    def subject(self) -> str:
        """In words."""
        beside = ", relative to naive" if self.relative else ""
        return f"{self.implementation}, causal over {self.without}{beside} ({self.setting})"

    def bearing(self, block: int) -> tuple[Ratio, ...]:
        """Those that the limit rests on, for a kernel whose blocks are up to ``block`` positions long."""
        return tuple(one for one in self.ratios if one.seqlen >= max(block, self.longest.seqlen / NEAR))


@dataclass(frozen=True)
class Limit:
    """``ratio = value + slope / T``."""

    value: float
    lo: float
    hi: float
    slope: float

    def at(self, seqlen: float) -> float:
        """The ratio at a length."""
        return self.value + self.slope / seqlen


def pair_share(seqlen: int) -> float:
    """Visible pairs of a causal mask over all: ``(T + 1) / 2T``."""
    return (seqlen + 1) / (2 * seqlen)


def limit(ratios: Sequence[Ratio]) -> Limit:
    """Least squares of ``value + slope / T`` over at least two lengths.

    The value is a weighted sum of independent ratios, so the half-widths of their intervals add up in squares.
    """
    places = [1 / one.seqlen for one in ratios]
    mean = sum(places) / len(places)
    spread = sum((x - mean) ** 2 for x in places)
    slope = sum((x - mean) * one.ratio for x, one in zip(places, ratios, strict=True)) / spread
    value = sum(one.ratio for one in ratios) / len(ratios) - slope * mean
    weighed = [(1 / len(places) - mean * (x - mean) / spread, one) for x, one in zip(places, ratios, strict=True)]
    down = hypot(*(w * ((one.ratio - one.lo) if w > 0 else (one.hi - one.ratio)) for w, one in weighed))
    up = hypot(*(w * ((one.hi - one.ratio) if w > 0 else (one.ratio - one.lo)) for w, one in weighed))
    return Limit(value, value - down, value + up, slope)


def plan(scope: Scope) -> Iterator[tuple[str, Pair]]:
    """Pairs to measure, each with what its causal arm is compared with."""
    # On a GPU short calls are mostly launches, one head fills too little of it, and SDPA's flash kernel takes half
    # precision alone.
    longer, fields = (1, {}) if scope.device == "cpu" else (4, {"num_heads": 16, "dtype": "float16"})

    def pair(implementation: str, seqlen: int, mask: str = "full", num_heads: int = 1) -> Pair:
        first, second = (
            square(longer * seqlen, mask=one, **({"num_heads": num_heads} | fields)) for one in (mask, "causal")
        )
        name = f"{implementation} {first.key} to causal"
        return Pair(name, Arm(first, implementation), Arm(second, implementation))

    for seqlen in (1024,) if scope.quick else (1024, 2048):
        # naive builds no mask where all is visible; this one hides the last key from all queries but the last
        yield ALL_PERMITTED, pair("naive", seqlen, f"prefix_lm({longer * seqlen - 1})")
        if not scope.quick:
            yield NO_MASK, pair("naive", seqlen)
    for seqlen in (512, 1024, 2048):
        # the CPU kernel deals out rows to its threads in order: of a single head, one thread would get the long ones
        yield NO_MASK, pair("sdpa_flash", seqlen, num_heads=2)
        if scope.device != "cpu":
            yield NO_MASK, pair("triton_flash", seqlen)
    for seqlen in () if scope.quick else (1024, 2048, 4096):
        yield NO_MASK, pair("online_softmax", seqlen)


def paired_series(hearing: Hearing) -> list[Series]:
    """From the pairs that were measured, for whatever scope."""
    groups: dict[tuple[str, str, str], list[tuple[Pair, Ratio]]] = {}
    for without, pair in (one for device in ("cpu", "cuda") for one in plan(Scope(device))):
        found = hearing.pair(pair.name)
        if found is not None:
            problem = pair.b.problem
            ratio = Ratio(problem.seqlen_q, found.ratio, found.lo, found.hi, found.processes)
            groups.setdefault((pair.b.implementation, without, setting_text(problem)), []).append((pair, ratio))
    threads = max((_threads(run) for run in hearing.reading.runs), default=1)
    return [
        Series(
            implementation=implementation,
            without=without,
            setting=setting,
            relative=False,
            lanes=group[0][0].b.problem.num_heads_q,
            threads=threads,
            ratios=tuple(sorted((ratio for _, ratio in group), key=lambda one: one.seqlen)),
            rows=tuple(pair.name for pair, _ in group),
        )
        for (implementation, without, setting), group in groups.items()
    ]


def cell_series(reading: Reading, names: Sequence[str]) -> list[Series]:
    """From cells: what the mask does to an implementation over what it does to naive, which shared its rounds."""
    rows = [row for row in reading.rows if _bears(row)]
    threads = {run.run_id: _threads(run) for run in reading.runs}
    several = len({row["machine"] for row in rows}) > 1
    series = []
    for group in grouped(rows, *(name for name in LADDER if name != "mask")).values():
        cells = {(row["implementation"], row["mask"], row["length"]): row for row in group}
        first = reading.record(group[0]).problem
        for name in names:
            lengths = sorted(length for other, mask, length in cells if (other, mask) == (name, "causal"))
            found = {length: ratio for length in lengths if (ratio := _beside_naive(reading, cells, name, length))}
            if found:
                keys = (cells[name, mask, length]["cell_key"] for length in found for mask in ("full", "causal"))
                one = Series(
                    implementation=name,
                    without=NO_MASK,
                    setting=setting_text(first) + (f", {group[0]['machine']}" if several else ""),
                    relative=True,
                    lanes=first.batch_size * first.num_heads_q,
                    threads=threads[group[0]["run_id"]],
                    ratios=tuple(found.values()),
                    rows=tuple(str(key) for key in keys),
                )
                series.append(one)
    return series


def _bears(row: Row) -> bool:
    """SDPA is told of a causal mask as such only where the lengths are equal and the scale is positive."""
    plain = row["shape"] == "square" and row["direction"] == "fwd" and (row["scale"] is None or row["scale"] > 0)
    return bool(row["sound"] and plain and row["mask"] in ("full", "causal"))


def _beside_naive(reading: Reading, cells: dict[tuple[str, str, int], Row], name: str, length: int) -> Ratio | None:
    """None where it was not timed without a mask, or naive not in the same rounds."""
    ratios = []
    for mask in ("causal", "full"):
        own, naive = cells.get((name, mask, length)), cells.get(("naive", mask, length))
        found = None if own is None or naive is None else reading.paired(own, naive)
        if found is None:
            return None
        ratios.append(found)
    above, below = ratios
    processes = min(above.processes, below.processes)
    return Ratio(length, above.ratio / below.ratio, above.lo / below.hi, above.hi / below.lo, processes)


def _threads(run: Run) -> int:
    """How many share the rows of a head; a GPU deals out blocks as they are finished."""
    environment = run.header.environment
    return environment.torch_threads or 1 if environment.device == "cpu" else 1


def setting_text(problem: Problem) -> str:
    """What is constant along lengths, in words: ``float32, H=4, d=64``."""
    sizes = {"H": (problem.num_heads_q, problem.num_heads_kv), "d": (problem.head_dim, problem.head_dim_v)}
    parts = [problem.dtype, f"B={problem.batch_size}" if problem.batch_size > 1 else ""]
    parts += [f"{name}={one}" if one == other else f"{name}={one}:{other}" for name, (one, other) in sizes.items()]
    parts += ["" if problem.distribution == "normal" else f"{problem.distribution} inputs"]
    parts += ["" if problem.scale is None else f"scale {problem.scale:g}"]
    return ", ".join(part for part in parts if part)
