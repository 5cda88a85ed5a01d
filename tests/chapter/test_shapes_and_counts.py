"""Shapes of cross-attention and of a batch, pair and byte counts, variance of scores, weights that underflow."""

from __future__ import annotations

import math

import pytest
import torch
from golden import CASES, assert_near
from members import DTYPES, QUICK, RefusedError, attend, attend_padded, one_head, problem_of

from bench.implementation import AttentionInputs, dense_mask
from bench.problem import Problem
from bench.reference import reference
from bench.units import format_bytes


@pytest.mark.parametrize("member", QUICK)
def test_cross_attention_of_two_queries_and_three_keys(member):
    sizes, shapes = CASES["cross_attention_shapes"]["inputs"], CASES["cross_attention_shapes"]["expected"]
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, *shapes[key], generator=generator) for key in ("q_shape", "k_shape", "v_shape"))
    asked = problem_of(q, k, v)
    assert (asked.seqlen_q, asked.seqlen_k, asked.head_dim, asked.head_dim_v) == tuple(sizes.values())
    assert list(dense_mask(asked, "cpu").shape[2:]) == shapes["score_shape"] == shapes["weight_shape"]
    got = attend_padded(member, asked, q, k, v)["out"]
    assert list(got.shape[2:]) == shapes["out_shape"]
    assert_near(got, reference(asked, AttentionInputs(q, k, v)).out, 1e-6)


def test_flash_says_that_it_cannot_do_another_value_width_instead_of_running_something_else():
    shapes = CASES["cross_attention_shapes"]["expected"]
    q, k, v = (torch.zeros(1, 1, *shapes[key]) for key in ("q_shape", "k_shape", "v_shape"))
    with pytest.raises(RefusedError, match="head_dim_v"):
        attend("sdpa_flash", problem_of(q, k, v), q, k, v)


@pytest.mark.parametrize("member", QUICK)
def test_a_batch_of_one_head_without_a_head_axis(member):
    """``q @ k.transpose(-2, -1)`` on three axes, and the same with a head axis of size 1 on four."""
    sizes, shapes = CASES["batched_one_head_shapes"]["inputs"], CASES["batched_one_head_shapes"]["expected"]
    batch, seqlen_q, seqlen_k, d_k, d_v = sizes.values()
    generator = torch.Generator().manual_seed(1)
    q, k, v = (
        torch.randn(batch, rows, width, generator=generator)
        for rows, width in ((seqlen_q, d_k), (seqlen_k, d_k), (seqlen_k, d_v))
    )
    scores = q @ k.transpose(-2, -1) * d_k**-0.5
    assert list(scores.shape) == shapes["scores"]
    three = torch.softmax(scores, dim=-1) @ v
    asked = problem_of(q[:, None], k[:, None], v[:, None])
    four = attend_padded(member, asked, q[:, None], k[:, None], v[:, None])["out"]
    assert list(four[:, 0].shape) == list(three.shape) == shapes["out"]
    assert_near(four[:, 0], three, 1e-6)
    assert_near(torch.nn.functional.scaled_dot_product_attention(q, k, v), three, 1e-6)


def test_twice_the_positions_are_four_times_the_pairs_and_bytes():
    answers = CASES["pair_counts_and_bytes"]["expected"]
    for index, seqlen in enumerate(CASES["pair_counts_and_bytes"]["inputs"]["T"]):
        asked = Problem(num_heads=1, seqlen=seqlen)
        assert asked.all_pairs == asked.attended_pairs == answers["pairs"][index]
        matrix_bytes = asked.all_pairs * asked.element_bytes
        assert matrix_bytes == answers["bytes"][index] == answers["decimal_megabytes"][index] * 10**6
        assert matrix_bytes / 2**20 == answers["mebibytes"][index]
        assert format_bytes(matrix_bytes) == f"{answers['decimal_megabytes'][index]:#.3g} MB"
        causal = Problem(num_heads=1, seqlen=seqlen, mask="causal")
        assert causal.attended_pairs == answers["causal_pairs"][index]
        assert causal.attended_pairs / causal.all_pairs == answers["causal_share"][index]
        # A mask does not make a stored matrix smaller: the pairs of the whole square are still there.
        assert causal.all_pairs == asked.all_pairs


@pytest.mark.parametrize("d_k", CASES["variance_of_scores"]["inputs"]["d_k"])
def test_scores_have_variance_d_k_and_after_scaling_one(d_k):
    """N scaled scores of independent standard normal coordinates; fixed seed, bound of five standard errors.

    The fourth moment of such a score is ``3 + 6 / d_k`` (each product of two normals has kurtosis 9), so its
    square has variance ``2 + 6 / d_k``. The score of k = q is ``|q|^2 / sqrt(d_k)``, with mean ``sqrt(d_k)``,
    variance 2 and, as a scaled chi-squared variable, kurtosis ``3 + 12 / d_k``.
    """
    answers, index = CASES["variance_of_scores"]["expected"], CASES["variance_of_scores"]["inputs"]["d_k"].index(d_k)
    count = 4096
    asked = Problem(num_heads=count, seqlen=1, head_dim=d_k, head_dim_v=1)
    q, k = torch.randn(2, 1, count, 1, d_k, generator=torch.Generator().manual_seed(2))
    scaled, own = (  # the lse of a single key is its score
        reference(asked, AttentionInputs(q, other, torch.zeros(1, count, 1, 1))).lse for other in (k, q)
    )
    error = 5 * math.sqrt((2 + 6 / d_k) / count)
    assert abs(float(scaled.square().mean()) - answers["scaled_variance"][index]) < error
    raw = scaled * math.sqrt(d_k)
    assert abs(float(raw.square().mean()) - answers["raw_variance"][index]) < error * d_k
    mean = answers["counterexample_k_equals_q_scaled_mean"][index]
    assert abs(float(own.mean()) - mean) < 5 * math.sqrt(2 / count)
    variance = answers["counterexample_k_equals_q_scaled_variance"][index]
    kurtosis = 3 + 12 / d_k
    assert abs(float(own.var()) - variance) < 5 * variance * math.sqrt((kurtosis - 1) / count)


@pytest.mark.parametrize(("dtype", "flushed"), [(torch.float64, 708.4), (torch.float32, 87.3)])
def test_a_positive_weight_rounds_to_zero_somewhere_between_the_normal_and_the_subnormal_limit(dtype, flushed):
    """Where exactly depends on whether the exponential keeps subnormal numbers; it is no criterion."""
    gone = CASES["underflow_of_a_positive_weight"]["expected"][str(dtype).removeprefix("torch.")]

    def lower(gap):
        return torch.softmax(torch.tensor([gap, 0.0], dtype=dtype), 0)[1]

    assert lower(flushed - 1) > 0
    assert lower(gone * 1.001) == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_a_weight_that_rounds_to_zero_leaves_a_right_result(member, dtype):
    """A gap of 128 underflows in every dtype; the output is the value of the other key, exactly."""
    q, k, v = one_head([[1.0]]), one_head([[128.0], [0.0]]), one_head([[3.0], [5.0]])
    asked = problem_of(q, k, v, dtype=dtype, scale=1.0)
    assert attend_padded(member, asked, q, k, v)["out"].item() == 3.0
