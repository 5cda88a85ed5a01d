"""What the pictures are drawn from, and what is said beside all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

CAUTION = (
    "A large weight explains nothing by itself: it is the share in which a value is taken. The value's own size, the "
    "other contributions and every later layer decide what comes of it."
)


@dataclass(frozen=True, kw_only=True)
class Head:
    """One head's attention, step by step."""

    title: str
    """What it is called in the figure."""
    tensors: Mapping[str, np.ndarray]
    """``weights`` and ``mask`` (bool, True = attend), ``(queries, keys)``; for some pictures also ``q``, ``k``, ``v``,
    ``scores``, ``m``, ``l``, ``u``, ``out`` and ``contributions (queries, keys, width of v)``.
    """
    query_tokens: tuple[str, ...]
    """Names of the rows."""
    key_tokens: tuple[str, ...]
    """Names of the columns."""

    @property
    def blocked(self) -> int:
        """Pairs without a weight."""
        return int((~self.tensors["mask"]).sum())

    @property
    def empty(self) -> int:
        """Rows that may see no key."""
        return int((~self.tensors["mask"].any(axis=1)).sum())
