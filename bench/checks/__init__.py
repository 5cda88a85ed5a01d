"""Structured inputs that show what random ones hide: the contract of the check family, one file each.

On random inputs a long output row averages over so many keys that losing a block of them, or its share of the
denominator, changes less than rounding does in half precision. A check chooses inputs whose right answer is
known and whose wrong answers stand out. Most need no reference: the expected output follows from how the
inputs were built, in time linear in the lengths, so checks run at the full length of every verified problem.

A check is a function ``(problem, attend) -> CheckResult | None``; None where it does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.implementation import AttentionInputs
from bench.problem import Problem
from bench.record import CheckResult
from bench.registry import Registry

if TYPE_CHECKING:
    import torch

Attend = Callable[[Problem, AttentionInputs], Mapping[str, "torch.Tensor"]]
"""Computes a problem from inputs in the logical order on the CPU; returns tensors by name in the logical order."""


@dataclass(frozen=True)
class Check:
    """One structured check."""

    name: str
    summary: str
    """What it shows, in a sentence."""
    run: Callable[[Problem, Attend], CheckResult | None]


checks: Registry[Check] = Registry("checks", "check", "bench.checks")


def register_check(name: str, summary: str) -> Callable[[Callable[[Problem, Attend], CheckResult | None]], Check]:
    """Decorator for the function of a check."""

    def add(run: Callable[[Problem, Attend], CheckResult | None]) -> Check:
        check = Check(name, summary, run)
        checks.add(name, check)
        return check

    return add


def run_checks(problem: Problem, attend: Attend, names: Collection[str] | None = None) -> dict[str, CheckResult]:
    """The named checks (None: all) as far as they apply to the forward pass of ``problem``, by name."""
    forward = problem if problem.direction == "fwd" else problem.model_copy(update={"direction": "fwd"})
    results = {name: check.run(forward, attend) for name, check in checks.items() if names is None or name in names}
    return {name: result for name, result in results.items() if result is not None}


def visible_bounds(problem: Problem, batch: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """First visible key and one past the last of each query, int64 ``(seqlen_q,)``; None if not contiguous."""
    import torch

    bounds = problem.mask.row_range(batch, problem.mask_shape)
    if bounds is None:
        return None
    start, stop = (torch.from_numpy(bound.copy()) for bound in bounds)
    return start.clamp(0, problem.seqlen_k), torch.maximum(
        stop.clamp(0, problem.seqlen_k), start.clamp(0, problem.seqlen_k)
    )


def worst(name: str, wrong: torch.Tensor, limit: float | torch.Tensor, got: torch.Tensor) -> CheckResult:
    """Judge absolute errors against a limit (a number, or one per entry); non-finite results fail.

    Args:
        name: of the check.
        wrong: absolute errors.
        limit: largest that passes.
        got: what they were computed from.
    """
    import torch

    nonfinite = int((~torch.isfinite(got)).sum())
    if wrong.numel() == 0:
        return CheckResult(passed=True, error=0.0, limit=None, nonfinite=0)
    limits = torch.as_tensor(limit, dtype=torch.float64).broadcast_to(wrong.shape)
    over = torch.where(torch.isfinite(wrong), wrong - limits, -math.inf)
    at = int(over.argmax())
    error = float(wrong.flatten()[at])
    return CheckResult(
        passed=nonfinite == 0 and error <= float(limits.flatten()[at]),
        error=error if math.isfinite(error) else None,
        limit=float(limits.flatten()[at]),
        nonfinite=nonfinite,
    )


ALL_CHECKS_PAIRS = 1 << 20
"""Score entries per head up to which a verified problem is put through the checks that cost several calls."""


def affordable_checks(problem: Problem) -> tuple[str, ...]:
    """Checks that every verified problem is put through, beyond those of its certificate.

    Long problems get the needle alone, which finds lost keys at any length; where heads are too narrow for
    it, the row sums.
    """
    from bench.checks.needle import peak_score

    if problem.seqlen_q * problem.seqlen_k <= ALL_CHECKS_PAIRS:
        return ("needle", "block_mass", "row_sums")
    return ("needle",) if peak_score(problem) is not None else ("row_sums",)
