"""The forward pass is right, a gradient is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.mutants import CORRECT, Mutant, mutants
from bench.problem import Problem

if TYPE_CHECKING:
    import torch


def _backward(problem: Problem) -> bool:
    return problem.direction != "fwd"


for _name in ("dq", "dk"):

    def _unscaled(problem: Problem, results: dict[str, torch.Tensor], name: str = _name) -> dict[str, torch.Tensor]:
        scale = problem.softmax_scale
        return results | {name: results[name] / scale} if name in results and scale else results

    mutants.add(
        f"{_name}_without_scale",
        Mutant(
            f"{_name}_without_scale",
            f"{_name} lacks the factor of the scores' scale",
            replace(CORRECT, finish=_unscaled),
            lambda p: _backward(p) and p.softmax_scale != 1,
            backward_only=True,
        ),
    )


def _scaled_dv(problem: Problem, results: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return results | {"dv": results["dv"] * problem.softmax_scale} if "dv" in results else results


mutants.add(
    "dv_with_scale",
    Mutant(
        "dv_with_scale",
        "dv carries the scores' scale, which it must not",
        replace(CORRECT, finish=_scaled_dv),
        lambda p: _backward(p) and p.softmax_scale != 1,
        backward_only=True,
    ),
)


def _leaking_dv(problem: Problem, results: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Keys that no query sees have dv = 0; here they get their neighbour's."""
    if "dv" not in results:
        return results
    dv = results["dv"]
    unseen = (dv == 0).all(dim=-1, keepdim=True)
    return results | {"dv": dv + unseen * dv.abs().mean()}


mutants.add(
    "dv_of_masked_key",
    Mutant(
        "dv_of_masked_key",
        "a key that no query may see still gets a gradient of its value",
        replace(CORRECT, finish=_leaking_dv),
        lambda p: _backward(p) and _has_unseen_key(p),
        backward_only=True,
    ),
)


def _has_unseen_key(problem: Problem) -> bool:
    import numpy as np

    from bench.masks import dense_rows

    rows = slice(0, problem.seqlen_q)
    return any(
        not np.all(dense_rows(problem.mask, problem.mask_shape, batch, 0, rows).any(axis=0))
        for batch in range(problem.batch_size)
    )
