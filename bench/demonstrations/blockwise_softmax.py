"""Softmax over blocks of keys: with one running sum, and with each block normalised alone, against all keys at once.

The running form keeps a maximum ``m``, a sum ``l`` and a value sum ``u`` per query and rescales the old sums by
``exp(m - m')`` whenever a block raises the maximum. Blocks that were normalised alone are averaged by their numbers of
keys, which is the best that can be done without their sums.

Rows, one for each arithmetic, input, dtype, block size and order of blocks:

* ``arithmetic``: ``plain`` is the three lines of :func:`running`; ``online_softmax`` is the registered implementation,
  scores and all, whose keys are permuted so that blocks come in the order, but for a shorter one, which comes last.
* ``inputs``: ``worked example`` (scores 0 and 2 of two keys) or ``random``; with ``dtype``, ``seqlen_k``,
  ``block_size``, ``blocks`` and ``order``.
* ``online_max_abs``, ``online_rms``, ``full_max_abs``, ``full_rms``: largest and root mean square error, against
  float64, of the running form and of softmax over all keys; both sum in float32 and round the result to the dtype. Null
  where a result is infinite or NaN.
* ``independent_max_abs``, ``independent_rms``: of the same blocks normalised alone, in float64: none of it is rounding.
* ``largest_v``, ``roundoff`` and ``roundoff_sums`` (unit roundoff of the dtype and of the sums): what a limit needs.

Source: Milakov and Gimelshein, Online normalizer calculation for softmax (2018), algorithm 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bench.certificate import attend_with
from bench.demonstrations import Rows, demonstrations
from bench.demonstrations._members import one_thread
from bench.implementation import AttentionInputs, implementations
from bench.inputs import make_inputs
from bench.problem import Problem
from bench.reference import UNIT_ROUNDOFF, reference

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "float16", "bfloat16")
QUERIES, KEYS, WIDTH = 24, 1000, 16
BLOCK_SIZES = (1, 7, 31, 64, 96, 250, 333, 512, 1000)
"""From single keys to all at once; most do not divide 1,000."""
QUICK_SIZES = (1, 96, 1000)
SHARP = 3.0
"""Standard deviation of scores: blocks differ in mass, as they do where a query has something to find."""


@demonstrations.register("blockwise_softmax")
@one_thread()
def blockwise_softmax(quick: bool) -> Rows:
    """Errors by block size and order of blocks, for the plain arithmetic and for ``online_softmax``."""
    sizes = QUICK_SIZES if quick else BLOCK_SIZES
    rows: Rows = []
    for dtype in DTYPES:
        rows += _plain("worked example", *_worked_example(dtype), (1, 2))
        rows += _plain("random", *_random_scores(dtype), sizes)
        rows += _registered(dtype, sizes)
    return rows


def running(scores: torch.Tensor, v: torch.Tensor, blocks: list[slice]) -> torch.Tensor:
    """``softmax(scores) @ v`` with running sums over ``blocks`` of keys.

    Args:
        scores: ``(queries, keys)``, finite; sums are kept in its dtype.
        v: ``(keys, width)``.
        blocks: disjoint, together all keys, in the order in which they are looked at.
    """
    import torch

    m = torch.full_like(scores[:, :1], -math.inf)
    total, u = torch.zeros_like(m), torch.zeros_like(scores[:, :1] * v[0])
    for keys in blocks:
        m_new = torch.maximum(m, scores[:, keys].amax(dim=-1, keepdim=True))
        p, decay = torch.exp(scores[:, keys] - m_new), torch.exp(m - m_new)
        total = decay * total + p.sum(dim=-1, keepdim=True)
        u = decay * u + p @ v[keys]
        m = m_new
    return u / total


def independent(scores: torch.Tensor, v: torch.Tensor, blocks: list[slice]) -> torch.Tensor:
    """Blocks normalised alone, averaged by their numbers of keys; arguments as those of :func:`running`."""
    import torch

    mixtures = [torch.softmax(scores[:, keys], dim=-1) @ v[keys] * (keys.stop - keys.start) for keys in blocks]
    return torch.stack(mixtures).sum(dim=0) / scores.shape[1]


def _worked_example(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores 0 and 2 with the values (0, 2) and (10, 0)."""
    import torch

    kind = getattr(torch, dtype)
    return torch.tensor([[0.0, 2.0]], dtype=kind), torch.tensor([[0.0, 2.0], [10.0, 0.0]], dtype=kind)


