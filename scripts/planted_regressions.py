"""Makes one implementation worse on purpose, for `scripts/check_campaign.py`: a file for ``--load``.

``PLANTED_REGRESSION`` says what and where, ``slower naive``:

* ``slower``: every call is followed by a tenth of its own time of other work, a loop whose length is measured against
  the call in each process that prepares it. One more call after ten, as the soundness experiments inject, needs ten
  calls in a block, and the calls of the sweep `gate` are longer than that.
* ``bytes``: one byte more is alive during the call.
* ``error``: the output lies 1.3 times as far from the truth, in the same direction.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import repeat
from statistics import median
from time import perf_counter_ns

import torch

from bench.implementation import AttentionInputs, AttentionOutput, Call, implementations
from bench.problem import Problem
from bench.reference import reference

VARIABLE = "PLANTED_REGRESSION"
SLOWER, ERROR = 0.10, 1.3
WARM_UP, CALLS, SPINS = 10, 25, 20_000


def spin(times: int) -> None:
    """Work on one thread that allocates nothing."""
    for _ in repeat(None, times):
        pass


LOOP = partial(spin, SPINS)


def duration_ns(run: Callable[[], object], calls: int = CALLS) -> float:
    """Median duration of a call."""
    found = []
    for _ in range(calls):
        start = perf_counter_ns()
        run()
        found.append(perf_counter_ns() - start)
    return median(found)


def slower(call: Call, problem: Problem, inputs: AttentionInputs) -> Callable[[], AttentionOutput]:
    """A tenth more work; call and loop are timed in turns, so that what slows one down slows both."""
    with torch.inference_mode():
        for _ in range(WARM_UP):
            call.run()
        turns = [(duration_ns(call.run, 1), duration_ns(LOOP, 1)) for _ in range(CALLS)]
    times = round(SLOWER * SPINS * median(call_ns / spin_ns for call_ns, spin_ns in turns))

    def run() -> AttentionOutput:
        result = call.run()
        spin(times)
        return result

    return run


def heavier(call: Call, problem: Problem, inputs: AttentionInputs) -> Callable[[], AttentionOutput]:
    """One byte more."""

    def run() -> AttentionOutput:
        byte = torch.empty(1, dtype=torch.uint8)
        result = call.run()
        del byte
        return result

    return run


def less_exact(call: Call, problem: Problem, inputs: AttentionInputs) -> Callable[[], AttentionOutput]:
    """What is added was computed beforehand, so that memory stays as it was; it follows the sign of the values."""
    with torch.inference_mode():
        out = call.run().out
        truth = reference(problem, inputs).tensors()["out"]
        more = ((ERROR - 1) * (out.double() - truth)).to(out.dtype)
        first = inputs.v.flatten()[0].item()

    def run() -> AttentionOutput:
        result = call.run()
        result.out.add_(more, alpha=1 if inputs.v.flatten()[0].item() == first else -1)
        return result

    return run


PLANTS = {"slower": slower, "bytes": heavier, "error": less_exact}


def plant(kind: str, name: str) -> None:
    """Replace what an implementation prepares."""
    member = implementations.get(name)
    prepare = member.prepare

    def planted(problem: Problem, inputs: AttentionInputs) -> Call:
        call = prepare(problem, inputs)
        return Call(PLANTS[kind](call, problem, inputs), call.mask_bytes, call.notes)

    object.__setattr__(member, "prepare", planted)


if VARIABLE in os.environ:
    plant(*os.environ[VARIABLE].split())
