"""E12: how long does it take to know the ratio of two 1 ms cases to within 2 %?

Both arms are the same callable, so the true ratio is 1 and an interval can be seen to hold it.

* Ours and torch's ``adaptive_autorange`` take turns: a fresh process each, from the same fork server, until the
  interval over processes reaches no further than 2 % from its middle. Both get the same interval, hence the same
  coverage, and the same least number of processes; per process ours interleaves the arms in short blocks, and torch's
  measures one after the other, as it is made to.
* pyperf runs as it does by default: 20 processes of 3 values for each arm, in pieces of one process, whose wall times
  add up to that of the whole; calibration is in the first piece alone. If pieces are missing, the sum is scaled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, ClassVar

from bench.case import same
from bench.environment import ALLOCATORS, worker_variables
from bench.errors import BenchError
from bench.fresh_call import in_fresh_process
from bench.paired import compare_pairs
from bench.server import PRELOAD
from bench.soundness import Context, Finding, Observation, experiments
from bench.soundness._cost_case import IMPLEMENTATION, MODULE, PROBLEM, adaptive_ratio
from bench.soundness._pyperf import need_pyperf
from bench.timing import FULL, SamplingPlan
from bench.verdicts import LOOKS, decide

WIDTH = 0.02
"""The interval may reach this far from its middle."""
MOST_PROCESSES, MOST_S = 24, 15.0
"""Processes, and their seconds, after which a method is given up."""
REPEATS = 5
PYPERF_PROCESSES = 20
PYPERF_LOOPS = 128
"""What pyperf's calibration comes to for a call of 0.8 to 1.6 ms: the power of two that fills its 0.1 s."""
LEAN = SamplingPlan(warmup_calls=10, warmup_ns=0, budget_ns=0, min_rounds=40, max_rounds=40)
"""What one of our processes measures here: as many rounds as an interval of 2 % needs, not the 400 of a verdict."""


@experiments.register("e12_cost")
class Cost:
    """Wall time to an interval of 2 %."""

    name: ClassVar[str] = "e12_cost"
    title: ClassVar[str] = "How long does it take to know a ratio to within 2 %?"
    target: ClassVar[str] = (
        "at most half the wall time of pyperf's default, and no more than torch's adaptive_autorange at equal coverage"
    )
    reads: ClassVar[str] = "e12_cost"

    def units(self, quick: bool) -> list[str]:
        repeats, pieces = (1, 1) if quick else (REPEATS, PYPERF_PROCESSES)
        turns = [f"turns/{number}" for number in range(repeats)]
        full = [] if quick else ["full/0"]
        return ["start/0", *turns, *full, *(f"pyperf/{number}" for number in range(pieces))]

    def observe(self, unit: str, context: Context) -> Observation:
        what, number = unit.split("/")
        if what == "start":
            return {"wall_s": _wall_s([sys.executable, "-c", f"import {', '.join(PRELOAD)}"])}
        if what == "turns":
            return _take_turns(int(number), context)
        if what == "full":
            start = time.perf_counter()
            found = compare_pairs([PAIR], folder=context.folder, seed=int(number), plan=FULL)[PAIR.name]
            if found.error is not None:
                raise BenchError(f"{PAIR.name} must be measured, got {found.error}. Run again to repeat it.")
            return {"wall_s": time.perf_counter() - start, "estimates": found.estimates}
        need_pyperf()
        return {arm: _pyperf(int(number), context) for arm in ("a", "b")}

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        by_kind: dict[str, list[Observation]] = {"start": [], "turns": [], "full": [], "pyperf": []}
        for unit in sorted(observations, key=lambda unit: int(unit.split("/")[1])):
            by_kind[unit.split("/")[0]].append(observations[unit])
        if not by_kind["start"] or not by_kind["turns"] or not by_kind["pyperf"] or "pyperf/0" not in observations:
            return Finding(None, "too little was measured: all three methods are needed")
        rows = [_row(name, [one[name] for one in by_kind["turns"]]) for name in ("ours", "torch")]
        ours, torch = rows
        start_s = median(one["wall_s"] for one in by_kind["start"])
        pyperf_s = _pyperf_seconds(by_kind["pyperf"])
        pieces = len(by_kind["pyperf"])
        rows.append({"method": "pyperf", "seconds": pyperf_s, "pieces": pieces})
        for one in by_kind["full"]:
            row = {"method": "ours, the protocol of a verdict", "seconds": one["wall_s"]}
            rows.append(row | {"processes": len(one["estimates"]), "width": _width(one["estimates"])})
        scaled = "" if pieces == PYPERF_PROCESSES else f", scaled from {pieces} of {PYPERF_PROCESSES} processes"
        found = (
            f"ours {_told(ours)}, torch's adaptive_autorange {_told(torch)}, both from a fork server whose start takes "
            f"{start_s:.1f} s once; pyperf's default {pyperf_s:.1f} s{scaled}"
        )
        quick_enough = ours["seconds"] <= torch["seconds"] and ours["seconds"] + start_s <= pyperf_s / 2
        return Finding(2 * ours["reached"] > ours["repeats"] and quick_enough, found, rows)


