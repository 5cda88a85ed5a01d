"""``online_softmax``: softmax in running form over key blocks, in plain PyTorch, memory linear in length.

For each block of queries three things are carried from key block to key block: the running maximum ``m``, the
exponential sum ``l`` and the value sum ``u``, both relative to ``m``. A block with scores ``S`` and values
``V`` updates them as::

    m' = max(m, rowmax(S))      a = exp(m - m')
    l' = a * l + rowsum(exp(S - m'))
    u' = a * u + exp(S - m') @ V                 at the end: out = u / l, lse = m + log(l)

``m`` starts at the lowest finite float32 instead of ``-inf``. A masked score is ``-inf``, so ``exp(S - m')``
is 0 however many blocks a row has seen nothing in, ``exp(-inf - -inf)`` never arises, and an empty row ends
with ``lse = -inf`` by itself.

Key blocks that no query of a block may see are skipped; those that every query sees whole are not masked. The
backward pass keeps ``m`` and ``l`` and recomputes the scores. It uses ``exp(S - m) / l`` and not ``exp(S -
lse)``: for large equal scores ``lse`` rounds away the ``log(l)``, and the gradient would be wrong by a factor
of up to ``seqlen_k``.

All sums are float32 in a fixed order, so results repeat bit for bit. Scratch is allocated once per call and
counts as its workspace; partly visible mask tiles are built in ``prepare`` and count as ``mask_bytes``.

Source: Milakov and Gimelshein, Online normalizer calculation for softmax (2018), algorithm 3; Dao,
FlashAttention-2 (2023), algorithms 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from bench.implementation import (
    AttentionInputs,
    AttentionOutput,
    Call,
    Layout,
    mask_block,
    mask_differs,
    mask_tables,
    register_implementation,
)
from bench.problem import Problem

if TYPE_CHECKING:
    import torch

BLOCK_M = 1024
"""Queries in a block, at most."""
BLOCK_N = 512
"""Keys in a block."""
BLOCK_ENTRIES = 1 << 21
"""Scores in a block over all heads: 8 MB in float32, inside the last-level cache of the machines it was tuned on.

