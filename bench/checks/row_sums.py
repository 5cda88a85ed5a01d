"""v has constant columns, so each output is that constant: the weights of a row must sum to one.

This stands in for lse where an implementation returns none. Constants near 2 are rounded most coarsely in
relative terms, near 1 most finely; both are among the columns. A denominator that is off by a small fraction
shows in the mean over all rows even where it is below one step of the dtype in each of them, since correct
rounding errors have no common sign.

Limits, relative to the constant and with ``r`` of ``numerics.relative_rounding``: ``2 * r`` per entry (one
rounding of the sum of weights, one of the result), and ``r / 2`` for the mean over all rows. Rows without
visible keys must be exactly 0. With a scale of 0 all weights of a row are equal, their roundings have one sign, and
neither limit holds: the check does not apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench.checks import Attend, register_check, visible_bounds, worst
from bench.implementation import AttentionInputs
from bench.inputs import make_inputs
from bench.numerics import relative_rounding
from bench.problem import Problem
from bench.record import CheckResult

if TYPE_CHECKING:
    import torch

CONSTANTS = (1.0, 1.984375, 1.25, 1.75, -1.5, 1.125, 1.875, -1.96875)
"""Exact in every dtype; the columns of v repeat them."""


@register_check("row_sums", "v is constant along the keys: each output must be that constant")
def row_sums(problem: Problem, attend: Attend) -> CheckResult | None:
    """Compare each entry, and the mean over the rows, with the constant of its column."""
    import torch

    if problem.softmax_scale == 0 or any(visible_bounds(problem, batch) is None for batch in range(problem.batch_size)):
        return None
    inputs = make_inputs(problem)
    columns = torch.tensor(CONSTANTS).repeat(-(-problem.head_dim_v // len(CONSTANTS)))[: problem.head_dim_v]
    v = columns.to(inputs.v.dtype).expand(inputs.v.shape).contiguous()
    out = attend(problem, AttentionInputs(inputs.q, inputs.k, v))["out"].to("cpu", torch.float64)
    seen = torch.stack([stop > start for start, stop in _all_bounds(problem)])[:, None, :, None]
    expected = columns.double() * seen
    rounding = relative_rounding(problem, 1.0)
    limit = 2 * rounding * expected.abs()
    entries = worst("row_sums", (out - expected).abs(), limit, out)
    if not entries.passed or not bool(seen.any()):
        return entries
    relative = ((out - expected) / columns.double()).masked_select(seen.expand(out.shape))
    mean = worst("row_sums", relative.mean().abs()[None], rounding / 2, relative)
    return entries if mean.passed else mean.model_copy(update={"detail": "the mean over all rows is off"})


def _all_bounds(problem: Problem) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Bounds of each batch item."""
    for batch in range(problem.batch_size):
        bounds = visible_bounds(problem, batch)
        assert bounds is not None, "checked by the caller"
        yield bounds
