"""The product: attention that never holds the scores of more than one head."""

from __future__ import annotations

import torch

__all__ = ["attention"]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, *, causal: bool = False) -> torch.Tensor:
    """Scaled dot-product attention, one head after the other.

    Args:
        q: queries, ``(batch_size, num_heads, seqlen, head_dim)``.
        k: keys, of the same shape.
        v: values, ``(batch_size, num_heads, seqlen, head_dim_v)``.
        scale: factor before softmax.
        causal: whether a query sees only keys up to its own position.

    Returns:
        The output, of the shape and dtype of ``v``.
    """
    out = torch.empty_like(v)
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1) if causal else None
    for item in range(q.shape[0]):
        for head in range(q.shape[1]):
            scores = (q[item, head] * scale) @ k[item, head].transpose(0, 1)
            if hidden is not None:
                scores.masked_fill_(hidden, float("-inf"))
            torch.matmul(scores.softmax(dim=-1), v[item, head], out=out[item, head])
    return out
