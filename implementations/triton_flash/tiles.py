"""What the kernels share: how they are compiled or interpreted, and device functions on tiles.

Interpreter mode runs the kernels in Python on CPU tensors, for correctness alone. It is entered where
``TRITON_INTERPRET`` is set, or where torch sees no CUDA device and the variable is not set at all. Two faults of
triton 3.7.1's interpreter concern bfloat16: ``tl.dot`` multiplies the raw 16-bit patterns, and a conversion from
float32 cuts off instead of rounding. Both are worked around behind the one constant ``UPCAST``: bfloat16 tiles are
widened to float32 when they are loaded, and what would be rounded to bfloat16 is rounded within float32. A device
never sees any of it.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import GridExecutor, InterpretedFunction

INTERPRETED = (
    os.environ["TRITON_INTERPRET"].lower() in ("1", "true", "on", "yes")
    if "TRITON_INTERPRET" in os.environ
    else not torch.cuda.is_available()
)
"""Whether the kernels of this process run in the interpreter; decided once, when they are first imported."""

UPCAST = tl.constexpr(INTERPRETED)
"""Whether bfloat16 lives in float32 inside the kernels, on its own grid of numbers."""

LOWEST = tl.constexpr(float(np.finfo(np.float32).min))
"""Where a running maximum starts: below every score, and unlike ``-inf`` it can be subtracted from ``-inf``."""

UNSPECIALIZED = (
    *("batch_size", "num_heads_q", "num_heads_kv", "group", "seqlen_q", "seqlen_k", "num_blocks", "num_splits"),
    *("left", "right", "table_stride", "scale", "exponent_scale"),
)
"""Arguments whose value must not lead to another compilation; of strides it is told where they are 1 or aligned."""


class _InPlace(GridExecutor):
    """The interpreter's loop over programs without its copies of all storages: the tensors are on the CPU already."""

    def _init_args_hst(self, args_dev, kwargs):
        return args_dev, kwargs

    def _restore_args_dev(self, args_dev, args_hst, kwargs, kwargs_hst):
        pass


class _Interpreted(InterpretedFunction):
    """A kernel as a Python function over NumPy arrays, quiet about the infinities that it computes with."""

    def run(self, *args, grid, warmup, **kwargs):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            _InPlace(self.rewrite(), self.arg_names, grid)(*args, **kwargs)


def kernel(fn):
    """Decorator of a kernel."""
    if INTERPRETED:
        return _Interpreted(fn)
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    return triton.jit(fn, do_not_specialize=[name for name in UNSPECIALIZED if name in names])


def inline(fn):
    """Decorator of a device function. The interpreter calls it as it is: its own wrapper patches Triton each time."""
    return fn if INTERPRETED else triton.jit(fn)


@inline
def round_to(x, dtype: tl.constexpr):
    """Float32 ``x`` rounded to ``dtype``, to nearest, ties to even."""
    if UPCAST and dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).to(tl.float32, bitcast=True)
    else:
        rounded = x.to(dtype)
    return rounded


@inline
def widened(tile):
    """What a kernel computes with instead of a loaded ``tile``: itself, but for bfloat16 in the interpreter."""
    return tile.to(tl.float32) if UPCAST and tile.dtype == tl.bfloat16 else tile


@inline
def offsets(rows, columns, stride_row, stride_column):
    """Where a tile's elements lie from its first: in 64 bits, as the strides of one tile alone can exceed 32."""
    return rows[:, None].to(tl.int64) * stride_row + columns[None, :].to(tl.int64) * stride_column


@inline
def load_tile(
    base,
    rows,
    columns,
    stride_row,
    stride_column,
    stop,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BOUNDED: tl.constexpr,
):
    """Rows ``rows`` of a matrix at ``base``; 0 from row ``stop`` on where BOUNDED, and from column ``WIDTH`` on."""
    pointers = base + offsets(rows, columns, stride_row, stride_column)
    if BOUNDED and WIDTH != BLOCK_WIDTH:
        tile = tl.load(pointers, mask=(rows < stop)[:, None] & (columns < WIDTH)[None, :], other=0.0)
    elif BOUNDED:
        tile = tl.load(pointers, mask=(rows < stop)[:, None], other=0.0)
    elif WIDTH != BLOCK_WIDTH:
        tile = tl.load(pointers, mask=(columns < WIDTH)[None, :], other=0.0)
    else:
        tile = tl.load(pointers)
    return widened(tile)


