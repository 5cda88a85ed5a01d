"""The decision rule on recorded noise: what identical code measured in 24 processes, idle and beside busy ones.

No clock is read: the durations lie in ``tests/data/noise.json`` (``scripts/record_noise.py``). Slow-downs are made by
scaling one arm. Draws of processes overlap, so a share of 0 means "none in a few independent groups"; the rate itself
is measured by the soundness experiments.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from statistics import fmean

import pytest

from bench.soundness._rivals import RIVALS
from bench.verdicts import process_estimate, two_looks

TRACES = json.loads((Path(__file__).parents[1] / "data" / "noise.json").read_text())
DRAWS = 200
CHANGED = ("REGRESSED", "IMPROVED")


def label(trace):
    return f"{trace['cell'].split()[0]}-{'loaded' if trace['loaded'] else 'idle'}"


def verdicts(trace, slower=1.0, pair=lambda one, other: (one["a"], one["b"])):
    """Two looks at draws of twelve processes; ``pair`` says what is compared in a process."""
    rng = random.Random(0)
    found = []
    for _ in range(DRAWS):
        chosen = rng.sample(trace["processes"], 12)
        estimates = []
        for one, other in zip(chosen, chosen[1:] + chosen[:1], strict=True):
            a, b = pair(one, other)
            estimates.append(process_estimate(a, [slower * value for value in b]))
        found.append(two_looks(estimates).verdict)
    return found


def share(found, *wanted):
    return sum(verdict in wanted for verdict in found) / len(found)


def test_there_are_traces_of_both_kinds_and_of_enough_processes():
    assert {trace["loaded"] for trace in TRACES} == {False, True}
    assert all(len(trace["processes"]) == 24 for trace in TRACES)
    assert all(len(p["a"]) == len(p["b"]) == 60 for trace in TRACES for p in trace["processes"])


@pytest.mark.parametrize("trace", TRACES, ids=label)
def test_identical_code_is_never_called_changed(trace):
    assert share(verdicts(trace), *CHANGED) == 0


@pytest.mark.parametrize("trace", TRACES, ids=label)
@pytest.mark.parametrize(("slower", "least"), [(1.10, 0.95), (1.20, 1.0)])
def test_real_slow_downs_are_found(trace, slower, least):
    assert share(verdicts(trace, slower), "REGRESSED") >= least
    assert share(verdicts(trace, 1 / slower), "IMPROVED") >= least


@pytest.mark.parametrize("trace", [trace for trace in TRACES if not trace["loaded"]], ids=label)
def test_five_percent_is_found_on_an_idle_machine(trace):
    assert share(verdicts(trace, 1.05), "REGRESSED") >= 0.8


def test_without_pairing_the_same_rule_finds_little():
    """A of one process against B of another: what pairing is for."""
    found = [
        verdict for trace in TRACES for verdict in verdicts(trace, 1.10, lambda one, other: (one["a"], other["b"]))
    ]
    assert share(found, "REGRESSED") < 0.8


def test_rules_of_others_call_identical_code_changed_on_the_same_samples():
    rng = random.Random(0)

    def arm(ns):
        return {"mean_ns": fmean(ns), "min_ns": min(ns), "blocks_ns": ns[::2]}

    flagged = dict.fromkeys(RIVALS, 0)
    draws = [(trace, *rng.sample(trace["processes"], 2)) for trace in TRACES for _ in range(20)]
    for _, one, other in draws:
        a, b = arm([ns / one["calls"] for ns in one["a"]]), arm([ns / other["calls"] for ns in other["b"]])
        for name, rule in RIVALS.items():
            flagged[name] += rule(a, b) != 0
    assert all(count > 0.1 * len(draws) for count in flagged.values()), flagged
