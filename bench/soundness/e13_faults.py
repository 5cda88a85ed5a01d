"""E13: runs killed at random moments and resumed. No finished cell is lost, doubled or broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from bench.fault_campaign import campaign
from bench.soundness import Context, Finding, Observation, experiments

STUB_KILLS, SMOKE_KILLS = 200, 5
KILLS = 8
"""In a unit of the stub sweep: two sweeps at a time, each killed four times on its way."""


@experiments.register("e13_faults")
class Faults:
    """200 kills over a stub sweep of 20 cells and 5 over the sweep ``smoke``, resumed until nothing is missing."""

    name: ClassVar[str] = "e13_faults"
    title: ClassVar[str] = "What does a kill at any moment cost?"
    target: ClassVar[str] = (
        "200 kills over a stub sweep and 5 over smoke, resumed: every cell exactly once, no corrupt file, no orphan"
    )
    reads: ClassVar[str] = "e13_faults"

    def units(self, quick: bool) -> list[str]:
        if quick:
            return []  # a unit takes most of a minute
        return [f"stub/{n}" for n in range(STUB_KILLS // KILLS)] + [f"smoke/{n}" for n in range(SMOKE_KILLS)]

    def observe(self, unit: str, context: Context) -> Observation:
        kind, number = unit.split("/")
        smoke = ["measure", "--sweep", "smoke"]
        trials = campaign(
            KILLS if kind == "stub" else 1,
            context.folder,
            seed=10 * int(number),
            words=smoke if kind == "smoke" else None,
            say=context.say,
        )
        return {"trials": [asdict(trial) for trial in trials]}

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        if not observations:
            return Finding(None, "nothing was observed")
        rows: list[dict[str, Any]] = []
        for kind in ("stub", "smoke"):
            trials = [t for unit, seen in observations.items() if unit.startswith(kind) for t in seen["trials"]]
            kills = [kill for trial in trials for kill in trial["kills"]]
            victims = Counter(f"{kill['victim']} {kill['signal']}" for kill in kills)
            moments = Counter(kill["when"] for kill in kills)
            rows.append(
                {
                    "sweep": kind,
                    "kills": len(kills),
                    "cells": sum(trial["cells"] for trial in trials),
                    "lost_in_flight": sum(trial["lost"] for trial in trials),
                    "faults": "; ".join(fault for trial in trials for fault in trial["faults"]) or "none",
                    "victims": ", ".join(f"{count} {name}" for name, count in sorted(victims.items())),
                    "moments": ", ".join(f"{count} {name}" for name, count in sorted(moments.items())),
                }
            )
        faults = sum(len(t["faults"]) for seen in observations.values() for t in seen["trials"])
        found = (
            f"{rows[0]['kills']} kills over the stub sweep and {rows[1]['kills']} over smoke: {faults} faults; "
            f"{rows[0]['cells'] + rows[1]['cells']} cells, {rows[0]['lost_in_flight'] + rows[1]['lost_in_flight']} of "
            "them in flight when their worker was killed, and measured again"
        )
        enough = rows[0]["kills"] >= STUB_KILLS and rows[1]["kills"] >= SMOKE_KILLS
        return Finding(False if faults else (True if enough else None), found, rows)