@inline
def load_line(pointers, keep, BOUNDED: tl.constexpr):
    """Float32 numbers, 0 where ``keep`` is false and BOUNDED."""
    return tl.load(pointers, mask=keep, other=0.0) if BOUNDED else tl.load(pointers)


@inline
def store_tile(
    base,
    tile,
    rows,
    columns,
    stride_row,
    stride_column,
    stop,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """Write the rows below ``stop`` and the columns below ``WIDTH``, rounded to what ``base`` points to."""
    pointers = base + offsets(rows, columns, stride_row, stride_column)
    keep = (rows < stop)[:, None]
    if WIDTH != BLOCK_WIDTH:
        keep = keep & (columns < WIDTH)[None, :]
    tl.store(pointers, round_to(tile, base.dtype.element_ty), mask=keep)


@inline
def signed(tile, SIGN: tl.constexpr):
    """``SIGN * tile``, exact in every dtype; so that a scale enters exponents by its magnitude alone."""
    if SIGN == -1:
        tile = -tile
    elif SIGN == 0:
        tile = tl.full(tile.shape, 0, tile.dtype)
    return tile


@inline
def visible(index, left, right, first_table, stop_table, table, limit):
    """First position that each ``index`` sees, and one past the last: int32 vectors like ``index``.

    The band ``index + left <= position <= index + right`` and the tables (rows at offset ``table``) hold where they
    are not None; positions are below ``limit``.
    """
    first = index * 0
    stop = first + limit
    if left is not None:
        first = tl.maximum(first, index + left)
    if right is not None:
        stop = tl.minimum(stop, index + right + 1)
    if first_table is not None:
        first = tl.maximum(first, tl.load(first_table + table + index))
        stop = tl.minimum(stop, tl.load(stop_table + table + index))
    return first, stop


@inline
def seen_range(first, stop, BLOCK: tl.constexpr):
    """Start of the first block that some index sees, and one past the last position seen; equal if there is none."""
    seen = stop > first
    high = tl.reduce(tl.where(seen, stop, 0), 0, tl.standard._elementwise_max)
    low = tl.reduce(tl.where(seen, first, high), 0, tl.standard._elementwise_min)
    return low // BLOCK * BLOCK, high


@inline
def block_ranges(first, stop, BLOCK: tl.constexpr):
    """What to visit so that every index sees its ``[first, stop)``, in blocks aligned to multiples of ``BLOCK``.

    Returns:
        ``begin, before, whole, whole_end, after``: ``before`` partly visible blocks from ``begin`` on, then the
        blocks ``[whole, whole_end)`` that every index sees whole, then ``after`` partly visible ones from
        ``whole_end`` on. Blocks outside are seen by nobody.
    """
    begin, high = seen_range(first, stop, BLOCK)
    whole = (tl.reduce(first, 0, tl.standard._elementwise_max) + BLOCK - 1) // BLOCK * BLOCK
    whole_end = tl.maximum(tl.reduce(stop, 0, tl.standard._elementwise_min) // BLOCK * BLOCK, whole)
    before = tl.maximum((tl.minimum(whole, high) - begin + BLOCK - 1) // BLOCK, 0)
    after = tl.maximum((high - whole_end + BLOCK - 1) // BLOCK, 0)
    return begin, before, whole, whole_end, after


@inline
def partial_block(number, begin, before, whole_end, BLOCK: tl.constexpr):
    """Start of partly visible block ``number`` of those that :func:`block_ranges` found."""
    return tl.where(number < before, begin + number * BLOCK, whole_end + (number - before) * BLOCK)


@inline
def hide(scores, columns, first, stop, LOW: tl.constexpr):
    """Scores at ``-inf`` where a row's ``[first, stop)`` does not hold the column; LOW: ``first`` may hide some."""
    keep = columns[None, :] < stop[:, None]
    if LOW:
        keep = keep & (columns[None, :] >= first[:, None])
    return tl.where(keep, scores, float("-inf"))
