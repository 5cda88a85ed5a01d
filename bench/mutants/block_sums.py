"""Blocks are combined wrongly: normalised alone, not rescaled when the maximum rises, or summed in few bits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.mutants import BLOCK, CORRECT, Mutant, Weights, correct_weights, mutants
from bench.problem import Problem

if TYPE_CHECKING:
    import torch

SUM_BLOCK = 16
"""Keys added to the running sums at a time by the mutant that keeps them in few bits."""


def _normalised_by_itself(scores: torch.Tensor, keep: torch.Tensor) -> Weights:
    """The mean over blocks of each block's own softmax: the chapter's counter-example."""
    import torch

    right, parts = correct_weights(scores, keep), []
    for first in range(0, scores.shape[-1], BLOCK):
        block = slice(first, first + BLOCK)
        parts.append(correct_weights(scores[..., block], keep[..., block]).p)
    p = torch.cat(parts, dim=-1)
    return Weights(p / p.sum(dim=-1, keepdim=True).clamp_min(1.0), right.lse)


mutants.add(
    "blocks_normalised_alone",
    Mutant(
        "blocks_normalised_alone",
        "each block is normalised by itself and the results are averaged",
        replace(CORRECT, weights=_normalised_by_itself),
        lambda problem: problem.seqlen_k > BLOCK,
    ),
)


def _not_rescaled(scores: torch.Tensor, keep: torch.Tensor) -> Weights:
    """Each block uses the running maximum of its time; earlier sums are not multiplied by exp(m - m')."""
    import torch

    masked = scores.masked_fill(~keep, -float("inf"))
    tops = torch.stack([block.amax(dim=-1) for block in masked.split(BLOCK, dim=-1)], dim=-1).cummax(dim=-1).values
    tops = tops.masked_fill(tops == -float("inf"), 0.0)
    per_key = tops.repeat_interleave(BLOCK, dim=-1)[..., : scores.shape[-1]]
    e = (masked - per_key).exp()
    total = e.sum(dim=-1, keepdim=True)
    return Weights(e / total.masked_fill(total == 0, 1.0), tops[..., -1] + total.squeeze(-1).log())


mutants.add(
    "sums_not_rescaled",
    Mutant(
        "sums_not_rescaled",
        "when a later block raises the maximum, the old sums keep their old scale",
        replace(CORRECT, weights=_not_rescaled),
        lambda problem: problem.seqlen_k > BLOCK,
    ),
)


def _summed_in_few_bits(p: torch.Tensor, v: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Running sums of weights and of weighted values, kept in bfloat16 between small blocks."""
    import torch

    total = torch.zeros(*p.shape[:-1], 1, dtype=torch.bfloat16)
    value = torch.zeros(*p.shape[:-1], v.shape[-1], dtype=torch.bfloat16)
    for first in range(0, p.shape[-1], SUM_BLOCK):
        block = slice(first, first + SUM_BLOCK)
        total = (total + p[..., block].sum(dim=-1, keepdim=True)).to(torch.bfloat16)
        value = (value + p[..., block] @ v[..., block, :]).to(torch.bfloat16)
    return value.float() / total.float().masked_fill(total == 0, 1.0)


def _many_blocks(problem: Problem) -> bool:
    return problem.seqlen_k > 4 * SUM_BLOCK


mutants.add(
    "sums_in_bfloat16",
    Mutant(
        "sums_in_bfloat16",
        "the running exponential and value sums are kept in bfloat16",
        replace(CORRECT, mix=_summed_in_few_bits),
        _many_blocks,
    ),
)
