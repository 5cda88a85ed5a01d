"""From a mask to what the kernels take: a band, valid keys per batch item, and tables of visible ranges.

Imports neither torch nor triton, so that asking whether a mask is supported costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.problem import Problem

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Visibility:
    """Key ``j`` is visible to query ``i`` of item ``b`` exactly if all that is given here holds."""

    left: int | None = None
    """``i + left <= j``."""
    right: int | None = None
    """``j <= i + right``."""
    keys: np.ndarray | None = None
    """``keys[0, b] <= j < keys[1, b]``: int32 ``(2, batch_size)``."""
    key_ranges: np.ndarray | None = None
    """``key_ranges[0, b, i] <= j < key_ranges[1, b, i]``: int32 ``(2, batch_size or 1, seqlen_q)``."""
    query_ranges: np.ndarray | None = None
    """The same seen from keys, ``query_ranges[0, b, j] <= i < query_ranges[1, b, j]``: ``(2, ..., seqlen_k)``."""


def visibility(problem: Problem) -> Visibility | str:
    """What the mask of ``problem`` is to the kernels, or why they cannot take it."""
    import numpy as np

    shape, mask = problem.mask_shape, problem.mask
    structure = mask.structure(shape)
    if structure is None:
        return _from_ranges(problem)
    keys = key_ranges = None
    if structure.key_start or structure.key_stop:
        first = structure.key_start or (0,) * shape.batch_size
        stop = structure.key_stop or (shape.seqlen_k,) * shape.batch_size
        keys = np.array([first, stop], dtype=np.int32)
    if structure.documents:
        bounds, position = np.asarray(structure.documents), np.arange(shape.seqlen_q)
        document = np.searchsorted(bounds, position, side="right") - 1
        key_ranges = np.stack([bounds[document], bounds[document + 1]])[:, None].astype(np.int32)
    # A document holds the same positions of queries and keys.
    return Visibility(structure.left, structure.right, keys, key_ranges, key_ranges)


def _from_ranges(problem: Problem) -> Visibility | str:
    """For a mask without structure: its row ranges, if they say everything and can be turned around."""
    import numpy as np

    shape, mask = problem.mask_shape, problem.mask
    ranges = [mask.row_range(item, shape) for item in range(shape.batch_size)]
    known = [r for r in ranges if r is not None]
    if len(known) < len(ranges):
        return f"the keys that a query sees under {mask.spec} are not one range; its kernels take bands and ranges"
    if any((np.diff(edge) < 0).any() for pair in known for edge in pair):
        return f"the ranges of keys under {mask.spec} go backwards from one query to the next; no kernel turns them"
    if all((a == b).all() for pair in known[1:] for a, b in zip(pair, known[0], strict=True)):
        known = known[:1]
    position = np.arange(shape.seqlen_k)
    rows = np.stack([np.stack(pair) for pair in known], axis=1)
    # Both edges rise: the queries that see key j are those after which the range ends, until the one it starts after.
    columns = [[np.searchsorted(edge, position, side="right") for edge in (stop, first)] for first, stop in known]
    return Visibility(
        key_ranges=rows.astype(np.int32), query_ranges=np.stack([np.stack(c) for c in columns], axis=1).astype(np.int32)
    )
