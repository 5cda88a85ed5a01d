"""Public cases O03 to O06: polarity, causal corners, masks given together, and the element type of a mask.

O03, O04 and O05 are also in ``tests/implementations/test_conformance.py``, for every implementation, and the three
polarities of PyTorch in ``tests/chapter/test_visibility.py``.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from members import DTYPES, QUICK, TableMask, attend, judge, problem_of, weights, weights_unless_structureless
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.errors import MaskError
from bench.implementation import AttentionInputs, dense_mask, implementations, mask_block
from bench.inputs import make_inputs
from bench.masks import attended_pairs
from bench.problem import Problem
from bench.reference import reference

BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
CAUSAL = [[key <= query for key in range(4)] for query in range(4)]


def under_another_mask(mask, other, dtype, **sizes):
    """The gate's judgement of the exact result under ``other``, where ``mask`` was asked for."""
    asked = Problem(num_heads=2, head_dim=8, mask=mask, dtype=dtype, **sizes)
    inputs = make_inputs(asked)
    return judge(asked, inputs, {"out": reference(asked.model_copy(update={"mask": other}), inputs).out})


class Inverted(TableMask):
    """The other polarity of a table."""

    def __init__(self, problem):
        super().__init__((~dense_mask(problem, "cpu")[0, 0]).tolist())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", ["causal", "sliding_window(3)", "prefix_lm(2)", "document(2)", "padding(0.5)"])
def test_o03_the_gate_refuses_inverted_polarity(mask, dtype):
    asked = Problem(num_heads=2, head_dim=8, seqlen=16, mask=mask, dtype=dtype)
    inputs = make_inputs(asked)
    inverted = reference(asked.model_copy(update={"mask": Inverted(asked)}), inputs)
    assert not judge(asked, inputs, {"out": inverted.out}).passed
    assert judge(asked, inputs, {"out": reference(asked, inputs).out}).passed


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(2, 4), (1, 16), (4, 2)])
def test_o04_is_causal_of_pytorch_is_our_causal_top_left(backend, seqlen_q, seqlen_k):
    """If that ever changes, the implementations' way of telling PyTorch about masks has to change too."""
    asked = Problem(num_heads=1, head_dim=8, seqlen_q=seqlen_q, seqlen_k=seqlen_k, mask="causal_top_left")
    inputs = make_inputs(asked)
    with sdpa_kernel(backend):
        out = torch.nn.functional.scaled_dot_product_attention(inputs.q, inputs.k, inputs.v, is_causal=True)
    assert judge(asked, inputs, {"out": out}).passed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(2, 4), (1, 16), (4, 2), (60, 64)])
@pytest.mark.parametrize(("mask", "other"), [("causal", "causal_top_left"), ("causal_top_left", "causal")])
def test_o04_the_gate_refuses_the_other_corner(mask, other, seqlen_q, seqlen_k, dtype):
    sizes = {"seqlen_q": seqlen_q, "seqlen_k": seqlen_k}
    assert not under_another_mask(mask, Problem(seqlen=8, mask=other).mask, dtype, **sizes).passed


def test_o04_the_corner_is_part_of_the_problem_and_of_its_key():
    keys = {Problem(seqlen_q=2, seqlen_k=4, mask=mask).key for mask in ("causal", "causal_top_left")}
    assert len(keys) == 2


def test_o05_pytorch_intersects_or_raises_depending_on_the_kernel():
    q = torch.randn(1, 1, 4, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([True, True, False, True]).expand(4, 4)

    def both():
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask, is_causal=True)

    with sdpa_kernel(SDPBackend.MATH), pytest.raises(RuntimeError, match="should not be set when is_causal"):
        both()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = both()
    rows = [[CAUSAL[i][j] and j != 2 for j in range(4)] for i in range(4)]
    assert judge(problem_of(q, q, q, mask=TableMask(rows)), AttentionInputs(q, q, q), {"out": out}).passed


