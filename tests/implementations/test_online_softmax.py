"""Running maximum, exponential sum and value sum after each key block, and what blocks may not change."""

from __future__ import annotations

import math

import pytest
import torch

from bench.calls import differentiable, make_step
from bench.implementation import AttentionInputs, implementations
from bench.inputs import make_inputs
from bench.problem import Problem
from bench.reference import reference

OnlineSoftmax = type(implementations.get("online_softmax"))
LOWEST = torch.finfo(torch.float32).min


def states(scores, values, block_n=1):
    """``(m, l, u)`` after each key block of one query with these scaled scores."""
    k = torch.tensor(scores, dtype=torch.float32)[None, None, :, None]
    v = torch.tensor(values, dtype=torch.float32)[None, None]
    problem = Problem(num_heads=1, seqlen_q=1, seqlen_k=len(scores), head_dim=1, head_dim_v=v.shape[-1], scale=1.0)
    inputs = AttentionInputs(torch.ones(1, 1, 1, 1), k, v)
    seen = OnlineSoftmax(block_n=block_n).running_states(problem, inputs)
    return [tuple(t.flatten().tolist() for t in state) for _, _, state in seen]


def test_running_sums_are_rescaled_when_the_maximum_rises():
    """Forgetting ``exp(-2)`` would give l = 2 and u = (10, 2), hence (5, 1) instead of (8.807971, 0.238406)."""
    (m1, l1, u1), (m2, l2, u2) = states([0, 2], [[0, 2], [10, 0]])
    assert (m1, l1, u1) == ([0.0], [1.0], [0.0, 2.0])
    assert m2 == [2.0]
    assert l2 == pytest.approx([1.135335283237])
    assert u2 == pytest.approx([10.0, 0.2706705664732])
    assert [u / l2[0] for u in u2] == pytest.approx([8.807970779779, 0.2384058440442])
    assert m2[0] + math.log(l2[0]) == pytest.approx(2.126928011043)


def test_the_other_order_gives_the_same_sums():
    (m1, l1, u1), (m2, l2, u2) = states([2, 0], [[10, 0], [0, 2]])
    assert (m1, l1, u1) == ([2.0], [1.0], [10.0, 0.0])
    assert (m2, l2) == ([2.0], pytest.approx([1.135335283237]))
    assert u2 == pytest.approx([10.0, 0.2706705664732])


def test_one_block_is_the_last_state():
    *_, last = states([0, 2, 1], [[1], [2], [3]])
    (only,) = states([0, 2, 1], [[1], [2], [3]], block_n=3)
    for stepwise, at_once in zip(last, only, strict=True):
        assert stepwise == pytest.approx(at_once)


def test_blocks_that_nobody_sees_are_skipped_and_whole_ones_are_not_masked():
    problem = Problem(num_heads=1, seqlen=64, head_dim=4, mask="causal")
    seen = OnlineSoftmax(block_m=16, block_n=8).running_states(problem, make_inputs(problem))
    visited = [(block.rows.start, tile.keys.start, tile.hidden is not None) for block, tile, _ in seen]
    assert visited == [(row, key, key + 8 > row + 1) for row in range(0, 64, 16) for key in range(0, row + 16, 8)]


def test_a_row_that_has_seen_nothing_yet_keeps_the_lowest_maximum_and_empty_sums():
    problem = Problem(num_heads=1, seqlen=4, head_dim=2, mask="causal & padding(lengths=[3], side=left)")
    first, *_ = OnlineSoftmax(block_n=2).running_states(problem, make_inputs(problem))
    m, total, u = first[2]
    assert (m[0, 0].item(), total[0, 0].item()) == (LOWEST, 0.0)
    assert not u[0, 0].any()


@pytest.mark.parametrize(
    "mask", ["full", "causal", "sliding_window(9)", "causal & padding(lengths=[30, 0], side=left)"]
)
@pytest.mark.parametrize(("block_m", "block_n"), [(1, 1), (7, 5), (512, 3), (16, 512)])
def test_block_sizes_change_no_result(mask, block_m, block_n):
    problem = Problem(
        batch_size=2, num_heads_q=4, num_heads_kv=2, seqlen=40, head_dim=8, mask=mask, direction="fwd_bwd"
    )
    inputs = differentiable(problem, make_inputs(problem))
    member = OnlineSoftmax(block_m, block_n)
    got = make_step(member.prepare(problem, inputs), problem, inputs, "bhsd").run().tensors()
    for name, exact in reference(problem, make_inputs(problem)).tensors().items():
        torch.testing.assert_close(got[name].double(), exact, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_results_repeat_bit_for_bit(dtype):
    problem = Problem(seqlen=300, mask="causal", dtype=dtype, direction="fwd_bwd")
    inputs = differentiable(problem, make_inputs(problem))
    step = make_step(implementations.get("online_softmax").prepare(problem, inputs), problem, inputs, "bhsd")
    first, second = step.run().tensors(), step.run().tensors()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_call_leaves_its_inputs_alone():
    problem = Problem(seqlen=64, dtype="bfloat16")
    inputs, copy = make_inputs(problem), make_inputs(problem)
    implementations.get("online_softmax").prepare(problem, inputs).run()
    assert all(torch.equal(getattr(inputs, name), getattr(copy, name)) for name in ("q", "k", "v"))


def test_the_first_derivative_of_lse_is_not_asked_for():
    problem = Problem(seqlen=8, direction="bwd")
    inputs = differentiable(problem, make_inputs(problem))
    output = implementations.get("online_softmax").prepare(problem, inputs).run()
    assert output.out.requires_grad
    assert not output.lse.requires_grad


def test_an_upstream_gradient_with_stride_zero_is_read_as_what_it_is():
    """The gradient of ``out.sum()`` is one number, expanded: with equal weights dv is 1 everywhere."""
    problem = Problem(num_heads=1, seqlen=4, head_dim=4, direction="bwd")
    zeros, eye = torch.zeros(1, 1, 4, 4), torch.eye(4)[None, None]
    inputs = differentiable(problem, AttentionInputs(zeros, zeros.clone(), eye))
    output = implementations.get("online_softmax").prepare(problem, inputs).run()
    (dv,) = torch.autograd.grad(output.out.sum(), inputs.v)
    torch.testing.assert_close(dv, torch.ones_like(dv))
