"""E10: neither the place within a round nor which arm was prepared first favours an arm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any, ClassVar

from bench.paired import compare_pairs
from bench.soundness import Context, Finding, Observation, experiments
from bench.soundness._batches import same_pairs
from bench.timing import FULL

LIMIT = 0.003
UNITS = 4
PROCESSES = 6


@experiments.register("e10_order")
class Order:
    """Identical arms: in random order, and with A always first."""

    name: ClassVar[str] = "e10_order"
    title: ClassVar[str] = "Does the order of the arms matter?"
    target: ClassVar[str] = "median log ratio of identical arms in random order within 0.3 % of 0"
    reads: ClassVar[str] = "e10_order"

    def units(self, quick: bool) -> list[str]:
        return [] if quick else [f"problem-{problem}" for problem in range(UNITS)]

    def observe(self, unit: str, context: Context) -> Observation:
        problem = int(unit.rpartition("-")[2])
        result: dict[str, Any] = {}
        for label, fixed in (("random", False), ("fixed", True)):
            pairs = compare_pairs(
                same_pairs(problem),
                folder=context.folder,
                seed=400_000 + problem,
                plan=FULL,
                looks=(PROCESSES,),
                fixed_order=fixed,
                say=context.say,
            )
            result[label] = {name: outcome.estimates for name, outcome in pairs.items()}
            result[f"{label}_isolated"] = {
                name: [math.log(median(one.ns["a"]) / median(one.isolated_ns["a"])) for one in outcome.samples]
                for name, outcome in pairs.items()
            }
        return result

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        rows: list[dict[str, Any]] = []
        for label in ("random", "fixed"):
            medians = [median(v) for seen in observations.values() for v in seen[label].values() if v]
            apart = [median(v) for seen in observations.values() for v in seen[f"{label}_isolated"].values() if v]
            if not medians:
                return Finding(None, "nothing was observed")
            rows.append(
                {
                    "order": label,
                    "cells": len(medians),
                    "median_bias_percent": round(100 * median(medians), 3),
                    "worst_bias_percent": round(100 * max(medians, key=abs), 3),
                    "interleaved_over_isolated_percent": round(100 * math.expm1(median(apart)), 1),
                }
            )
        bias = abs(rows[0]["median_bias_percent"])
        found = (
            f"identical arms in random order differ by {rows[0]['median_bias_percent']:+.3f} % in the median cell "
            f"({rows[0]['worst_bias_percent']:+.2f} % in the worst), with A always first by "
            f"{rows[1]['median_bias_percent']:+.3f} %"
        )
        met = bias < 100 * LIMIT
        return Finding(met if len(observations) == UNITS or not met else None, found, rows)
