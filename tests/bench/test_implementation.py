"""The helpers that turn a mask into tensors: the same answer in blocks and whole, and no larger than it has to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.implementation import (
    dense_mask,
    implementations,
    mask_block,
    mask_differs,
    mask_tables,
    refusal,
    untimed,
)
from bench.masks import dense_rows
from bench.problem import Problem

MASKS = [
    "full",
    "causal",
    "causal_top_left",
    "sliding_window(3)",
    "prefix_lm(4)",
    "padding(lengths=[2, 9])",
    "causal & padding(lengths=[0, 4], side=left)",
]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(9, 9), (4, 9), (12, 9)])
def test_blocks_and_the_whole_mask_are_keep_evaluated_with_numpy(mask, seqlen_q, seqlen_k):
    problem = Problem(batch_size=2, num_heads=3, seqlen_q=seqlen_q, seqlen_k=seqlen_k, mask=mask)
    whole = dense_mask(problem, "cpu").expand(2, 3, seqlen_q, seqlen_k)
    tables = mask_tables(problem, "cpu")
    for item in range(2):
        wanted = dense_rows(problem.mask, problem.mask_shape, item, 1, slice(None))
        assert np.array_equal(whole[item, 1].numpy(), wanted)
        block = mask_block(problem, tables, item, 1, slice(1, 4), slice(2, 7))
        assert block.dtype == torch.bool
        assert np.array_equal(block.numpy(), wanted[1:4, 2:7])


@pytest.mark.parametrize(
    ("mask", "items", "heads"),
    [
        ("full", 1, 1),
        ("causal", 1, 1),
        ("padding(lengths=[5, 5])", 1, 1),
        ("padding(lengths=[5, 6])", 2, 1),
        ("causal & padding(0.5)", 2, 1),
    ],
)
def test_a_mask_has_an_axis_only_where_it_differs(mask, items, heads):
    problem = Problem(batch_size=2, num_heads=3, seqlen=8, mask=mask)
    assert mask_differs(problem) == (items > 1, heads > 1)
    assert dense_mask(problem, "cpu").shape == (items, heads, 8, 8)


class StandsIn:
    """On a CPU an emulator stands in for it, for short sequences."""

    devices, backward = ("cpu", "cuda"), False

    def unsupported(self, problem, device):
        return "no windows" if "window" in problem.mask.spec else None

    def untimed(self, problem, device):
        return "runs in an emulator" if device == "cpu" else None

    def unavailable(self, problem, device):
        return "too long for it" if device == "cpu" and problem.seqlen_q > 64 else None


@pytest.mark.parametrize(
    ("fields", "device", "refused"),
    [
        ({}, "cpu", None),
        ({}, "xpu", ("unavailable", "runs on cpu and cuda only")),
        ({"direction": "bwd"}, "cpu", ("unsupported", "has no backward pass")),
        ({"seqlen": 128}, "cpu", ("unavailable", "too long for it")),
        ({"seqlen": 128}, "cuda", None),
        ({"seqlen": 128, "mask": "sliding_window(3)"}, "cpu", ("unsupported", "no windows")),
    ],
)
def test_a_refusal_is_a_status_and_a_reason_and_what_the_member_cannot_do_comes_first(fields, device, refused):
    assert refusal(StandsIn(), Problem(**({"seqlen": 8} | fields)), device) == refused


def test_only_a_member_that_says_so_is_never_timed():
    problem = Problem(seqlen=8)
    assert untimed(StandsIn(), problem, "cpu") == "runs in an emulator"
    assert untimed(StandsIn(), problem, "cuda") is None
    assert untimed(implementations.get("naive"), problem, "cpu") is None
    assert refusal(implementations.get("naive"), problem, "cpu") is None
