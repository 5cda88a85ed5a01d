"""From which gap between two scores on the smaller weight, which is positive in exact arithmetic, is exactly 0.

One key has the score ``gap``, all others the score 0. The weight of one of these is ``exp(-gap)`` to within two parts
in a million at such gaps, and rounds to 0 where that is at most half the smallest positive number ``2**-b`` of the
dtype (ties go to even): from ``(b + 1) * ln 2`` on. Arithmetic that loses subnormal numbers stops near ``-ln`` of the
smallest normal one.

Rows of two kinds:

* ``gap``: ``who`` computed the weights, ``dtype``, number of ``keys``. ``gap`` is the smallest number of the dtype at
  which the weight is 0, found by dividing the bit patterns between a positive weight and 0 into 256 parts again and
  again; null if there is none up to 2,000, or where an implementation refuses, in the words of ``refused``.
  ``derived`` is what it should be, ``expected`` the first number of the dtype that is at least that, and ``flushed``
  where subnormals are lost.
* ``curve``: weights of ``torch.softmax`` over two keys at several ``gaps``, as ``weights``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.checks import Attend
from bench.demonstrations import Rows, demonstrations
from bench.demonstrations._members import members, one_thread
from bench.errors import Unsupported
from bench.implementation import AttentionInputs
from bench.problem import Problem

if TYPE_CHECKING:
    import torch

Weigh = Callable[["torch.Tensor"], "torch.Tensor"]
"""From gaps to the weight of one of the other keys, as vectors of one dtype."""

DTYPES = ("float64", "float32", "float16", "bfloat16")
LARGEST = 2000.0
PARTS = 256
KEYS = (2, 64)
"""Two keys, and enough of them for vector instructions, whose exponential may be another one."""
WIDTH = 16
POINTS = 60
"""Points of a curve."""


@demonstrations.register("underflow")
@one_thread()
def underflow(quick: bool) -> Rows:
    """Smallest gaps of torch, numpy and all implementations, and curves; all rows take a tenth of a second."""
    rows: Rows = []
    for dtype in DTYPES:
        for keys in KEYS:
            for who, weigh in _everyone(dtype, keys):
                rows.append(_row(who, dtype, keys, weigh))
                if who == "torch.softmax" and keys == 2:
                    rows.append(_curve(who, dtype, weigh))
    return rows


def smallest_gap(weigh: Weigh, dtype: str) -> float | None:
    """The smallest number of ``dtype`` at which ``weigh`` gives 0; None if it gives none at :data:`LARGEST`."""
    import torch

    kind = getattr(torch, dtype)
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}[kind.itemsize]
    low, high = 0, int(torch.tensor(LARGEST, dtype=kind).view(bits))  # positive numbers are ordered as their bits are
    while high - low > 1:
        marks = sorted({low + (high - low) * part // PARTS for part in range(PARTS + 1)})
        zero = (weigh(torch.tensor(marks, dtype=bits).view(kind)) == 0).tolist()
        if True not in zero:
            return None
        first = zero.index(True)
        low, high = marks[max(first - 1, 0)], marks[first]
    return float(torch.tensor(high, dtype=bits).view(kind))


def derived_gap(dtype: str) -> float:
    """``-ln`` of half the smallest positive number."""
    import torch

    info = torch.finfo(getattr(torch, dtype))
    return math.log(2) * (1 - math.log2(info.tiny) - math.log2(info.eps))


def _row(who: str, dtype: str, keys: int, weigh: Weigh) -> dict[str, Any]:
    """One row of the kind ``gap``."""
    import torch

    kind, derived = getattr(torch, dtype), derived_gap(dtype)
    nearest = torch.tensor(derived, dtype=kind)
    above = nearest if float(nearest) >= derived else torch.nextafter(nearest, torch.full_like(nearest, math.inf))
    row = {"kind": "gap", "who": who, "dtype": dtype, "keys": keys, "derived": derived, "expected": float(above)}
    row |= {"flushed": -math.log(torch.finfo(kind).tiny)}
    try:
        gap = smallest_gap(weigh, dtype)
    except Unsupported as refusal:
        return row | {"gap": None, "refused": str(refusal)}
    return row | {"gap": gap, "refused": None}


def _curve(who: str, dtype: str, weigh: Weigh) -> dict[str, Any]:
    """One row of the kind ``curve``, to a little beyond where the weight ends."""
    import torch

    gaps = torch.linspace(0.0, 1.1 * derived_gap(dtype), POINTS, dtype=torch.float64).to(getattr(torch, dtype))
    return {"kind": "curve", "who": who, "dtype": dtype, "gaps": gaps.tolist(), "weights": weigh(gaps).tolist()}


def _everyone(dtype: str, keys: int) -> Iterator[tuple[str, Weigh]]:
    """Who computes weights in ``dtype``; what attention is only defined for fewer dtypes is left out of float64."""
    yield "torch.softmax", partial(_softmax, keys)
    if dtype != "bfloat16":  # numpy has none
        yield "exp(s - max) over its sum (numpy)", partial(_numpy, keys)
    if dtype != "float64":
        for name, attend in members().items():
            yield name, partial(_attention, attend, dtype, keys)


def _scores(gaps: torch.Tensor, keys: int) -> torch.Tensor:
    """A row of scores for each gap."""
    scores = gaps.new_zeros(gaps.shape[0], keys)
    scores[:, 0] = gaps
    return scores


def _softmax(keys: int, gaps: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.softmax(_scores(gaps, keys), dim=-1)[:, 1]


def _numpy(keys: int, gaps: torch.Tensor) -> torch.Tensor:
    import numpy as np
    import torch

    scores = _scores(gaps, keys).numpy()
    with np.errstate(under="ignore"):
        terms = np.exp(scores - scores.max(axis=1, keepdims=True))
        return torch.from_numpy((terms / terms.sum(axis=1, keepdims=True))[:, 1])


def _attention(attend: Attend, dtype: str, keys: int, gaps: torch.Tensor) -> torch.Tensor:
    """Gaps are queries, so that all of them go through one call; the value of the second key is 1, of the others 0."""
    import torch

    count = gaps.shape[0]
    problem = Problem(num_heads=1, seqlen_q=count, seqlen_k=keys, head_dim=WIDTH, dtype=dtype, scale=1.0)
    q, k, v = (torch.zeros(1, 1, length, WIDTH, dtype=gaps.dtype) for length in (count, keys, keys))
    q[..., 0], k[:, :, 0, 0], v[:, :, 1] = gaps, 1.0, 1.0
    return attend(problem, AttentionInputs(q, k, v))["out"][0, 0, :, 0]
