"""Weights are a convex mixture: they are not negative, sum to one, and keep outputs between the values they may see.

One row for each registered implementation that needs no compiling, dtype and mask:

* ``least_weight``, ``hidden_weight`` (largest weight of a key that may not be seen) and ``row_sum_error`` (largest
  distance of a sum of weights from 1), read off with the unit matrix as values; the sums also from values of 1 on a
  longer problem.
* ``hull_excess``: by how much an output coordinate of the longer problem lies outside the least and the largest value
  that it may see; 0 if none does.
* ``limit``: what rounding gives a sum of weights; times ``largest_v`` it is what rounding gives an output.
* ``nonfinite``: entries that are infinite or NaN; the numbers are null where there are any.
* ``reason``: why an implementation refuses the problem, where it does; all of the above are null then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.checks import Attend
from bench.demonstrations import Rows, demonstrations
from bench.demonstrations._members import members, one_thread
from bench.errors import Unsupported
from bench.implementation import AttentionInputs, dense_mask
from bench.inputs import make_inputs
from bench.problem import Problem
from bench.reference import UNIT_ROUNDOFF

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "float16", "bfloat16")
MASKS = ("full", "causal", "padding(0.5)", "sliding_window(20)")
QUICK_MASKS = MASKS[:2]
KEYS = 500
"""Keys of the longer problem, no multiple of a block."""
UNIT = 64
"""Keys and width of the problem whose outputs are its weights."""
NARROW = 64
"""Values of the narrow coordinates have a standard deviation of 1 over this."""
NUMBERS = ("least_weight", "hidden_weight", "row_sum_error", "hull_excess")


@demonstrations.register("convexity")
@one_thread()
def convexity(quick: bool) -> Rows:
    """Signs, sums and hulls of all implementations."""
    everyone = members()
    cases = [_case(dtype, mask) for dtype in DTYPES for mask in (QUICK_MASKS if quick else MASKS)]
    return [_row(name, attend, case) for name, attend in everyone.items() for case in cases]


@dataclass(frozen=True)
class _Case:
    """Two problems of one dtype and mask."""

    short: Problem
    unit: AttentionInputs
    """Of ``short``, with the unit matrix as values: outputs are weights."""
    long: Problem
    mixed: AttentionInputs
    """Of ``long``: the first coordinate of its values is 1, so that the output there is a sum of weights; half of the
    others keep close to 1, so that an output of the wrong size leaves their range; the rest is random.
    """
    least: torch.Tensor
    """Least visible value, by query of ``long`` and coordinate."""
    most: torch.Tensor


def _case(dtype: str, mask: str) -> _Case:
    import torch

    short = Problem(num_heads=1, seqlen=UNIT, head_dim=UNIT, dtype=dtype, mask=mask)
    long = Problem(num_heads=1, seqlen=KEYS, head_dim=UNIT, dtype=dtype, mask=mask)
    drawn, mixed = make_inputs(short), make_inputs(long)
    unit = AttentionInputs(drawn.q, drawn.k, torch.eye(UNIT, dtype=drawn.v.dtype)[None, None])
    mixed.v[..., 0] = 1.0
    mixed.v[..., 1 : UNIT // 2].div_(NARROW).add_(1.0)
    hull = [torch.aminmax(mixed.v[0, 0, seen], dim=0) for seen in dense_mask(long, "cpu")[0, 0]]
    least, most = (torch.stack([bounds[side] for bounds in hull]).double() for side in (0, 1))
    return _Case(short, unit, long, mixed, least, most)


def _row(name: str, attend: Attend, case: _Case) -> dict[str, Any]:
    """What one implementation does with a case."""
    problem, v = case.long, case.mixed.v
    row: dict[str, Any] = {"who": name, "dtype": problem.dtype, "mask": problem.mask.spec, "seqlen": KEYS}
    row |= {"limit": rounding(problem.dtype, KEYS), "largest_v": float(v.abs().max()), "reason": None}
    try:
        weights = attend(case.short, case.unit)["out"].double()[0, 0]
        out = attend(problem, case.mixed)["out"].double()[0, 0]
    except Unsupported as refusal:
        return row | dict.fromkeys(("nonfinite", *NUMBERS)) | {"reason": str(refusal)}
    row["nonfinite"] = sum(int((~tensor.isfinite()).sum()) for tensor in (weights, out))
    if row["nonfinite"]:
        return row | dict.fromkeys(NUMBERS)
    hidden = weights.masked_fill(dense_mask(case.short, "cpu")[0, 0], 0.0)
    sums = float((weights.sum(dim=-1) - 1).abs().max()), float((out[:, 0] - 1).abs().max())
    outside = float((out - case.most)[:, 1:].max()), float((case.least - out)[:, 1:].max())
    found = float(weights.min()), float(hidden.abs().max()), max(sums), max(0.0, *outside)
    return row | dict(zip(NUMBERS, found, strict=True))


def rounding(dtype: str, keys: int) -> float:
    """Largest distance from 1 that rounding gives a sum of ``keys`` weights.

    A weight and the result are rounded to the dtype once each, and the float32 sums of ``keys`` terms in numerator and
    denominator with independent signs; twice that, as in the check ``row_sums``.
    """
    return 2 * (UNIT_ROUNDOFF[dtype] + UNIT_ROUNDOFF["float32"] * math.sqrt(keys))
