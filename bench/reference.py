"""The float64 oracle, and the naive arithmetic as the yardstick of what a dtype can give.

Both work through chunks of query rows and never hold a whole score matrix, so a sequence of 16,384 fits in
memory. Both skip the keys that no row of a chunk may see. Masked entries are set to minus infinity before the
maximum is taken, and a row without visible keys keeps ``out = 0``, ``lse = -inf`` and zero gradients:
``exp(-inf - -inf)`` is never evaluated.

With ``P = exp(scale * q @ k^T - lse)`` and ``D = rowsum(dout * out)`` the gradients are ``dv = P^T @ dout``,
``dS = P * (dout @ v^T - D)``, ``dq = scale * dS @ k`` and ``dk = scale * dS^T @ q``.
Source: Dao, FlashAttention-2 (2023), section 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.implementation import AttentionInputs, mask_block, mask_tables
from bench.problem import Problem

if TYPE_CHECKING:
    import torch

UNIT_ROUNDOFF: dict[str, float] = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half the distance from 1 to the next number, by dtype."""

CHUNK_ENTRIES = 1 << 20
"""Score entries held at once, over all heads: 8 MB in float64, which stays in the last-level cache.
"""
GPU_CHUNK_ENTRIES = 1 << 26
"""The same on a GPU: 512 MB in float64, enough to fill it."""


@dataclass(frozen=True)
class Reference:
    """What a right answer is, in the logical order of axes, on the CPU; no gradients for ``fwd``."""

    out: torch.Tensor
    """``(batch_size, num_heads_q, seqlen_q, head_dim_v)``."""
    lse: torch.Tensor
    """``(batch_size, num_heads_q, seqlen_q)``, natural logarithm; ``-inf`` for a row that may see nothing."""
    max_abs_score: float
    """Largest magnitude of a scaled score: what rounding errors of scores are relative to."""
    dq_noise: float = 0.0
    """Largest standard deviation that rounding of D gives an entry of dq (``_Noise``); 0 for the direction ``fwd``."""
    dk_noise: float = 0.0
    """The same for dk."""
    dq: torch.Tensor | None = None
    """``(batch_size, num_heads_q, seqlen_q, head_dim)``."""
    dk: torch.Tensor | None = None
    """``(batch_size, num_heads_kv, seqlen_k, head_dim)``."""
    dv: torch.Tensor | None = None
    """``(batch_size, num_heads_kv, seqlen_k, head_dim_v)``."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors there are, by name."""
        named = {name: getattr(self, name) for name in ("out", "lse", "dq", "dk", "dv")}
        return {name: tensor for name, tensor in named.items() if tensor is not None}


@dataclass
class _Noise:
    """Rounding noise of dq and dk that comes through ``D = rowsum(dout * out)``, as variances.

    An implementation that stores out computes D from entries that were each rounded once, so D of a row is
    off by about ``u(dtype) / sqrt(3) * |dout * out|``, and by ``2 * u(float32) * max|dP|`` from the two ways
    of summing. An error of D moves dq of its row by ``scale * D_error * (P @ k)`` and dk by ``scale * sum(P *
    D_error * q)`` over the rows.
    """

    dk: torch.Tensor
    """Variance per entry of dk, added up over the chunks."""
    unit: float
    """Unit roundoff of the problem's dtype."""
    dq: float = 0.0
    """Largest variance of an entry of dq."""

    def add(
        self,
        p: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        dout: torch.Tensor,
        out: torch.Tensor,
        largest_dp: torch.Tensor,
        keys: tuple[int, slice, slice],
        scale: float,
    ) -> None:
        """Take in some rows of one batch item."""
        d_error = self.unit / math.sqrt(3) * (dout * out).norm(dim=-1, keepdim=True)
        d_error += 2 * UNIT_ROUNDOFF["float32"] * largest_dp
        mean_key = (_merge(p) @ k).unflatten(1, p.shape[1:3])
        self.dq = max(self.dq, float((scale * d_error * mean_key).abs().max()) ** 2)
        self.dk[keys] += _merge(p.square()).transpose(-1, -2) @ _merge((scale * d_error * q).square())


