"""v marks groups of keys, so the output is the weight mass of each group, known in closed form.

All keys of a group are equal, hence so are their weights: with ``n_g`` visible keys of group g the mass is
``n_g exp(s_g) / sum(n exp(s))``. A block that is lost, counted twice or weighted differently moves mass
between groups; a wrong scale moves it everywhere.

Limit, relative to the mass: a score stored in the dtype may be off by ``u * |s|``, a weight is rounded once,
and what ``numerics.relative_rounding`` allows for the result and for sums in float32; twice that, since it
enters the denominator as well. Each weight may also lose what is below the smallest number of the dtype.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bench.checks import Attend, register_check, visible_bounds, worst
from bench.implementation import AttentionInputs
from bench.numerics import SMALLEST, relative_rounding
from bench.problem import Problem
from bench.record import CheckResult
from bench.reference import UNIT_ROUNDOFF

if TYPE_CHECKING:
    import torch

GROUPS = 16
"""Groups of neighbouring keys, where there are that many keys and value columns."""


@register_check("block_mass", "v marks groups of keys: the output is each group's weight, known in closed form")
def block_mass(problem: Problem, attend: Attend) -> CheckResult | None:
    """Compare the mass of each group with the closed form."""
    import torch

    groups = min(GROUPS, problem.head_dim_v, problem.seqlen_k)
    bounds = [visible_bounds(problem, batch) for batch in range(problem.batch_size)]
    if groups < 2 or problem.softmax_scale == 0 or any(bound is None for bound in bounds):
        return None
    dtype, generator = getattr(torch, problem.dtype), torch.Generator().manual_seed(problem.seed + 2)
    edges = torch.arange(groups + 1) * problem.seqlen_k // groups
    group = torch.bucketize(torch.arange(problem.seqlen_k), edges[1:], right=True)
    shape = (problem.batch_size, problem.num_heads_kv)
    centres = torch.randn(*shape, groups, problem.head_dim, generator=generator).to(dtype)
    gain = 1 / (problem.softmax_scale * math.sqrt(problem.head_dim))
    q = torch.randn(problem.batch_size, problem.num_heads_q, problem.seqlen_q, problem.head_dim, generator=generator)
    q = (q * gain).to(dtype)
    v = torch.zeros(*shape, problem.seqlen_k, problem.head_dim_v, dtype=dtype)
    v[..., torch.arange(problem.seqlen_k), group] = 1.0

    got = attend(problem, AttentionInputs(q, centres[:, :, group].contiguous(), v))
    per_head = centres.repeat_interleave(problem.num_heads_q // problem.num_heads_kv, dim=1).double()
    scores = (q.double() @ per_head.transpose(-1, -2)) * problem.softmax_scale
    counts = torch.stack(
        [_overlap(start, stop, edges) for start, stop in (bound for bound in bounds if bound is not None)]
    )
    share = counts[:, None].double() * (scores - scores.amax(dim=-1, keepdim=True)).exp()
    total = share.sum(dim=-1, keepdim=True)
    expected = share / total.masked_fill(total == 0, 1.0)
    out = got["out"].to("cpu", torch.float64)[..., :groups]
    largest = scores.abs().amax(dim=-1, keepdim=True)
    stored = UNIT_ROUNDOFF[problem.dtype] * (1 + largest) + relative_rounding(problem, float(largest.max()))
    limit = 2 * stored * expected + SMALLEST[problem.dtype] * (1 + counts[:, None])
    return worst("block_mass", (out - expected).abs(), limit, out)


def _overlap(start: torch.Tensor, stop: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """Visible keys of each query in each group, int64 ``(seqlen_q, groups)``."""
    import torch

    low = torch.maximum(start[:, None], edges[None, :-1])
    high = torch.minimum(stop[:, None], edges[None, 1:])
    return (high - low).clamp_min(0)