def _random_scores(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of which most is common to all queries, so that one order of blocks is a rising one for all of them."""
    import torch

    generator = torch.Generator().manual_seed(0)
    kind = getattr(torch, dtype)
    scores = SHARP * torch.randn(KEYS, generator=generator) + torch.randn(QUERIES, KEYS, generator=generator)
    return scores.to(kind), torch.randn(KEYS, WIDTH, generator=generator).to(kind)


def _plain(inputs: str, scores: torch.Tensor, v: torch.Tensor, sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Rows of the plain arithmetic: sums in float32, the result rounded to the dtype."""
    import torch

    s64, v64 = scores.double(), v.double()
    exact = torch.softmax(s64, dim=-1) @ v64
    full = (torch.softmax(scores.float(), dim=-1) @ v.float()).to(v.dtype)
    for size in sizes:
        for order, blocks in _orders(s64.mean(dim=0), size):
            online = running(scores.float(), v.float(), blocks).to(v.dtype)
            case = {"arithmetic": "plain", "inputs": inputs, "block_size": size, "blocks": len(blocks), "order": order}
            yield case | _errors(exact, v, online=online, full=full, independent=independent(s64, v64, blocks))


def _registered(dtype: str, sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Rows of ``online_softmax`` beside ``naive``, which is given the same numbers in float32."""
    import torch

    problem = Problem(
        num_heads=1, seqlen_q=QUERIES, seqlen_k=KEYS, head_dim=WIDTH, dtype=dtype, scale=SHARP * WIDTH**-0.5
    )
    inputs = make_inputs(problem)
    exact = reference(problem, inputs).out
    in_float32 = AttentionInputs(inputs.q.float(), inputs.k.float(), inputs.v.float())
    naive = attend_with(implementations.get("naive"), "cpu")
    full = naive(Problem(**(problem.model_dump() | {"dtype": "float32"})), in_float32)["out"].to(inputs.v.dtype)
    kind: Any = type(implementations.get("online_softmax"))
    scores = problem.softmax_scale * (inputs.q.double() @ inputs.k.double().transpose(-1, -2))[0, 0]
    for size in sizes:
        attend = attend_with(kind(block_n=size), "cpu")
        for order, blocks in _orders(scores.mean(dim=0), size):
            # The implementation cuts its keys into blocks from the first one on, so a shorter block is its last.
            blocks = sorted(blocks, key=lambda keys: keys.stop - keys.start < size)
            moved = torch.cat([torch.arange(keys.start, keys.stop) for keys in blocks])
            online = attend(problem, AttentionInputs(inputs.q, inputs.k[:, :, moved], inputs.v[:, :, moved]))["out"]
            alone = independent(scores, inputs.v[0, 0].double(), blocks)
            case = {"arithmetic": "online_softmax", "inputs": "random", "block_size": size, "blocks": len(blocks)}
            yield case | {"order": order} | _errors(exact, inputs.v, online=online, full=full, independent=alone)


def _orders(common: torch.Tensor, size: int) -> Iterator[tuple[str, list[slice]]]:
    """Blocks of ``size`` keys in several orders; ``common`` is the mean score of each key."""
    import torch

    keys = common.shape[0]
    blocks = [slice(first, min(first + size, keys)) for first in range(0, keys, size)]
    yield "ascending", blocks
    if len(blocks) > 1:
        shuffled = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(size)).tolist()
        yield "reversed", blocks[::-1]
        yield "random", [blocks[index] for index in shuffled]
        yield "rising", sorted(blocks, key=lambda block: float(common[block].max()))


def _errors(exact: torch.Tensor, v: torch.Tensor, **results: torch.Tensor) -> dict[str, Any]:
    """Errors of each result against ``exact``, and what a limit on them needs."""
    dtype = str(v.dtype).removeprefix("torch.")
    found: dict[str, Any] = {"dtype": dtype, "seqlen_k": v.shape[-2], "largest_v": float(v.abs().max())}
    found |= {"roundoff": UNIT_ROUNDOFF[dtype], "roundoff_sums": UNIT_ROUNDOFF["float32"]}
    for name, out in results.items():
        wrong = (out.double() - exact).abs()
        sizes = {f"{name}_max_abs": float(wrong.max()), f"{name}_rms": float(wrong.square().mean().sqrt())}
        found |= {key: size if math.isfinite(size) else None for key, size in sizes.items()}
    return found
