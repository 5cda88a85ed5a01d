"""What can be said of FlexAttention without compiling: its tables, its refusals, and that it never falls back."""

from __future__ import annotations

import importlib

import pytest
import torch

from bench.implementation import dense_mask, implementations
from bench.problem import Problem

flex = importlib.import_module(type(implementations.get("flex")).__module__)


@pytest.mark.parametrize(
    "mask",
    ["full", "causal", "causal & padding(lengths=[0, 5], side=left)", "sliding_window(3)", "prefix_lm(4)"],
)
def test_the_tables_say_what_the_mask_says(mask):
    problem = Problem(batch_size=2, num_heads=1, seqlen_q=7, seqlen_k=9, mask=mask)
    visible, tables = flex._mask_function(problem, torch.device("cpu"))
    index = [torch.arange(n).view([-1 if i == j else 1 for j in range(4)]) for i, n in enumerate((2, 1, 7, 9))]
    assert torch.equal(visible(*index), dense_mask(problem, "cpu").expand(2, 1, 7, 9))
    assert all(table.shape == (2, flex.TABLE_LENGTH) for table in tables)  # the size is the same for all lengths


def test_tables_grow_where_the_length_needs_it():
    problem = Problem(num_heads=1, seqlen_q=flex.TABLE_LENGTH + 1, seqlen_k=1)
    _, tables = flex._mask_function(problem, torch.device("cpu"))
    assert tables[0].shape == (1, 2 * flex.TABLE_LENGTH)


def test_gradients_are_refused_on_the_cpu_only():
    member = implementations.get("flex")
    assert "inference" in member.unsupported(Problem(seqlen=8, direction="bwd"), "cpu")
    assert member.unsupported(Problem(seqlen=8, direction="bwd"), "cuda") is None
    assert member.unsupported(Problem(seqlen=8), "cpu") is None


@pytest.mark.parametrize("name", ["flex", "naive_compiled"])
def test_too_many_recompilations_raise_instead_of_running_uncompiled(name):
    module = importlib.import_module(type(implementations.get(name)).__module__)
    module._compiled()
    config = torch._dynamo.config
    assert config.fail_on_recompile_limit_hit
    assert config.recompile_limit >= module.RECOMPILE_LIMIT