@pytest.mark.parametrize("mask", ["causal", "causal & padding(lengths=[3])", "causal & sliding_window(2)", "full"])
@pytest.mark.parametrize("member", ["sdpa_math", "sdpa_flash"])
def test_o05_a_mask_is_told_to_pytorch_in_one_way_only(member, mask, monkeypatch):
    told = []
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(*args, **options):
        told.append((options["attn_mask"] is not None, options["is_causal"]))
        return real(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    weights(member, mask, 4, 4)
    assert told
    assert (True, True) not in told


# O06


TYPES = [torch.bool, torch.uint8, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_o06_a_mask_of_ones_and_zeros_is_a_mask_and_never_added(member, dtype):
    """Added as numbers, 0 and 1 would favour visible keys by a factor of e and hide none."""
    got = [weights_unless_structureless(member, TableMask(CAUSAL, kind), 4, 4, dtype=dtype) for kind in TYPES]
    if got == [None] * len(TYPES):
        return
    results = [one["out"] for one in got]
    assert all(torch.equal(result, results[0]) for result in results)
    assert results[0][0, 0, 0].tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", TYPES)
def test_o06_every_mask_reaches_an_implementation_as_booleans(kind):
    problem = Problem(num_heads=1, seqlen=4, mask=TableMask(CAUSAL, kind))
    assert dense_mask(problem, "cpu").dtype == torch.bool
    assert mask_block(problem, {}, 0, 0, slice(0, 4), slice(1, 3)).dtype == torch.bool
    assert problem.attended_pairs == 10


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16])
def test_o06_numbers_to_be_added_to_scores_are_refused_as_a_mask(kind):
    """0 for visible and ``-inf`` for hidden would be read the wrong way round, as False and True."""
    additive = torch.zeros(4, 4).masked_fill(~torch.tensor(CAUSAL), -math.inf)
    problem = Problem(num_heads=1, seqlen=4, mask=TableMask(additive.tolist(), kind))
    with pytest.raises(MaskError, match="must answer with booleans"):
        dense_mask(problem, "cpu")
    with pytest.raises(MaskError, match="must answer with booleans"):
        mask_block(problem, {}, 0, 0, slice(0, 4), slice(0, 4))


ACCEPTED = {
    ("float32", torch.bool),
    ("float32", torch.float32),
    ("bfloat16", torch.bool),
    ("bfloat16", torch.float32),
    ("bfloat16", torch.bfloat16),
    ("float16", torch.bool),
    ("float16", torch.float32),
    ("float16", torch.float16),
}
"""Element types of q and of a mask that PyTorch takes together; bool is the one that always works."""


@pytest.mark.parametrize("kind", [*TYPES, torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_o06_pytorch_refuses_other_mask_types_aloud(dtype, kind):
    q, mask = torch.ones(1, 1, 4, 8, dtype=getattr(torch, dtype)), torch.ones(4, 4).to(kind)
    if (dtype, kind) in ACCEPTED:
        torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        return
    with pytest.raises(RuntimeError, match="Expected attn_mask dtype"):
        torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)


@pytest.mark.parametrize("mask", ["causal", "padding(lengths=[3])", "sliding_window(2)", "document(2)", "prefix_lm(1)"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_o06_the_mask_handed_to_pytorch_is_boolean_in_every_dtype(dtype, mask):
    asked = Problem(num_heads=1, seqlen=4, head_dim=8, dtype=dtype, mask=mask)
    inputs = make_inputs(asked)
    for name in ("sdpa_math", "sdpa_flash"):
        call = implementations.get(name).prepare(asked, inputs)
        assert call.notes["mask"] in ("is_causal", "boolean")
        assert call.mask_bytes in (0, 16)  # one byte per entry
        assert judge(asked, inputs, {"out": attend(name, asked, inputs.q, inputs.k, inputs.v)["out"]}).passed


def test_o06_counts_of_a_mask_of_integers_are_counts():
    shape = Problem(num_heads=1, seqlen=4).mask_shape
    for kind in TYPES:
        assert attended_pairs(TableMask(CAUSAL, kind), shape) == np.tri(4).sum()