Measured on two cores at 4 heads, 4,096 positions and width 64, interleaved, as time over that of naive: blocks of
1,024 x 512 took 0.96 and of 512 x 256 took 1.25 with sleeping OpenMP threads (each of the many small operators has to
wake them), 0.89 and 0.93 with spinning ones. Smaller blocks were slower still.
"""
MIN_BLOCK_M = 128
"""Fewest queries in a block however many heads: below that, calling overhead outweighs the cache.
"""

State = tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]


@dataclass(frozen=True)
class Tile:
    """A block of keys for a block of queries."""

    keys: slice
    """Which keys."""
    hidden: torch.Tensor | None
    """Bool, broadcasts to ``(items, num_heads_kv, group, rows, keys)``; None where all is visible."""


@dataclass(frozen=True)
class RowBlock:
    """A block of queries of some batch items, and the key blocks it has to look at."""

    items: slice
    """Batch items computed together: all of them, or one where the mask differs between them."""
    rows: slice
    """Which queries."""
    tiles: tuple[Tile, ...]
    """Key blocks in order; empty where the queries may see nothing."""


@dataclass(frozen=True)
class Plan:
    """Everything about a call that is known before it."""

    problem: Problem
    """What is computed."""
    block_m: int
    """Queries in a block."""
    block_n: int
    """Keys in a block."""
    blocks: tuple[RowBlock, ...] = ()
    """All blocks of queries; left out where only the memory law is asked for."""


@register_implementation
class OnlineSoftmax:
    """Running maximum, exponential sum and value sum over key blocks of ``block_n`` keys."""

    name = "online_softmax"
    summary = "Running softmax over key blocks in plain PyTorch; no score matrix, backward by recomputation."
    layout: Layout = "bhsd"
    devices = ("cpu", "cuda")
    backward = True
    expects: tuple[str, ...] = ()

    def __init__(self, block_m: int = BLOCK_M, block_n: int = BLOCK_N) -> None:
        self.block_m = block_m
        self.block_n = block_n

    def version(self) -> str:
        """Version of torch."""
        import torch

        return str(torch.__version__)

    def unsupported(self, problem: Problem, device: str) -> str | None:
        """None: every problem can be computed."""
        return None

    def predicted_peak_bytes(self, problem: Problem, device: str = "cpu") -> int:
        """Results, running maxima and sums, and the scratch of one block: linear in the length."""
        return _peak_bytes(self._plan(problem))

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        """Lay out the blocks and build the partly visible mask tiles."""
        import torch

        q, k, v = inputs.q, inputs.k, inputs.v
        plan = self._plan(problem, q.device)

        def run() -> AttentionOutput:
            if torch.is_grad_enabled() and q.requires_grad:
                return AttentionOutput(*_function().apply(plan, q, k, v))
            out, lse, _, _ = _forward(plan, q, k, v)
            return AttentionOutput(out, lse)

        hidden = [tile.hidden for block in plan.blocks for tile in block.tiles if tile.hidden is not None]
        notes = {"block_m": plan.block_m, "block_n": plan.block_n}
        return Call(run, mask_bytes=sum(tile.numel() for tile in hidden), notes=notes)

    def running_states(self, problem: Problem, inputs: AttentionInputs) -> list[tuple[RowBlock, Tile, State]]:
        """``(m, l, u)`` after each key block of each block of queries: what a test or a lesson looks at.

        ``m`` and ``l`` have the shape ``(items * num_heads_kv, group * rows, 1)``, ``u`` has ``head_dim_v``
        last.
        """
        seen: list[tuple[RowBlock, Tile, State]] = []
        plan = self._plan(problem, inputs.q.device)
        _forward(plan, inputs.q, inputs.k, inputs.v, observe=lambda *event: seen.append(event))
        return seen

    def _plan(self, problem: Problem, device: torch.device | None = None) -> Plan:
        """The block sizes, and on a device also the blocks."""
        block_n = min(self.block_n, problem.seqlen_k)
        fitting = BLOCK_ENTRIES // (_items(problem) * problem.num_heads_q * block_n)
        block_m = min(self.block_m, max(fitting, MIN_BLOCK_M), problem.seqlen_q)
        blocks = () if device is None else tuple(_row_blocks(problem, block_m, block_n, device))
        return Plan(problem, block_m, block_n, blocks)


def _row_blocks(problem: Problem, block_m: int, block_n: int, device: torch.device) -> Iterator[RowBlock]:
    """All blocks of queries with the key blocks that they have to look at."""
    items = _items(problem)
    for item in range(0, problem.batch_size, items):
        bounds = problem.mask.row_range(item, problem.mask_shape)
        for first in range(0, problem.seqlen_q, block_m):
            rows = slice(first, min(first + block_m, problem.seqlen_q))
            tiles = _tiles(problem, item, rows, block_n, bounds, device)
            yield RowBlock(slice(item, item + items), rows, tuple(tiles))


def _items(problem: Problem) -> int:
    """Batch items that are computed together."""
    return 1 if mask_differs(problem)[0] else problem.batch_size


def _tiles(problem: Problem, item: int, rows: slice, block_n: int, bounds: Any, device: torch.device) -> Iterator[Tile]:
    """Key blocks that some query in ``rows`` may see; ``bounds`` are the row ranges, if there are any."""
    import torch

    first, last, whole_from, whole_to = 0, problem.seqlen_k, problem.seqlen_k, 0
    if bounds is not None:
        start, stop = bounds[0][rows], bounds[1][rows]
        seen = stop > start
        if not seen.any():
            return
        first, last = int(start[seen].min()), int(stop[seen].max())
        whole_from, whole_to = int(start.max()), int(stop.min())
    tables, per_head = mask_tables(problem, device), mask_differs(problem)[1]
    for begin in range(first, last, block_n):
        keys = slice(begin, min(begin + block_n, last))
        if whole_from <= keys.start and keys.stop <= whole_to:
            yield Tile(keys, None)
            continue
        heads = range(problem.num_heads_q if per_head else 1)
        kept = torch.stack([mask_block(problem, tables, item, head, rows, keys, device) for head in heads])
        if bool(kept.all()):
            yield Tile(keys, None)
        elif bool(kept.any()):
            yield Tile(keys, ~kept.unflatten(0, (problem.num_heads_kv if per_head else 1, -1)))


def _sizes(plan: Plan, *, gradient: bool) -> dict[str, int]:
    """Float32 elements of each scratch tensor of one forward or gradient call."""
    problem, keys = plan.problem, plan.block_n
    lanes, width, width_v = _items(problem) * problem.num_heads_kv, problem.head_dim, problem.head_dim_v
    rows = _items(problem) * problem.num_heads_q * plan.block_m
    sizes = {"s": rows * keys, "q": rows * width, "m": rows, "l": rows, "u": rows * width_v}
    if gradient:
        sizes |= {"dp": rows * keys, "dq": rows * width, "dout": rows * width_v, "mean": rows}
    else:
        sizes |= {"m_new": rows, "row": rows}
    if problem.dtype != "float32":  # a tile of k and v in float32
        sizes |= {"k": lanes * keys * width, "v": lanes * keys * width_v}
    return sizes


def _peak_bytes(plan: Plan) -> int:
    """Bytes that one call holds at its peak, results included."""
    problem = plan.problem
    rows = problem.batch_size * problem.num_heads_q * problem.seqlen_q
    kv = problem.batch_size * problem.num_heads_kv * problem.seqlen_k * (problem.head_dim + problem.head_dim_v)
    kept = problem.output_bytes + 4 * 3 * rows  # out, and m, l and lse in float32
    forward = kept + 4 * sum(_sizes(plan, gradient=False).values())
    # dk and dv are summed in float32; half-precision results are rounded from them while the scratch is still
    # there.
    rounded = 0 if problem.dtype == "float32" else problem.element_bytes * kv
    gradients = problem.element_bytes * rows * problem.head_dim + 4 * kv + rounded
    backward = gradients + 4 * sum(_sizes(plan, gradient=True).values())
    return {"fwd": forward, "bwd": backward, "fwd_bwd": max(forward, kept + backward)}[problem.direction]


def _scratch(sizes: dict[str, int], device: torch.device) -> Callable[..., torch.Tensor]:
    """Allocate the scratch; the result gives a view of the beginning of one tensor in any shape that fits."""
    import torch

    flat = {name: torch.empty(size, dtype=torch.float32, device=device) for name, size in sizes.items()}
    return lambda name, *shape: flat[name][: prod(shape)].view(shape)


def _forward(
    plan: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, observe: Callable[..., None] | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Out in the problem's dtype; lse, m and l in float32 ``(batch_size, num_heads_q, seqlen_q)``."""
    import torch

    problem = plan.problem
    out = torch.empty((*q.shape[:-1], problem.head_dim_v), dtype=q.dtype, device=q.device)
    m_all, l_all = (torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device) for _ in range(2))
    take = _scratch(_sizes(plan, gradient=False), q.device)
    for block in plan.blocks:
        q_block, out_block = _rows(q, block, problem), _rows(out, block, problem)
        lanes, rows = q_block.shape[0] * q_block.shape[1], q_block.shape[2] * q_block.shape[3]
        qs = take("q", lanes, rows, problem.head_dim)
        qs.view(q_block.shape).copy_(q_block).mul_(problem.softmax_scale)
        m, m_new, total, row = (take(name, lanes, rows, 1) for name in ("m", "m_new", "l", "row"))
        u = take("u", lanes, rows, problem.head_dim_v)
        m.fill_(torch.finfo(torch.float32).min)
        total.zero_()
        u.zero_()
        for tile in block.tiles:
            s = _scores(take, qs, _tile("k", take, k, block, tile), q_block.shape[:4], tile)
            torch.maximum(m, torch.amax(s, dim=-1, keepdim=True, out=m_new), out=m_new)
            s.sub_(m_new).exp_()
            decay = m.sub_(m_new).exp_()
            total.mul_(decay).add_(torch.sum(s, dim=-1, keepdim=True, out=row))
            u.mul_(decay).baddbmm_(s, _tile("v", take, v, block, tile))
            m, m_new = m_new, m
            if observe is not None:
                observe(block, tile, (m.clone(), total.clone(), u.clone()))
        _rows(m_all, block, problem).copy_(m.view(q_block.shape[:4]))
        _rows(l_all, block, problem).copy_(total.view(q_block.shape[:4]))
        out_block.copy_(u.div_(total.masked_fill_(total == 0, 1.0)).view(out_block.shape))
    return out, torch.log(l_all).add_(m_all), m_all, l_all


