"""The samples of each cell as the page holds them: raw, or where there are too many as quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.record import Record
from bench.report.packing import deltas, packed

MAX_RECORDS = 1000
"""Records up to which the page holds every sample."""
MAX_SAMPLES = 500_000
"""Samples in all up to which it does."""
QUANTILES = 32
"""Quantiles of each cell beyond that: the smallest sample, the largest, and evenly spaced ones between."""
STEP = 1e-4
"""Quantiles are kept in steps of this share of the median."""


def whole(records: Sequence[Record]) -> bool:
    """Whether the page holds these records in full."""
    total = sum(len(record.measurement.samples_ns) for record in records if record.measurement)
    return len(records) <= MAX_RECORDS and total <= MAX_SAMPLES


def sample_columns(records: Sequence[Record]) -> dict[str, Any]:
    """``kind`` (``raw`` or ``quantiles``) with the columns of it, one entry for each record.

    Raw: ``samples_ns`` and ``isolated_ns`` (blocks), each but the first as the distance from the one before;
    ``processes``. Quantiles: ``median_ns`` of a block, and ``quantiles`` as distances in steps of :data:`STEP`
    medians, so that the first one counts from zero.
    """
    if whole(records):
        return {"kind": "raw"} | _raw(records)
    return {"kind": "quantiles", "step": STEP} | _quantiles(records)


def _raw(records: Sequence[Record]) -> dict[str, Any]:
    measured = [record.measurement for record in records]
    return {
        "samples_ns": [None if one is None else deltas(one.samples_ns) for one in measured],
        "isolated_ns": [None if one is None else deltas(one.isolated_ns) for one in measured],
        "processes": packed([None if one is None else list(one.processes) for one in measured]),
    }


def _quantiles(records: Sequence[Record]) -> dict[str, Any]:
    by_count: dict[int, dict[int, Sequence[int]]] = {}
    for index, record in enumerate(records):
        if record.measurement is not None:
            taken = record.measurement.samples_ns
            by_count.setdefault(len(taken), {})[index] = taken
    medians: list[float | None] = [None] * len(records)
    steps: list[list[int] | None] = [None] * len(records)
    shares = np.linspace(0, 1, QUANTILES)
    for places in by_count.values():
        samples = np.array(list(places.values()), np.float64)
        found, median = np.quantile(samples, shares, axis=1), np.median(samples, axis=1)
        unit = np.where(median > 0, median, 1.0) * STEP
        for place, counts, middle in zip(places, np.rint(found / unit).T.astype(int).tolist(), median, strict=True):
            medians[place], steps[place] = float(middle), deltas(counts)
    return {"median_ns": medians, "quantiles": steps}
