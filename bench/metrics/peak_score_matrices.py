"""Peak memory in units of the single score matrix that the theory speaks of."""

from __future__ import annotations

from bench.metrics import Row, register_metric


@register_metric("peak_score_matrices", title="peak over one score matrix", unit="", better="lower")
def peak_score_matrices(row: Row) -> float | None:
    """``peak_bytes / (batch_size * num_heads_q * seqlen_q * seqlen_k * element_bytes)``: a little above 2 for
    naive.
    """
    if row["peak_bytes"] is None:
        return None
    return float(row["peak_bytes"] / (row["all_pairs"] * row["element_bytes"]))
