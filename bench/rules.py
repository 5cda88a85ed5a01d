"""Rules by which others decide that an attention output is right, restated by us, for comparison with our gate.

Each is applied to one output on random inputs. The projects' own harnesses were not run, and a tolerance may
have changed
since: what is compared is the rule as we know it from public sources, against the naive arithmetic in the
    same dtype where a project compares with an unfused baseline, and against the float64 reference where it
    compares with higher precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Rule:
    """One published rule."""

    summary: str
    """The rule, and whose it is."""
    passes: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], bool]
    """``(out, exact, naive)`` to whether the rule accepts ``out``; all in the logical order on the CPU."""


DEFAULT_TOLERANCES = {"float32": (1.3e-6, 1e-5), "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5)}
"""Relative and absolute tolerance that ``torch.testing.assert_close`` takes by dtype."""


def _close(rtol: float, atol: float) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], bool]:
    """Every entry within ``atol + rtol * |naive|`` of the naive arithmetic."""

    def passes(out: torch.Tensor, exact: torch.Tensor, naive: torch.Tensor) -> bool:
        difference = (out.double() - naive.double()).abs()
        return bool((difference <= atol + rtol * naive.double().abs()).all())

    return passes


def _default_close(out: torch.Tensor, exact: torch.Tensor, naive: torch.Tensor) -> bool:
    rtol, atol = DEFAULT_TOLERANCES[str(out.dtype).removeprefix("torch.")]
    return _close(rtol, atol)(out, exact, naive)


def _both_exceeded(out: torch.Tensor, exact: torch.Tensor, naive: torch.Tensor) -> bool:
    """An entry is wrong only if its absolute and its relative error both exceed 1e-2."""
    difference = (out.double() - exact).abs()
    wrong = (difference > 1e-2) & (difference > 1e-2 * exact.abs())
    return not bool(wrong.any() | ~difference.isfinite().all())


def _twice_naive(out: torch.Tensor, exact: torch.Tensor, naive: torch.Tensor) -> bool:
    difference = (out.double() - exact).abs().max()
    return bool(difference <= 2 * (naive.double() - exact).abs().max() + 1e-5)


def _twice_naive_rmse(out: torch.Tensor, exact: torch.Tensor, naive: torch.Tensor) -> bool:
    ours, theirs = (out.double() - exact).square().mean(), (naive.double() - exact).square().mean()
    return bool(ours <= 4 * theirs)


def _cosine(out: torch.Tensor, exact: torch.Tensor, naive: torch.Tensor) -> bool:
    a, b = out.double().flatten(), exact.flatten()
    return bool(a @ b > 0.99 * a.norm() * b.norm())


def _nmse(out: torch.Tensor, exact: torch.Tensor, naive: torch.Tensor) -> bool:
    return bool((out.double() - exact).square().sum() <= 5e-4 * exact.square().sum())


RULES: dict[str, Rule] = {
    "R1": Rule("assert_close with its default tolerances against the baseline (TritonBench)", _default_close),
    "R2": Rule("absolute and relative tolerance 1e-2 (Helion)", _close(1e-2, 1e-2)),
    "R3": Rule("absolute 1e-1, relative 1e-2 (attention-gym's example)", _close(1e-2, 1e-1)),
    "R4": Rule("absolute 1e-2 (Triton's tutorial)", _close(0.0, 1e-2)),
    "R5": Rule("absolute and relative 2e-2 (cudnn-frontend)", _close(2e-2, 2e-2)),
    "R6": Rule("wrong where absolute and relative error both exceed 1e-2 (flashinfer-bench)", _both_exceeded),
    "R7": Rule("absolute 1e-1 (Intel's Triton backend at 16k)", _close(0.0, 1e-1)),
    "R8": Rule("at most twice the largest error of the plain formula (flash-attention)", _twice_naive),
    "R9": Rule("at most twice the RMSE of the plain formula", _twice_naive_rmse),
    "R10": Rule("cosine above 0.99", _cosine),
    "R11": Rule("normalised mean square error at most 5e-4 (llama.cpp)", _nmse),
}
"""Published rules by the names that tables use."""
