"""The factor before softmax is not the one that was asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from bench.mutants import CORRECT, Mutant, mutants
from bench.problem import Problem


def _mutant(name: str, summary: str, scale: Callable[[Problem], float]) -> None:
    def applies(problem: Problem) -> bool:
        return problem.seqlen_k > 1 and scale(problem) != problem.softmax_scale

    mutants.add(name, Mutant(name, summary, replace(CORRECT, scale=scale), applies))


_mutant("scale_off_by_a_tenth", "the scale is 1.1 times what it should be", lambda p: 1.1 * p.softmax_scale)
_mutant(
    "scale_times_log2e",
    "the scale carries the factor log2(e) of a base-2 softmax, but the exponential is natural",
    lambda p: p.softmax_scale * math.log2(math.e),
)
_mutant(
    "scale_by_value_width",
    "the scale is that of the value width",
    lambda p: p.softmax_scale * math.sqrt(p.head_dim / p.head_dim_v),
)
_mutant("no_scale", "scores are not scaled at all", lambda p: 1.0)
_mutant("divided_by_width", "scores are divided by head_dim instead of its square root", lambda p: 1.0 / p.head_dim)
