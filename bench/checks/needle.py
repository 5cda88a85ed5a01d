"""Each query is dominated by one known key, so its output is that key's value and its lse that key's score.

Losing the key, its block, or the block's share of the denominator changes the output completely instead of by
one part in the length. Even heads look for the key of their own position (the diagonal and every block edge),
odd heads for a random visible one; heads and batch items have keys of their own, so a swap shows.

A key has length ``sqrt(head_dim)``; a query is a multiple of its key such that the key's score is ``peak``.
Other scores are at most ``peak * c`` with ``c`` the largest cosine that random directions reach, so ``peak *
(1 - c) >= log(seqlen_k) + 20`` leaves the other keys a share below float32 rounding. The peak is at least
100, so that its exponential overflows float32 unless the maximum is subtracted. Narrow heads have no such
``peak``; there the check does not apply.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bench.checks import Attend, register_check, visible_bounds, worst
from bench.implementation import AttentionInputs
from bench.numerics import LSE_LIMIT_EPS
from bench.problem import Problem
from bench.record import CheckResult
from bench.reference import UNIT_ROUNDOFF

if TYPE_CHECKING:
    import torch

SMALLEST_PEAK = 100.0
"""Its exponential is beyond float32."""
LARGEST_PEAK = 600.0
"""A peak above this would test rounding of large scores instead."""
LARGEST_PRODUCT = 3e4
"""Unscaled scores stay below this, so that an implementation may store them in float16."""


def peak_score(problem: Problem) -> float | None:
    """Score of the needle; None where random keys are not far enough apart for one."""
    pairs = problem.all_pairs
    cosine = math.sqrt(2 * math.log(max(2, pairs)) / problem.head_dim)
    if cosine >= 0.97 or problem.softmax_scale == 0:
        return None
    peak = max(SMALLEST_PEAK, (math.log(problem.seqlen_k) + 20) / (1 - cosine))
    fits = peak <= LARGEST_PEAK and peak / abs(problem.softmax_scale) <= LARGEST_PRODUCT
    return peak if fits else None


@register_check("needle", "each query is dominated by one key: a lost key or block stands out at any length")
def needle(problem: Problem, attend: Attend) -> CheckResult | None:
    """Compare out with the value of the dominating key, and lse with its score."""
    import torch

    peak = peak_score(problem)
    if peak is None or any(visible_bounds(problem, b) is None for b in range(problem.batch_size)):
        return None
    dtype, generator = getattr(torch, problem.dtype), torch.Generator().manual_seed(problem.seed + 1)
    shape = (problem.batch_size, problem.num_heads_kv, problem.seqlen_k)
    k = torch.randn(*shape, problem.head_dim, generator=generator)
    k = (k * (math.sqrt(problem.head_dim) / k.norm(dim=-1, keepdim=True))).to(dtype)
    v = torch.randn(*shape, problem.head_dim_v, generator=generator).to(dtype)
    target, empty = _targets(problem, generator)
    own_k, own_v = _gather(problem, k, target), _gather(problem, v, target)
    q = (own_k.float() * (peak / (problem.softmax_scale * problem.head_dim))).to(dtype)

    got = attend(problem, AttentionInputs(q, k, v))
    expected = own_v.double().masked_fill(empty[..., None], 0.0)
    out = got["out"].to("cpu", torch.float64)
    # The weight of the needle is 1 and of the others below rounding: one rounding of the result, another of
    # the denominator.
    limit = 2 * UNIT_ROUNDOFF[problem.dtype] * (expected.abs() + 2.0**-8)
    result = worst("needle", (out - expected).abs(), limit, out)
    if not result.passed or "lse" not in got:
        return result
    score = (q.double() * own_k.double()).sum(-1) * problem.softmax_scale
    lse = got["lse"].to("cpu", torch.float64)
    seen = ~empty
    parity = worst("needle", (lse - score).abs()[seen], LSE_LIMIT_EPS * 2.0**-23 * peak, lse[seen])
    return result if parity.passed else parity.model_copy(update={"detail": "lse is not the score of the needle"})


def _targets(problem: Problem, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Key index of each query and whether it sees none: ``(batch_size, num_heads_q, seqlen_q)``."""
    import torch

    own = torch.arange(problem.seqlen_q) + problem.mask_shape.diagonal
    targets, empty = [], []
    for batch in range(problem.batch_size):
        bounds = visible_bounds(problem, batch)
        assert bounds is not None, "checked by the caller"
        start, stop = bounds
        last = torch.maximum(stop - 1, start)
        for head in range(problem.num_heads_q):
            random = start + (torch.rand(problem.seqlen_q, generator=generator) * (stop - start)).long()
            chosen = torch.minimum(torch.maximum(own, start), last) if head % 2 == 0 else torch.minimum(random, last)
            targets.append(chosen.clamp(0, problem.seqlen_k - 1))
            empty.append(stop <= start)
    shape = (problem.batch_size, problem.num_heads_q, problem.seqlen_q)
    return torch.stack(targets).reshape(shape), torch.stack(empty).reshape(shape)


def _gather(problem: Problem, rows: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The row of ``rows (batch_size, num_heads_kv, seqlen_k, width)`` that each query looks for."""
    per_head = rows.repeat_interleave(problem.num_heads_q // problem.num_heads_kv, dim=1)
    return per_head.gather(2, target[..., None].expand(*target.shape, rows.shape[-1]))
