"""``full``: every query sees every key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bench.masks import Mask, MaskShape, Structure, masks


@masks.register("full")
@dataclass(frozen=True)
class Full(Mask):
    """Every query sees every key."""

    name: ClassVar[str] = "full"

    def keep(self, batch: Any, head: Any, q_idx: Any, k_idx: Any, shape: MaskShape, tables: Mapping[str, Any]) -> Any:
        return (q_idx >= 0) & (k_idx >= 0)

    def structure(self, shape: MaskShape) -> Structure:
        return Structure()
