"""Where every query sees every key, the order of the keys does not matter.

Keys and values are permuted together; the output must stay the same but for rounding. A position that is
treated differently from the others (the last block, a stale tail) shows.

Limit: each of the two outputs may be off by a stored score's rounding ``u * |s|``, one rounding of the
    weights, and what ``numerics.relative_rounding`` allows, relative to the largest output; ``max|s|`` is
    bounded by the lengths of the vectors.
"""

from __future__ import annotations

from bench.checks import Attend, register_check, worst
from bench.implementation import AttentionInputs
from bench.inputs import make_inputs
from bench.numerics import relative_rounding
from bench.problem import Problem
from bench.record import CheckResult
from bench.reference import UNIT_ROUNDOFF


@register_check("permutation", "where every key is visible, permuting keys and values changes nothing")
def permutation(problem: Problem, attend: Attend) -> CheckResult | None:
    """Compare the outputs before and after a permutation of the keys."""
    import torch

    if problem.attended_pairs < problem.all_pairs or problem.seqlen_k < 2:
        return None
    inputs = make_inputs(problem)
    order = torch.randperm(problem.seqlen_k, generator=torch.Generator().manual_seed(problem.seed + 3))
    before = attend(problem, inputs)["out"].to("cpu", torch.float64)
    turned = AttentionInputs(inputs.q, inputs.k[:, :, order].contiguous(), inputs.v[:, :, order].contiguous())
    after = attend(problem, turned)["out"].to("cpu", torch.float64)
    longest = inputs.q.double().norm(dim=-1).max() * inputs.k.double().norm(dim=-1).max()
    bound = float(longest) * abs(problem.softmax_scale)
    rounding = UNIT_ROUNDOFF[problem.dtype] * (1 + bound) + relative_rounding(problem, bound)
    limit = 2 * rounding * float(before.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return worst("permutation", (after - before).abs(), limit, after - before)
