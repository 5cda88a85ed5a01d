"""Arithmetic rate as PyTorch's counter and attention-gym state it: two more FLOP per pair, for the
softmax.
"""

from __future__ import annotations

from bench.metrics import Row, present, register_metric
from bench.units import tflops


@register_metric("tflops_with_softmax", title="TFLOP/s, softmax counted", unit="TFLOP/s", better="higher")
def with_softmax(row: Row) -> float | None:
    """Ours plus ``2 * attended_pairs``: 0.8 % more at head_dim 64. Forward only; none of them states it for
    gradients.
    """
    if row["direction"] != "fwd" or not present(row, "flop", "latency_ms"):
        return None
    return tflops(row["flop"] + 2 * row["attended_pairs"], row["latency_ms"])
