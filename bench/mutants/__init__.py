"""Deliberately broken attention: what the gate has to refuse. The gate is scored against every member of this family.

A mutant is the correct computation with one step exchanged. :func:`attend` is that computation, written for
clarity: dense rows in float32, any mask, forward and backward; with :data:`CORRECT` steps it passes the gate
itself. One file may hold several mutants of one kind (the same fault at different places).

A mutant need not change every problem: without a causal mask there is no diagonal to be off by one.
``applies`` says where the function itself differs; whether that difference exceeds rounding in some setting
is for the score to find out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bench.implementation import AttentionInputs, mask_block, mask_tables
from bench.problem import Problem
from bench.registry import Registry

if TYPE_CHECKING:
    import torch

mutants: Registry[Mutant] = Registry("mutants", "mutant", "bench.mutants")

BLOCK = 64
"""Keys in a block of the mutants that lose, forget or fail to rescale one."""
CHUNK_ENTRIES = 1 << 22
"""Score entries evaluated at once where the steps need no other rows."""


class Weights(NamedTuple):
    """Result of the softmax step for some rows."""

    p: torch.Tensor
    """``(num_heads_q, rows, seqlen_k)`` float32."""
    lse: torch.Tensor
    """``(num_heads_q, rows)`` float32."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of attention; a mutant exchanges some of them."""

    scale: Callable[[Problem], float]
    """Factor before softmax."""
    keep: Callable[[Problem, int, slice], torch.Tensor]
    """``(problem, batch item, rows)`` to bool ``(1 or num_heads_q, rows, seqlen_k)``, True = attend."""
    kv_heads: Callable[[Problem], list[int]]
    """Key head that each query head reads."""
    weights: Callable[[torch.Tensor, torch.Tensor], Weights]
    """Scores ``(num_heads_q, rows, seqlen_k)`` and keep to weights and lse."""
    mix: Callable[[torch.Tensor, torch.Tensor, Problem], torch.Tensor]
    """Weights and values ``(num_heads_q, seqlen_k, head_dim_v)`` to output ``(num_heads_q, rows, head_dim_v)``."""
    finish: Callable[[Problem, dict[str, torch.Tensor]], dict[str, torch.Tensor]]
    """Last change to all results, float32, in the logical order."""
    all_rows: bool = False
    """Whether the steps need all rows at once."""


def correct_scale(problem: Problem) -> float:
    """The problem's own scale."""
    return problem.softmax_scale


def correct_keep(problem: Problem, batch: int, rows: slice) -> torch.Tensor:
    """The problem's own mask, bool ``(1 or num_heads_q, rows, seqlen_k)``."""
    return keep_of(problem, problem, batch, rows)


def keep_of(problem: Problem, other: Problem, batch: int, rows: slice, shift: int = 0) -> torch.Tensor:
    """The mask of ``other`` for rows of ``problem``, as if each query stood ``shift`` positions later."""
    import torch

    tables, keys = mask_tables(other, "cpu"), slice(0, problem.seqlen_k)
    moved = slice(rows.start + shift, rows.stop + shift)
    heads = range(problem.num_heads_q if problem.mask.row_range(batch, problem.mask_shape) is None else 1)
    return torch.stack([mask_block(other, tables, batch, head, moved, keys) for head in heads])


