"""Public cases O09 to O12: overflow, masked blocks, unusual scales, and inputs that are not finite.

O10 and O11 are also in ``tests/implementations/test_conformance.py``; who leaks a blocked NaN (O12) is recorded in
``tests/chapter/test_checkpoint.py``.
"""

from __future__ import annotations

import math

import pytest
import torch
from members import DTYPES, QUICK, TableMask, attend, judge, problem_of, weights_unless_structureless
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.implementation import AttentionInputs
from bench.inputs import make_inputs
from bench.numerics import failure_reason
from bench.problem import Problem

# O09: float16 scores beyond 65,504 before the scale brings them back.


def large_scores(head_dim, size):
    """Two queries and two equal keys, everything in q and k equal to ``size``: the answer is the mean of v, (2, 3)."""
    q = torch.full((1, 1, 2, head_dim), float(size))
    v = torch.tensor([[1.0, 2.0], [3.0, 4.0]])[None, None]
    v = torch.nn.functional.pad(v, (0, head_dim - 2))  # flash wants values as wide as keys
    return problem_of(q, q, v, dtype="float16"), AttentionInputs(q, q, v)


@pytest.mark.parametrize(("head_dim", "size", "raw"), [(64, 40, 102_400), (128, 256, 8_388_608)])
@pytest.mark.parametrize("member", QUICK)
def test_o09_overflowed_scores_are_counted_and_refused_and_others_go_on(member, head_dim, size, raw):
    problem, inputs = large_scores(head_dim, size)
    assert head_dim * size**2 == raw > torch.finfo(torch.float16).max
    got = attend(member, problem, inputs.q, inputs.k, inputs.v)
    agreement = judge(problem, inputs, got)
    if member == "naive":  # it scales after the product, as its definition says
        assert agreement.tensors["out"].nonfinite == 2 * head_dim
        assert not agreement.passed
        assert "non-finite" in failure_reason(agreement)
    else:
        assert got["out"][0, 0, :, :2].tolist() == [[2.0, 3.0]] * 2
        assert agreement.passed


def test_o09_the_count_is_that_of_the_values_columns():
    q = torch.full((1, 1, 2, 64), 40.0)
    v = torch.tensor([[1.0, 2.0], [3.0, 4.0]])[None, None]
    problem = problem_of(q, q, v, dtype="float16")
    got = attend("naive", problem, q, q, v)
    assert judge(problem, AttentionInputs(q, q, v), got).tensors["out"].nonfinite == 4


def test_o09_scaling_first_helps_at_one_size_and_not_at_the_other():
    """So it is no cure: 40 / 8 * 40 * 64 is 12,800, but 256 / sqrt(128) * 256 * 128 is 741,455."""
    for (head_dim, size), fits in (((64, 40), True), ((128, 256), False)):
        q = torch.full((2, head_dim), float(size), dtype=torch.float16)
        assert bool(((q * head_dim**-0.5) @ q.T).isfinite().all()) == fits


# O10: a block of keys in which a row sees nothing, before one in which it sees something.


