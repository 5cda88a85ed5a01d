"""The gate: what passes, what does not, and that missing or non-finite values never look right."""

from __future__ import annotations

import pytest
import torch

from bench.inputs import make_inputs
from bench.numerics import agree, error_limit, failure_reason
from bench.problem import Problem
from bench.reference import naive_yardstick, reference


def judged(problem, change=lambda tensors: tensors):
    """Agreement of the naive arithmetic itself after ``change``."""
    inputs = make_inputs(problem)
    exact, naive = reference(problem, inputs), naive_yardstick(problem, inputs)
    got = {name: tensor.clone() for name, tensor in naive.tensors().items()}
    return agree(problem, exact, naive, change(got))


def with_out(function):
    def change(got):
        got.pop("lse")
        got["out"] = function(got["out"])
        return got

    return change


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mask", ["full", "causal & padding(lengths=[40], side=left)"])
@pytest.mark.parametrize("seqlen", [1, 64, 300])
def test_naive_arithmetic_passes_with_ratio_one(dtype, mask, seqlen):
    if seqlen < 40:
        mask = mask.replace("[40]", f"[{seqlen}]")
    agreement = judged(Problem(seqlen=seqlen, dtype=dtype, mask=mask, num_heads=2), with_out(lambda out: out))
    assert agreement.passed
    assert agreement.tensors["out"].rmse_over_naive in (None, pytest.approx(1.0))
    assert agreement.missing == {"lse": "the implementation does not return it"}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda out: out * 1.1,
        lambda out: torch.zeros_like(out),
        lambda out: out.roll(1, dims=1),
        lambda out: out.roll(1, dims=2),
        lambda out: out.index_fill(2, torch.tensor([7]), float("nan")),
        lambda out: out.index_fill(2, torch.tensor([7]), float("inf")),
    ],
)
def test_wrong_outputs_are_refused(dtype, spoil):
    agreement = judged(Problem(seqlen=64, dtype=dtype, num_heads=2), with_out(spoil))
    assert not agreement.passed
    assert "out" in failure_reason(agreement)


def test_nan_is_counted_and_never_becomes_a_zero_error():
    agreement = judged(Problem(seqlen=8, num_heads=1), with_out(lambda out: torch.full_like(out, float("nan"))))
    error = agreement.tensors["out"]
    assert (error.max_abs, error.rmse, error.nonfinite) == (None, None, 8 * 64)
    assert not agreement.passed


def test_an_empty_row_must_be_zero_with_lse_minus_infinity():
    problem = Problem(seqlen=4, num_heads=1, mask="causal & padding(lengths=[3], side=left)")
    assert judged(problem).passed

    def mean_of_v(got):
        got["out"][:, :, 0] = 0.25
        return got

    def finite_lse(got):
        got["lse"][:, :, 0] = 0.0
        return got

    assert not judged(problem, mean_of_v).passed
    assert judged(problem, finite_lse).tensors["lse"].nonfinite == 1
    assert not judged(problem, finite_lse).passed


def test_lse_in_base_two_is_refused():
    def base_two(got):
        got["lse"] = got["lse"] / torch.log(torch.tensor(2.0))
        return got

    assert not judged(Problem(seqlen=64, num_heads=1), base_two).passed


def test_a_missing_output_never_passes():
    agreement = judged(Problem(seqlen=8, num_heads=1), lambda got: {"lse": got["lse"]})
    assert not agreement.passed
    assert failure_reason(agreement) == "out is missing"


def test_a_wrong_shape_is_an_error_not_a_broadcast():
    with pytest.raises(ValueError, match="out must have shape"):
        judged(Problem(seqlen=8, num_heads=2), with_out(lambda out: out[:, :1]))


def test_gradients_are_judged():
    problem = Problem(seqlen=32, num_heads=2, direction="bwd")
    assert judged(problem).passed

    def without_scale(got):
        got["dq"] = got["dq"] / problem.softmax_scale
        return got

    agreement = judged(problem, without_scale)
    assert not agreement.passed
    assert set(agreement.tensors) == {"out", "lse", "dq", "dk", "dv"}
    assert failure_reason(agreement).startswith("dq is off by")


def test_float16_overflow_of_naive_scores_is_reported_as_such():
    """All q and k 40 at d=64: raw scores of 102,400 overflow float16; the right answer is finite."""
    problem = Problem(seqlen=2, num_heads=1, dtype="float16")
    inputs = make_inputs(problem)
    inputs.q.fill_(40), inputs.k.fill_(40)
    exact, naive = reference(problem, inputs), naive_yardstick(problem, inputs)
    agreement = agree(problem, exact, naive, {"out": naive.out})
    assert agreement.tensors["out"].nonfinite == 2 * 64
    assert not agreement.passed
    assert agree(problem, exact, naive, {"out": exact.out.to(torch.float16)}).passed


def test_limit_grows_with_the_naive_error_and_the_score_and_has_a_floor():
    problem = Problem(seqlen=8)
    floor = error_limit(problem, 0.0, 1.0, 1.0)
    assert 0 < floor < 1e-5
    assert error_limit(problem, 1e-3, 1.0, 1.0) == pytest.approx(2e-3 + floor)
    assert error_limit(problem, 0.0, 1.0, 100.0) > floor
    assert error_limit(problem, 0.0, 0.0, 1.0) == 0.0


def test_same_function_in_float64_reads_zero_error():
    problem = Problem(seqlen=16, num_heads=1)
    inputs = make_inputs(problem)
    exact = reference(problem, inputs)
    agreement = agree(problem, exact, naive_yardstick(problem, inputs), {"out": exact.out, "lse": exact.lse})
    assert agreement.tensors["out"].max_abs == 0.0
    assert agreement.passed
