"""Public case O19: which key head a query head reads, and head counts that do not fit.

The numbers of the case are in ``tests/implementations/test_conformance.py``, for every implementation.
"""

from __future__ import annotations

import pytest
import torch
from members import DTYPES, QUICK, attend, judge

from bench.errors import ProblemError
from bench.implementation import AttentionInputs, implementations
from bench.inputs import make_inputs
from bench.numerics import failure_reason
from bench.problem import Problem
from bench.reference import reference

HEADS = [(4, 2), (6, 2), (6, 3), (8, 1), (4, 4)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", ["full", "causal & padding(0.5)"])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("member", QUICK)
def test_o19_groups_agree_with_heads_that_are_written_out(member, heads, mask, dtype):
    """Forward, and the gradients of a shared key or value head are the sums over its group."""
    sizes = {"batch_size": 2, "seqlen": 20, "head_dim": 8, "mask": mask, "dtype": dtype, "direction": "fwd_bwd"}
    problem = Problem(**sizes, num_heads_q=heads[0], num_heads_kv=heads[1])
    inputs = make_inputs(problem)
    got = attend(member, problem, inputs.q, inputs.k, inputs.v, inputs.dout)
    agreement = judge(problem, inputs, got)
    assert agreement.passed, failure_reason(agreement)
    group = heads[0] // heads[1]
    k, v = (tensor.repeat_interleave(group, dim=1) for tensor in (inputs.k, inputs.v))
    alone = reference(Problem(**sizes, num_heads=heads[0]), AttentionInputs(inputs.q, k, v, inputs.dout))
    shared = reference(problem, inputs)
    torch.testing.assert_close(shared.out, alone.out)
    torch.testing.assert_close(shared.dk, alone.dk.unflatten(1, (-1, group)).sum(2))
    torch.testing.assert_close(shared.dv, alone.dv.unflatten(1, (-1, group)).sum(2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [(4, 2), (6, 2), (6, 3)])
def test_o19_the_gate_refuses_stripes(heads, dtype):
    """Query head h reading key head ``h % num_heads_kv`` instead of ``h // group``."""
    problem = Problem(seqlen=20, head_dim=8, num_heads_q=heads[0], num_heads_kv=heads[1], dtype=dtype)
    inputs = make_inputs(problem)
    group = heads[0] // heads[1]
    k, v = (tensor.repeat(1, group, 1, 1) for tensor in (inputs.k, inputs.v))
    striped = reference(Problem(**(problem.model_dump() | {"num_heads_kv": heads[0]})), AttentionInputs(inputs.q, k, v))
    assert not judge(problem, inputs, {"out": striped.out}).passed


@pytest.mark.parametrize(("heads_q", "heads_kv"), [(3, 2), (2, 4), (5, 3)])
def test_o19_head_counts_that_do_not_divide_are_no_problem_at_all(heads_q, heads_kv):
    with pytest.raises(ProblemError, match="num_heads_q must be a multiple of num_heads_kv"):
        Problem(seqlen=8, num_heads_q=heads_q, num_heads_kv=heads_kv)


def test_o19_keys_and_values_have_one_head_count():
    """PyTorch takes two key heads beside four value heads without a word; a problem cannot say so."""
    q, k, v = torch.zeros(1, 4, 3, 8), torch.zeros(1, 2, 3, 8), torch.zeros(1, 4, 3, 8)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert out.shape == (1, 4, 3, 8)
    for name in implementations.names():
        inputs = make_inputs(Problem(seqlen=3, num_heads_q=4, num_heads_kv=2), implementations.get(name).layout)
        assert inputs.k.shape == inputs.v.shape
    assert "num_heads_v" not in Problem.model_fields
