"""Public case O20: PyTorch computes with another kernel than the one that was meant, and says nothing.

That no implementation here does so is in ``tests/implementations/test_conformance.py``.
"""

from __future__ import annotations

import warnings
from functools import cache

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.errors import Unsupported
from bench.implementation import AttentionInputs, implementations
from bench.inputs import make_inputs
from bench.probes import probe_for
from bench.problem import Problem

FLASH, MATH = "flash_attention_for_cpu", "scaled_dot_product_attention_math"


def q():
    return torch.randn(1, 4, 32, 16, generator=torch.Generator().manual_seed(0))


def sdpa(*tensors, **options):
    return torch.nn.functional.scaled_dot_product_attention(*tensors, **options)


KEPT = {
    "plain": lambda: sdpa(q(), q(), q()),
    "a boolean mask": lambda: sdpa(q(), q(), q(), attn_mask=torch.ones(32, 32, dtype=torch.bool)),
    "grouped heads, said so": lambda: sdpa(q(), q()[:, :2], q()[:, :2], enable_gqa=True),
    "float64": lambda: sdpa(q().double(), q().double(), q().double()),
}
FALLS_BACK = {
    "dropout": lambda: sdpa(q(), q(), q(), dropout_p=0.1),
    "another value width": lambda: sdpa(q(), q(), q()[..., :8]),
    "three axes": lambda: sdpa(q()[0], q()[0], q()[0]),
    "another last stride": lambda: sdpa(*[q().transpose(-1, -2).contiguous().transpose(-1, -2)] * 3),
    "a mask that needs a gradient": lambda: sdpa(q(), q(), q(), attn_mask=torch.zeros(32, 32, requires_grad=True)),
    "one key head, not said so": lambda: sdpa(q(), q()[:, :1], q()[:, :1]),
    "a mask of three axes": lambda: sdpa(q(), q(), q(), attn_mask=torch.zeros(4, 32, 32)),
}


@cache
def probe():
    return probe_for("cpu")[0]


def ran(call):
    return " ".join(probe().read(call).operators)


@pytest.mark.parametrize("call", KEPT)
def test_o20_what_flash_runs(call):
    assert FLASH in ran(KEPT[call])
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert FLASH in ran(KEPT[call])


@pytest.mark.parametrize("call", FALLS_BACK)
def test_o20_pytorch_falls_back_in_silence_and_refuses_aloud_once_a_kernel_is_pinned(call):
    """The reason why every ``sdpa_*`` here pins one kernel and why a receipt of what ran is kept."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # not a word
        assert MATH in ran(FALLS_BACK[call])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
            FALLS_BACK[call]()


@pytest.mark.parametrize("case", ["another value width", "another last stride"])
def test_o20_what_a_pinned_kernel_refuses_is_unsupported_and_never_measured(case):
    problem = Problem(seqlen=32, head_dim=16, head_dim_v=8 if case == "another value width" else 16)
    drawn = make_inputs(problem)
    if case == "another last stride":
        drawn = AttentionInputs(
            *(t.transpose(-1, -2).contiguous().transpose(-1, -2) for t in (drawn.q, drawn.k, drawn.v))
        )
    with pytest.raises(Unsupported, match="No available kernel"):
        implementations.get("sdpa_flash").prepare(problem, drawn)


@pytest.mark.parametrize("heads", [(4, 2), (4, 1)])
def test_o20_grouped_heads_are_said_to_pytorch(heads, monkeypatch):
    """Without the flag one key head would be broadcast by the math kernel, and two would raise."""
    told = []
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(*args, **options):
        told.append(options["enable_gqa"])
        return real(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    problem = Problem(seqlen=32, head_dim=16, num_heads_q=heads[0], num_heads_kv=heads[1])
    implementations.get("sdpa_flash").prepare(problem, make_inputs(problem)).run()
    assert told == [True, True]


@pytest.mark.gpu
@pytest.mark.parametrize("member", [name for name in implementations.names() if name.startswith("sdpa_")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_o20_grouped_heads_on_a_gpu_run_the_named_kernel_or_refuse(member, dtype):
    problem = Problem(seqlen=64, num_heads_q=4, num_heads_kv=2, dtype=dtype)
    if implementations.get(member).unsupported(problem, "cuda") is not None:
        return
    try:
        call = implementations.get(member).prepare(problem, make_inputs(problem, device="cuda"))
    except Unsupported as refused:
        assert len(str(refused)) > 10, "a refusal says why"
        return
    operators = probe_for("cuda")[0].read(call.run).operators
    assert any(wanted in operator for wanted in implementations.get(member).expects for operator in operators)
