"""Do two implementations compute the same function? Shown on a small problem before they share a chart.

The *certificate problem* of a ladder has its mask, heads, widths, dtype, scale, distribution and direction,
but short lengths that keep which of the two is longer, and at least two batch items. On it an implementation
is judged against float64, put through every structured check, repeated (are the bits the same?), and one
batch item is computed alone (are its bits the same?).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.calls import differentiable, make_step
from bench.checks import run_checks
from bench.errors import MaskError, Unsupported
from bench.implementation import AttentionInputs, Implementation, refusal
from bench.inputs import make_inputs, place_inputs, poison
from bench.numerics import agree, failure_reason
from bench.problem import Problem
from bench.record import Agreement, CheckResult
from bench.reference import naive_yardstick, reference

if TYPE_CHECKING:
    import torch

LONG, SHORT = 160, 97
"""Lengths of the certificate problem: two and a half blocks of 64, and a length that is no multiple of anything."""
SLOW_PREPARE_NS = 2_000_000_000
"""Where preparing a call takes longer (compilation), the batch is not taken apart: it would be compiled once more."""


@dataclass(frozen=True)
class Certificate:
    """What the certificate problem showed of one implementation."""

    problem: Problem
    agreement: Agreement | None
    """Errors and checks; None if the implementation cannot take the small problem."""
    reason: str | None
    """Why it failed; None if it passed or could not be tried."""
    setup_ns: int | None = None
    """Preparing and first calling the small problem; None if it could not be tried."""


def certificate_problem(problem: Problem) -> Problem:
    """A small problem of the same kind; the problem itself where its mask does not fit other sizes."""
    long, short = min(problem.seqlen_q, LONG), min(problem.seqlen_k, LONG)
    if problem.seqlen_q > problem.seqlen_k:
        short = min(short, SHORT)
    elif problem.seqlen_q < problem.seqlen_k:
        long = min(long, SHORT)
    sizes = {"seqlen_q": long, "seqlen_k": short, "batch_size": max(2, min(problem.batch_size, 3))}
    for change in (sizes, {k: v for k, v in sizes.items() if k != "batch_size"}):
        try:
            return Problem(**(problem.model_dump() | change))
        except MaskError:
            continue  # lengths or a prefix of the mask are absolute numbers
    return problem


def attend_with(
    member: Implementation, device: str
) -> Callable[[Problem, AttentionInputs], Mapping[str, torch.Tensor]]:
    """The implementation as a plain function from inputs in the logical order to results in the logical order.

    Inputs lie in buffers whose tails are NaN, and memory of the size of the results was NaN just before.
    """

    def attend(problem: Problem, logical: AttentionInputs) -> Mapping[str, torch.Tensor]:
        inputs = differentiable(problem, place_inputs(logical, member.layout, device))
        step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
        poison(problem, device)
        return step.run().tensors()

    return attend


def certify(member: Implementation, problem: Problem, device: str) -> Certificate:
    """Put an implementation through the certificate problem of ``problem``."""
    import torch

    small = certificate_problem(problem)
    if refusal(member, small, device) is not None:
        return Certificate(small, None, None)
    attend, logical = attend_with(member, device), make_inputs(small)
    try:
        started = time.perf_counter_ns()
        got = {name: tensor.to("cpu").clone() for name, tensor in attend(small, logical).items()}
        setup_ns = time.perf_counter_ns() - started
    except Unsupported:
        return Certificate(small, None, None)
    agreement = agree(small, reference(small, logical), naive_yardstick(small, logical), got)
    checks = run_checks(small, attend)
    again = attend(small, logical)
    alone = None if setup_ns > SLOW_PREPARE_NS or small.batch_size < 2 else _alone(small, logical, attend, got)
    agreement = agreement.model_copy(
        update={
            "passed": agreement.passed and all(check.passed for check in checks.values()),
            "checks": checks,
            "deterministic": all(torch.equal(got[name], tensor.to("cpu")) for name, tensor in again.items()),
            "batch_invariant": alone,
            "certificate": small.key,
        }
    )
    reason = None if agreement.passed else f"on {small.key}: {checks_reason(agreement)}"
    return Certificate(small, agreement, reason, setup_ns)


def checks_reason(agreement: Agreement) -> str:
    """In words, which tensors and which structured checks failed."""
    failed = [f"check {name}: {_told(result)}" for name, result in agreement.checks.items() if not result.passed]
    tensors = failure_reason(agreement)
    return "; ".join(([tensors] if tensors else []) + failed)


def _told(result: CheckResult) -> str:
    if result.detail is not None:
        return result.detail
    if result.nonfinite:
        return f"{result.nonfinite} non-finite entries"
    return f"off by {result.error:.3g}, the limit is {result.limit:.3g}"


def _alone(
    small: Problem,
    logical: AttentionInputs,
    attend: Callable[[Problem, AttentionInputs], Mapping[str, torch.Tensor]],
    together: Mapping[str, torch.Tensor],
) -> bool | None:
    """Whether the first batch item has the same bits computed alone; None if its mask depends on the batch."""
    import torch

    single = small.model_copy(update={"batch_size": 1})
    full, one = small.mask.row_range(0, small.mask_shape), small.mask.row_range(0, single.mask_shape)
    if full is None or one is None or not all((a == b).all() for a, b in zip(full, one, strict=True)):
        return None
    dout = None if logical.dout is None else logical.dout[:1]
    first = AttentionInputs(logical.q[:1], logical.k[:1], logical.v[:1], dout)
    return all(torch.equal(together[name][:1], tensor.to("cpu")) for name, tensor in attend(single, first).items())
