"""E11: the harness with a fault put in on purpose. Every fault must be seen by one of the other experiments.

The machine is simulated: processes differ by 20 %, the speed wanders and falls within a process, every block is noisy.
So the faults are judged in seconds, the same way every time. Two faults of CUDA clocks (no synchronisation, no flush)
are planted in the tests of the clocks, which run on a simulated device.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any, ClassVar

from bench.clocks import Block
from bench.soundness import Context, Experiment, Finding, Observation, experiments
from bench.soundness.e01_identical_code import IdenticalCode
from bench.soundness.e03_power import EVERY, Power
from bench.soundness.e07_timer import Timer
from bench.soundness.e08_memory import MemoryTruth
from bench.timing import SamplingPlan, interleave
from bench.verdicts import LOOKS, process_estimate

PLAN = SamplingPlan(warmup_ns=0, budget_ns=0, min_rounds=60, max_rounds=60)
VERDICTS = 60
CALL_NS = 500_000
FIRST_CALL_NS = 50 * CALL_NS

Rounds = tuple[list[int], list[int]]
"""Durations of A's and of B's blocks in one process."""


class SimulatedMachine:
    """A clock on a machine that does not exist; ``run`` returns the nanoseconds that its call costs."""

    name, most_calls = "simulated", 1000

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._level = self._rng.lognormvariate(0, 0.2)

    def time_block(self, run: Callable[[], object], calls: int) -> Block:
        """Cost times the speed of the moment; each block makes the machine 0.05 % slower."""
        self._level *= math.exp(0.0005 + self._rng.gauss(0, 0.003))
        cost = sum(float(str(run())) for _ in range(calls))
        return Block(round(cost * self._level * self._rng.lognormvariate(0, 0.02)))

    def excluded_bytes(self) -> dict[str, int]:
        """Nothing."""
        return {}


def as_built(seed: int, more: float) -> Rounds:
    """The harness as it is: rounds of both arms in random order."""
    runs = {"a": lambda: CALL_NS, "b": lambda: CALL_NS * (1 + more)}
    rng = random.Random(seed)
    samples = interleave(runs, SimulatedMachine(seed), PLAN, rng, lambda _, block: block(), together=(("a", "b"),))
    return samples["a"].ns, samples["b"].ns


def sequential(seed: int, more: float) -> Rounds:
    """All of A, then all of B."""
    machine = SimulatedMachine(seed)
    a = [machine.time_block(lambda: CALL_NS, 1).ns for _ in range(PLAN.min_rounds)]
    return a, [machine.time_block(lambda: CALL_NS * (1 + more), 1).ns for _ in range(PLAN.min_rounds)]


def unpaired(seed: int, more: float) -> Rounds:
    """A from one process, B from another."""
    return as_built(seed, more)[0], as_built(seed + 50_000, more)[1]


def wrong_baseline(seed: int, more: float) -> Rounds:
    """The candidate is taken for the baseline."""
    a, b = as_built(seed, more)
    return b, a


COMPARISONS: dict[str, Callable[[int, float], Rounds]] = {
    "as built": as_built,
    "sequential order": sequential,
    "unpaired": unpaired,
    "wrong baseline": wrong_baseline,
}
OTHERS = ("first call timed", "memory peak not reset")
SOUND = "as built"


@experiments.register("e11_mutants")
class Mutants:
    """Six harnesses on a simulated machine: the sound one, and five with a fault."""

    name: ClassVar[str] = "e11_mutants"
    title: ClassVar[str] = "Is a broken harness found out?"
    target: ClassVar[str] = "every planted fault makes an experiment miss its target, and the sound harness none"
    reads: ClassVar[str] = "e11_mutants"

    def units(self, quick: bool) -> list[str]:
        return [*COMPARISONS, *OTHERS]

    def observe(self, unit: str, context: Context) -> Observation:
        found: list[tuple[type[Experiment], Mapping[str, Observation]]]
        if unit in COMPARISONS:
            rounds = COMPARISONS[unit]
            found = [(IdenticalCode, _same(rounds)), (Power, _more(rounds))]
        elif unit == "first call timed":
            found = [(Timer, _with_first_call())]
        else:
            found = [(MemoryTruth, _without_reset())]
        findings = {member.name: member().judge(observations) for member, observations in found}
        return {
            "missed": [name for name, finding in findings.items() if finding.met is False],
            "found": {name: finding.found for name, finding in findings.items()},
        }

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        faults = {unit: seen for unit, seen in observations.items() if unit != SOUND}
        if SOUND not in observations or not faults:
            return Finding(None, "the sound harness and at least one fault are both needed")
        caught = [unit for unit, seen in faults.items() if seen["missed"]]
        accused = observations[SOUND]["missed"]
        rows = [{"harness": unit, "targets missed": ", ".join(seen["missed"])} for unit, seen in observations.items()]
        text = (
            f"{len(caught)} of {len(faults)} planted faults make an experiment miss its target; "
            f"the harness as built misses {len(accused)}"
        )
        met = len(caught) == len(faults) and not accused
        return Finding(met if len(faults) == len(COMPARISONS) + len(OTHERS) - 1 or not met else None, text, rows)


def _same(rounds: Callable[[int, float], Rounds]) -> dict[str, Observation]:
    """Observations of E1 as this harness would make them."""
    return {"batch-00/problem-0": _observation({f"cell-{i}": _kept(rounds, 100 * i, 0.0) for i in range(VERDICTS)})}


def _more(rounds: Callable[[int, float], Rounds]) -> dict[str, Observation]:
    """Observations of E3 as this harness would make them."""
    return {
        "short-00": _observation(
            {
                f"+{percent} % cell-{i}": _kept(rounds, 100 * i + 7, 1 / every)
                for percent, every in EVERY.items()
                for i in range(VERDICTS)
            }
        )
    }


def _observation(pairs: dict[str, Any]) -> Observation:
    return {"loaded": False, "margin": 0.03, "looks": list(LOOKS), "pairs": pairs}


def _kept(rounds: Callable[[int, float], Rounds], seed: int, more: float) -> dict[str, Any]:
    """One pair in twelve processes; what others' rules would need is not asked for."""
    estimates = [process_estimate(*rounds(seed + process, more)) for process in range(LOOKS[1])]
    return {"error": None, "estimates": estimates, "confirmation": [], "arms": []}


def _with_first_call() -> dict[str, Observation]:
    """E7 as a harness would see it that has no warm-up and takes the mean of its calls."""
    calls = [FIRST_CALL_NS, *[CALL_NS] * 9]
    spin = {"calls": 1, "ns": [round(fmean(calls))], "seen_ns": [CALL_NS], "tick_ns": 1, "empty_block_ns": 100}
    exact = [CALL_NS] * 20
    return {"1 ms/0": spin} | {
        f"added/{i}": {"bare_ns": exact, "harness_ns": exact, "outside": 0.0} for i in range(LOOKS[0])
    }


def _without_reset() -> dict[str, Observation]:
    """E8 as a harness would see it whose peak is never reset: a small call after a large one reads the large one."""
    peaks, highest = {}, 0
    for name, size in (("large", 1 << 20), ("small", 1 << 10)):
        highest = max(highest, size)
        peaks[f"planted/{name}"] = {"expected": size, "peaks": {str(highest): 100}}
    resident = {"expected": 1 << 24, "vm_hwm_bytes": 1 << 24, "reason": None, "peaks": {str(1 << 24): 1}}
    return {**peaks, "resident/naive": resident}