@dataclass(frozen=True)
class _Chunk:
    """Some query rows of one batch item, and the keys that at least one of them may see."""

    batch: int
    rows: slice
    keys: slice
    hidden: torch.Tensor | None
    """Bool ``(1 or num_heads_kv, 1 or group, rows, keys)``, True = masked; None where all is visible."""


def reference(problem: Problem, inputs: AttentionInputs) -> Reference:
    """Compute ``problem`` in float64 from inputs in the logical order (layout ``bhsd``), on their device.

    Returns:
        Float64 tensors on the CPU.
    """
    import torch

    return _evaluate(problem, inputs, storage=torch.float64, compute=torch.float64)


def naive_yardstick(problem: Problem, inputs: AttentionInputs) -> Reference:
    """Compute ``problem`` with the naive arithmetic in its dtype, from ``inputs`` in the logical order.

    Each stage (scores, scaled scores, weights, product, and their gradients) is computed in float32 and
    rounded to the problem's dtype, which is what PyTorch's matmul and softmax do with half-precision tensors
    on accelerators and with bfloat16 on the CPU. Sums over the rows of several chunks stay in float32 until
    the end.

    Returns:
        Tensors of the problem's dtype, ``lse`` in float32 from the stored scores. They hold NaN where the
        naive arithmetic overflows (float16 scores above 65,504).
    """
    import torch

    return _evaluate(problem, inputs, storage=getattr(torch, problem.dtype), compute=torch.float32)


def _evaluate(problem: Problem, inputs: AttentionInputs, *, storage: torch.dtype, compute: torch.dtype) -> Reference:
    """Both functions above: values live in ``storage``, each stage is computed in ``compute``."""
    import torch

    def grouped(tensor: torch.Tensor) -> torch.Tensor:
        """Query-side tensor as ``(batch_size, num_heads_kv, group, seqlen_q, width)``."""
        blocks: torch.Tensor = tensor.detach().to(compute).unflatten(1, (problem.num_heads_kv, -1))
        return blocks

    device = inputs.q.device
    q, k, v = grouped(inputs.q), inputs.k.detach().to(compute), inputs.v.detach().to(compute)
    dout = None if problem.direction == "fwd" or inputs.dout is None else grouped(inputs.dout)
    out = torch.zeros((*q.shape[:-1], problem.head_dim_v), dtype=storage, device=device)
    lse = torch.full(q.shape[:-1], -torch.inf, dtype=compute, device=device)
    grads = None if dout is None else tuple(torch.zeros_like(tensor) for tensor in (q, k, v))
    noise = (
        None if grads is None or compute != torch.float64 else _Noise(torch.zeros_like(k), UNIT_ROUNDOFF[problem.dtype])
    )
    max_abs_score = 0.0

    for chunk in _chunks(problem, device):
        at = (chunk.batch, slice(None), slice(None), chunk.rows)
        keys = (chunk.batch, slice(None), chunk.keys)
        p, lse[at], largest = _weights(q[at], k[keys], chunk.hidden, problem.softmax_scale, storage)
        max_abs_score = max(max_abs_score, largest)
        chunk_out = _round(_merge(p) @ v[keys], storage).unflatten(1, p.shape[1:3])
        out[at] = chunk_out
        if dout is not None and grads is not None:
            dq, dk, dv, dp = _gradients(p, q[at], k[keys], v[keys], dout[at], problem.softmax_scale, storage)
            if noise is not None:
                noise.add(p, q[at], k[keys], dout[at], chunk_out, dp, keys, problem.softmax_scale)
            grads[0][at] = dq
            grads[1][keys] += dk
            grads[2][keys] += dv

    flat = [None] * 3 if grads is None else [grads[0].flatten(1, 2), grads[1], grads[2]]
    return Reference(
        out.flatten(1, 2).cpu(),
        lse.flatten(1, 2).cpu(),
        max_abs_score,
        0.0 if noise is None else math.sqrt(noise.dq),
        0.0 if noise is None else math.sqrt(float(noise.dk.max())),
        *(None if tensor is None else tensor.to("cpu", storage) for tensor in flat),
    )


