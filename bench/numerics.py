"""Errors against the float64 reference, and the gate: whether a number may exist at all.

A tensor passes if every entry is finite where the reference is, the rows of queries that see nothing and of
keys that nobody sees are exactly zero, and no entry is further from the reference than

    limit = 2 * naive_max_abs + 2 * S * r
    r = u(dtype) + min(u(float32) * sqrt(head_dim) * max(1, max|score|), 2**-9) + u(float32) * sqrt(seqlen_k)

with ``naive_max_abs`` the error of the naive arithmetic in the same dtype on the same inputs, ``S`` the
largest magnitude of the reference tensor and ``u`` the unit roundoff. The first term asks for no more than
twice what the plain formula gives in this dtype (the rule of flash-attention's own tests, against float64
instead of float32). The second is what remains where the naive error happens to be small: one rounding of the
result, and float32 accumulation over ``head_dim`` products per score and ``seqlen_k`` terms per sum, whose
random rounding errors add up as square roots. To the limits of dq and dk five standard deviations of the noise that
``D = rowsum(dout * out)`` brings are added (``reference._Noise``), to those of dk and dv as many of the noise of adding
up the query heads that share a key head (``head_sum_noise``). LSE, where returned, is held to
``16 * eps(float32) * max(1, max|score|)`` in every dtype, since kernels that return it accumulate scores in float32.
``docs/methodology.md`` has the reasons and the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bench.problem import Problem
from bench.record import Agreement, TensorError
from bench.reference import UNIT_ROUNDOFF, Reference

if TYPE_CHECKING:
    import torch

SMALLEST: dict[str, float] = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
"""Smallest positive number; a weight below half of it is lost."""

NOISE_DEVIATIONS = 5
"""Standard deviations of D's noise allowed in dq and dk: the largest of a million entries is expected at 4.9."""

SCORE_ALLOWANCE = 2.0**-9
"""Rounding of large scores explains at most this relative error; beyond it a result is wrong, not rounded."""

LSE_LIMIT_EPS = 16
"""LSE may be off by this many float32 epsilons (2**-23), relative to the largest score where that is above 1."""


def agree(
    problem: Problem,
    exact: Reference,
    naive: Reference,
    got: Mapping[str, torch.Tensor],
    ran: tuple[str, ...] = (),
) -> Agreement:
    """Judge what an implementation returned.

    Args:
        problem: what was computed.
        exact: the float64 reference.
        naive: the naive arithmetic in the problem's dtype.
        got: tensors by name in the logical order, any device.
        ran: operators that were dispatched.

    Returns:
        The errors of each tensor and whether all of them pass.
    """
    import torch

    tensors: dict[str, TensorError] = {}
    missing: dict[str, str] = {}
    naive_tensors, nothing = naive.tensors(), _exact_zeros(exact)
    for name, truth in exact.tensors().items():
        if name not in got:
            missing[name] = "the implementation does not return it"
            continue
        if got[name].shape != truth.shape:
            raise ValueError(f"{name} must have shape {tuple(truth.shape)}, got {tuple(got[name].shape)}")
        value = got[name].to("cpu", torch.float64)
        plain = None if name == "lse" else naive_tensors[name].to(torch.float64)
        floor = NOISE_DEVIATIONS * {"dq": exact.dq_noise, "dk": exact.dk_noise}.get(name, 0.0)
        if name in ("dk", "dv"):
            floor += NOISE_DEVIATIONS * head_sum_noise(problem) * float(truth.abs().max() if truth.numel() else 0.0)
        tensors[name] = _tensor_error(problem, truth, value, plain, exact.max_abs_score, floor, nothing.get(name))
    passed = "out" in tensors and all(
        error.nonfinite == error.nonzero == 0
        and (error.max_abs is None or error.limit is None or error.max_abs <= error.limit)
        for error in tensors.values()
    )
    return Agreement(passed=passed, tensors=tensors, missing=missing, ran=ran)


def head_sum_noise(problem: Problem) -> float:
    """Relative standard deviation of a sum over the query heads of a key head, added up in the problem's dtype.

    Each of its ``group - 1`` additions is rounded, uniformly within one unit roundoff to either side.
    """
    additions = problem.num_heads_q // problem.num_heads_kv - 1
    return UNIT_ROUNDOFF[problem.dtype] * math.sqrt(additions / 3)


def failure_reason(agreement: Agreement) -> str:
    """In words, what a failed agreement failed at."""
    parts = []
    for name, error in agreement.tensors.items():
        if error.nonfinite:
            parts.append(f"{name} has {error.nonfinite} non-finite entries")
        elif error.nonzero:
            parts.append(f"{name} has {error.nonzero} entries that must be exactly 0 and are not")
        elif error.max_abs is not None and error.limit is not None and error.max_abs > error.limit:
            parts.append(f"{name} is off by {error.max_abs:.3g}, the limit is {error.limit:.3g}")
    return "; ".join(parts) if "out" in agreement.tensors else "out is missing"


