"""Properties of attention that hold for every problem, tried on drawn problems with every implementation."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from members import DTYPES, QUICK, attend_padded

from bench.implementation import dense_mask
from bench.inputs import make_inputs
from bench.numerics import relative_rounding
from bench.problem import Problem

MASKS = ["full", "causal", "causal_top_left", "sliding_window(2)", "prefix_lm(1)", "causal & padding(0.6)"]
EXAMPLES = settings(max_examples=25)


@st.composite
def problems(draw):
    """Small problems of any shape, mask, dtype and scale; some have queries that see nothing."""
    heads_kv = draw(st.integers(1, 2))
    return Problem(
        batch_size=draw(st.integers(1, 2)),
        num_heads_q=heads_kv * draw(st.integers(1, 2)),
        num_heads_kv=heads_kv,
        seqlen_q=draw(st.integers(1, 20)),
        seqlen_k=draw(st.integers(1, 40)),
        head_dim=draw(st.sampled_from([1, 3, 8, 16])),
        head_dim_v=draw(st.sampled_from([1, 8, 16])),
        dtype=draw(st.sampled_from(DTYPES)),
        mask=draw(st.sampled_from(MASKS)),
        scale=draw(st.sampled_from([None, 0.0, -0.5, 3.0])),
        distribution=draw(st.sampled_from(["normal", "uniform", "outlier"])),
        seed=draw(st.integers(0, 2**32)),
    )


def visible(problem):
    """Which query sees which key, ``(batch_size, num_heads_q, seqlen_q, seqlen_k)``."""
    keep = dense_mask(problem, "cpu")
    return keep.expand(problem.batch_size, problem.num_heads_q, problem.seqlen_q, problem.seqlen_k)


@pytest.mark.parametrize("member", QUICK)
@EXAMPLES
@given(problem=problems())
def test_weights_of_a_row_sum_to_one(member, problem):
    """With v = 1 the output is the sum: 1, or 0 for a query that sees nothing.

    A row's error is one of its weights' sum and one of the result, each within ``relative_rounding``; the
    sizes of scores do not matter, since whatever the weights are, they are divided by their own sum.
    """
    inputs = make_inputs(problem)
    out = attend_padded(member, problem, inputs.q, inputs.k, torch.ones_like(inputs.v))["out"].double()
    sees = visible(problem).any(dim=-1)
    limit = 2 * relative_rounding(problem, 1.0)
    assert ((out - 1).abs()[sees] <= limit).all()
    assert not out[~sees].any()


@pytest.mark.parametrize("member", QUICK)
@EXAMPLES
@given(problem=problems())
def test_outputs_lie_within_the_visible_values(member, problem):
    """A convex combination: per column, not below the smallest visible value and not above the largest."""
    inputs = make_inputs(problem)
    out = attend_padded(member, problem, inputs.q, inputs.k, inputs.v)["out"].double()
    keep = visible(problem)[..., None]
    values = inputs.v.double().repeat_interleave(problem.num_heads_q // problem.num_heads_kv, dim=1)[:, :, None]
    low = values.masked_fill(~keep, math.inf).amin(dim=-2)
    high = values.masked_fill(~keep, -math.inf).amax(dim=-2)
    sees = visible(problem).any(dim=-1)
    slack = 2 * relative_rounding(problem, 1.0) * torch.maximum(low.abs(), high.abs())
    assert (out[sees] >= (low - slack)[sees]).all()
    assert (out[sees] <= (high + slack)[sees]).all()


@pytest.mark.parametrize("member", QUICK)
@EXAMPLES
@given(problem=problems(), shift=st.sampled_from([-4.0, 0.5, 8.0]))
def test_adding_one_number_to_all_scores_of_a_row_changes_nothing(member, problem, shift):
    """A column of q times a constant column of k adds the same number to each score of that row.

    Only in float32, where the scores keep enough digits; the limit grows with the shifted scores.
    """
    problem = Problem(**(problem.model_dump() | {"dtype": "float32", "scale": 0.5, "distribution": "normal"}))
    inputs = make_inputs(problem)
    one = torch.ones_like(inputs.k[..., :1])
    wider = Problem(**(problem.model_dump() | {"head_dim": problem.head_dim + 1}))
    plain = attend_padded(member, problem, inputs.q, inputs.k, inputs.v)["out"]
    q = torch.cat([inputs.q, shift * torch.ones_like(inputs.q[..., :1])], dim=-1)
    moved = attend_padded(member, wider, q, torch.cat([inputs.k, one], dim=-1), inputs.v)["out"]
    norms = (inputs.q.norm(dim=-1).max() * inputs.k.norm(dim=-1).max()).item()
    limit = 4 * relative_rounding(wider, 0.5 * (norms + abs(shift))) * float(inputs.v.abs().max())
    assert ((moved - plain).abs() <= limit).all()
