"""FLOP for each byte that has to be moved."""

from __future__ import annotations

from bench.metrics import Row, present, register_metric


@register_metric("flop_per_byte", title="arithmetic intensity, least bytes", unit="FLOP/B", better="higher")
def flop_per_byte(row: Row) -> float | None:
    """``flop / least_bytes``: set by the problem alone. It tells whether the rate of products or memory is the roof.

    Source: S. Williams, A. Waterman, D. Patterson, Roofline (2009).
    """
    if not present(row, "flop", "least_bytes", "latency_ms"):
        return None
    return float(row["flop"] / row["least_bytes"])
