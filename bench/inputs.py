"""Seeded q, k, v and dout of a problem, in the memory layout that an implementation declares.

Every layout and device sees the same numbers: they are drawn on the CPU in float32, in the logical order,
rounded once to the problem's dtype, and only then laid out and moved. What the reference computes from are
these rounded numbers.

Distributions (dout is always standard normal):

* ``normal``: N(0, 1), what most published figures use.
* ``uniform``: U[0, 1), all of one sign, so that no score averages out.
* ``outlier``: N(0, 1) + N(0, 100) * Bernoulli(0.001), 100 being the variance. Source: FlashAttention-3
  (2024), table 3.
* ``peaked``: k and v normal, and each query is N(0, 1) plus twice its own position's key on the bottom-right
  diagonal (clamped to the keys there are), so its score there is about ``2 * sqrt(head_dim)`` and most
  weights are nearly 0 or 1.
* ``padded_dout_zero``: as ``normal``, but dout is 0 for padded queries of self-attention: what a loss that leaves
  padding out sends back. Key padding alone does not do that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bench.implementation import AttentionInputs, Layout
from bench.problem import Problem

if TYPE_CHECKING:
    import torch

OUTLIER_SHARE = 0.001
OUTLIER_STD = 10.0
PEAK_GAIN = 2.0
TAIL = 1 << 14
"""NaN entries behind each input: more than a tile of 128 rows of width 128."""


def make_inputs(problem: Problem, layout: Layout = "bhsd", device: str = "cpu") -> AttentionInputs:
    """Draw the tensors of ``problem``, dout only where the direction needs it; none requires a gradient.

    Returns:
        q, k, v (and dout) of the problem's dtype, contiguous in ``layout``, on ``device``.
    """
    import torch

    generator = torch.Generator().manual_seed(problem.seed)
    batch, dtype = problem.batch_size, getattr(torch, problem.dtype)
    q_shape = (batch, problem.num_heads_q, problem.seqlen_q, problem.head_dim)
    k_shape = (batch, problem.num_heads_kv, problem.seqlen_k, problem.head_dim)
    v_shape = (batch, problem.num_heads_kv, problem.seqlen_k, problem.head_dim_v)
    out_shape = (batch, problem.num_heads_q, problem.seqlen_q, problem.head_dim_v)

    q, k, v = (_draw(problem.distribution, shape, generator) for shape in (q_shape, k_shape, v_shape))
    if problem.distribution == "peaked":
        q = q.add_(_own_keys(problem, k), alpha=PEAK_GAIN)
    # dout is drawn last, so that q, k and v are the same in every direction.
    dout = None if problem.direction == "fwd" else torch.randn(out_shape, generator=generator)

    if dout is not None and problem.distribution == "padded_dout_zero":
        dout *= _valid_queries(problem)
    rounded = AttentionInputs(q.to(dtype), k.to(dtype), v.to(dtype), None if dout is None else dout.to(dtype))
    return place_inputs(rounded, layout, device)


def _valid_queries(problem: Problem) -> torch.Tensor:
    """1 where a query of self-attention is no padding, else 0: float32 ``(batch_size, 1, seqlen_q, 1)``."""
    import torch

    structure = problem.mask.structure(problem.mask_shape)
    valid = torch.ones(problem.batch_size, 1, problem.seqlen_q, 1)
    if structure is not None and structure.key_stop and problem.seqlen_q == problem.seqlen_k:
        for item, (start, stop) in enumerate(zip(structure.key_start, structure.key_stop, strict=True)):
            valid[item, :, :start] = valid[item, :, stop:] = 0.0
    return valid


def place_inputs(logical: AttentionInputs, layout: Layout, device: str) -> AttentionInputs:
    """Copies of tensors in the logical order, contiguous in ``layout`` on ``device``, with NaN right behind each.

    A kernel that reads past the end of a tensor and uses what it finds shows it by a NaN.
    """
    import torch

    def place(tensor: torch.Tensor) -> torch.Tensor:
        turned = tensor if layout == "bhsd" else tensor.transpose(1, 2)
        buffer = torch.full((turned.numel() + TAIL,), math.nan, dtype=tensor.dtype, device=device)
        placed = buffer[: turned.numel()].view(turned.shape)
        placed.copy_(turned)
        return placed

    dout = None if logical.dout is None else place(logical.dout)
    return AttentionInputs(place(logical.q), place(logical.k), place(logical.v), dout)


def poison(problem: Problem, device: str) -> None:
    """Fill memory of the size of the results with NaN and give it back, so that what a call leaves unwritten shows."""
    import torch

    dtype = getattr(torch, problem.dtype)
    size = problem.output_bytes // problem.element_bytes
    held = [torch.full((size,), math.nan, dtype=dtype, device=device) for _ in range(2)]
    held.append(torch.full((size // problem.head_dim_v,), math.nan, device=device))
    del held


def to_layout(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """A tensor in the logical order ``(batch, heads, seqlen, width)``, made contiguous in ``layout``."""
    return tensor.contiguous() if layout == "bhsd" else tensor.transpose(1, 2).contiguous()


def to_logical(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """A view of a tensor in ``layout`` with its axes as ``(batch, heads, seqlen, width)``."""
    return tensor if layout == "bhsd" else tensor.transpose(1, 2)


def _draw(distribution: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """One float32 tensor of ``shape``."""
    import torch

    if distribution == "uniform":
        return torch.rand(shape, generator=generator)
    values = torch.randn(shape, generator=generator)
    if distribution == "outlier":
        hit = torch.rand(shape, generator=generator) < OUTLIER_SHARE
        values += torch.randn(shape, generator=generator) * OUTLIER_STD * hit
    return values


def _own_keys(problem: Problem, k: torch.Tensor) -> torch.Tensor:
    """For each query the key of its own position and head group, with the shape of q."""
    import torch

    own = torch.arange(problem.seqlen_q) + problem.mask_shape.diagonal
    per_kv_head = k[:, :, own.clamp(0, problem.seqlen_k - 1)]
    return per_kv_head.repeat_interleave(problem.num_heads_q // problem.num_heads_kv, dim=1)
