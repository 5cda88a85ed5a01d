"""E9: does the scaling verdict say what is true?

Simulated latencies of known laws, with 3 % noise per process and a bias of 1 % per length that all processes share,
judged by :mod:`bench.scaling` as one process and as five; and three real ladders on this machine: naive attention,
which is quadratic; a product with a fixed matrix, which is linear; and naive attention up to 128 positions, where
overhead hides the law and nobody can tell.
"""

from __future__ import annotations

import math
import random
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any, ClassVar

import numpy as np

from bench.calls import make_step
from bench.clocks import Block, PerfCounterClock, overhead_ns
from bench.fresh_call import in_fresh_process
from bench.implementation import implementations
from bench.inputs import make_inputs, place_inputs
from bench.problem import Problem
from bench.scaling import Verdict, fit_latencies
from bench.soundness import Context, Finding, Observation, experiments
from bench.timing import SamplingPlan, interleave

Law = Callable[[float], float]
"""Latency in milliseconds at a length."""

LAWS: dict[str, tuple[bool, int, Law]] = {
    "20 us + 1 ns T + 0.05 ns T^2, to 4096": (True, 4096, lambda t: 20e-3 + 1e-6 * t + 0.05e-6 * t**2),
    "20 us + 1 ns T + 0.05 ns T^2, to 16384": (True, 16384, lambda t: 20e-3 + 1e-6 * t + 0.05e-6 * t**2),
    "30 us + 0.1 us T + 6 ns T^2, to 4096": (True, 4096, lambda t: 30e-3 + 0.1e-3 * t + 6e-6 * t**2),
    "20 us + 50 ns T, to 4096": (False, 4096, lambda t: 20e-3 + 50e-6 * t),
    "20 us + 5 ns T log2 T, to 4096": (False, 4096, lambda t: 20e-3 + 5e-6 * t * math.log2(t)),
    "20 us + 0.1 ps T^3, to 4096": (False, 4096, lambda t: 20e-3 + 1e-10 * t**3),
}
"""Simulated laws: whether it is quadratic, the longest length, the law."""
SHORTEST = 128
NOISE = 0.03
BIAS = 0.01
TRIALS = {1: 100, 5: 20}
"""Fits in a unit, by the number of processes; several are resampled, which takes longer."""
CHUNKS = {1: 4, 5: 6}
"""Units of each law: 400 fits as one process and 120 as five."""
LEAST_CONFIRMED = 0.95
MOST_FALSE = 0.01

LADDERS: dict[str, tuple[tuple[int, ...], Verdict]] = {
    "naive": ((256, 362, 512, 724, 1024, 1448, 2048, 2896, 4096), "CONFIRMED"),
    "linear": ((256, 362, 512, 724, 1024, 1448, 2048, 2896, 4096), "REFUTED"),
    "short": ((8, 11, 16, 23, 32, 45, 64, 91, 128), "INCONCLUSIVE"),
}
"""Real ladders: their lengths and what the verdict has to be."""
PROCESSES, QUICK_PROCESSES = 6, 3
PLAN = SamplingPlan(budget_ns=0, min_rounds=20, max_rounds=20)


@experiments.register("e09_scaling")
class Scaling:
    """Verdicts on known laws."""

    name: ClassVar[str] = "e09_scaling"
    title: ClassVar[str] = "Does the scaling verdict say what is true?"
    target: ClassVar[str] = (
        "quadratic laws CONFIRMED in at least 95 %, others in at most 1 %; naive CONFIRMED, a linear operator REFUTED, "
        "lengths to 128 INCONCLUSIVE"
    )
    reads: ClassVar[str] = "e09_scaling"

    def units(self, quick: bool) -> list[str]:
        chunks = {1: 1} if quick else CHUNKS
        simulated = [f"{law}/{count}/{c}" for count, most in chunks.items() for c in range(most) for law in LAWS]
        return simulated + [f"{name}/{p}" for p in range(QUICK_PROCESSES if quick else PROCESSES) for name in LADDERS]

    def observe(self, unit: str, context: Context) -> Observation:
        name, number = unit.split("/")[:2]
        seed = zlib.crc32(unit.encode())
        if name in LAWS:
            return simulate(LAWS[name][1:], int(number), TRIALS[int(number)], seed)
        found: Observation = in_fresh_process(time_ladder, name, seed, log=context.folder / "ladder.log")
        return found

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        simulated = _simulated_rows(observations)
        real = _real_rows(observations)
        if not simulated or len(real) < len(LADDERS):
            return Finding(None, "too little was observed: simulated laws and all real ladders are needed")
        right = [row for row in simulated if row["quadratic"]]
        wrong = [row for row in simulated if not row["quadratic"]]
        if not right or not wrong:
            return Finding(None, "too little was observed: laws of both kinds are needed", simulated)
        least = min(row["CONFIRMED"] / row["fits"] for row in right)
        false, fits = sum(row["CONFIRMED"] for row in wrong), sum(row["fits"] for row in wrong)
        as_expected = sum(row["verdict"] == row["expected"] for row in real)
        found = (
            f"quadratic laws CONFIRMED in at least {least:.1%} of {min(row['fits'] for row in right)} fits each, "
            f"others in {false} of {fits} (95 % upper bound {_upper_bound(false, fits):.2%}); real ladders: "
            + ", ".join(f"{row['ladder']} {row['verdict']} ({row['exponent']})" for row in real)
        )
        met = least >= LEAST_CONFIRMED and false / fits <= MOST_FALSE and as_expected == len(real)
        enough = all(row["processes"] >= PROCESSES for row in real)
        return Finding(met if enough else None, found, [*simulated, *real])


