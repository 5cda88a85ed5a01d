"""Planted baselines and candidates for the tests of the check."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import planted

from bench.policy import Policy
from bench.state import State, state_of
from bench.verdicts import process_estimate

NOISE = json.loads((Path(__file__).parents[1] / "data" / "noise.json").read_text())
"""Recorded times of identical code."""
POLICY = Policy()
NAMES = ("naive", "online_softmax", "sdpa_flash", "sdpa_math")


def records(lengths=(128, 256), names=NAMES, **options):
    return [
        planted.record(name, length, rounds=10, **({"processes": 12} | options)) for length in lengths for name in names
    ]


def state(cells=None, policy=POLICY, extra=(), timed=True, **environment) -> State:
    return state_of(planted.run(records() if cells is None else cells, **environment), policy, extra, timed=timed)


def with_subject(one: State, key: str, **changes) -> State:
    """The state with one subject changed; ``values`` replaces single values, None takes one away."""
    subject = one.subjects[key]
    if "values" in changes:
        values = dict(subject.values) | changes.pop("values")
        changes["values"] = {name: value for name, value in values.items() if value is not None}
    return replace(one, subjects={**one.subjects, key: replace(subject, **changes)})


def without_subject(one: State, key: str) -> State:
    return replace(one, subjects={name: subject for name, subject in one.subjects.items() if name != key})


def from_noise(trace, rng: random.Random, slower: float = 1.0) -> tuple[State, list[State]]:
    """A baseline of twelve recorded processes and four looks of six others, one arm of which is ``slower``."""
    processes = [process_estimate(one["a"], one["b"]) for one in trace["processes"]]
    rng.shuffle(processes)
    before, after = processes[:12], [value + math.log(slower) for value in processes[12:]]
    again = rng.sample(after, 12)  # there are 24 processes: those that confirm are drawn from the same twelve
    key = "online_softmax B1-H4-T128-d64-float32-fwd-full"
    plain = state()
    return with_subject(plain, key, log_ratios=tuple(before)), [
        with_subject(plain, key, log_ratios=tuple(part)) for part in (after[:6], after[6:], again[:6], again[6:])
    ]


BASE_KEYS = tuple(state().subjects)
