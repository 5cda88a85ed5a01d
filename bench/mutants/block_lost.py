"""A block of keys, or a single key, is left out; or it is missing from the denominator alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from bench.mutants import BLOCK, CORRECT, Mutant, Weights, correct_keep, correct_weights, mutants
from bench.problem import Problem

if TYPE_CHECKING:
    import torch

Place = Literal["first", "middle", "last"]


def _block(seqlen_k: int, place: Place) -> slice:
    """The keys of the first, middle or last block; the last one may be short."""
    blocks = -(-seqlen_k // BLOCK)
    index = {"first": 0, "middle": blocks // 2, "last": blocks - 1}[place]
    return slice(index * BLOCK, min((index + 1) * BLOCK, seqlen_k))


def _several_blocks(problem: Problem) -> bool:
    return problem.seqlen_k > BLOCK


for _place in ("first", "middle", "last"):

    def _without(problem: Problem, batch: int, rows: slice, place: Place = _place) -> torch.Tensor:
        keep = correct_keep(problem, batch, rows).clone()
        keep[..., _block(problem.seqlen_k, place)] = False
        return keep

    mutants.add(
        f"drops_{_place}_block",
        Mutant(
            f"drops_{_place}_block",
            f"the {_place} block of {BLOCK} keys is never read",
            replace(CORRECT, keep=_without),
            _several_blocks,
        ),
    )


def _without_one_key(problem: Problem, batch: int, rows: slice) -> torch.Tensor:
    keep = correct_keep(problem, batch, rows).clone()
    keep[..., problem.seqlen_k // 3] = False
    return keep


mutants.add(
    "drops_one_key",
    Mutant(
        "drops_one_key",
        "one key, at a third of the length, is never read",
        replace(CORRECT, keep=_without_one_key),
        lambda problem: problem.seqlen_k > 1,
    ),
)


def _denominator_skips_last_block(scores: torch.Tensor, keep: torch.Tensor) -> Weights:
    right = correct_weights(scores, keep)
    share = 1.0 - right.p[..., _block(scores.shape[-1], "last")].sum(dim=-1, keepdim=True)
    return Weights(right.p / share, right.lse + share.squeeze(-1).log())


mutants.add(
    "denominator_skips_block",
    Mutant(
        "denominator_skips_block",
        "the last block counts in the value sum but not in the exponential sum",
        replace(CORRECT, weights=_denominator_skips_last_block),
        _several_blocks,
    ),
)
