"""What is called, timed and verified for one problem: a forward call, a backward call, or both.

The three directions:

* ``fwd``: the implementation's call, under inference mode.
* ``bwd``: one forward call builds the graph once, untimed; the step computes the gradients from it, as often
  as wanted.
* ``fwd_bwd``: each step runs the forward call and its gradients.

Gradients come from ``torch.autograd.grad``, for every implementation alike: nothing accumulates into
``.grad``, so a repeated call gives the gradient of one call and no addition is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.implementation import AttentionInputs, Call, Layout
from bench.inputs import to_logical
from bench.problem import Problem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class StepResult:
    """What one step computed, in the implementation's layout."""

    layout: Layout
    """Layout of every tensor but ``lse``."""
    out: torch.Tensor
    """Output; for ``bwd`` that of the retained forward call."""
    lse: torch.Tensor | None = None
    """Float32 log-sum-exp ``(batch_size, num_heads_q, seqlen_q)`` where the implementation returns one."""
    dq: torch.Tensor | None = None
    """Gradient of q; None for ``fwd``."""
    dk: torch.Tensor | None = None
    """Gradient of k; None for ``fwd``."""
    dv: torch.Tensor | None = None
    """Gradient of v; None for ``fwd``."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors there are, by name, as detached views in the logical order."""
        named = {name: getattr(self, name) for name in ("out", "dq", "dk", "dv")}
        logical = {name: to_logical(t.detach(), self.layout) for name, t in named.items() if t is not None}
        return logical if self.lse is None else logical | {"lse": self.lse.detach()}


@dataclass(frozen=True)
class Step:
    """One repeatable computation of the problem's direction."""

    run: Callable[[], StepResult]
    """Computes it once; what is timed."""
    call: Call
    """The forward call underneath, with its notes and mask bytes."""
    negate: Callable[[], None]
    """Negates an input in place (v, or dout for ``bwd``): the results must follow, to the same negation."""


def differentiable(problem: Problem, inputs: AttentionInputs) -> AttentionInputs:
    """The inputs to ``prepare`` with: leaves that require a gradient where the direction needs one."""
    if problem.direction == "fwd":
        return inputs
    q, k, v = (tensor.detach().requires_grad_() for tensor in (inputs.q, inputs.k, inputs.v))
    return AttentionInputs(q, k, v, inputs.dout)


def make_step(call: Call, problem: Problem, inputs: AttentionInputs, layout: Layout) -> Step:
    """The step of a call that was prepared with ``inputs`` (see :func:`differentiable`)."""
    import torch

    leaves, dout = (inputs.q, inputs.k, inputs.v), inputs.dout

    def negate() -> None:
        changed = inputs.v if problem.direction != "bwd" or dout is None else dout
        with torch.no_grad():
            changed.neg_()

    def forward() -> StepResult:
        with torch.inference_mode():
            output = call.run()
        return StepResult(layout, output.out, output.lse)

    if problem.direction == "fwd":
        return Step(forward, call, negate)
    assert dout is not None and all(leaf.requires_grad for leaf in leaves), "inputs come from differentiable()"

    def both() -> StepResult:
        with torch.enable_grad():
            output = call.run()
        dq, dk, dv = torch.autograd.grad(output.out, leaves, dout)
        return StepResult(layout, output.out, output.lse, dq, dk, dv)

    if problem.direction == "fwd_bwd":
        return Step(both, call, negate)

    with torch.enable_grad():
        retained = call.run()

    def backward() -> StepResult:
        dq, dk, dv = torch.autograd.grad(retained.out, leaves, dout, retain_graph=True)
        return StepResult(layout, retained.out, retained.lse, dq, dk, dv)

    return Step(backward, call, negate)
