"""Public case O21: dropout that stays on, and results that differ from call to call."""

from __future__ import annotations

import math

import pytest
import torch
from members import DTYPES, QUICK, attend
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.inputs import make_inputs
from bench.problem import Problem


@pytest.mark.parametrize("member", QUICK)
@pytest.mark.parametrize("dtype", DTYPES)
def test_o21_no_implementation_draws_anything(member, dtype):
    """The state of the generator is left alone, and another state changes not one bit."""
    problem = Problem(num_heads=1, seqlen=33, head_dim=4, mask="causal", dtype=dtype)
    inputs = make_inputs(problem)
    outs = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        outs.append(attend(member, problem, inputs.q, inputs.k, inputs.v)["out"])
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(outs[0], outs[1])


@pytest.mark.parametrize("member", ["sdpa_math", "sdpa_flash"])
@pytest.mark.parametrize("direction", ["fwd", "fwd_bwd"])
def test_o21_pytorch_is_never_asked_for_dropout(member, direction, monkeypatch):
    told = []
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(*args, **options):
        told.append((len(args), options.get("dropout_p", 0.0)))
        return real(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    problem = Problem(seqlen=8, head_dim=8, direction=direction)
    inputs = make_inputs(problem)
    attend(member, problem, inputs.q, inputs.k, inputs.v, inputs.dout)
    assert set(told) == {(3, 0.0)}


def test_o21_a_problem_has_no_dropout():
    assert not [name for name in Problem.model_fields if "drop" in name]


def test_o21_dropout_of_the_functional_attention_ignores_no_grad_and_is_unbiased():
    """400 calls with v = 1: each row's output is ``sum(w * b / (1 - p))``, with mean 1 and variance ``sum(w^2)``."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 64, 8, generator=generator).unbind()
    v = torch.ones(1, 1, 64, 8)
    torch.manual_seed(0)
    with torch.no_grad():
        outs = torch.stack(
            [torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5)[0, 0, :, 0] for _ in range(400)]
        )
    assert (outs[0] - outs[1]).abs().max() > 0.5
    weights = torch.softmax(q @ k.transpose(-1, -2) * 8**-0.5, dim=-1)
    error = math.sqrt(float(weights.square().sum()) / 64 / (400 * 64))
    assert abs(float(outs.mean()) - 1) < 5 * error


@pytest.mark.filterwarnings("ignore:Flash attention kernel not used", "ignore:Both fused kernels do not support")
def test_o21_the_flash_kernel_refuses_dropout():
    q = torch.zeros(1, 1, 8, 8)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
        torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)


@pytest.mark.parametrize(("training", "repeats"), [(False, True), (True, False)])
def test_o21_the_module_follows_its_mode(training, repeats):
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True).train(training)
    x = torch.randn(1, 16, 8)
    with torch.no_grad():
        first, second = (layer(x, x, x, need_weights=False)[0] for _ in range(2))
    assert torch.equal(first, second) == repeats
