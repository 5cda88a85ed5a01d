"""Arithmetic rate as projects state it that ignore the mask: every (query, key) pair counts."""

from __future__ import annotations

from bench.metrics import Row, present, register_metric
from bench.units import tflops


@register_metric("tflops_dense", title="TFLOP/s, dense convention", unit="TFLOP/s", better="higher")
def dense(row: Row) -> float | None:
    """The FLOP of the unmasked problem: almost twice ours for a causal square one, 64 times for a narrow
    window.
    """
    if not present(row, "flop", "latency_ms", "attended_pairs"):
        return None
    return tflops(row["flop"] * row["all_pairs"] / row["attended_pairs"], row["latency_ms"])
