"""``causal``: no query sees a later key; bottom-right aligned, so the last query sees the last key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bench.masks import Mask, MaskShape, Structure, masks


@masks.register("causal")
@dataclass(frozen=True)
class Causal(Mask):
    """Key ``j`` is visible to query ``i`` if ``j <= i + seqlen_k - seqlen_q``."""

    name: ClassVar[str] = "causal"

    def keep(self, batch: Any, head: Any, q_idx: Any, k_idx: Any, shape: MaskShape, tables: Mapping[str, Any]) -> Any:
        return k_idx <= q_idx + shape.diagonal

    def structure(self, shape: MaskShape) -> Structure:
        return Structure(right=shape.diagonal)
