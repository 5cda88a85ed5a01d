"""``naive``: scores, additive mask, softmax and value product spelled out, in the dtype of the problem.

The score matrix stays alive until the product is done and the scale and the mask are applied to it in place,
so the call holds two matrices of ``batch_size * num_heads_q * seqlen_q * seqlen_k`` elements and the output,
mask or no mask, grouped heads or not: the heads of a group are rows of one matmul, so no key or value is
repeated.

A row that may see nothing gets an additive mask of zeros, and its output is set to zero after the product:
the softmax of a row of ``-inf`` is NaN, and so would be its gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.implementation import (
    AttentionInputs,
    AttentionOutput,
    Call,
    Layout,
    dense_mask,
    register_implementation,
)
from bench.problem import Problem

if TYPE_CHECKING:
    import torch


@register_implementation
class Naive:
    """The definition of attention, one operator per step."""

    name = "naive"
    summary = "softmax(scale * q @ k^T + mask) @ v, one operator per step; stores the whole score matrix twice."
    layout: Layout = "bhsd"
    devices = ("cpu", "cuda")
    backward = True
    expects: tuple[str, ...] = ()

    def version(self) -> str:
        """Version of torch."""
        import torch

        return str(torch.__version__)

    def unsupported(self, problem: Problem, device: str) -> str | None:
        """None: every problem can be computed."""
        return None

    def predicted_peak_bytes(self, problem: Problem, device: str = "cpu") -> int:
        """Two score matrices and the output; backward two more, and dv, beside the weights that were kept."""
        matrix = problem.all_pairs * problem.element_bytes
        kv_rows = problem.batch_size * problem.num_heads_kv * problem.seqlen_k
        gradient = 2 * matrix + kv_rows * problem.head_dim_v * problem.element_bytes
        kept = matrix + problem.output_bytes
        return {"fwd": kept + matrix, "bwd": gradient, "fwd_bwd": kept + gradient}[problem.direction]

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        """Build the additive mask: 0 where visible, ``-inf`` where not; none where all is visible."""
        import torch

        mask, empty = _additive_mask(problem, inputs.q)
        by_group = (problem.batch_size, problem.num_heads_kv, -1)
        by_head = (problem.batch_size, problem.num_heads_q, problem.seqlen_q, -1)
        # Autograd answers an in-place change of a view by cloning the whole gradient; this reshape is no view
        # to it.
        reshape = torch.ops.aten._unsafe_view

        def run() -> AttentionOutput:
            q, k, v = inputs.q.view(*by_group, problem.head_dim), inputs.k, inputs.v
            scores = reshape(torch.matmul(q, k.transpose(-1, -2)), by_head)
            scores.mul_(problem.softmax_scale)
            if mask is not None:
                scores.add_(mask)
            weights = torch.softmax(scores, dim=-1)
            out = reshape(torch.matmul(weights.view(*by_group, problem.seqlen_k), v), by_head)
            if empty is not None:
                out.masked_fill_(empty, 0.0)
            return AttentionOutput(out)

        return Call(run, mask_bytes=sum(tensor.nbytes for tensor in (mask, empty) if tensor is not None))


def _additive_mask(problem: Problem, q: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The mask in the dtype of q, and which rows see nothing (bool, last axis 1), where there are any."""
    import torch

    if problem.attended_pairs == problem.all_pairs:
        return None, None
    keep = dense_mask(problem, q.device)
    empty = ~keep.any(dim=-1, keepdim=True)
    mask = torch.zeros(keep.shape, dtype=q.dtype, device=q.device).masked_fill_(~(keep | empty), -torch.inf)
    return mask, empty if bool(empty.any()) else None
