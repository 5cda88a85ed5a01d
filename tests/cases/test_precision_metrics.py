"""Public cases O13 to O15: TF32 under the name of float32, references in low precision, and the base of lse."""

from __future__ import annotations

import math

import pytest
import torch
from members import QUICK, attend, judge, problem_of

from bench.implementation import AttentionInputs
from bench.inputs import make_inputs
from bench.problem import Problem
from bench.reference import reference


def to_tf32(tensor):
    """Rounded to the ten explicit mantissa bits that TF32 keeps."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize(
    ("gain", "seqlen", "head_dim", "tf32_error", "float32_error"),
    [(1, 128, 32, 3.4e-4, 3.6e-7), (3, 240, 128, 3e-2, 5.4e-5), (10, 240, 128, 1.4, 1.3e-3)],
)
def test_o13_tf32_products_are_not_float32(gain, seqlen, head_dim, tf32_error, float32_error):
    """They are a thousand times further off, and refused; float32 is not, even where scores reach 400."""
    problem = Problem(num_heads=1, seqlen=seqlen, head_dim=head_dim)
    drawn = make_inputs(problem)
    inputs = AttentionInputs(drawn.q * gain, drawn.k * gain, drawn.v * gain)
    scores = to_tf32(inputs.q) @ to_tf32(inputs.k).transpose(-1, -2) * problem.softmax_scale
    emulated = to_tf32(torch.softmax(scores, dim=-1)) @ to_tf32(inputs.v)
    agreement = judge(problem, inputs, {"out": emulated})
    assert not agreement.passed
    assert agreement.tensors["out"].max_abs == pytest.approx(tf32_error, rel=0.5)
    for member in QUICK:
        agreement = judge(problem, inputs, attend(member, problem, inputs.q, inputs.k, inputs.v))
        assert agreement.passed, member
        assert agreement.tensors["out"].max_abs < 2 * float32_error


def test_o13_float32_products_are_what_torch_is_set_to():
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.fixture(scope="module")
def published():
    """B=1 H=4 T=512 d=64 in bfloat16, its reference and every implementation's output, in float64."""
    problem = Problem(num_heads=4, seqlen=512, dtype="bfloat16")
    inputs = make_inputs(problem)
    outs = {name: attend(name, problem, inputs.q, inputs.k, inputs.v)["out"].double() for name in QUICK}
    return problem, inputs, reference(problem, inputs).out, outs


def largest(difference):
    return float(difference.abs().max())


def test_o14_the_reference_is_float64_on_the_rounded_inputs(published):
    problem, inputs, exact, outs = published
    floor = largest(exact.to(torch.bfloat16).double() - exact)
    assert floor == pytest.approx(9.7e-4, rel=0.05)
    assert largest(outs["sdpa_flash"] - exact) == pytest.approx(1.28e-3, rel=0.2)
    assert largest(outs["naive"] - exact) == pytest.approx(3.9e-3, rel=0.2)
    for name, out in outs.items():
        assert largest(out - exact) >= floor
        assert judge(problem, inputs, {"out": out}).tensors["out"].max_abs == largest(out - exact), name


def test_o14_a_reference_in_the_same_dtype_would_rank_them_wrongly(published):
    """Against naive in bfloat16 naive has no error and flash naive's own; against float64 flash has a third of it."""
    _, _, exact, outs = published
    against_naive = largest(outs["sdpa_flash"] - outs["naive"])
    assert against_naive > 2.5 * largest(outs["sdpa_flash"] - exact)
    assert against_naive == pytest.approx(largest(outs["naive"] - exact), rel=0.1)


def test_o14_a_reference_on_unrounded_inputs_would_add_the_rounding_of_inputs(published):
    problem, _, exact, outs = published
    unrounded = problem.model_copy(update={"dtype": "float32"})
    other = reference(unrounded, make_inputs(unrounded)).out
    assert largest(outs["sdpa_flash"] - other) > 1.5 * largest(outs["sdpa_flash"] - exact)


def test_o14_errors_are_told_as_a_ratio_to_naive_in_the_same_dtype(published):
    problem, inputs, _, outs = published
    ratios = {name: judge(problem, inputs, {"out": out}).tensors["out"].rmse_over_naive for name, out in outs.items()}
    assert ratios["naive"] == pytest.approx(1.0, abs=1e-3)
    assert all(0.3 < ratio < 0.6 for name, ratio in ratios.items() if name != "naive")


@pytest.mark.parametrize(("dtype", "stalls_at"), [("bfloat16", 256), ("float16", 2048)])
@pytest.mark.parametrize("member", QUICK)
def test_o14_row_sums_are_not_kept_in_half_precision(member, dtype, stalls_at):
    """4,096 equal weights of v = 1. A sum in the dtype stops growing, and the output is 16 or 2 times too large."""
    seqlen_k = 4096
    q, k, v = torch.zeros(1, 1, 1, 8), torch.zeros(1, 1, seqlen_k, 8), torch.ones(1, 1, seqlen_k, 8)
    problem = problem_of(q, k, v, dtype=dtype)
    got = attend(member, problem, q, k, v)
    assert got["out"].unique().tolist() == [1.0]
    inputs = AttentionInputs(q, k, v)
    total = torch.zeros((), dtype=getattr(torch, dtype))
    for _ in range(seqlen_k):
        total = total + torch.ones_like(total)
    assert total == stalls_at
    assert not judge(problem, inputs, {"out": got["out"].double() * seqlen_k / float(total)}).passed


# O15


def logits_123():
    """One query with scores 1, 2, 3."""
    q, k = torch.ones(1, 1, 1, 1), torch.tensor([1.0, 2.0, 3.0])[None, None, :, None]
    return problem_of(q, k, torch.ones(1, 1, 3, 1), scale=1.0), AttentionInputs(q, k, torch.ones(1, 1, 3, 1))


@pytest.mark.parametrize("member", QUICK)
def test_o15_lse_is_the_natural_logarithm(member):
    problem, inputs = logits_123()
    got = attend(member, problem, inputs.q, inputs.k, inputs.v)
    assert "lse" in got or member != "online_softmax"
    if "lse" in got:
        assert got["lse"].item() == pytest.approx(3.4076060, abs=1e-6)
    assert judge(problem, inputs, got).passed


@pytest.mark.parametrize(
    ("lse", "passes"),
    [(3.4076060, True), (4.9161363, False), (2.3619723, False), (3.4076060 - 3.0, False), (3.0, False)],
    ids=["natural", "base 2", "converted once too often", "relative to the maximum", "the maximum alone"],
)
def test_o15_the_gate_refuses_every_other_base(lse, passes):
    problem, inputs = logits_123()
    got = {"out": torch.ones(1, 1, 1, 1), "lse": torch.full((1, 1, 1), lse)}
    assert judge(problem, inputs, got).passed == passes


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
def test_o15_flexattention_returns_a_natural_lse():
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    _, inputs = logits_123()
    wide = [torch.nn.functional.pad(tensor, (0, 15)) for tensor in (inputs.q, inputs.k, inputs.v)]
    _, aux = flex_attention(*wide, scale=1.0, return_aux=AuxRequest(lse=True))
    assert aux.lse.item() == pytest.approx(math.log(math.e + math.e**2 + math.e**3), abs=1e-6)