LATE = [[False] * 5 + [True] * 3 if row else [True] * 8 for row in range(8)]
"""Row 0 sees everything, so no block can be skipped; the others see nothing of the first block of four keys."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", [1, 4, 8])
def test_o10_rows_that_see_nothing_of_the_first_block_are_right_in_the_running_softmax(block, dtype):
    """With ``m = -inf`` the first block would give ``exp(-inf - -inf)``, NaN, in rows 1 to 7."""
    from bench.implementation import implementations

    member = type(implementations.get("online_softmax"))(block_n=block)
    zeros, eye = torch.zeros(1, 1, 8, 8), torch.eye(8)[None, None]
    problem = problem_of(zeros, zeros, eye, mask=TableMask(LATE), dtype=dtype)
    tensors = AttentionInputs(*(tensor.to(getattr(torch, dtype)) for tensor in (zeros, zeros, eye)))
    got = member.prepare(problem, tensors).run()
    assert judge(problem, AttentionInputs(zeros, zeros, eye), {"out": got.out, "lse": got.lse}).passed
    torch.testing.assert_close(got.lse[0, 0, 1:], torch.full((7,), math.log(3)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_o10_gradients_of_rows_that_see_late_keys_only(member, dtype):
    got = weights_unless_structureless(member, TableMask(LATE), 8, 8, dtype=dtype, direction="fwd_bwd")
    if got is None:
        return
    zeros, eye = torch.zeros(1, 1, 8, 8), torch.eye(8)[None, None]
    problem = problem_of(zeros, zeros, eye, mask=TableMask(LATE), dtype=dtype, direction="fwd_bwd")
    assert judge(problem, AttentionInputs(zeros, zeros, eye, torch.ones(1, 1, 8, 8)), got).passed


# O11: scales of zero and below.


def ramp(scale):
    """Three tokens of width 1 with scores 0, ln 2, 0 times ``scale``."""
    q, k, v = (torch.tensor(t)[None, None, :, None] for t in ([1.0] * 3, [0.0, math.log(2), 0.0], [1.0, 2.0, 6.0]))
    return problem_of(q, k, v, mask="causal", scale=scale), AttentionInputs(q, k, v)


@pytest.mark.parametrize(("scale", "right"), [(0.0, [1, 1.5, 3]), (-1.0, [1, 4 / 3, 3.2])])
def test_o11_is_causal_with_such_a_scale_is_nan_in_pytorchs_flash_kernel_and_called_incorrect(scale, right):
    """The present fault: every row with a hidden key is NaN. The math kernel is right."""
    problem, inputs = ramp(scale)
    for backend, passes in ((SDPBackend.MATH, True), (SDPBackend.FLASH_ATTENTION, False)):
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(
                inputs.q, inputs.k, inputs.v, is_causal=True, scale=scale
            )
        assert judge(problem, inputs, {"out": out}).passed == passes
        if not passes:
            assert out.isnan().flatten().tolist() == [True, True, False]
            assert out[0, 0, 2, 0].item() == pytest.approx(right[2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [0.0, -0.3, -5.0])
@pytest.mark.parametrize("mask", ["causal", "sliding_window(3)", "padding(lengths=[9])", "full"])
@pytest.mark.parametrize("member", QUICK)
def test_o11_every_scale_is_computed_under_every_mask_forward_and_backward(member, mask, scale, dtype):
    problem = Problem(num_heads=1, seqlen=12, head_dim=8, mask=mask, scale=scale, dtype=dtype, direction="fwd_bwd")
    inputs = make_inputs(problem)
    agreement = judge(problem, inputs, attend(member, problem, inputs.q, inputs.k, inputs.v, inputs.dout))
    assert agreement.passed, failure_reason(agreement)


# O12: inputs that are not finite.


def all_nan_queries(seqlen, dtype="float32"):
    generator = torch.Generator().manual_seed(0)
    k, v = torch.randn(2, 1, 1, seqlen, 8, generator=generator).unbind()
    q = torch.full((1, 1, seqlen, 8), math.nan)
    return problem_of(q, k, v, dtype=dtype), AttentionInputs(q, k, v)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seqlen", [8, 17])
@pytest.mark.parametrize("member", QUICK)
def test_o12_nan_queries_never_count_as_agreement(member, seqlen, dtype):
    """NaN, zeros or anything else: a problem whose answer is NaN cannot be passed, and its error is not 0."""
    problem, inputs = all_nan_queries(seqlen, dtype)
    agreement = judge(problem, inputs, attend(member, problem, inputs.q, inputs.k, inputs.v))
    error = agreement.tensors["out"]
    assert (agreement.passed, error.max_abs, error.nonfinite) == (False, None, seqlen * 8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seqlen", [1, 7, 8, 15, 16, 17, 32])
def test_o12_pytorchs_flash_kernel_makes_zeros_of_nan_queries_where_keys_fill_no_vector(seqlen, dtype):
    """The present fault: fewer keys than a float32 vector register holds. The gate refuses both answers."""
    register = {"AVX512": 16, "AVX2": 8}.get(torch.backends.cpu.get_cpu_capability())
    problem, inputs = all_nan_queries(seqlen, dtype)
    out = attend("sdpa_flash", problem, inputs.q, inputs.k, inputs.v)["out"]
    zeros = not out.any()
    assert zeros or out.isnan().all()
    if register is not None:
        assert zeros == (seqlen < register)
    assert not judge(problem, inputs, {"out": out}).passed
    assert attend("sdpa_math", problem, inputs.q, inputs.k, inputs.v)["out"].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("distribution", ["normal", "uniform", "outlier", "peaked"])
def test_o12_the_suite_draws_finite_numbers_only(distribution, dtype):
    problem = Problem(seqlen=300, dtype=dtype, distribution=distribution, direction="bwd", seed=3)
    inputs = make_inputs(problem)
    assert all(getattr(inputs, name).isfinite().all() for name in ("q", "k", "v", "dout"))
