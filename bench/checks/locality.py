"""Changing one position's input changes exactly the outputs that may change, bit by bit.

The chapter's controlled comparison: with everything else fixed, a changed key and value at position j reach
only the queries that may see j, and a changed query reaches only its own row. A leak past the mask, a swapped
head or a stale buffer shows as a change where there must be none; a skipped key shows as none where there
must be one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bench.checks import Attend, register_check
from bench.implementation import AttentionInputs
from bench.inputs import make_inputs
from bench.masks import dense_rows
from bench.problem import Problem
from bench.record import CheckResult

if TYPE_CHECKING:
    import torch

VALUE = 1000.0
"""What the changed value is set to: large enough that even a small weight shows in every dtype."""


@register_check("locality", "changing one key or query changes exactly the outputs that may change")
def locality(problem: Problem, attend: Attend) -> CheckResult | None:
    """Change one key with its value, then one query, and compare bits."""
    import torch

    # Normal inputs and no larger scale than the default: else a weight may be so small that what it carries is rightly
    # rounded away.
    scale = math.copysign(min(abs(problem.softmax_scale), problem.head_dim**-0.5), problem.softmax_scale)
    problem = problem.model_copy(update={"distribution": "normal", "scale": scale})
    inputs = make_inputs(problem)
    before = attend(problem, inputs)["out"].to("cpu").clone()
    batch, head = problem.batch_size - 1, problem.num_heads_kv - 1
    group = problem.num_heads_q // problem.num_heads_kv
    key, query = problem.seqlen_k * 2 // 3, problem.seqlen_q // 3

    may = torch.zeros(before.shape[:3], dtype=torch.bool)
    for h in range(head * group, (head + 1) * group):
        rows = dense_rows(problem.mask, problem.mask_shape, batch, h, slice(0, problem.seqlen_q))
        may[batch, h] = torch.from_numpy(rows[:, key].copy())
    k, v = inputs.k.clone(), inputs.v.clone()
    k[batch, head, key], v[batch, head, key] = -k[batch, head, key], VALUE
    after = attend(problem, AttentionInputs(inputs.q, k, v))["out"].to("cpu")
    result = _judge(before, after, may, f"key {key} of head {head}")
    if not result.passed:
        return result

    may = torch.zeros_like(may)
    seen = dense_rows(problem.mask, problem.mask_shape, batch, 0, slice(query, query + 1)).sum()
    may[batch, 0, query] = bool(seen > 1)  # with one visible key the weight is 1 whatever the query
    q = inputs.q.clone()
    q[batch, 0, query] = -q[batch, 0, query]
    after = attend(problem, AttentionInputs(q, inputs.k, inputs.v))["out"].to("cpu")
    scale_matters = problem.softmax_scale != 0
    return _judge(before, after, may & scale_matters, f"query {query} of head 0")


def _judge(before: torch.Tensor, after: torch.Tensor, may: torch.Tensor, what: str) -> CheckResult:
    changed = (before != after).any(dim=-1)
    leaked, missed = int((changed & ~may).sum()), int((may & ~changed).sum())
    parts = []
    if leaked:
        parts.append(f"changing {what} changed {leaked} rows that may not see it")
    if missed:
        parts.append(f"changing {what} left {missed} rows that see it as they were")
    return CheckResult(passed=not parts, error=float(leaked + missed), limit=None, detail="; ".join(parts) or None)