def _simulated_rows(observations: Mapping[str, Observation]) -> list[dict[str, Any]]:
    """Counts by law and number of processes."""
    totals: dict[tuple[str, str], Counter[str]] = {}
    for unit, counts in observations.items():
        law, _, processes = unit.rpartition("/")[0].rpartition("/")
        if law in LAWS:
            totals.setdefault((law, processes), Counter()).update(counts)
    return [
        {
            "law": law,
            "quadratic": LAWS[law][0],
            "processes": int(processes),
            "fits": counts.total(),
            **{verdict: counts[verdict] for verdict in ("CONFIRMED", "REFUTED", "INCONCLUSIVE")},
        }
        for (law, processes), counts in totals.items()
    ]


def _real_rows(observations: Mapping[str, Observation]) -> list[dict[str, Any]]:
    """Verdict on each real ladder, over its processes."""
    rows = []
    for ladder, (lengths, expected) in LADDERS.items():
        units = [found for unit, found in observations.items() if unit.split("/")[0] == ladder]
        if not units:
            continue
        latencies = {t: {i: one["latency_ms"][str(t)] for i, one in enumerate(units)} for t in lengths}
        fit = fit_latencies(latencies)
        rows.append(
            {
                "ladder": ladder,
                "lengths": len(lengths),
                "longest": lengths[-1],
                "processes": len(units),
                "exponent": fit.text,
                "expected": expected,
                "verdict": fit.verdict,
                "reason": fit.reason,
            }
        )
    return rows


def _upper_bound(count: int, total: int) -> float:
    """One-sided 95 % upper bound of a rate."""
    from scipy.stats import binomtest

    return float(binomtest(count, total, alternative="less").proportion_ci(0.95).high)


def simulate(law: tuple[int, Law], processes: int, trials: int, seed: int) -> dict[str, int]:
    """How often each verdict came out.

    Args:
        law: the longest length, and the latency at a length.
        processes: whose medians are fitted.
        trials: how many fits.
        seed: of the noise.
    """
    rng, (longest, latency_ms) = np.random.default_rng(seed), law
    lengths = [round(SHORTEST * 2 ** (step / 2)) for step in range(1 + 2 * round(math.log2(longest / SHORTEST)))]
    verdicts: Counter[str] = Counter()
    for _ in range(trials):
        bias = np.exp(BIAS * rng.standard_normal(len(lengths)))
        noise = np.exp(NOISE * rng.standard_normal((len(lengths), processes)))
        table = np.asarray([latency_ms(t) for t in lengths])[:, None] * bias[:, None] * noise
        found = fit_latencies({t: dict(enumerate(row)) for t, row in zip(lengths, table.tolist(), strict=True)})
        verdicts[found.verdict] += 1
    return dict(verdicts)


def time_ladder(ladder: str, seed: int) -> dict[str, Any]:
    """In a fresh process: the median latency at each length, all lengths interleaved in random order.

    Returns:
        Milliseconds of a call under ``latency_ms``, by length as text.
    """
    lengths, clock = LADDERS[ladder][0], PerfCounterClock()
    runs = {str(t): _linear(t) if ladder == "linear" else _naive(t) for t in lengths}

    def attempt(name: str, block: Callable[[], Block]) -> Block:
        return block()

    samples = interleave(runs, clock, PLAN, random.Random(seed), attempt, overhead_ns=overhead_ns(clock))
    return {"latency_ms": {name: median(one.ns) / one.calls / 1e6 for name, one in samples.items()}}


def _naive(seqlen: int) -> Callable[[], object]:
    """Naive attention, one head."""
    problem, member = Problem(seqlen=seqlen, num_heads=1), implementations.get("naive")
    inputs = place_inputs(make_inputs(problem), member.layout, "cpu")
    return make_step(member.prepare(problem, inputs), problem, inputs, member.layout).run


def _linear(seqlen: int) -> Callable[[], object]:
    """Values times a fixed matrix, ``(seqlen, 64) @ (64, 64)``: linear in the length."""
    import torch

    values, matrix = torch.ones(seqlen, 64), torch.ones(64, 64)
    return partial(torch.matmul, values, matrix)
