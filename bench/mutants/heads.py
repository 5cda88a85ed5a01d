"""The right numbers at the wrong head or batch item."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.mutants import CORRECT, Mutant, mutants
from bench.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    Finish = Callable[[Problem, dict[str, torch.Tensor]], dict[str, torch.Tensor]]


def _tiled(problem: Problem) -> list[int]:
    return [head % problem.num_heads_kv for head in range(problem.num_heads_q)]


mutants.add(
    "kv_heads_tiled",
    Mutant(
        "kv_heads_tiled",
        "grouped queries read key heads by tiling (h mod H_kv) instead of by blocks",
        replace(CORRECT, kv_heads=_tiled),
        lambda p: 1 < p.num_heads_kv < p.num_heads_q,
    ),
)


def _rolled(axis: int) -> Finish:
    def finish(problem: Problem, results: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor.roll(1, dims=axis) for name, tensor in results.items()}

    return finish


mutants.add(
    "heads_swapped",
    Mutant(
        "heads_swapped",
        "each head's result lands at the next head",
        replace(CORRECT, finish=_rolled(1)),
        lambda p: p.num_heads_q > 1,
    ),
)
mutants.add(
    "batch_swapped",
    Mutant(
        "batch_swapped",
        "each batch item's result lands at the next item",
        replace(CORRECT, finish=_rolled(0)),
        lambda p: p.batch_size > 1,
    ),
)
