"""Rate at which a call moves the bytes that it cannot avoid."""

from __future__ import annotations

from bench.metrics import Row, present, register_metric
from bench.units import gb_per_s


@register_metric("bandwidth_gb_per_s", title="bandwidth of the least bytes", unit="GB/s", better="higher")
def bandwidth(row: Row) -> float | None:
    """Inputs read and results written once, over the latency: what stores its scores moves far more than that."""
    if not present(row, "least_bytes", "latency_ms"):
        return None
    return gb_per_s(row["least_bytes"], row["latency_ms"])
