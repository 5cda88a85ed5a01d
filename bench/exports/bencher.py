"""Bencher Metric Format: ``bencher run --adapter json --file RUN.json``.

Source: Bencher's reference, "Bencher Metric Format (BMF)": benchmark name to measure to ``value`` with optional
``lower_value`` and ``upper_value``. The built-in measure ``latency`` is in nanoseconds; others are made on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.exports import Files, by_run, cell_name, each_number, register_export
from bench.results import Run
from bench.units import NS_PER_MS

MEASURES = {"latency_ms": ("latency", NS_PER_MS), "peak_bytes": ("peak-bytes", 1), "out_max_abs": ("max-abs-error", 1)}
"""Number to Bencher's name of the measure and the factor to its unit."""


@register_export("bencher", summary="Bencher Metric Format (JSON): latency in ns with its interval, peak bytes, error.")
def bencher(runs: Sequence[Run]) -> Files:
    """One file per run, for the adapter ``json``."""
    return by_run(runs, _metrics)


def _metrics(run: Run) -> dict[str, dict[str, dict[str, float]]]:
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for record, _, number in each_number(run):
        measure, factor = MEASURES[number.name]
        ends: dict[str, Any] = {"value": number.value, "lower_value": number.lo, "upper_value": number.hi}
        metric = {name: value * factor for name, value in ends.items() if value is not None}
        benchmarks.setdefault(cell_name(record), {})[measure] = metric
    return benchmarks