def error_limit(problem: Problem, naive_max_abs: float, largest: float, max_abs_score: float) -> float:
    """Largest absolute error that passes, by the formula of the module docstring.

    Args:
        problem: gives dtype and head width.
        naive_max_abs: error of the naive arithmetic in the same dtype.
        largest: largest magnitude of the reference tensor.
        max_abs_score: largest magnitude of a scaled score.
    """
    return 2 * naive_max_abs + 2 * largest * relative_rounding(problem, max_abs_score)


def relative_rounding(problem: Problem, max_abs_score: float) -> float:
    """``r`` of the module docstring: relative error that one rounding of the result and float32 sums explain."""
    score = math.sqrt(problem.head_dim) * max(1.0, max_abs_score)
    float32 = UNIT_ROUNDOFF["float32"]
    return UNIT_ROUNDOFF[problem.dtype] + min(float32 * score, SCORE_ALLOWANCE) + float32 * math.sqrt(problem.seqlen_k)


def row_errors(problem: Problem, exact: Reference, got: Mapping[str, torch.Tensor]) -> dict[str, TensorError]:
    """Errors of out over valid and over padded queries apart; empty unless self-attention has padded positions.

    Padding hides keys. A padded query still gets an output, which a loss must leave out; its error is told apart here.
    """
    import torch

    shape = problem.mask_shape
    structure = problem.mask.structure(shape)
    if structure is None or not structure.key_stop or shape.seqlen_q != shape.seqlen_k or "out" not in got:
        return {}
    position = torch.arange(shape.seqlen_q)
    start = torch.tensor(structure.key_start)[:, None]
    valid = (position >= start) & (position < torch.tensor(structure.key_stop)[:, None])
    value, errors = got["out"].to("cpu", torch.float64), {}
    for name, rows in (("valid", valid), ("padded", ~valid)):
        chosen = rows[:, None, :, None].expand(value.shape)
        if bool(chosen.any()):
            finite = torch.isfinite(value) & chosen
            max_abs, rmse = _distance(exact.out, value, finite)
            nonfinite = int((chosen & ~torch.isfinite(value)).sum())
            errors[name] = TensorError(max_abs=max_abs, rmse=rmse, rel_rmse=None, nonfinite=nonfinite, limit=None)
    return errors


def _exact_zeros(exact: Reference) -> dict[str, torch.Tensor]:
    """Rows ``(batch, heads, positions)`` that are 0 in any arithmetic: queries that see nothing, unseen keys."""
    empty = exact.lse == -float("inf")
    rows = {"out": empty, "dq": empty}
    if exact.dv is not None:
        unseen = (exact.dv == 0).all(dim=-1)
        rows |= {"dk": unseen, "dv": unseen}
    return rows


def _tensor_error(
    problem: Problem,
    truth: torch.Tensor,
    value: torch.Tensor,
    plain: torch.Tensor | None,
    max_abs_score: float,
    floor: float,
    nothing: torch.Tensor | None,
) -> TensorError:
    """Error of one tensor; all float64 on the CPU.

    ``plain`` is the naive arithmetic's (None for lse), ``floor`` is added to the limit, and ``nothing`` marks
    the rows that must be exactly zero.
    """
    import torch

    finite = torch.isfinite(value) & torch.isfinite(truth)
    # Equal infinities agree (an empty row's lse is -inf); anything else that is not finite does not.
    nonfinite = int((~finite & (value != truth)).sum())
    max_abs, rmse = _distance(truth, value, finite)
    size = torch.where(torch.isfinite(truth), truth, 0.0)
    rms = float(size.square().mean().sqrt()) if size.numel() else 0.0
    ratio = None
    if plain is None:
        limit: float | None = LSE_LIMIT_EPS * 2.0**-23 * max(1.0, max_abs_score)
    else:
        plain_max, plain_rmse = _distance(truth, plain, torch.isfinite(plain) & torch.isfinite(truth))
        largest = float(size.abs().max()) if size.numel() else 0.0
        limit = error_limit(problem, plain_max or 0.0, largest, max_abs_score) + floor
        ratio = rmse / plain_rmse if rmse is not None and plain_rmse else None
    return TensorError(
        max_abs=max_abs,
        rmse=rmse,
        rel_rmse=rmse / rms if rmse is not None and rms else None,
        nonfinite=nonfinite,
        nonzero=0 if nothing is None else int((value[nothing] != 0).sum()),
        limit=limit,
        rmse_over_naive=ratio,
    )


def _distance(truth: torch.Tensor, value: torch.Tensor, where: torch.Tensor) -> tuple[float | None, float | None]:
    """Largest and root-mean-square difference over ``where``; (None, None) if it selects nothing."""
    import torch

    count = int(where.sum())
    if not count:
        return None, None
    difference = torch.where(where, value - truth, 0.0).abs_()
    return float(difference.max()), math.sqrt(float(difference.square().sum()) / count)
