"""Time per visible (query, key) pair."""

from __future__ import annotations

from bench.metrics import Row, present, register_metric
from bench.units import NS_PER_MS


@register_metric("time_per_pair_ns", title="time per attended pair", unit="ns", better="lower")
def time_per_pair(row: Row) -> float | None:
    """Latency over the attended pairs of all heads and batch items: constant where the cost of a pair
    rules.
    """
    if not present(row, "latency_ms", "attended_pairs"):
        return None
    return float(row["latency_ms"] * NS_PER_MS / row["attended_pairs"])
