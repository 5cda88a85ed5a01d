"""Share of the matrix-product rate that this machine was measured to reach."""

from __future__ import annotations

from bench.metrics import Row, present, register_metric
from bench.units import ms_to_s


@register_metric("peak_fraction", title="share of the measured matmul rate", unit="", better="higher")
def peak_fraction(row: Row) -> float | None:
    """``flop / latency`` over the best rate of ``torch.mm`` in the same dtype and run; above 1.05 it is wrong."""
    if not present(row, "flop", "latency_ms", "ceiling_flop_per_s"):
        return None
    return float(row["flop"] / ms_to_s(row["latency_ms"]) / row["ceiling_flop_per_s"])
