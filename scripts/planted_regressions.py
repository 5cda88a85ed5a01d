"""Makes one implementation worse on purpose, for `scripts/check_campaign.py`: a file for ``--load``.

``PLANTED_REGRESSION`` says what and where, ``slower naive``, and ``PLANTED_TREE`` in which checkout: the baseline's own
code, which is measured beside it, has this file too.

* ``slower``: every call is followed by a tenth of the time that it took, in which the processor is kept busy. One more
  call after ten, as the soundness experiments inject, needs ten calls in a block, and the calls of the sweep `gate`
  are longer than that.
* ``bytes``: one byte more is alive during the call.
* ``error``: the output lies 1.3 times as far from the truth, in the same direction.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

import torch

from bench.implementation import AttentionInputs, AttentionOutput, Call, implementations
from bench.problem import Problem
from bench.reference import reference

VARIABLE, TREE = "PLANTED_REGRESSION", "PLANTED_TREE"
SLOWER, ERROR = 0.10, 1.3


def slower(call: Call, problem: Problem, inputs: AttentionInputs) -> Callable[[], AttentionOutput]:
    """A tenth more: computes for a tenth of the time that the call just took."""

    def run() -> AttentionOutput:
        start = perf_counter_ns()
        result = call.run()
        stop = perf_counter_ns()
        end = stop + round(SLOWER * (stop - start))
        while perf_counter_ns() < end:
            pass
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


def asked() -> list[str]:
    """What to plant and where, in words; nothing in another checkout."""
    here = Path(__file__).resolve().parents[1]
    return os.environ[VARIABLE].split() if VARIABLE in os.environ and Path(os.environ[TREE]) == here else []


if words := asked():
    plant(*words)
