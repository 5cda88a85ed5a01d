"""Arithmetic rate as flash-attention's and Triton's benchmarks state it: dense, halved where the mask is
causal.
"""

from __future__ import annotations

from bench.metrics import Row, register_metric
from bench.metrics.tflops_dense import dense


@register_metric("tflops_halved", title="TFLOP/s, halved-causal convention", unit="TFLOP/s", better="higher")
def halved(row: Row) -> float | None:
    """Half the dense rate for a causal mask, whatever the two lengths are; other masks are ignored.

    For a square problem it differs from the exact count by the diagonal (0.2 % at 512); for one query against
    a long cache it is half of what was done.
    """
    rate = dense(row)
    if rate is None:
        return None
    terms = {term.strip() for term in row["mask"].split("&")}
    return rate / 2 if terms & {"causal", "causal_top_left"} else rate
