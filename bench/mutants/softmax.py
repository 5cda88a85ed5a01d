"""The softmax itself is wrong: its axis, its order with the mask, its stability, its base, its empty rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.mutants import CORRECT, Mutant, Weights, correct_weights, mutants
from bench.problem import Problem

if TYPE_CHECKING:
    import torch


def _masked_afterwards(scores: torch.Tensor, keep: torch.Tensor) -> Weights:
    import torch

    everything = correct_weights(scores, torch.ones_like(keep))
    return Weights(everything.p * keep, everything.lse)


mutants.add(
    "masked_after_softmax",
    Mutant(
        "masked_after_softmax",
        "weights of blocked keys are zeroed after the softmax and the rest is not normalised again",
        replace(CORRECT, weights=_masked_afterwards),
        lambda p: p.attended_pairs < p.all_pairs,
    ),
)


def _over_queries(scores: torch.Tensor, keep: torch.Tensor) -> Weights:
    turned = correct_weights(scores.transpose(-1, -2), keep.transpose(-1, -2))
    return Weights(turned.p.transpose(-1, -2), correct_weights(scores, keep).lse)


mutants.add(
    "softmax_over_queries",
    Mutant(
        "softmax_over_queries",
        "the softmax runs over the query axis",
        replace(CORRECT, weights=_over_queries, all_rows=True),
        lambda p: p.seqlen_q > 1 or p.seqlen_k > 1,
    ),
)


def _no_maximum(scores: torch.Tensor, keep: torch.Tensor) -> Weights:
    e = scores.masked_fill(~keep, -float("inf")).exp()
    total = e.sum(dim=-1, keepdim=True)
    return Weights(e / total.masked_fill(total == 0, 1.0), total.squeeze(-1).log())


mutants.add(
    "no_maximum",
    Mutant(
        "no_maximum",
        "the maximum is not subtracted, so exponentials of large scores overflow",
        replace(CORRECT, weights=_no_maximum),
        lambda p: True,
    ),
)


def _base_two(problem: Problem, results: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return results | {"lse": results["lse"] / math.log(2)}


mutants.add(
    "lse_in_base_two",
    Mutant("lse_in_base_two", "lse is a base-2 logarithm", replace(CORRECT, finish=_base_two), lambda p: True),
)


def _empty_is_mean(scores: torch.Tensor, keep: torch.Tensor) -> Weights:
    right = correct_weights(scores, keep)
    empty = ~keep.any(dim=-1, keepdim=True)
    return Weights(right.p + empty / scores.shape[-1], right.lse)


mutants.add(
    "empty_row_is_mean",
    Mutant(
        "empty_row_is_mean",
        "a row that may see nothing gets the mean of all values instead of zero",
        replace(CORRECT, weights=_empty_is_mean),
        lambda p: p.empty_rows > 0,
    ),
)