def correct_kv_heads(problem: Problem) -> list[int]:
    """Groups are blocks of query heads."""
    group = problem.num_heads_q // problem.num_heads_kv
    return [head // group for head in range(problem.num_heads_q)]


def correct_weights(scores: torch.Tensor, keep: torch.Tensor) -> Weights:
    """Softmax over the visible keys; a row without any has zero weights and ``lse = -inf``."""
    masked = scores.masked_fill(~keep, -float("inf"))
    top = masked.amax(dim=-1, keepdim=True)
    top = top.masked_fill(top == -float("inf"), 0.0)
    e = (masked - top).exp()
    total = e.sum(dim=-1, keepdim=True)
    return Weights(e / total.masked_fill(total == 0, 1.0), (top + total.log()).squeeze(-1))


def correct_mix(p: torch.Tensor, v: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Weighted sum of the values."""
    return p @ v


def unchanged(problem: Problem, results: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The results as they are."""
    return results


CORRECT = Steps(
    scale=correct_scale,
    keep=correct_keep,
    kv_heads=correct_kv_heads,
    weights=correct_weights,
    mix=correct_mix,
    finish=unchanged,
)


@dataclass(frozen=True)
class Mutant:
    """One way to be wrong."""

    name: str
    summary: str
    """What is wrong, in a sentence."""
    steps: Steps
    applies: Callable[[Problem], bool]
    """Whether the function differs from the right one for this problem."""
    backward_only: bool = False
    """Whether only gradients are wrong."""


def attend(steps: Steps, problem: Problem, inputs: AttentionInputs) -> dict[str, torch.Tensor]:
    """Attention by ``steps``, from inputs in the logical order on the CPU.

    Returns:
        ``out`` in the problem's dtype, ``lse`` in float32, and for the backward directions ``dq``, ``dk``, ``dv``.
    """
    import torch

    dtype, heads = getattr(torch, problem.dtype), steps.kv_heads(problem)
    step = max(1, CHUNK_ENTRIES // (problem.num_heads_q * problem.seqlen_k))
    step = problem.seqlen_q if steps.all_rows else step
    items: list[dict[str, list[torch.Tensor]]] = []
    for batch in range(problem.batch_size):
        q, k, v = (tensor[batch].float() for tensor in (inputs.q, inputs.k, inputs.v))
        k, v = k[heads], v[heads]
        dout = None if inputs.dout is None or problem.direction == "fwd" else inputs.dout[batch].float()
        item: dict[str, list[torch.Tensor]] = {name: [] for name in ("out", "lse", "dq", "dk", "dv")}
        for first in range(0, problem.seqlen_q, step):
            rows = slice(first, min(first + step, problem.seqlen_q))
            scores = (q[:, rows] @ k.transpose(-1, -2)).mul_(steps.scale(problem))
            p, lse = steps.weights(scores, steps.keep(problem, batch, rows))
            item["out"].append(steps.mix(p, v, problem))
            item["lse"].append(lse)
            if dout is not None:
                _backward(item, p, q[:, rows], k, v, dout[:, rows], steps.scale(problem))
        items.append(item)
    results = {name: torch.stack([torch.cat(item[name], dim=1) for item in items]) for name in ("out", "lse")}
    if problem.direction != "fwd":
        results["dq"] = torch.stack([torch.cat(item["dq"], dim=1) for item in items])
        results["dk"] = torch.stack([_per_kv_head(sum(item["dk"]), heads, problem) for item in items])
        results["dv"] = torch.stack([_per_kv_head(sum(item["dv"]), heads, problem) for item in items])
    results = steps.finish(problem, results)
    return {name: tensor if name == "lse" else tensor.to(dtype) for name, tensor in results.items()}


def _backward(
    item: dict[str, list[torch.Tensor]],
    p: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    scale: float,
) -> None:
    """Append the gradients of some rows; k and v have one entry per query head."""
    dp = dout @ v.transpose(-1, -2)
    ds = p * (dp - (p * dp).sum(dim=-1, keepdim=True))
    item["dq"].append(ds @ k * scale)
    item["dk"].append(ds.transpose(-1, -2) @ q * scale)
    item["dv"].append(p.transpose(-1, -2) @ dout)


def _per_kv_head(per_query_head: torch.Tensor | int, heads: list[int], problem: Problem) -> torch.Tensor:
    """Sum the gradients of the query heads that share a key head."""
    import torch

    assert isinstance(per_query_head, torch.Tensor), "there is at least one chunk of rows"
    shared = torch.zeros(problem.num_heads_kv, *per_query_head.shape[1:])
    return shared.index_add_(0, torch.tensor(heads), per_query_head)
