"""E5: does the interval hold the truth as often as it says, and does the two-look rule err as rarely?

Blocks of two arms are simulated in the order in which they would be timed, each round in random order, on machines
whose noise is of five kinds; the process's estimate, the interval and the verdict come from the functions that judge
real measurements. Which arm comes first is random and the arms' noise is alike, so the distribution of an estimate is
symmetric about the true log ratio, which is therefore its median exactly, whatever the noise.

The true ratio lies on the margin, where a wrong verdict is likeliest: there REGRESSED and UNCHANGED are both wrong.
Latencies of one arm are judged by :func:`bench.analysis.median_interval`, over processes drawn with a known median.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bench.analysis import median_interval
from bench.soundness import Context, Finding, Observation, experiments
from bench.verdicts import LOOKS, MARGIN, decide, interval_ranks, process_estimate, two_looks

Array = NDArray[np.float64]

KINDS = ("log_normal", "bimodal", "ar1", "cauchy", "drift")
REPETITIONS = 4000
"""Comparisons in a unit."""
CHUNKS = 5
"""Units of each kind: 20,000 comparisons."""
BATCH = 250
"""Comparisons that are simulated at once."""
ROUNDS = 60
PROCESSES = max(LOOKS)
EDGE = math.log1p(MARGIN)
TOLERANCE = 0.015
"""Coverage may differ from nominal by this."""
ONE_SIDED = 1 / 64 + 13 / 4096
"""Chance that either look misses on one given side."""
FEWEST = 1000
"""Comparisons of a kind below which nothing is said."""
SURE = 0.999
"""A rate counts as above its bound if the interval of this coverage lies above it."""


@experiments.register("e05_coverage")
class Coverage:
    """Coverage and error rates on synthetic noise."""

    name: ClassVar[str] = "e05_coverage"
    title: ClassVar[str] = "Do the intervals hold the truth as often as they say?"
    target: ClassVar[str] = (
        "coverage within 1.5 points of nominal on five kinds of noise; two looks wrong on one side in at most 1.9 %"
    )
    reads: ClassVar[str] = "e05_coverage"

    def units(self, quick: bool) -> list[str]:
        return [f"{kind}/{chunk}" for chunk in range(1 if quick else CHUNKS) for kind in KINDS]

    def observe(self, unit: str, context: Context) -> Observation:
        return simulate(unit)

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        totals: dict[str, Counter[str]] = {}
        for unit, counts in observations.items():
            totals.setdefault(unit.split("/")[0], Counter()).update(counts)
        rows = [_row(kind, totals[kind]) for kind in KINDS if kind in totals]
        enough = len(rows) == len(KINDS) and all(row["comparisons"] >= FEWEST for row in rows)
        if not rows:
            return Finding(None, "nothing was simulated")
        off, name, kind = max((abs(row[n] - nominal), n, row["noise"]) for row in rows for n, nominal in _nominal())
        wrong = [max(row["REGRESSED on the margin"], row["UNCHANGED on the margin"]) for row in rows]
        met = off <= TOLERANCE and not any(_above(totals[row["noise"]]) for row in rows)
        flagged = sum(row["flagged at ratio 1"] for row in rows)
        found = (
            f"largest difference from nominal {100 * off:.2f} points ({name}, {kind} noise) in "
            f"{sum(row['comparisons'] for row in rows)} comparisons; on the margin two looks are wrong on one side in "
            f"at most {max(wrong):.2%}; with a ratio of 1, {flagged} are flagged"
        )
        return Finding(met if enough else None, found, rows)


def _nominal() -> list[tuple[str, float]]:
    """Columns that are held against a nominal coverage, with it."""
    ratios = [(f"ratio, {count} processes", interval_ranks(count)[1]) for count in LOOKS]
    return ratios + [(f"latency, {count} processes", median_interval(count)[2]) for count in LOOKS]


def _row(kind: str, counts: Counter[str]) -> dict[str, Any]:
    """Rates of one kind of noise."""
    total = counts["comparisons"]
    row: dict[str, Any] = {"noise": kind, "comparisons": total}
    row |= {name: counts[name] / total for name, _ in _nominal()}
    row |= {f"{verdict} on the margin": counts[verdict] / total for verdict in ("REGRESSED", "UNCHANGED")}
    row["flagged at ratio 1"] = counts["flagged"]
    if counts["within run"]:
        row["60 blocks of one process"] = counts["within run"] / total
    return row


def _above(counts: Counter[str]) -> bool:
    """Whether either one-sided error rate is above its bound beyond chance."""
    from scipy.stats import binomtest

    tests = [binomtest(counts[verdict], counts["comparisons"]) for verdict in ("REGRESSED", "UNCHANGED")]
    return any(test.proportion_ci(SURE).low > ONE_SIDED for test in tests)


def simulate(unit: str, repetitions: int = REPETITIONS, shuffled: bool = True) -> dict[str, int]:
    """Counts of what happened in comparisons whose true ratio lies on the margin.

    Args:
        unit: ``kind/number``; the seed follows from it.
        repetitions: how many comparisons.
        shuffled: False times A before B in every round, which is no sound protocol.
    """
    kind, rng = unit.split("/")[0], np.random.default_rng(zlib.crc32(unit.encode()))
    counts: Counter[str] = Counter({"comparisons": repetitions})
    for start in range(0, repetitions, BATCH):
        size = min(BATCH, repetitions - start)
        a, b, latencies, median = draw(kind, rng, (size, PROCESSES), shuffled)
        for index in range(size):
            estimates = [process_estimate(x, y) for x, y in zip(a[index].tolist(), b[index].tolist(), strict=True)]
            _count(counts, estimates, latencies[index].tolist(), median)
        if kind == "ar1":
            low, high, _ = median_interval(ROUNDS)
            blocks = np.sort(a[:, 0], axis=1)
            counts["within run"] += int(((blocks[:, low] <= 1) & (blocks[:, high] >= 1)).sum())
    return dict(counts)


def _count(counts: Counter[str], estimates: list[float], latencies: list[float], median: float) -> None:
    """Judge one comparison in every way."""
    for count in LOOKS:
        found = decide(estimates[:count])
        counts[f"ratio, {count} processes"] += found.lo <= 1 + MARGIN <= found.hi
        low, high, _ = median_interval(count)
        ordered = sorted(latencies[:count])
        counts[f"latency, {count} processes"] += ordered[low] <= median <= ordered[high]
    counts[two_looks(estimates).verdict] += 1
    counts["flagged"] += two_looks([value - EDGE for value in estimates]).verdict in ("REGRESSED", "IMPROVED")


def draw(
    kind: str, rng: np.random.Generator, shape: tuple[int, int], shuffled: bool = True
) -> tuple[Array, Array, Array, float]:
    """Blocks of A and of B ``(comparisons, processes, rounds)``, one latency per process, and its true median.

    B takes ``1 + MARGIN`` times as long as A, up to an offset of the process that is as often positive as negative.
    """
    blocks = _blocks(kind, rng, (*shape, 2 * ROUNDS))
    first, second = blocks[..., 0::2], blocks[..., 1::2]
    swapped = rng.random(first.shape) < 0.5 if shuffled else np.zeros(first.shape, dtype=bool)
    a, b = np.where(swapped, second, first), np.where(swapped, first, second)
    offset = 0.008 * rng.standard_normal(shape)
    if kind == "bimodal":
        offset = rng.choice([-0.01, 0.01], shape) + 0.2 * offset
    elif kind == "cauchy":
        offset += 0.005 * (rng.random(shape) < 0.1) * np.clip(rng.standard_cauchy(shape), -1e4, 1e4)
    latencies, median = _latencies(kind, rng, a)
    return a, b * np.exp(EDGE + np.clip(offset, -50, 50))[..., None], latencies, median


def _blocks(kind: str, rng: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """Durations of the blocks of a process in the order of time, before any difference between the arms."""
    if kind == "log_normal":
        return np.exp(0.15 * rng.standard_normal(shape))
    noise: Array = np.exp(0.03 * rng.standard_normal(shape))
    if kind == "bimodal":  # the neighbour is there or is not
        return noise * np.where(rng.random(shape) < 0.3, 1.5, 1.0)
    if kind == "cauchy":  # one block in ten is late, now and then a thousandfold
        return noise * (1 + 0.1 * (rng.random(shape) < 0.1) * np.abs(rng.standard_cauchy(shape)))
    if kind == "ar1":  # a slow state of the machine
        state = np.empty(shape)
        state[..., 0] = rng.standard_normal(shape[:2])
        for step in range(1, shape[2]):
            state[..., step] = 0.97 * state[..., step - 1] + math.sqrt(1 - 0.97**2) * rng.standard_normal(shape[:2])
        return noise * np.exp(0.15 * state)
    if kind == "drift":  # it heats up or cools down, by up to half
        time = np.linspace(-0.5, 0.5, shape[2])
        return noise * np.exp(0.4 * rng.uniform(-1, 1, shape[:2])[..., None] * time)
    raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")


def _latencies(kind: str, rng: np.random.Generator, a: Array) -> tuple[Array, float]:
    """One latency per process ``(comparisons, processes)`` and its true median."""
    shape = a.shape[:2]
    if kind == "log_normal":
        return np.exp(0.5 * rng.standard_normal(shape)), 1.0
    if kind == "bimodal":  # the slow mode is so far off that the median is a quantile of the fast one
        slow = rng.random(shape) < 0.3
        return np.where(slow, 1.5, 1.0) + 0.02 * rng.standard_normal(shape), 1 + 0.02 * NormalDist().inv_cdf(0.5 / 0.7)
    if kind == "cauchy":
        return np.exp(np.clip(0.05 * rng.standard_cauchy(shape), -50, 50)), 1.0
    return np.median(a, axis=2) * np.exp(0.2 * rng.standard_normal(shape)), 1.0
