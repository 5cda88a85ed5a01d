"""``naive_compiled``: the naive arithmetic under ``torch.compile``, with dynamic shapes.

Inductor fuses scale, mask and softmax, and may do more: a statically shaped naive attention it replaces by
PyTorch's flash kernel, which stores no scores. The note ``replaced_by`` names the attention operator that a
call dispatched, or is null where the scores really are stored.

Compilation happens in ``prepare``. PyTorch's answer to too many recompilations is to go on without compiling
and without saying so; that answer is turned off, and raises instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

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

RECOMPILE_LIMIT = 64
"""Compiled variants (dtypes, with and without mask, sizes of 1) that one process may hold."""


@register_implementation
class NaiveCompiled:
    """The definition of attention, as Inductor compiles it."""

    name = "naive_compiled"
    summary = "The arithmetic of naive under torch.compile, with dynamic shapes."
    layout: Layout = "bhsd"
    devices = ("cpu", "cuda")
    backward = False
    expects: tuple[str, ...] = ("CompiledFxGraph",)

    def version(self) -> str:
        """Version of torch."""
        import torch

        return str(torch.__version__)

    def unsupported(self, problem: Problem, device: str) -> str | None:
        """None: every problem can be computed."""
        return None

    def predicted_peak_bytes(self, problem: Problem, device: str = "cpu") -> int | None:
        """What torch 2.13 plans; None for one query, where it fuses the products too.

        Without a mask, or with grouped heads, scores and weights are two matrices. With a mask one is enough
        in float32; half precision adds it in a float32 matrix of its own.
        """
        if problem.seqlen_q == 1:
            return None
        matrix, rows = problem.all_pairs * problem.element_bytes, problem.all_pairs // problem.seqlen_k
        masked, half = problem.attended_pairs < problem.all_pairs, problem.dtype != "float32"
        in_place = masked and not half and problem.num_heads_q == problem.num_heads_kv
        matrices = matrix + (0 if in_place else matrix) + (4 * problem.all_pairs if masked and half else 0)
        return max(matrices + 4 * rows * (2 if masked else 3), matrix + problem.output_bytes)

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        """Build the additive mask, compile by a first call, and see by a second what was dispatched."""
        import torch

        mask, empty = _additive_mask(problem, inputs.q)
        function, out_shape = _compiled(), (*inputs.q.shape[:-1], problem.head_dim_v)

        def run() -> AttentionOutput:
            q = inputs.q.view(problem.batch_size, problem.num_heads_kv, -1, problem.head_dim)
            out = function(q, inputs.k, inputs.v, problem.softmax_scale, mask, empty)
            return AttentionOutput(out.view(out_shape))

        with torch.inference_mode():
            run()
            notes = {"replaced_by": _attention_operator(run)}
        mask_bytes = sum(tensor.nbytes for tensor in (mask, empty) if tensor is not None)
        return Call(run, mask_bytes=mask_bytes, notes=notes)


def _additive_mask(problem: Problem, q: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Mask in the dtype of q, and which rows see nothing: ``(items, kv heads, group, rows, ...)`` or 1.

    A row that sees nothing gets a mask of zeros and a zero output, since the softmax of ``-inf`` alone is
    NaN.
    """
    import torch

    if problem.attended_pairs == problem.all_pairs:
        return None, None
    keep = dense_mask(problem, q.device)
    keep = keep.unflatten(1, (problem.num_heads_kv if keep.shape[1] > 1 else 1, -1))
    empty = ~keep.any(dim=-1, keepdim=True)
    mask = torch.zeros(keep.shape, dtype=q.dtype, device=q.device).masked_fill_(~(keep | empty), -torch.inf)
    return mask, empty if bool(empty.any()) else None


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    mask: torch.Tensor | None,
    empty: torch.Tensor | None,
) -> torch.Tensor:
    """What is compiled; q is ``(items, kv heads, group * rows, width)``, for one matmul per group."""
    import torch

    scores = torch.matmul(q, k.transpose(-1, -2)) * scale
    if mask is not None:
        scores = (scores.unflatten(2, (-1, mask.shape[3])) + mask).flatten(2, 3)
    out = torch.matmul(torch.softmax(scores, dim=-1), v)
    if empty is not None:
        out = out.unflatten(2, (-1, empty.shape[3])).masked_fill(empty, 0.0).flatten(2, 3)
    return out


@cache
def _compiled() -> Callable[..., Any]:
    """The compiled function, one per process."""
    import torch._dynamo

    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, RECOMPILE_LIMIT)
    config.fail_on_recompile_limit_hit = True
    return torch.compile(_attention, dynamic=True, fullgraph=True)


def _attention_operator(run: Callable[[], object]) -> str | None:
    """Name of the fused attention operator that ``run`` dispatches, if any."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    return next((e.key for e in profiler.key_averages() if "scaled_dot_product" in e.key), None)
