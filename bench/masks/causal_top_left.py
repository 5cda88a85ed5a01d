"""``causal_top_left``: no query sees a later key; query 0 sees key 0 alone, PyTorch's ``is_causal``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bench.masks import Mask, MaskShape, Structure, masks


@masks.register("causal_top_left")
@dataclass(frozen=True)
class CausalTopLeft(Mask):
    """Key ``j`` is visible to query ``i`` if ``j <= i``."""

    name: ClassVar[str] = "causal_top_left"

    def keep(self, batch: Any, head: Any, q_idx: Any, k_idx: Any, shape: MaskShape, tables: Mapping[str, Any]) -> Any:
        return k_idx <= q_idx

    def structure(self, shape: MaskShape) -> Structure:
        return Structure(right=0)
