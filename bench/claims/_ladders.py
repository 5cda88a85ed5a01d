"""Lengths that several claims climb, so that a cell which two of them need is measured once."""

from __future__ import annotations

from typing import Any

from bench.claims import Scope
from bench.problem import Problem

LENGTHS = (512, 720, 1024, 1456, 2048, 2896, 4096, 5792, 8192)
"""Steps of the square root of two, rounded to multiples of 16 as in the default sweep. From 256 on, the scores of naive
would leave one cache after the other on the way, and its exponent would be that of the caches as well."""
QUICK_LENGTHS = (64, 96, 128, 176, 256, 368, 512, 720, 1024)
"""As many and as wide, where the longest costs a sixteenth."""


def ladder(scope: Scope) -> tuple[int, ...]:
    """Nine lengths over a factor of 16: what :mod:`bench.scaling` needs to tell a floor from a power."""
    return QUICK_LENGTHS if scope.quick else LENGTHS


def square(length: int, **fields: Any) -> Problem:
    """As many queries as keys, and one head unless ``fields`` says otherwise: ladders stay cheap."""
    return Problem(**({"seqlen": length, "num_heads": 1} | fields))
