"""What must be equal bit by bit: rows that nothing changed, keys that nobody sees, weights of equal scores."""

from __future__ import annotations

import pytest
import torch
from golden import assert_near, given, problem
from members import DTYPES, QUICK, attend_padded, problem_of

from bench.numerics import UNIT_ROUNDOFF


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_a_changed_query_changes_its_own_row_and_not_one_bit_of_the_others(member, dtype):
    before, after = (
        attend_padded(member, problem(name, *given(name), dtype), *given(name))["out"][0, 0]
        for name in ("causal_three_tokens", "causal_three_tokens_changed_query")
    )
    assert torch.equal(before[:2], after[:2])
    assert not torch.equal(before[2], after[2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_a_fourth_future_key_changes_nothing_bit_by_bit(member, dtype):
    """Its raw score is 1e4, its values are 7; neither may be seen, whatever they are."""
    q, k, v = given("fourth_future_key_blocked")
    loud = attend_padded(member, problem("fourth_future_key_blocked", q, k, v, dtype), q, k, v)["out"]
    k[:, :, 3], v[:, :, 3] = 0.0, 0.0
    quiet = attend_padded(member, problem("fourth_future_key_blocked", q, k, v, dtype), q, k, v)["out"]
    absent = attend_padded(
        member, problem("causal_three_tokens", *given("causal_three_tokens"), dtype), *given("causal_three_tokens")
    )["out"]
    assert torch.equal(loud, quiet)
    assert torch.equal(loud, absent)


@pytest.mark.parametrize("seqlen_k", [3, 7, 16, 100])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_equal_scores_give_coefficients_that_are_equal_bit_by_bit(member, dtype, seqlen_k):
    """And each is ``1 / seqlen_k`` to the rounding of one division and, in half precision, of the result."""
    rows = torch.tensor([[1.0, 0.0, 1.0, 0.0], [3.0, -1.0, 0.5, 2.0]])[None, None]
    k, eye = torch.ones(1, 1, seqlen_k, 4), torch.eye(seqlen_k)[None, None]
    weights = attend_padded(member, problem_of(rows, k, eye, dtype=dtype), rows, k, eye)["out"][0, 0]
    assert torch.equal(weights, weights[:, :1].expand_as(weights))
    near = (UNIT_ROUNDOFF[dtype] + 2 * UNIT_ROUNDOFF["float32"]) / seqlen_k
    assert_near(weights, torch.full_like(weights, 1 / seqlen_k, dtype=torch.float64), near)
