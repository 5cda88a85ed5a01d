"""The operators of torch that our Triton kernels are: opcheck, autograd, torch.compile."""

from __future__ import annotations

import pytest
import torch

from bench.errors import Unsupported

pytest.importorskip("triton", reason="Triton ships for Linux alone")

from implementations.triton_flash import ops
from implementations.triton_flash.launch import Mask
from implementations.triton_flash.ops import attention

FORWARD = "triton_attention_forward"
BACKWARD = "triton_attention_backward"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def tensors(requires_grad=True, **factory):
    generator = torch.Generator().manual_seed(0)
    sizes = [(2, 4, 20, 16), (2, 2, 24, 16), (2, 2, 24, 8)]
    made = [torch.randn(size, generator=generator).to(DEVICE, **factory) for size in sizes]
    return [tensor.requires_grad_(requires_grad) for tensor in made]


def keys():
    return torch.tensor([[0, 2], [20, 24]], dtype=torch.int32, device=DEVICE)


def operator(name):
    return getattr(torch.ops.attention_bench, name).default


def math_attention(q, k, v):
    """The definition under ``Mask(right=4)`` with scale 0.3, differentiable as often as wanted."""
    k, v = (tensor.repeat_interleave(2, dim=1) for tensor in (k, v))
    hidden = torch.ones(20, 24, dtype=torch.bool, device=q.device).triu(5)
    scores = (q @ k.transpose(-1, -2) * 0.3).masked_fill(hidden, -torch.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("with_stats", [False, True])
def test_opcheck_passes_forward(masked, with_stats):
    mask = (-8, 4, keys(), None, None) if masked else (None, None, None, None, None)
    found = torch.library.opcheck(operator(FORWARD), (*tensors(with_stats), 0.3, *mask, with_stats))
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("with_dlse", [False, True])
def test_opcheck_passes_backward(with_dlse):
    q, k, v = tensors(False)
    mask = (None, 4, keys(), None, None)
    out, lse, stats = operator(FORWARD)(q, k, v, 0.3, *mask, True)
    dlse = torch.ones_like(lse) if with_dlse else None
    found = torch.library.opcheck(operator(BACKWARD), (torch.ones_like(out), dlse, q, k, v, out, stats, 0.3, *mask))
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("what", ["out", "lse", "both"])
def test_gradients_flow_through_out_and_through_lse(what):
    def loss(function, *inputs):
        out, lse = function(*inputs)
        return (out.sin().sum() if what != "lse" else 0) + (lse.cos().sum() if what != "out" else 0)

    inputs = tensors()
    got = torch.autograd.grad(loss(lambda *t: attention(*t, 0.3, Mask(right=4)), *inputs), inputs)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    wanted = torch.autograd.grad(loss(math_attention, *exact), exact, materialize_grads=True)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


def test_a_second_derivative_is_refused_by_the_backward_operator_with_our_words():
    inputs = tensors()
    out, _ = attention(*inputs)
    (dq,) = torch.autograd.grad(out.sum(), inputs[:1], create_graph=True)
    with pytest.raises(Unsupported, match="differentiated once"):
        torch.autograd.grad(dq.sum(), inputs)


def test_a_forward_call_without_statistics_cannot_be_differentiated():
    with pytest.raises(Unsupported, match="with_stats"):
        operator(FORWARD)(*tensors(), 0.3, None, None, None, None, None, False)


def test_tensors_of_the_other_kind_are_refused_and_told_why(monkeypatch):
    """On a machine with a GPU the kernels of a process are compiled, and a tensor on the CPU would crash them."""
    monkeypatch.setattr(ops, "INTERPRETED", not ops.INTERPRETED)
    with pytest.raises(Unsupported, match="TRITON_INTERPRET"):
        attention(*tensors(False))


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_it_works_under_compile_with_and_without_gradients(dynamic):
    def loss(q, k, v):
        out, lse = attention(q * 2, k, v, 0.3, Mask(right=4))
        return out.sin().sum() + lse.sum()

    inputs = tensors()
    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic)
    got, wanted = (torch.autograd.grad(function(*inputs), inputs) for function in (compiled, loss))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), loss(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_no_statistics_are_kept(mode):
    with mode():
        out, lse = attention(*tensors(), 0.3, Mask(right=4))
    assert not out.requires_grad and not lse.requires_grad


def test_what_the_kernels_would_read_wrongly_is_refused():
    q, k, v = tensors(False)
    for wrong in [
        (q.double(), k.double(), v.double()),
        (q.half(), k, v),
        (q, k[:, :1], v),
        (q[:, :3], k, v),
        (q[0], k, v),
        (q[0], k[0], v[0]),
        (q, k[:, :0], v[:, :0]),
        (q[..., :0], k[..., :0], v),
        (q, k, v[..., :0]),
    ]:
        with pytest.raises(Unsupported, match="must be"):
            attention(*wrong)
    other = "cpu" if DEVICE == "cuda" else "meta"
    with pytest.raises(Unsupported, match="one device"):
        attention(q, k.to(other), v)
    wide = torch.zeros(1, 1, 2, 257, device=DEVICE)
    with pytest.raises(Unsupported, match="256"):
        attention(wide, wide, wide)