PAIR = same(PROBLEM, IMPLEMENTATION)


def _told(row: Mapping[str, Any]) -> str:
    """A method's row in words."""
    return (
        f"{row['seconds']:.2f} s (median of {row['repeats']}, {row['reached']} narrow enough and {row['held']} around "
        f"the true ratio, {row['processes']:g} processes)"
    )


def _row(method: str, runs: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """One method over its repeats, of which each holds the ``estimate`` and ``wall_s`` of each process in order.

    A repeat whose interval never was narrow enough counts with the time it was given: it would have taken more.
    """
    estimates = [[one["estimate"] for one in run] for run in runs]
    reached = [_reach(values) for values in estimates]
    seconds = [sum(one["wall_s"] for one in run[:count]) for run, count in zip(runs, reached, strict=True)]
    intervals = [decide(values[:count]) for values, count in zip(estimates, reached, strict=True)]
    return {
        "method": method,
        "seconds": median(seconds),
        "processes": median(found.processes for found in intervals),
        "repeats": len(runs),
        "reached": sum(count is not None for count in reached),
        "held": sum(found.lo <= 1 <= found.hi for found in intervals),
    }


def _width(estimates: Sequence[float]) -> float:
    """How far the interval reaches from its middle, as a share."""
    found = decide(estimates)
    return max(found.hi / found.ratio, found.ratio / found.lo) - 1


def _reach(estimates: Sequence[float]) -> int | None:
    """How many processes it took until the interval was narrow enough; None if it never was."""
    counts = range(LOOKS[0], len(estimates) + 1)
    return next((count for count in counts if _width(estimates[:count]) <= WIDTH), None)


def _take_turns(number: int, context: Context) -> Observation:
    """A process of ours and one of torch's in turn, until both intervals are narrow enough."""
    found: dict[str, list[dict[str, float]]] = {"ours": [], "torch": []}
    in_fresh_process(int, log=context.folder / "cost.log")  # from here on the fork server is up
    for process in range(MOST_PROCESSES):
        for method, measure in (("ours", _ours), ("torch", _torch)):
            done = found[method]
            if _reach([one["estimate"] for one in done]) is None and sum(one["wall_s"] for one in done) < MOST_S:
                start = time.perf_counter()
                estimate, free_s = measure(1000 * number + process, context)
                wall_s = time.perf_counter() - start - free_s
                done.append({"estimate": estimate, "wall_s": wall_s})
    return found


def _ours(seed: int, context: Context) -> tuple[float, float]:
    """One process of ours: its estimate, and the seconds not to be counted (none)."""
    found = compare_pairs([PAIR], folder=context.folder, seed=seed, plan=LEAN, looks=(1,))[PAIR.name]
    if found.error is not None:
        raise BenchError(f"{PAIR.name} must be measured, got {found.error}")
    return found.estimates[0], 0.0


def _torch(seed: int, context: Context) -> tuple[float, float]:
    """One process of torch's: its estimate, and the seconds not to be counted."""
    found: tuple[float, float] = in_fresh_process(adaptive_ratio, log=context.folder / "adaptive.log")
    return found


def _pyperf(piece: int, context: Context) -> Observation:
    """One process of pyperf's default for one arm; the first piece also calibrates."""
    output = context.folder / f"pyperf-{time.monotonic_ns()}.json"
    told = [] if piece == 0 else [f"--loops={PYPERF_LOOPS}"]
    command = [sys.executable, "-m", MODULE, "--processes=1", "--quiet", f"--output={output}", *told]
    names = ",".join({*ALLOCATORS["warm"], "OMP_WAIT_POLICY"})
    wall_s = _wall_s([*command, f"--inherit-environ={names}"], worker_variables("warm"))
    runs = json.loads(output.read_text())["benchmarks"][0]["runs"]
    return {"wall_s": wall_s, "values": [value for run in runs for value in run.get("values", [])], "runs": len(runs)}


def _pyperf_seconds(pieces: Sequence[Observation]) -> float:
    """Wall time of pyperf's default for both arms, from its pieces in order; scaled if some are missing.

    The first piece is a calibration and a process; the others are a process each.
    """
    first, *others = [piece["a"]["wall_s"] + piece["b"]["wall_s"] for piece in pieces]
    if not others:
        return float(first * (1 + PYPERF_PROCESSES) / 2)
    return float(first + sum(others) / len(others) * (PYPERF_PROCESSES - 1))


def _wall_s(command: Sequence[str], variables: Mapping[str, str] | None = None) -> float:
    """Seconds that a command takes.

    Raises:
        BenchError: if it fails.
    """
    start = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, **(variables or {})}, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{command[2]} must exit with 0, got {done.returncode}: {done.stderr[-500:]}")
    return time.perf_counter() - start
