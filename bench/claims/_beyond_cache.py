"""Ladders whose bytes leave the last cache on the way: what that does to time, and whether it explains a steep law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.plots import Reading
from bench.scaling import sum_that_fits_better
from bench.units import format_bytes

if TYPE_CHECKING:
    from bench.claims._growth import Ladder


@dataclass(frozen=True)
class BeyondCache:
    """What happens to time where the bytes of a call leave the last cache."""

    text: str
    """From which size on, and how much dearer it gets."""
    explains: bool
    """Whether the expected growth, dearer by one factor for what lies beyond the cache, fits better than a power."""


def beyond_cache(reading: Reading, one: Ladder) -> BeyondCache | None:
    """None where nobody knows the cache, bytes do not leave it on the way, or time does not mind."""
    ceilings = next(run.header.ceilings for run in reading.runs if run.run_id == one.rows[0]["run_id"])
    size = None if ceilings is None else ceilings.cache_bytes
    if size is None or None in (row["peak_bytes"] for row in one.rows):
        return None
    latencies, x = np.asarray(one.fit.latencies_ms), np.asarray(one.fit.lengths) / one.fit.lengths[-1]
    power = x**one.axis.expected
    beyond = np.maximum(0.0, 1 - size / np.asarray([row["peak_bytes"] for row in one.rows], dtype=np.float64))
    each = (latencies - (one.fit.floor_ms or 0.0)) / power
    inside, outside = each[beyond == 0], each[beyond > 0]
    if min(len(inside), len(outside)) < 2 or np.median(outside) <= np.median(inside):
        return None
    residuals = np.log(latencies / [one.fitted_ms(length) for length in one.fit.lengths])
    found = sum_that_fits_better(np.log(latencies), np.stack([np.ones_like(x), power, power * beyond]), residuals)
    symbol, first = one.axis.symbol, one.fit.lengths[len(inside)]
    text = (
        f"from {symbol}={first:,} on its bytes exceed the last cache ({format_bytes(size)}), and time over "
        f"{symbol}^{one.axis.expected} is {np.median(outside) / np.median(inside):.2f}x that of shorter ones"
    )
    return BeyondCache(text, explains=found is not None and bool(found[1] > 0))
