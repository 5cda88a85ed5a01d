"""Batches of comparisons for several experiments: the cells, the busy neighbours, and what is kept of the samples."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean, median
from typing import Any

from bench.case import Pair, same
from bench.paired import PairResult, PairSamples, compare_pairs
from bench.problem import Problem
from bench.soundness import Context, Observation
from bench.sweep import Selection, load_sweep, plan
from bench.timing import FULL, SamplingPlan
from bench.verdicts import LOOKS, MARGIN, Comparison, decide, two_looks

KEPT_BLOCKS = 30
"""Blocks of each arm and process that an observation keeps, evenly spaced: what the rules of others are fed with."""
BUSY_PROCESSES = 3
"""Neighbours in a batch under load."""
PROBLEMS = 5
"""Problems of the sweep ``gate``; each with the implementations that it runs."""


def gate_cells(problem: int) -> list[tuple[Problem, str]]:
    """The cells of one problem of the sweep ``gate`` that are timed."""
    planned, _ = plan(load_sweep("gate"), Selection(), "cpu")
    cases = [case for case in planned if case.timed]
    problems = list(dict.fromkeys(case.problem for case in cases))
    assert len(problems) == PROBLEMS, "the sweep `gate` has as many problems as this module says"
    return [(case.problem, case.implementation) for case in cases if case.problem == problems[problem]]


def same_pairs(problem: int) -> list[Pair]:
    """Identical arms for every cell of one problem."""
    return [same(cell, name) for cell, name in gate_cells(problem)]


@contextmanager
def busy_machine(loaded: bool) -> Iterator[None]:
    """Three processes that compute all the time, if ``loaded``."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_PROCESSES if loaded else 0)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def observe_pairs(
    pairs: Sequence[Pair],
    context: Context,
    *,
    seed: int,
    loaded: bool,
    plan: SamplingPlan = FULL,
    margin: float = MARGIN,
    looks: Sequence[int] = LOOKS,
    confirm: bool = True,
) -> Observation:
    """Compare, and unless ``confirm`` is false compare again with fresh processes what came out as changed."""
    with busy_machine(loaded):
        first = compare_pairs(
            pairs, folder=context.folder, seed=seed, plan=plan, margin=margin, looks=looks, say=context.say
        )
        flagged = [
            result.pair
            for result in first.values()
            if confirm
            and result.samples
            and two_looks(result.estimates, margin, looks).verdict in ("REGRESSED", "IMPROVED")
        ]
        again = compare_pairs(
            flagged, folder=context.folder, seed=seed + 500, plan=plan, margin=margin, looks=looks, say=context.say
        )
    return {
        "loaded": loaded,
        "margin": margin,
        "looks": list(looks),
        "pairs": {name: _kept(result, again.get(name)) for name, result in first.items()},
    }


def comparison(observation: Observation, kept: Mapping[str, Any]) -> Comparison:
    """The verdict on one stored pair."""
    return two_looks(kept["estimates"], observation["margin"], observation["looks"])


def confirmation(observation: Observation, kept: Mapping[str, Any]) -> Comparison | None:
    """The verdict of the fresh processes on one stored pair; None if there was nothing to confirm."""
    if not kept["confirmation"]:
        return None
    return two_looks(kept["confirmation"], observation["margin"], observation["looks"])


def covers(kept: Mapping[str, Any], truth: float) -> bool:
    """Whether the interval of the first look holds the ratio that is known to be true."""
    first = decide(kept["estimates"][: LOOKS[0]])
    return first.lo <= truth <= first.hi


def stored_pairs(observations: Mapping[str, Observation]) -> Iterator[tuple[str, Observation, str, dict[str, Any]]]:
    """Every measured pair of every unit: unit, its observation, the pair's name, what was kept."""
    for unit, observation in observations.items():
        for name, kept in observation["pairs"].items():
            if kept["error"] is None:
                yield unit, observation, name, kept


def _kept(result: PairResult, again: PairResult | None) -> dict[str, Any]:
    return {
        "error": result.error,
        "estimates": result.estimates,
        "confirmation": [] if again is None else again.estimates,
        "seconds": sum(one.total_ns for one in result.samples) / 1e9,
        "calls": [one.calls for one in result.samples],
        "rounds": [len(one.ns["a"]) for one in result.samples],
        "steady": [one.steady for one in result.samples],
        "isolated": [
            median(one.isolated_ns["b"]) / median(one.isolated_ns["a"]) if one.isolated_ns["a"] else None
            for one in result.samples
        ],
        "arms": [_arms(one) for one in result.samples[:2]],
    }


def _arms(samples: PairSamples) -> dict[str, dict[str, Any]]:
    """Mean and minimum over all blocks of each arm, and some blocks; nanoseconds per call."""
    kept = {}
    for arm, ns in samples.ns.items():
        step = max(1, len(ns) // KEPT_BLOCKS)
        kept[arm] = {
            "mean_ns": fmean(ns) / samples.calls,
            "min_ns": min(ns) / samples.calls,
            "blocks_ns": [round(value / samples.calls, 1) for value in ns[::step][:KEPT_BLOCKS]],
        }
    return kept
