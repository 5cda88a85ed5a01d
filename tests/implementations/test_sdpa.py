"""How a mask is told to PyTorch, and that what it refuses is refused in its own words."""

from __future__ import annotations

import warnings

import pytest
import torch

from bench.errors import Unavailable, Unsupported
from bench.implementation import implementations
from bench.inputs import make_inputs
from bench.problem import Problem


@pytest.mark.parametrize(
    ("fields", "way"),
    [
        ({}, "none"),
        ({"mask": "padding(0)"}, "none"),
        ({"seqlen_q": 1, "seqlen_k": 9, "mask": "causal"}, "none"),  # the last query sees all
        ({"mask": "causal"}, "is_causal"),
        ({"mask": "causal_top_left"}, "is_causal"),
        ({"seqlen_q": 3, "seqlen_k": 9, "mask": "causal_top_left"}, "is_causal"),
        ({"seqlen_q": 3, "seqlen_k": 9, "mask": "causal"}, "boolean"),  # bottom-right; is_causal is top-left
        ({"mask": "causal", "scale": 0.0}, "boolean"),  # is_causal gives NaN on the CPU
        ({"mask": "causal", "scale": -1.0}, "boolean"),
        ({"mask": "causal & padding(0.5)"}, "boolean"),
        ({"mask": "sliding_window(3)"}, "boolean"),
        ({"mask": "document(2)"}, "boolean"),
        ({"mask": "prefix_lm(3)"}, "boolean"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["sdpa_math", "sdpa_flash"])
def test_the_way_a_mask_is_told(name, fields, way):
    problem = Problem(**({"seqlen": 8} | fields))
    call = implementations.get(name).prepare(problem, make_inputs(problem))
    assert call.notes["mask"] == way
    assert call.mask_bytes == (problem.seqlen_q * problem.seqlen_k if way == "boolean" else 0)


def test_a_mask_is_as_large_as_it_differs():
    """Items with the same padding share one mask; different ones do not; heads never differ here."""
    for spec, items in (("padding(lengths=[3, 3])", 1), ("padding(lengths=[3, 4])", 2)):
        problem = Problem(batch_size=2, num_heads=4, seqlen=8, mask=spec)
        assert implementations.get("sdpa_math").prepare(problem, make_inputs(problem)).mask_bytes == items * 64


def test_what_the_kernel_refuses_is_unsupported_in_the_words_of_pytorch():
    problem = Problem(seqlen=8, head_dim=8, head_dim_v=16)
    flash = implementations.get("sdpa_flash")
    assert "head_dim_v" in flash.unsupported(problem, "cpu")
    with pytest.raises(Unsupported, match="No available kernel"):
        flash.prepare(problem, make_inputs(problem))


def test_warnings_that_explain_a_refusal_become_part_of_the_reason(monkeypatch):
    def refuse(*args, **kwargs):
        warnings.warn("Flash attention requires a fast enough card. (Triggered internally at x.cpp:1.)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.\nmore")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refuse)
    problem = Problem(seqlen=8)
    with pytest.raises(Unsupported) as caught:
        implementations.get("sdpa_flash").prepare(problem, make_inputs(problem))
    assert str(caught.value) == (
        "No available kernel. Aborting execution.; Flash attention requires a fast enough card."
    )


def test_running_out_of_memory_is_not_called_unsupported(monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refuse)
    problem = Problem(seqlen=8)
    with pytest.raises(RuntimeError, match="out of memory"):
        implementations.get("sdpa_flash").prepare(problem, make_inputs(problem))


@pytest.mark.parametrize("name", ["sdpa_efficient", "sdpa_cudnn"])
def test_kernels_for_gpus_say_that_there_is_none(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Unavailable, match="CUDA"):
        implementations.get(name).version()


def test_flash_on_a_gpu_takes_no_mask():
    flash = implementations.get("sdpa_flash")
    assert flash.unsupported(Problem(seqlen=8, mask="padding(0.5)"), "cuda") == "its kernel takes no mask but is_causal"
    assert flash.unsupported(Problem(seqlen=8, mask="causal"), "cuda") is None
