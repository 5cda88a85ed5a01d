"""Numerical experiments on attention that are no timing of a cell: the contract, one file per demonstration.

A demonstration is a function ``(quick) -> rows``: plain JSON rows, numbers named with their unit. It runs in a fresh
process, is deterministic but for what it times, and judges nothing: a claim (:mod:`bench.claims`) does. ``quick`` asks
for a part of the rows under the same names, in a few seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.registry import Registry

Rows = list[dict[str, Any]]
Demonstration = Callable[[bool], Rows]

demonstrations: Registry[Demonstration] = Registry("demonstrations", "demonstration", "bench.demonstrations")
"""``@demonstrations.register("name")`` on a function in a file of its own adds it."""
