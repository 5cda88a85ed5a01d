"""Public cases O07 and O08: lengths that fill no block, widths that fill no vector.

Both are also in ``tests/implementations/test_conformance.py``, for every implementation that need not be compiled.
"""

from __future__ import annotations

import math

import pytest
import torch
from members import COMPILED, DTYPES, QUICK, RUNNABLE, RefusedError, attend, judge

from bench.implementation import AttentionInputs, implementations
from bench.inputs import make_inputs
from bench.problem import Problem


def before_nan(tensor):
    """The same numbers at the start of a buffer that goes on with NaN."""
    buffer = torch.full((tensor.numel() + 4096,), math.nan, dtype=tensor.dtype, device=tensor.device)
    return buffer[: tensor.numel()].view(tensor.shape).copy_(tensor)


def check(member, asked, device="cpu"):
    """Judged by the gate, with NaN behind every input."""
    inputs = make_inputs(asked)
    tensors = (inputs.q, inputs.k, inputs.v, inputs.dout)
    fenced = [None if tensor is None else before_nan(tensor) for tensor in tensors]
    agreement = judge(asked, inputs, attend(member, asked, *fenced, device=device))
    assert agreement.passed, agreement


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seqlen", [(1, 20), (5, 7), (17, 129), (129, 17), (63, 65)])
@pytest.mark.parametrize("member", QUICK)
def test_o07_ragged_lengths_under_a_mask_read_nothing_past_the_end(member, seqlen, dtype):
    sizes = {"seqlen_q": seqlen[0], "seqlen_k": seqlen[1], "head_dim": 16, "num_heads_q": 2, "num_heads_kv": 1}
    check(member, Problem(**sizes, dtype=dtype, mask="causal", direction="fwd_bwd"))


@pytest.mark.slow
@pytest.mark.parametrize("member", [name for name in RUNNABLE if name in COMPILED])
def test_o07_compiled_implementations_read_nothing_past_the_end(member):
    check(member, Problem(num_heads=1, seqlen_q=17, seqlen_k=129, head_dim=4, mask="causal"))


@pytest.mark.gpu
@pytest.mark.parametrize("direction", ["fwd", "fwd_bwd"])
@pytest.mark.parametrize("seqlen", [(1, 20), (17, 129), (192, 192), (513, 1025), (1025, 1025)])
@pytest.mark.parametrize("member", implementations.names())
def test_o07_ragged_lengths_on_a_gpu(member, seqlen, direction):
    if "cuda" not in implementations.get(member).devices:
        return
    sizes = {"seqlen_q": seqlen[0], "seqlen_k": seqlen[1], "head_dim": 64, "num_heads": 2}
    try:
        check(member, Problem(**sizes, dtype="bfloat16", mask="causal", direction=direction), "cuda")
    except RefusedError as refused:
        assert len(str(refused)) > 10, "a refusal says why"


def test_o07_flexattention_refuses_a_block_mask_of_another_length():
    """So a block mask that was kept from another problem is an error and not a wrong result."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    block_mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cpu")
    q = torch.zeros(1, 1, 200, 16)
    with pytest.raises(ValueError, match="block_mask was created for"):
        flex_attention(q, q, q, block_mask=block_mask)


@pytest.mark.parametrize("member", QUICK)
@pytest.mark.parametrize("dtype", DTYPES)
def test_o07_a_lone_key_returns_its_value_bit_by_bit(member, dtype):
    asked = Problem(num_heads=3, seqlen=1, head_dim=16, dtype=dtype)
    inputs = make_inputs(asked)
    assert torch.equal(attend(member, asked, inputs.q, inputs.k, inputs.v)["out"], inputs.v)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("widths", [(1, 1), (3, 3), (63, 63), (80, 80), (96, 96), (128, 128), (48, 32), (8, 16)])
@pytest.mark.parametrize("member", QUICK)
def test_o08_odd_widths_are_right_or_refused_by_name(member, widths, dtype):
    asked = Problem(
        num_heads=2,
        seqlen_q=33,
        seqlen_k=65,
        head_dim=widths[0],
        head_dim_v=widths[1],
        dtype=dtype,
        direction="fwd_bwd",
    )
    try:
        check(member, asked)
    except RefusedError as refused:
        assert "head_dim_v" in str(refused) and widths[0] != widths[1]


@pytest.mark.parametrize(("width", "wrong_width"), [(8, 16), (3, 4), (3, 16), (63, 64), (80, 96), (96, 128)])
def test_o08_the_gate_refuses_the_scale_of_a_padded_width(width, wrong_width):
    asked = Problem(num_heads=2, seqlen=33, head_dim=width)
    inputs = make_inputs(asked)
    padded = asked.model_copy(update={"scale": wrong_width**-0.5})
    out = attend("naive", padded, inputs.q, inputs.k, inputs.v)["out"]
    assert not judge(asked, inputs, {"out": out}).passed
    assert out.shape == (1, 2, 33, width)


def test_o08_flop_count_key_and_value_widths_apart():
    assert Problem(num_heads=1, seqlen_q=5, seqlen_k=7, head_dim=8, head_dim_v=16).flop == 2 * 35 * (8 + 16) == 1680
    inputs = AttentionInputs(torch.zeros(1, 1, 5, 8), torch.zeros(1, 1, 7, 8), torch.zeros(1, 1, 7, 16))
    asked = Problem(num_heads=1, seqlen_q=5, seqlen_k=7, head_dim=8, head_dim_v=16)
    assert attend("naive", asked, inputs.q, inputs.k, inputs.v)["out"].shape == (1, 1, 5, 16)
