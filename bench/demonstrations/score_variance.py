"""What dividing scores by ``sqrt(d_k)`` does to their variance, to softmax's entropy and to its largest derivative.

Queries and keys have independent standard normal entries. Blocks of :data:`KEYS` queries and as many keys are drawn
independently of one another, so a block is the unit of inference: scores within one share queries and keys. Of each
number a row holds the mean over blocks and, under the same name with ``_se``, its standard error.

The derivative of softmax's weight ``p_i`` by the score ``s_j`` is ``p_i * (1 - p_i)`` for ``i = j`` and ``-p_i * p_j``
otherwise. No entry of a row's Jacobian is larger than the largest ``p * (1 - p)``, and that is at most 1/4.

Source: Vaswani et al., Attention is all you need (2017), section 3.2.1, footnote 4.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bench.demonstrations import Rows, demonstrations
from bench.demonstrations._members import one_thread
from bench.problem import Problem

if TYPE_CHECKING:
    import torch

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
QUICK_WIDTHS = (4, 16, 64, 256, 1024)
KEYS = 64
"""Keys of a row, and queries of a block: softmax's entropy is at most ``log(64)``, 4.16."""
LEAST_BLOCKS = 512
NARROW_ENTRIES = 1 << 14
"""Narrow keys get so many blocks more, for the fourth moment of their scores is larger: blocks times width."""
CHUNK_ENTRIES = 1 << 21
"""Entries of the queries that are drawn at once, 8 MB."""


@demonstrations.register("score_variance")
@one_thread()
def score_variance(quick: bool) -> Rows:
    """Moments of scores and of softmax's rows, by width.

    Returns:
        One row per width: ``head_dim``, ``keys``, ``blocks`` and

        * ``unscaled_variance``, ``scaled_variance``: of scores, ``q`` and ``k`` independent;
        * ``unscaled_entropy_nats``, ``scaled_entropy_nats``: mean over softmax's rows;
        * ``unscaled_derivative``, ``scaled_derivative``: mean over rows of the largest entry of the Jacobian; with
          ``_max``, the largest over rows;
        * ``same_mean``, ``same_variance``: of scaled scores with ``k = q``, each query with itself.
    """
    return [_row(width) for width in (QUICK_WIDTHS if quick else WIDTHS)]


def _row(width: int) -> dict[str, float]:
    import torch

    blocks = max(LEAST_BLOCKS, NARROW_ENTRIES // width)
    scale = Problem(seqlen=KEYS, head_dim=width).softmax_scale
    generator = torch.Generator().manual_seed(width)
    chunk = max(1, CHUNK_ENTRIES // (KEYS * width))
    found = []
    for first in range(0, blocks, chunk):
        q, k = torch.randn(2, min(chunk, blocks - first), KEYS, width, generator=generator)
        found.append(_statistics(q, k, scale))
    whole = {name: torch.cat([part[name] for part in found]).double() for name in found[0]}
    row: dict[str, float] = {"head_dim": width, "keys": KEYS, "blocks": blocks}
    for name in ("unscaled", "scaled"):
        row |= _mean(f"{name}_variance", _squares(whole, name))
        row |= _mean(f"{name}_entropy_nats", whole[f"{name}_entropy"])
        row |= _mean(f"{name}_derivative", whole[f"{name}_derivative"])
        row[f"{name}_derivative_max"] = float(whole[f"{name}_derivative_max"].max())
    return row | _mean("same_mean", whole["same_first"]) | _mean("same_variance", _squares(whole, "same"))


def _statistics(q: torch.Tensor, k: torch.Tensor, scale: float) -> dict[str, torch.Tensor]:
    """Numbers of each block: first and second moments of the scores, entropy and largest derivatives.

    Args:
        q: float32 ``(blocks, KEYS, width)``.
        k: as ``q``.
        scale: factor of scaled scores.

    Returns:
        Tensors of shape ``(blocks,)``.
    """
    import torch

    found: dict[str, torch.Tensor] = {}
    unscaled = q @ k.transpose(1, 2)
    for name, scores in (("unscaled", unscaled), ("scaled", unscaled * scale)):
        weights = torch.softmax(scores, dim=-1)
        derivative = (weights * (1 - weights)).amax(dim=-1)
        found |= _moments(name, scores.flatten(1))
        found[f"{name}_entropy"] = torch.special.entr(weights).sum(dim=-1).mean(dim=-1)
        found[f"{name}_derivative"] = derivative.mean(dim=-1)
        found[f"{name}_derivative_max"] = derivative.amax(dim=-1)
    return found | _moments("same", q.square().sum(dim=-1) * scale)


def _moments(name: str, scores: torch.Tensor) -> dict[str, torch.Tensor]:
    scores = scores.double()
    return {f"{name}_first": scores.mean(dim=-1), f"{name}_second": scores.square().mean(dim=-1)}


def _squares(whole: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """Mean squared distance of each block's scores from the mean over all blocks; its mean is the variance."""
    first, second = whole[f"{name}_first"], whole[f"{name}_second"]
    mean = first.mean()
    return second - 2 * mean * first + mean**2


def _mean(name: str, values: torch.Tensor) -> dict[str, float]:
    """Mean over blocks and its standard error."""
    return {name: float(values.mean()), f"{name}_se": float(values.std()) / math.sqrt(len(values))}