def _weights(
    q: torch.Tensor, k: torch.Tensor, hidden: torch.Tensor | None, scale: float, storage: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Weights ``(num_heads_kv, group, rows, keys)``, lse without the last axis, largest |score|."""
    scores = _round(_merge(q) @ k.transpose(-1, -2), storage).unflatten(1, q.shape[1:3])
    scores = _round(scores.mul_(scale), storage)
    largest = float(max(-scores.min(), scores.max()))
    if hidden is not None:
        scores.masked_fill_(hidden, -float("inf"))
    top = scores.amax(dim=-1, keepdim=True)
    top.masked_fill_(top == -float("inf"), 0.0)  # an empty row: exp(-inf - 0) is 0, exp(-inf - -inf) would be NaN
    weights = scores.sub_(top).exp_()
    total = weights.sum(dim=-1, keepdim=True)
    lse = (top + total.log()).squeeze(-1)
    weights.div_(total.masked_fill_(total == 0, 1.0))
    return _round(weights, storage), lse, largest


def _gradients(
    p: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    scale: float,
    storage: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Contributions of one chunk to dq, dk and dv (not yet rounded where they are sums), and the largest |dP| per row.

    ``D`` is taken as ``rowsum(P * dP)``, which equals ``rowsum(dout * out)`` and is what softmax's own
    gradient computes.
    """
    dv = _merge(p).transpose(-1, -2) @ _merge(dout)
    dp = _round(_merge(dout) @ v.transpose(-1, -2), storage).unflatten(1, p.shape[1:3])
    largest = dp.abs().amax(dim=-1, keepdim=True)
    mean = (p * dp).sum(dim=-1, keepdim=True)
    ds = _round(_round(dp.sub_(mean).mul_(p), storage).mul_(scale), storage)
    dq = (_merge(ds) @ k).unflatten(1, p.shape[1:3])
    dk = _merge(ds).transpose(-1, -2) @ _merge(q)
    return dq, dk, dv, largest


def _chunks(problem: Problem, device: torch.device) -> Iterator[_Chunk]:
    """Cut the rows of each batch item into chunks of about :data:`CHUNK_ENTRIES` scores over all heads."""
    shape, tables = problem.mask_shape, mask_tables(problem, device)
    entries = CHUNK_ENTRIES if device.type == "cpu" else GPU_CHUNK_ENTRIES
    step = max(1, entries // (shape.num_heads * shape.seqlen_k))
    for batch in range(shape.batch_size):
        bounds = problem.mask.row_range(batch, shape)
        for first in range(0, shape.seqlen_q, step):
            rows = slice(first, min(first + step, shape.seqlen_q))
            if bounds is None:
                keys = slice(0, shape.seqlen_k)
                heads = [mask_block(problem, tables, batch, h, rows, keys, device) for h in range(shape.num_heads)]
                yield _Chunk(batch, rows, keys, _hidden(heads, problem.num_heads_kv))
                continue
            start, stop = bounds[0][rows], bounds[1][rows]
            seen = stop > start
            if not seen.any():
                continue
            keys = slice(int(start[seen].min()), int(stop[seen].max()))
            if seen.all() and start.max() <= keys.start and stop.min() >= keys.stop:
                yield _Chunk(batch, rows, keys, None)
            else:
                yield _Chunk(batch, rows, keys, ~mask_block(problem, tables, batch, 0, rows, keys, device)[None, None])


def _hidden(heads: list[torch.Tensor], num_heads_kv: int) -> torch.Tensor:
    """Blocks of all query heads as one bool tensor ``(num_heads_kv, group, rows, keys)``, True = masked."""
    import torch

    hidden: torch.Tensor = ~torch.stack(heads).unflatten(0, (num_heads_kv, -1))
    return hidden


def _merge(tensor: torch.Tensor) -> torch.Tensor:
    """``(num_heads_kv, group * rows, width)`` of ``(num_heads_kv, group, rows, width)``."""
    return tensor.flatten(1, 2)


def _round(tensor: torch.Tensor, storage: torch.dtype) -> torch.Tensor:
    """``tensor`` rounded to ``storage`` and back; itself where it already has that dtype."""
    return tensor if tensor.dtype == storage else tensor.to(storage).to(tensor.dtype)
