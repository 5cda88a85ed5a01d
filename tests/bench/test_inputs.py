"""Every layout and direction sees the same numbers, and they are distributed as documented."""

from __future__ import annotations

import pytest
import torch

from bench.inputs import make_inputs, to_layout, to_logical
from bench.problem import Problem

DISTRIBUTIONS = ["normal", "uniform", "outlier", "peaked"]


def tensors(inputs):
    return {"q": inputs.q, "k": inputs.k, "v": inputs.v, "dout": inputs.dout}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_layouts_hold_the_same_numbers_in_their_own_memory_order(distribution, dtype):
    problem = Problem(
        batch_size=2,
        num_heads_q=4,
        num_heads_kv=2,
        seqlen_q=5,
        seqlen_k=9,
        head_dim=8,
        head_dim_v=3,
        dtype=dtype,
        direction="fwd_bwd",
        distribution=distribution,
    )
    logical, other = tensors(make_inputs(problem, "bhsd")), tensors(make_inputs(problem, "bshd"))
    shapes = {"q": (2, 4, 5, 8), "k": (2, 2, 9, 8), "v": (2, 2, 9, 3), "dout": (2, 4, 5, 3)}
    for name, tensor in logical.items():
        assert tensor.shape == shapes[name]
        assert tensor.dtype == getattr(torch, dtype)
        assert tensor.is_contiguous() and other[name].is_contiguous()
        assert not tensor.requires_grad
        assert torch.equal(to_logical(other[name], "bshd"), tensor)
        assert torch.equal(to_layout(tensor, "bshd"), other[name])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_seed_decides_and_the_direction_does_not(distribution):
    problem = Problem(seqlen=33, distribution=distribution)
    again, backward = make_inputs(problem), make_inputs(problem.model_copy(update={"direction": "bwd"}))
    other = make_inputs(problem.model_copy(update={"seed": 1}))
    first = make_inputs(problem)
    assert first.dout is None
    assert backward.dout is not None
    for name in ("q", "k", "v"):
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert torch.equal(getattr(first, name), getattr(backward, name))
        assert not torch.equal(getattr(first, name), getattr(other, name))


def test_half_precision_is_the_float32_draw_rounded_once():
    exact = make_inputs(Problem(seqlen=64))
    for dtype in ("float16", "bfloat16"):
        rounded = make_inputs(Problem(seqlen=64, dtype=dtype))
        assert torch.equal(rounded.q, exact.q.to(getattr(torch, dtype)))


def test_distributions_are_what_they_are_called():
    normal = make_inputs(Problem(seqlen=1024)).v
    assert abs(normal.mean()) < 0.01 and abs(normal.std() - 1) < 0.01
    uniform = make_inputs(Problem(seqlen=1024, distribution="uniform")).v
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.01
    outlier = make_inputs(Problem(seqlen=4096, distribution="outlier")).v
    # Variance 1 + 0.001 * 100; values beyond 6 come from outliers alone, of which 55 % exceed it.
    assert outlier.var() == pytest.approx(1.1, abs=0.05)
    assert (outlier.abs() > 6).double().mean() == pytest.approx(0.001 * 0.55, rel=0.2)


@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(64, 64), (16, 64)])
def test_peaked_queries_find_the_key_of_their_own_position(seqlen_q, seqlen_k):
    problem = Problem(num_heads_q=4, num_heads_kv=2, seqlen_q=seqlen_q, seqlen_k=seqlen_k, distribution="peaked")
    inputs = make_inputs(problem)
    scores = inputs.q @ inputs.k.repeat_interleave(2, dim=1).transpose(-1, -2)
    own = torch.arange(seqlen_q) + seqlen_k - seqlen_q
    assert (scores.argmax(dim=-1) == own).double().mean() > 0.99


def test_peaked_clamps_positions_that_no_key_has():
    inputs = make_inputs(Problem(num_heads=1, seqlen_q=5, seqlen_k=2, distribution="peaked"))
    assert inputs.q.isfinite().all()


def test_a_loss_that_leaves_padding_out_sends_no_gradient_back_for_padded_queries():
    fields = {
        "seqlen": 8,
        "batch_size": 2,
        "num_heads": 2,
        "direction": "bwd",
        "mask": "causal & padding(lengths=[5, 8])",
    }
    plain = make_inputs(Problem(**fields))
    masked = make_inputs(Problem(**fields, distribution="padded_dout_zero"))
    assert (masked.dout[0, :, 5:] == 0).all()
    assert (masked.dout[0, :, :5] == plain.dout[0, :, :5]).all()
    assert (masked.dout[1] == plain.dout[1]).all()
    assert (masked.q == plain.q).all()
    assert (plain.dout[0, :, 5:] != 0).any(), "padding of keys alone leaves the padded queries in"
