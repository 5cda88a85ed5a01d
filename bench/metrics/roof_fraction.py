"""How close a call comes to the time that the measured roofs allow."""

from __future__ import annotations

from bench.metrics import Row, present, register_metric
from bench.units import ms_to_s


@register_metric("roof_fraction", title="share of the measured roofline", unit="", better="higher")
def roof_fraction(row: Row) -> float | None:
    """``max(flop / rate, least_bytes / bandwidth) / latency``, with the bandwidth of a working set of this size.

    Both are times that no implementation on this machine can go below. 1 is the roof.
    """
    if not present(row, "flop", "least_bytes", "latency_ms", "ceiling_flop_per_s", "ceiling_bytes_per_s"):
        return None
    least_s = max(row["flop"] / row["ceiling_flop_per_s"], row["least_bytes"] / row["ceiling_bytes_per_s"])
    return float(least_s / ms_to_s(row["latency_ms"]))