def _backward(
    plan: Plan, saved: tuple[torch.Tensor, ...], dout: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, k and v from ``saved = (q, k, v, out, m, l)``, in the problem's dtype."""
    import torch

    problem, (q, k, v, out, m_all, l_all) = plan.problem, saved
    dq = torch.empty_like(q)
    # Contiguous whatever k and v are: the lanes that products are added to must be views, not copies.
    dk, dv = (torch.zeros(tensor.shape, dtype=torch.float32, device=tensor.device) for tensor in (k, v))
    take = _scratch(_sizes(plan, gradient=True), q.device)
    for block in plan.blocks:
        q_block, dout_block = _rows(q, block, problem), _rows(dout, block, problem)
        lanes, rows = q_block.shape[0] * q_block.shape[1], q_block.shape[2] * q_block.shape[3]
        qs, dq_sum = (take(name, lanes, rows, problem.head_dim) for name in ("q", "dq"))
        qs.view(q_block.shape).copy_(q_block).mul_(problem.softmax_scale)
        dq_sum.zero_()
        m, total, mean = (take(name, lanes, rows, 1) for name in ("m", "l", "mean"))
        m.view(q_block.shape[:4]).copy_(_rows(m_all, block, problem))
        total.view(q_block.shape[:4]).copy_(_rows(l_all, block, problem))
        # P = exp(S - m) / l; the division is done once, on dout, instead of on each score.
        douts, weighted = (take(name, lanes, rows, problem.head_dim_v) for name in ("dout", "u"))
        douts.view(dout_block.shape).copy_(dout_block)
        douts.div_(total.masked_fill_(total == 0, 1.0))
        weighted.view(dout_block.shape).copy_(_rows(out, block, problem))
        torch.sum(weighted.mul_(douts), dim=-1, keepdim=True, out=mean)
        for tile in block.tiles:
            k_tile, v_tile = _tile("k", take, k, block, tile), _tile("v", take, v, block, tile)
            p = _scores(take, qs, k_tile, q_block.shape[:4], tile).sub_(m).exp_()
            _lanes(dv, block, tile).baddbmm_(p.transpose(1, 2), douts)
            ds = torch.bmm(douts, v_tile.transpose(1, 2), out=take("dp", *p.shape)).sub_(mean).mul_(p)
            _lanes(dk, block, tile).baddbmm_(ds.transpose(1, 2), qs)
            dq_sum.baddbmm_(ds, k_tile)
        _rows(dq, block, problem).copy_(dq_sum.mul_(problem.softmax_scale).view(q_block.shape))
    return dq, dk.to(k.dtype), dv.to(v.dtype)


def _scores(
    take: Callable[..., torch.Tensor],
    qs: torch.Tensor,
    k_tile: torch.Tensor,
    shape: tuple[int, ...],
    tile: Tile,
) -> torch.Tensor:
    """Scores of a tile, masked ones at ``-inf``; ``shape`` is ``(items, num_heads_kv, group, rows)``."""
    import torch

    s: torch.Tensor = torch.bmm(qs, k_tile.transpose(1, 2), out=take("s", *qs.shape[:2], k_tile.shape[1]))
    if tile.hidden is not None:
        s.view(*shape, -1).masked_fill_(tile.hidden, -torch.inf)
    return s


def _rows(tensor: torch.Tensor, block: RowBlock, problem: Problem) -> torch.Tensor:
    """View of a query-side tensor's block as ``(items, num_heads_kv, group, rows, ...)``."""
    grouped: torch.Tensor = tensor.unflatten(1, (problem.num_heads_kv, -1))
    return grouped[block.items, :, :, block.rows]


def _lanes(tensor: torch.Tensor, block: RowBlock, tile: Tile) -> torch.Tensor:
    """View of a key-side tensor's tile as ``(items * num_heads_kv, keys, width)``."""
    return tensor[block.items].flatten(0, 1)[:, tile.keys]


def _tile(
    name: str, take: Callable[..., torch.Tensor], tensor: torch.Tensor, block: RowBlock, tile: Tile
) -> torch.Tensor:
    """A tile of k or v in float32: a view, or a copy in scratch where the problem's dtype is another one."""
    import torch

    view = _lanes(tensor, block, tile)
    tile_f32: torch.Tensor = view if view.dtype == torch.float32 else take(name, *view.shape).copy_(view)
    return tile_f32


@cache
def _function() -> Any:
    """The autograd function; a class that can be defined only once torch is imported."""
    import torch

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, plan: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            out, lse, m, total = _forward(plan, q, k, v)
            ctx.plan = plan
            ctx.save_for_backward(q, k, v, out, m, total)
            ctx.mark_non_differentiable(lse)
            return out, lse

        @staticmethod
        def backward(ctx: Any, dout: torch.Tensor, _: Any) -> Any:
            return None, *_backward(ctx.plan, ctx.saved_tensors, dout)

    return Function
