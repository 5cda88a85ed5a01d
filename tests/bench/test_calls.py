"""A step computes its direction, as often as wanted, and never accumulates a gradient."""

from __future__ import annotations

import pytest
import torch

from bench.calls import differentiable, make_step
from bench.implementation import AttentionOutput, Call
from bench.inputs import make_inputs, to_logical
from bench.problem import Problem


class Plain:
    """The definition of attention on a layout, counting its forward calls."""

    def __init__(self, problem, layout):
        self.inputs = differentiable(problem, make_inputs(problem, layout))
        self.problem, self.layout, self.calls = problem, layout, 0

    def run(self):
        self.calls += 1
        q, k, v = (to_logical(t, self.layout) for t in (self.inputs.q, self.inputs.k, self.inputs.v))
        scores = q @ k.transpose(-1, -2) * self.problem.softmax_scale
        return AttentionOutput(to_logical(scores.softmax(-1) @ v, self.layout), scores.logsumexp(-1))

    def step(self):
        return make_step(Call(self.run), self.problem, self.inputs, self.layout)


def test_forward_runs_without_recording_a_graph():
    plain = Plain(Problem(seqlen=8, head_dim=4), "bhsd")
    step = plain.step()
    assert plain.calls == 0
    result = step.run()
    assert plain.calls == 1
    assert not result.out.requires_grad
    assert set(result.tensors()) == {"out", "lse"}


def test_backward_keeps_one_forward_call_and_fwd_bwd_repeats_it():
    backward, both = (Plain(Problem(seqlen=8, head_dim=4, direction=d), "bhsd") for d in ("bwd", "fwd_bwd"))
    for plain, before, after in ((backward, 1, 1), (both, 0, 3)):
        step = plain.step()
        assert plain.calls == before
        for _ in range(3):
            step.run()
        assert plain.calls == after


@pytest.mark.parametrize("direction", ["bwd", "fwd_bwd"])
def test_repeated_gradients_are_those_of_one_call(direction):
    """A timer that calls ``backward`` three times has three times the gradient in ``.grad``."""
    plain = Plain(Problem(num_heads=1, seqlen=8, head_dim=4, direction=direction), "bhsd")
    step = plain.step()
    first, *_, last = (step.run() for _ in range(3))
    assert first.dq is not None and first.dq.abs().sum() > 0
    for name in ("dq", "dk", "dv"):
        assert torch.equal(getattr(first, name), getattr(last, name))
    assert plain.inputs.q.grad is None

    plain.run().out.backward(plain.inputs.dout)
    assert torch.allclose(first.dq, plain.inputs.q.grad, rtol=0, atol=1e-6)


def test_results_are_read_in_the_logical_order():
    problem = Problem(num_heads_q=3, num_heads_kv=3, seqlen=5, head_dim=4, direction="fwd_bwd")
    logical, other = (Plain(problem, layout).step().run().tensors() for layout in ("bhsd", "bshd"))
    assert set(logical) == {"out", "lse", "dq", "dk", "dv"}
    for name, tensor in logical.items():
        assert not other[name].requires_grad
        assert torch.allclose(other[name], tensor, rtol=0, atol=1e-6)


def test_inputs_need_gradients_only_where_the_direction_does():
    forward = make_inputs(Problem(seqlen=4))
    assert differentiable(Problem(seqlen=4), forward) is forward
    problem = Problem(seqlen=4, direction="bwd")
    drawn = make_inputs(problem)
    leaves = differentiable(problem, drawn)
    assert leaves.q.is_leaf and leaves.q.requires_grad and not drawn.q.requires_grad
    assert leaves.q.data_ptr() == drawn.q.data_ptr()
