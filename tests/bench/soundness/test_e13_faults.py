"""The judge of the fault campaign: one fault is enough to miss, and too few kills are not enough to meet."""

from __future__ import annotations

import pytest

from bench.soundness.e13_faults import SMOKE_KILLS, STUB_KILLS, Faults


def observed(stub=STUB_KILLS, smoke=SMOKE_KILLS, faults=()):
    def unit(kills, wrong=()):
        kill = {"victim": "worker", "signal": "SIGKILL", "when": "cells", "exit_code": 0}
        return {
            "trials": [
                {"seed": 0, "kills": [kill] * kills, "cells": 20, "lost": 1, "faults": list(wrong), "seconds": 1.0}
            ]
        }

    return {"stub/0": unit(stub, faults), "smoke/0": unit(smoke)}


@pytest.mark.parametrize(
    ("changes", "met"), [({}, True), ({"stub": 8}, None), ({"smoke": 4}, None), ({"faults": ("duplicate: a",)}, False)]
)
def test_the_judge(changes, met):
    finding = Faults().judge(observed(**changes))
    assert finding.met is met
    assert finding.rows[0]["lost_in_flight"] == 1


def test_units_hold_all_kills():
    assert len([unit for unit in Faults().units(quick=False) if unit.startswith("smoke")]) == SMOKE_KILLS
    assert Faults().judge({}).met is None
