"""From tensors to launches: shapes, grids and arguments of the kernels, and nothing of autograd.

Tensors are taken in the logical order ``(batch, heads, seqlen, width)`` with any strides, so that a ``bshd`` tensor
is a transposed view. Results lie in memory in the order of the tensor they belong to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import torch

from implementations.triton_flash import autotune, backward, forward
from implementations.triton_flash.tuning import (
    DELTA_ROWS,
    DELTA_WARPS,
    JOIN_WARPS,
    Blocks,
    Direction,
    default_blocks,
    interpreter_blocks,
    num_splits,
    padded_width,
)

SMALLEST, LARGEST = 2.0**-126, 3.4028234663852886e38
"""Least and greatest normal float32."""


class Mask(NamedTuple):
    """A mask as the kernels take it (:class:`~implementations.triton_flash.masking.Visibility` as int32 tensors)."""

    left: int | None = None
    right: int | None = None
    keys: torch.Tensor | None = None
    key_ranges: torch.Tensor | None = None
    query_ranges: torch.Tensor | None = None


def like(tensor: torch.Tensor, width: int | None = None) -> torch.Tensor:
    """A new tensor with heads and positions in the memory order of ``tensor``, ``width`` wide (None: as wide)."""
    batch, heads, seqlen, own = tensor.shape
    width = own if width is None else width
    if tensor.stride(1) < tensor.stride(2):
        return tensor.new_empty(batch, seqlen, heads, width).transpose(1, 2)
    return tensor.new_empty(batch, heads, seqlen, width)


def run_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, mask: Mask, with_stats: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Out, LSE ``(batch, heads, seqlen_q)`` and statistics ``(2, batch, heads, seqlen_q)`` or ``(0,)``, in float32."""
    batch, heads, seqlen_q, _ = q.shape
    out = like(q, v.shape[3])
    lse = q.new_empty((batch, heads, seqlen_q), dtype=torch.float32)
    stats = q.new_empty((2, batch, heads, seqlen_q) if with_stats else (0,), dtype=torch.float32)
    if not k.numel() or not v.numel():  # nothing to see; no launch, as none could say how wide a row is
        out.zero_()
        lse.fill_(-math.inf)
        if with_stats:
            stats[0], stats[1] = 0.0, math.inf
    elif q.numel():
        splits = num_splits(seqlen_q, k.shape[2], heads // k.shape[1], dtype_name(q))
        with _on(q):
            if splits > 1:
                _split(q, k, v, out, lse, stats if with_stats else None, scale, mask, splits)
            else:
                _whole(q, k, v, out, lse, stats if with_stats else None, scale, mask)
    return out, lse, stats


def run_backward(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    stats: torch.Tensor,
    scale: float,
    mask: Mask,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk and dv for upstream gradients of out and, unless None, of LSE."""
    dq, dk, dv = like(q), like(k), like(v)
    if not (q.numel() and k.numel() and v.numel()):
        return dq.zero_(), dk.zero_(), dv.zero_()
    delta = q.new_empty(q.shape[:3], dtype=torch.float32)
    with _on(q):
        _delta(out, dout, dlse, delta)
        _keys(q, k, v, dout, stats, delta, dk, dv, scale, mask)
        _queries(q, k, v, dout, stats, delta, dq, scale, mask)
    return dq, dk, dv


TRIED: dict[Direction, Blocks] = {}
"""Blocks on trial, while they are timed."""
TUNED: dict[str, Blocks] = {}
"""What autotuning found in this process or read from disk, by its key."""


def blocks_for(
    direction: Direction, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, mask: Mask
) -> Blocks:
    """What a launch uses: those on trial, those that autotuning finds where it is asked for, or those of the table."""
    if direction in TRIED:
        return TRIED[direction]
    if not q.is_cuda:
        return interpreter_blocks(q.shape[2], k.shape[2])
    default = default_blocks(direction, q.device, dtype_name(q), padded_width(max(q.shape[3], v.shape[3])))
    if not autotune.enabled():
        return default
    key = autotune.key_of(direction, (q, k, v), mask, scale)
    if key not in TUNED:
        if torch.cuda.is_current_stream_capturing():
            return default
        own_q, own_k, own_v = (autotune.scratch(tensor) for tensor in (q, k, v))
        launch = _trial_launch(direction, own_q, own_k, own_v, scale, mask)
        TUNED[key] = autotune.best(key, autotune.candidates(direction, default), partial(_time, direction, launch))
    return TUNED[key]


def _trial_launch(
    direction: Direction, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, mask: Mask
) -> Callable[[], object]:
    """The launch of one kernel alone, on tensors that nobody else reads."""
    if direction in ("fwd", "split"):
        return partial(run_forward, q, k, v, scale, mask, with_stats=True)
    out, lse, stats = run_forward(q, k, v, scale, mask, with_stats=True)
    if direction == "bwd_keys":
        return partial(_keys, q, k, v, out, stats, lse, like(k), like(v), scale, mask)
    return partial(_queries, q, k, v, out, stats, lse, like(q), scale, mask)


def _time(direction: Direction, launch: Callable[[], object], blocks: Blocks) -> float:
    """Milliseconds of ``launch`` with these blocks."""
    TRIED[direction] = blocks
    try:
        return autotune.milliseconds(launch)
    finally:
        del TRIED[direction]


def dtype_name(tensor: torch.Tensor) -> str:
    """A tensor's dtype as problems name it."""
    return str(tensor.dtype).removeprefix("torch.")


def described(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, mask: Mask, gradients: bool
) -> dict[str, str]:
    """The blocks of every kernel that a call launches, by kernel, and where they come from; for a record's notes."""
    splits = num_splits(q.shape[2], k.shape[2], q.shape[1] // k.shape[1], dtype_name(q))
    kernels: list[Direction] = ["fwd" if splits == 1 else "split"]
    if gradients:
        kernels += ["bwd_keys", "bwd_queries"]
    told: dict[str, str] = {name: str(blocks_for(name, q, k, v, scale, mask)) for name in kernels}
    told["blocks"] = "interpreter" if not q.is_cuda else "autotuned" if autotune.enabled() else "table"
    return told if splits == 1 else told | {"splits": str(splits)}


def _whole(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    stats: torch.Tensor | None,
    scale: float,
    mask: Mask,
) -> None:
    batch, heads, seqlen_q, head_dim = q.shape
    blocks, tables = blocks_for("fwd", q, k, v, scale, mask), _tables(mask.key_ranges)
    num_blocks = -(-seqlen_q // blocks.block_m)
    forward.attention_forward[(num_blocks * heads * batch,)](
        *(q, k, v, out, lse, stats, *_pair(mask.keys), *tables.edges),
        *(*q.stride(), *k.stride(), *v.stride(), *out.stride()),
        *(tables.stride, mask.left, mask.right, *_scales(scale)),
        *(batch, heads, heads // k.shape[1], seqlen_q, k.shape[2], num_blocks),
        **_widths(head_dim, v.shape[3], scale),
        LOW=_hides_low(mask.left, mask.keys, mask.key_ranges),
        **blocks.launch_options(),
    )


def _split(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    stats: torch.Tensor | None,
    scale: float,
    mask: Mask,
    splits: int,
) -> None:
    batch, heads, seqlen_q, head_dim = q.shape
    heads_kv, seqlen_k, width = k.shape[1], k.shape[2], v.shape[3]
    group, blocks, tables = heads // heads_kv, blocks_for("split", q, k, v, scale, mask), _tables(mask.key_ranges)
    rows = seqlen_q * group
    acc = q.new_empty((splits, batch, heads_kv, rows, width), dtype=torch.float32)
    sums = q.new_empty((2, splits, batch, heads_kv, rows), dtype=torch.float32)
    options = blocks.launch_options() | {"BLOCK_M": padded_width(rows)}
    forward.attention_forward_split[(splits * heads_kv * batch,)](
        *(q, k, v, acc, sums, *_pair(mask.keys), *tables.edges),
        *(*q.stride(), *k.stride(), *v.stride()),
        *(tables.stride, mask.left, mask.right, _scales(scale)[1]),
        *(batch, heads_kv, group, seqlen_q, seqlen_k, splits),
        **_widths(head_dim, width, scale),
        **options,
    )
    forward.attention_forward_join[(rows * heads_kv * batch,)](
        *(acc, sums, out, lse, stats, *out.stride(), *_scales(scale)),
        *(batch, heads_kv, group, seqlen_q, splits),
        HEAD_DIM_V=width,
        BLOCK_SPLITS=1 << (splits - 1).bit_length(),
        BLOCK_DV=padded_width(width),
        num_warps=JOIN_WARPS,
    )


def _delta(out: torch.Tensor, dout: torch.Tensor, dlse: torch.Tensor | None, delta: torch.Tensor) -> None:
    batch, heads, seqlen_q, width = out.shape
    num_blocks = -(-seqlen_q // DELTA_ROWS)
    backward.attention_delta[(num_blocks * heads * batch,)](
        *(out, dout, dlse, delta, *out.stride(), *dout.stride()),
        *((0, 0, 0) if dlse is None else dlse.stride()),
        *(heads, seqlen_q, num_blocks),
        HEAD_DIM_V=width,
        BLOCK_M=DELTA_ROWS,
        BLOCK_DV=padded_width(width),
        num_warps=DELTA_WARPS,
    )


def _keys(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    stats: torch.Tensor,
    delta: torch.Tensor,
    dk: torch.Tensor,
    dv: torch.Tensor,
    scale: float,
    mask: Mask,
) -> None:
    batch, heads_kv, seqlen_k, head_dim = k.shape
    blocks, tables = blocks_for("bwd_keys", q, k, v, scale, mask), _tables(mask.query_ranges)
    # i + left <= j <= i + right, seen from j.
    left, right = (None if edge is None else -edge for edge in (mask.right, mask.left))
    num_blocks = -(-seqlen_k // blocks.block_n)
    backward.attention_backward_keys[(num_blocks * heads_kv * batch,)](
        *(q, k, v, dout, stats, delta, dk, dv, *_pair(mask.keys), *tables.edges),
        *(*q.stride(), *k.stride(), *v.stride(), *dout.stride(), *dk.stride(), *dv.stride()),
        *(tables.stride, left, right, _signed(scale), _scales(scale)[1]),
        *(batch, heads_kv, q.shape[1] // heads_kv, q.shape[2], seqlen_k, num_blocks),
        **_widths(head_dim, v.shape[3], scale),
        LOW=_hides_low(left, None, mask.query_ranges),
        **blocks.launch_options(),
    )


def _queries(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    stats: torch.Tensor,
    delta: torch.Tensor,
    dq: torch.Tensor,
    scale: float,
    mask: Mask,
) -> None:
    batch, heads, seqlen_q, head_dim = q.shape
    blocks, tables = blocks_for("bwd_queries", q, k, v, scale, mask), _tables(mask.key_ranges)
    num_blocks = -(-seqlen_q // blocks.block_m)
    backward.attention_backward_queries[(num_blocks * heads * batch,)](
        *(q, k, v, dout, stats, delta, dq, *_pair(mask.keys), *tables.edges),
        *(*q.stride(), *k.stride(), *v.stride(), *dout.stride(), *dq.stride()),
        *(tables.stride, mask.left, mask.right, _signed(scale), _scales(scale)[1]),
        *(batch, heads, heads // k.shape[1], seqlen_q, k.shape[2], num_blocks),
        **_widths(head_dim, v.shape[3], scale),
        LOW=_hides_low(mask.left, mask.keys, mask.key_ranges),
        **blocks.launch_options(),
    )


class _Tables(NamedTuple):
    edges: tuple[torch.Tensor | None, torch.Tensor | None]
    stride: int


def _tables(ranges: torch.Tensor | None) -> _Tables:
    """First and last edges, and how far apart the rows of two batch items lie."""
    return _Tables(_pair(ranges), 0 if ranges is None or ranges.shape[1] == 1 else ranges.shape[2])


def _pair(bounds: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    return (None, None) if bounds is None else (bounds[0], bounds[1])


def _hides_low(left: int | None, keys: torch.Tensor | None, ranges: torch.Tensor | None) -> bool:
    """Whether the first positions of a visited block may be hidden from some row."""
    return left is not None or keys is not None or ranges is not None


def _scales(scale: float) -> tuple[float, float]:
    """Magnitude of the scale, and that of exponents of two: kept normal, so that ``-inf`` times it stays ``-inf``."""
    size = abs(scale)
    return min(size, LARGEST), min(max(size * math.log2(math.e), SMALLEST), LARGEST)


def _signed(scale: float) -> float:
    """The scale as a factor of gradients: kept finite in float32, so that 0 times it stays 0."""
    return math.copysign(_scales(scale)[0], scale)


def _widths(head_dim: int, head_dim_v: int, scale: float) -> dict[str, int]:
    return {
        "HEAD_DIM": head_dim,
        "HEAD_DIM_V": head_dim_v,
        "BLOCK_D": padded_width(head_dim),
        "BLOCK_DV": padded_width(head_dim_v),
        "SIGN": (scale > 0) - (scale < 0),
    }


def _on(tensor: torch.Tensor) -> AbstractContextManager[None]:
    """Triton launches on the current device, which need not be the tensor's."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
