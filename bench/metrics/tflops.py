"""Arithmetic rate under our convention: the FLOP of the pairs that the mask lets through, exactly counted."""

from __future__ import annotations

from bench.metrics import Row, present, register_metric
from bench.units import tflops


@register_metric("tflops", title="TFLOP/s, exact pairs", unit="TFLOP/s", better="higher")
def exact(row: Row) -> float | None:
    """``2 * attended_pairs * (head_dim + head_dim_v)`` forward, ``2 * attended_pairs * (3 d_k + 2 d_v)``
    backward.
    """
    return tflops(row["flop"], row["latency_ms"]) if present(row, "flop", "latency_ms") else None
