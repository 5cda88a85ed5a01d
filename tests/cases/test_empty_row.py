"""Public cases O01 and O02: query rows without a visible key, and rows that only look like it.

O01 is also in ``tests/implementations/test_conformance.py``, for every implementation.
"""

from __future__ import annotations

import math

import pytest
import torch
from members import DTYPES, QUICK, TableMask, attend, judge, problem_of, weights_unless_structureless
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.implementation import AttentionInputs
from bench.numerics import SCORE_ALLOWANCE
from bench.reference import naive_yardstick, reference

ROW_2_EMPTY = [[True] * 4, [True] * 4, [False] * 4, [True] * 4]


def identity_inputs(**fields):
    """q = k = 0, v = identity, dout = 1 and their problem."""
    zeros, eye = torch.zeros(1, 1, 4, 4), torch.eye(4)[None, None]
    return problem_of(zeros, zeros, eye, **fields), AttentionInputs(zeros, zeros, eye, torch.ones(1, 1, 4, 4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("oracle", [reference, naive_yardstick])
def test_o01_reference_and_yardstick_keep_the_rule_of_empty_rows(oracle, dtype):
    problem, inputs = identity_inputs(mask=TableMask(ROW_2_EMPTY), direction="fwd_bwd", dtype=dtype)
    answer = oracle(problem, inputs)
    assert answer.out[0, 0].tolist() == [[0.25] * 4, [0.25] * 4, [0.0] * 4, [0.25] * 4]
    assert answer.lse[0, 0, 2] == -math.inf
    assert not answer.dq[0, 0, 2].any()
    assert all(tensor.isfinite().all() for tensor in (answer.dq, answer.dk, answer.dv))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_o01_an_empty_row_is_zero_in_every_dtype_forward_and_backward(member, dtype):
    got = weights_unless_structureless(member, TableMask(ROW_2_EMPTY), 4, 4, dtype=dtype, direction="fwd_bwd")
    if got is None:
        return
    assert got["out"][0, 0].tolist() == [[0.25] * 4, [0.25] * 4, [0.0] * 4, [0.25] * 4]
    assert not got["dq"][0, 0, 2].any()
    assert all(got[name].isfinite().all() for name in ("dq", "dk", "dv"))
    problem, inputs = identity_inputs(mask=TableMask(ROW_2_EMPTY), dtype=dtype, direction="fwd_bwd")
    assert judge(problem, inputs, got).passed


@pytest.mark.parametrize("fill", [math.nan, 0.25, 1e-30])
def test_o01_the_gate_refuses_anything_but_zeros(fill):
    problem, inputs = identity_inputs(mask=TableMask(ROW_2_EMPTY))
    out = reference(problem, inputs).out
    assert judge(problem, inputs, {"out": out}).passed
    out[0, 0, 2] = fill
    assert not judge(problem, inputs, {"out": out}).passed


@pytest.mark.parametrize(("need_weights", "wanted"), [(True, math.nan), (False, 0.0)])
def test_o01_pytorch_multihead_attention_answers_differently_by_an_unrelated_flag(need_weights, wanted):
    """The present state of ``nn.MultiheadAttention``; no implementation here goes through it."""
    layer = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True).eval()
    x, blocked = torch.ones(1, 4, 4), ~torch.tensor(ROW_2_EMPTY)
    with torch.no_grad():
        row = layer(x, x, x, attn_mask=blocked, need_weights=need_weights)[0][0, 2]
    torch.testing.assert_close(row, torch.full_like(row, wanted), equal_nan=True)


# O02: equal huge scores. exp(score - lse) with lse in float32 loses log(seqlen_k) once the score is large.


def equal_scores(logit, seqlen_k, dtype="float32"):
    """One query, ``seqlen_k`` keys, all scores equal to ``logit``, dout = 1."""
    ones = torch.ones(1, 1, seqlen_k, 4)
    one = torch.ones(1, 1, 1, 4)
    problem = problem_of(one, ones, ones, scale=0.25 * logit, direction="fwd_bwd", dtype=dtype)
    return problem, AttentionInputs(one, ones, ones, one)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seqlen_k", [3, 8, 64])
@pytest.mark.parametrize("logit", [1e4, -1e4, 1e6, -1e6, 1e8, -1e8])
@pytest.mark.parametrize("member", [name for name in QUICK if name not in ("sdpa_flash", "naive")])
def test_o02_equal_huge_scores_pass_where_they_are_computed_well(member, logit, seqlen_k, dtype):
    problem, inputs = equal_scores(logit, seqlen_k, dtype)
    got = attend(member, problem, inputs.q, inputs.k, inputs.v, inputs.dout)
    assert judge(problem, inputs, got).passed


@pytest.mark.parametrize("seqlen_k", [3, 8, 64])
@pytest.mark.parametrize("logit", [1e4, 1e5, 1e6, 1e7, 1e8, -1e6, -1e8])
def test_o02_flash_backward_is_called_incorrect_where_it_is_off_by_more_than_rounding(logit, seqlen_k):
    """PyTorch's CPU flash kernel: dv is off by 3e-4 at 1e4, by up to a factor of ``seqlen_k`` at 1e8.

    No float32 score of 1e5 is known to better than 0.4 %, so a smaller error than ``2 * SCORE_ALLOWANCE`` passes.
    """
    problem, inputs = equal_scores(logit, seqlen_k)
    got = attend("sdpa_flash", problem, inputs.q, inputs.k, inputs.v, inputs.dout)
    off = float((got["dv"] * seqlen_k - 1).abs().max())
    agreement = judge(problem, inputs, got)
    torch.testing.assert_close(got["out"], torch.ones_like(got["out"]))
    assert agreement.tensors["out"].max_abs < 1e-6
    assert off > 1e-5, "PyTorch has become right: say so in docs/implementations.md"
    assert (off > 1e-2) == (abs(logit) >= 1e6)
    if off > 2.1 * SCORE_ALLOWANCE:
        assert not agreement.passed
        assert agreement.tensors["dv"].max_abs > agreement.tensors["dv"].limit


@pytest.mark.parametrize(("dtype", "empties"), [(torch.float32, False), (torch.float16, True), (torch.bfloat16, True)])
def test_o02_a_row_of_the_smallest_float32_is_uniform_and_becomes_empty_in_half_precision(dtype, empties):
    """So a sentinel is no mask; here a mask is a predicate and cannot be one (see O06)."""
    sentinel = torch.full((1, 4), torch.finfo(torch.float32).min).to(dtype)
    assert bool((sentinel == -math.inf).all()) == empties
    zeros, eye = torch.zeros(1, 1, 1, 4, dtype=dtype), torch.eye(4, dtype=dtype)[None, None]
    keys = torch.zeros(1, 1, 4, 4, dtype=dtype)
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(zeros, keys, eye, attn_mask=sentinel)
        assert out[0, 0, 0].tolist() == [0.0 if empties else 0.25] * 4


def test_o02_the_gradient_of_a_sentinel_row_is_refused():
    """dv of PyTorch's flash kernel for a row of the smallest float32: 1 for each of 4 keys instead of 1/4."""
    problem, inputs = identity_inputs(direction="fwd_bwd")  # equal scores: the weights are uniform in every row
    sentinel = torch.full((4, 4), torch.finfo(torch.float32).min)
    leaves = [tensor.clone().requires_grad_() for tensor in (inputs.q, inputs.k, inputs.v)]
    for backend, passes in ((SDPBackend.MATH, True), (SDPBackend.FLASH_ATTENTION, False)):
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=sentinel)
        grads = dict(zip(("dq", "dk", "dv"), torch.autograd.grad(out, leaves, inputs.dout), strict=True))
        assert judge(problem, inputs, {"out": out.detach()} | grads).passed == passes
        assert grads["dv"].unique().tolist() == [1.0 if passes else 4.0]  # four rows of 1/4, or of 1
