"""Causal and padded mask rows, rows without keys, and the three polarities of PyTorch's boolean masks."""

from __future__ import annotations

import math

import pytest
import torch
from golden import CASES, DIGITS, assert_near, expected, given, numbers, problem, tolerance
from members import DTYPES, QUICK, attend_padded, one_head, problem_of

from bench.implementation import dense_mask
from bench.masks import dense_rows
from bench.numerics import UNIT_ROUNDOFF
from bench.problem import Problem


@pytest.mark.parametrize("name", ["causal_mask_four", "causal_and_padding_mask"])
def test_mask_rows(name):
    inputs, answers = CASES[name]["inputs"], CASES[name]["expected"]
    asked = Problem(num_heads=1, seqlen=inputs["T"], mask=inputs["mask"])
    keep = dense_mask(asked, "cpu")[0, 0]
    additive = torch.zeros(keep.shape, dtype=torch.float64).masked_fill(~keep, -math.inf)
    assert torch.equal(additive, expected(name, "additive_mask"))
    assert torch.from_numpy(dense_rows(asked.mask, asked.mask_shape, 0, 0, slice(0, 4)).copy()).equal(keep)
    assert asked.attended_pairs == answers["attended_pairs"] == int(keep.sum())
    assert asked.empty_rows == 0
    if "visible_keys_per_row" in answers:
        assert keep.sum(dim=-1).tolist() == answers["visible_keys_per_row"]
        assert additive[1, 3] == -math.inf
    else:
        assert torch.equal(additive[2], expected(name, "row_of_query_3"))
        assert torch.equal(additive[3], expected(name, "row_of_padded_query_4"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_what_is_left_after_exclusion_is_normalised_again(member, dtype):
    """Kept unmasked coefficients would sum to 0.384, 0.767 and 1; here every row sums to 1."""
    name = "no_renormalisation_after_exclusion"
    q, k, eye = given(name, identity=True)
    weights = attend_padded(member, problem(name, q, k, eye, dtype), q, k, eye)["out"][0, 0].double()
    # Three weights, each rounded once on top of a sum of 1 within the tolerance.
    assert_near(weights.sum(dim=-1), torch.ones(3), 3 * UNIT_ROUNDOFF[dtype])
    kept = expected(name, "unmasked_weights").tril()
    assert_near(kept.sum(dim=-1), expected(name, "kept_row_sums"), DIGITS)
    assert_near(kept @ given(name)[2][0, 0].double(), expected(name, "wrong_out"), DIGITS)


def test_the_softmax_of_a_blocked_row_is_undefined():
    """Directly and after subtraction of the maximum; without subtraction the denominator is 0."""
    scores, answers = numbers(CASES["fully_blocked_row"]["inputs"]["masked_scores"]), CASES["fully_blocked_row"]
    shifted = scores - scores.max()
    found = {"direct_softmax": torch.softmax(scores, 0), "max_subtracted": shifted.exp() / shifted.exp().sum()}
    for key, row in found.items():
        assert row.isnan().all() and numbers(answers["expected"][key]).isnan().all()
    assert scores.exp().sum() == answers["expected"]["unshifted_denominator"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_a_blocked_row_follows_the_declared_policy(member, dtype):
    """Zeros, whose sum is 0: not a distribution. The rows beside it are what they would be without it."""
    policy = CASES["fully_blocked_row"]["expected"]
    q, k, eye = given("causal_three_tokens", identity=True)
    asked = problem_of(q, k, eye, dtype=dtype, mask="causal & padding(lengths=[2], side=left)")
    got = attend_padded(member, asked, q, k, eye)
    assert (got["out"][0, 0, 0] == policy["policy_out"]).all()
    assert got["out"][0, 0, 0].sum() == policy["policy_weights_sum"]
    if "lse" in got:
        assert got["lse"][0, 0, 0] == float(policy["policy_lse"])
    assert_near(got["out"][0, 0, 1:].double().sum(-1), torch.ones(2), 3 * UNIT_ROUNDOFF[dtype])


def in_three_ways(blocked):
    """Output of PyTorch's three interfaces for q = k = v = x where ``blocked`` is true; each has its own polarity."""
    x = one_head(CASES["polarity_three_apis"]["inputs"]["q"])
    layer = torch.nn.MultiheadAttention(2, 1, bias=False, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(2).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(2))
        filled = (x @ x.transpose(-1, -2) * 2**-0.5).masked_fill(blocked, -math.inf)
        return {
            "functional": torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=~blocked)[0, 0],
            "module": layer(x[0], x[0], x[0], attn_mask=blocked, need_weights=False)[0][0],
            "masked_fill": (torch.softmax(filled, -1) @ x)[0, 0],
        }


def test_three_interfaces_of_pytorch_agree_once_each_is_given_its_own_polarity():
    """True permits in the functional attention, blocks in ``nn.MultiheadAttention`` and in ``masked_fill``."""
    inputs = CASES["polarity_three_apis"]["inputs"]
    permitted, blocked = (torch.tensor(inputs[key]) for key in ("sdpa_mask_true_attends", "masked_fill_true_blocks"))
    assert torch.equal(permitted, ~blocked)
    assert inputs["mha_mask_true_blocks"] == inputs["masked_fill_true_blocks"]
    q, k, v = given("polarity_three_apis")
    assert torch.equal(dense_mask(problem("polarity_three_apis", q, k, v), "cpu")[0, 0], permitted)
    for out in in_three_ways(blocked).values():
        assert_near(out, expected("polarity_three_apis", "out"), tolerance("polarity_three_apis", "float32", 1.0))


def test_the_other_polarity_is_silent_in_one_interface_and_nan_in_another():
    wrong = in_three_ways(torch.tensor(CASES["polarity_three_apis"]["inputs"]["sdpa_mask_true_attends"]))
    silent = expected("polarity_three_apis", "wrong_polarity_sdpa_out")
    assert_near(wrong["functional"], silent, 1e-6)
    filled = (
        expected("polarity_three_apis", "wrong_polarity_weights_masked_fill")
        @ given("polarity_three_apis")[2][0, 0].double()
    )
    torch.testing.assert_close(wrong["masked_fill"].double(), filled, rtol=0, atol=1e-6, equal_nan=True)
