"""The kernels as operators of torch: forward and backward, each with a fake and an autograd implementation.

A double backward would need the derivative of the backward kernels, which nobody wrote: the backward operator says so
itself, instead of returning a zero.
"""

from __future__ import annotations

from typing import Any

import torch

from bench.errors import Unsupported
from implementations.triton_flash import MOST_WIDTH
from implementations.triton_flash.launch import Mask, like, run_backward, run_forward
from implementations.triton_flash.tiles import INTERPRETED

NAMESPACE = "attention_bench"

DOUBLE_BACKWARD = (
    "triton_flash must be differentiated once, got a second derivative, for which it has no kernels. "
    "Take gradients without create_graph=True, or use another implementation, such as naive."
)


@torch.library.custom_op(f"{NAMESPACE}::triton_attention_forward", mutates_args=())
def attention_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    keys: torch.Tensor | None,
    key_ranges: torch.Tensor | None,
    query_ranges: torch.Tensor | None,
    with_stats: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Out, LSE and the statistics of the backward pass (empty unless asked for)."""
    return run_forward(q, k, v, scale, Mask(left, right, keys, key_ranges, query_ranges), with_stats)


@attention_forward.register_fake
def _(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    keys: torch.Tensor | None,
    key_ranges: torch.Tensor | None,
    query_ranges: torch.Tensor | None,
    with_stats: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = q.shape[:3]
    stats = q.new_empty((2, *rows) if with_stats else (0,), dtype=torch.float32)
    return like(q, v.shape[3]), q.new_empty(rows, dtype=torch.float32), stats


@torch.library.custom_op(f"{NAMESPACE}::triton_attention_backward", mutates_args=())
def attention_backward(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    stats: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    keys: torch.Tensor | None,
    key_ranges: torch.Tensor | None,
    query_ranges: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk and dv."""
    mask = Mask(left, right, keys, key_ranges, query_ranges)
    return run_backward(dout, dlse, q, k, v, out, stats, scale, mask)


@attention_backward.register_fake
def _(
    dout: torch.Tensor, dlse: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return like(q), like(k), like(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    q, k, v, scale, left, right, keys, key_ranges, query_ranges, with_stats = inputs
    out, _, stats = output
    if not with_stats:
        raise Unsupported("attention_forward must be given with_stats=True to be differentiated, got False. Set it.")
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, out, stats, keys, key_ranges, query_ranges)
    ctx.scalars = scale, left, right


def _differentiate(
    ctx: Any, dout: torch.Tensor | None, dlse: torch.Tensor | None, _: torch.Tensor | None
) -> tuple[Any, ...]:
    q, k, v, out, stats, keys, key_ranges, query_ranges = ctx.saved_tensors
    if dout is None and dlse is None:
        return (None,) * 10
    dout = torch.zeros_like(out) if dout is None else dout
    mask = (keys, key_ranges, query_ranges)
    gradients = attention_backward(dout, dlse, q, k, v, out, stats, *ctx.scalars, *mask)
    return *gradients, None, None, None, None, None, None, None


def _refuse(ctx: Any, *gradients: torch.Tensor) -> None:
    raise Unsupported(DOUBLE_BACKWARD)


attention_forward.register_autograd(_differentiate, setup_context=_keep)
attention_backward.register_autograd(_refuse)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None = None,
    mask: Mask = Mask(),  # noqa: B008  # a tuple of Nones
    layout: str = "bhsd",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention by the kernels, differentiable once.

    Args:
        q: ``(batch, heads, seqlen_q, head_dim)``, or with heads and positions exchanged for layout ``bshd``.
        k, v: the same with ``seqlen_k`` positions and a number of heads that divides that of q; v may be of its own
            width. All three on one device and of one dtype: float16, bfloat16 or float32. Any strides.
        scale: factor of the scores; None: ``head_dim ** -0.5``.
        mask: which keys each query sees; all by default.
        layout: ``bhsd`` or ``bshd``, of inputs and out.

    Returns:
        ``out`` in the layout, and ``lse`` float32 ``(batch, heads, seqlen_q)``, natural logarithm.

    Raises:
        Unsupported: where the kernels cannot compute it.
    """
    if layout == "bshd":
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    check(q, k, v)
    with_stats = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    scale = q.shape[3] ** -0.5 if scale is None else scale
    out, lse, _ = attention_forward(q, k, v, scale, *mask, with_stats)
    return (out.transpose(1, 2) if layout == "bshd" else out), lse


def check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Refuse what the kernels would read wrongly; shapes in the logical order.

    Raises:
        Unsupported: with the reason.
    """
    dtypes = {tensor.dtype for tensor in (q, k, v)}
    if len(dtypes) > 1 or not dtypes <= {torch.float16, torch.bfloat16, torch.float32}:
        got = ", ".join(str(tensor.dtype) for tensor in (q, k, v))
        raise Unsupported(f"q, k and v must be of one dtype of float16, bfloat16, float32, got {got}. Convert them.")
    if len({tensor.device for tensor in (q, k, v)}) > 1:
        raise Unsupported(f"q, k and v must be on one device, got {q.device}, {k.device}, {v.device}. Move them.")
    if q.is_cuda == INTERPRETED:
        mode, there, other = ("interpreted", "a CPU", 0) if INTERPRETED else ("compiled", "a GPU", 1)
        raise Unsupported(
            f"q, k and v must be on {there}, as the kernels of this process are {mode}, got {q.device}. "
            f"Move them, or set TRITON_INTERPRET={other} before the process starts."
        )
    if not _fit_together(q, k, v):
        got = ", ".join(str(tuple(tensor.shape)) for tensor in (q, k, v))
        raise Unsupported(f"q, k and v must be (batch, heads, seqlen, width) that fit together, got {got}.")
    if not 1 <= min(q.shape[3], v.shape[3]) <= max(q.shape[3], v.shape[3]) <= MOST_WIDTH:
        raise Unsupported(f"heads must be 1 to {MOST_WIDTH} wide, got {q.shape[3]} and {v.shape[3]}. Change the width.")


def _fit_together(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether batch, heads, positions and widths of the three are those of one attention."""
    if any(tensor.dim() != 4 for tensor in (q, k, v)):
        return False
    same = q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1:3] == v.shape[1:3] and q.shape[3] == k.shape[3]
    heads, heads_kv = q.shape[1], k.shape[1]
    return same and (heads % heads_kv == 0 if heads_kv else heads == 0)
