"""E4: with more processes and a narrower margin, 3 % is found without more false alarms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bench.case import Arm, Pair, same
from bench.soundness import Context, Finding, Observation, experiments
from bench.soundness._batches import comparison, observe_pairs, stored_pairs
from bench.soundness.e01_identical_code import CHANGED
from bench.soundness.e03_power import CELLS, PLAN

MARGIN = 0.01
PROCESSES = 24
UNITS = 6


@experiments.register("e04_sensitivity")
class Sensitivity:
    """A margin of 1 % with 24 processes, on an idle machine."""

    name: ClassVar[str] = "e04_sensitivity"
    title: ClassVar[str] = "Can it look closer where asked to?"
    target: ClassVar[str] = (
        "at a margin of 1 % with 24 processes: +3 % found in at least 90 %, identical code flagged in at most 1 %"
    )
    reads: ClassVar[str] = "e04_sensitivity"

    def units(self, quick: bool) -> list[str]:
        return [] if quick else [f"repeat-{repeat}" for repeat in range(UNITS)]

    def observe(self, unit: str, context: Context) -> Observation:
        repeat = int(unit.rpartition("-")[2])
        pairs = []
        for cell, name in CELLS:
            pairs.append(same(cell, name))
            pairs.append(Pair(f"+3 % {name} {cell.key}", Arm(cell, name), Arm(cell, name, repeat_every=33)))
        return observe_pairs(
            pairs,
            context,
            seed=300_000 + 1000 * repeat,
            loaded=False,
            plan=PLAN,
            margin=MARGIN,
            looks=(PROCESSES,),
            confirm=False,
        )

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        found: dict[bool, list[str]] = {True: [], False: []}
        for _, observation, name, kept in stored_pairs(observations):
            found[name.startswith("+")].append(comparison(observation, kept).verdict)
        more, same_ = found[True], found[False]
        if not more or not same_:
            return Finding(None, "nothing was observed")
        hits, alarms = sum(v == "REGRESSED" for v in more), sum(v in CHANGED for v in same_)
        text = f"+3 % found in {hits} of {len(more)}; identical code flagged in {alarms} of {len(same_)}"
        met = hits >= 0.9 * len(more) and alarms <= 0.01 * len(same_)
        return Finding(met if len(observations) == UNITS or not met else None, text)
