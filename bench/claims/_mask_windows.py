"""Ladders of lengths under a sliding window, and how time grows along them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bench.claims._mask_ratios import setting_text
from bench.metrics import Row
from bench.plots import Reading
from bench.scaling import MIN_LENGTHS, MIN_SPAN, TimeFit, fit_time

ABOVE_WINDOW = 4
"""Where only the window is computed, time is linear once lengths are so many windows."""


@dataclass(frozen=True)
class WindowLadder:
    """Rows of one implementation under one window that differ in length alone."""

    rows: tuple[Row, ...]
    """By ascending length."""
    setting: str
    """What is constant, as in ``sliding_window(256), float32, H=1, d=64``."""
    fit: TimeFit
    """With the exponent that is expected of this implementation."""

    @property
    def implementation(self) -> str:
        """Whose rows they are."""
        return str(self.rows[0]["implementation"])

    @property
    def subject(self) -> str:
        """In words."""
        return f"{self.implementation}, {self.setting}"


def window_ladders(reading: Reading, expected: Mapping[str, int], blocks: Mapping[str, int]) -> list[WindowLadder]:
    """Those with as many lengths as a fit needs; others were measured for something else.

    Args:
        reading: rows.
        expected: exponent by implementation; others are left out.
        blocks: longest block that an implementation with a linear law computes whole.
    """
    several = len({row["machine"] for row in reading.timed_ladder_rows}) > 1
    found = []
    for rows in reading.timed_ladders.values():
        first = rows[0]
        name, window = str(first["implementation"]), re.fullmatch(r"sliding_window\((\d+)\)", first["mask"])
        if name not in expected or window is None or first["shape"] != "square" or first["direction"] != "fwd":
            continue
        least = max(ABOVE_WINDOW * int(window[1]), blocks.get(name, 0)) if expected[name] == 1 else 0
        by_length = {row["length"]: row for row in rows if row["length"] >= least}
        if len(by_length) < MIN_LENGTHS or max(by_length) < MIN_SPAN * min(by_length):
            continue
        measured = {length: reading.record(row).measurement for length, row in sorted(by_length.items())}
        fit = fit_time({length: one for length, one in measured.items() if one is not None}, expected[name])
        setting = f"{first['mask']}, {setting_text(reading.record(first).problem)}"
        setting += f", {first['machine']}" if several else ""
        found.append(WindowLadder(tuple(by_length[length] for length in fit.lengths), setting, fit))
    return found
