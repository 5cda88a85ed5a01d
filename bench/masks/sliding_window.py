"""``sliding_window(w)``: each query sees its own position and the ``w - 1`` keys before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bench.errors import MaskError
from bench.masks import Mask, MaskShape, Structure, masks


@masks.register("sliding_window")
@dataclass(frozen=True)
class SlidingWindow(Mask):
    """Causal, and at most ``window`` keys back; bottom-right aligned. The query's own position counts."""

    name: ClassVar[str] = "sliding_window"
    window: int

    def __post_init__(self) -> None:
        if not isinstance(self.window, int) or isinstance(self.window, bool) or self.window < 1:
            raise MaskError(
                f"sliding_window must be a whole number of keys of at least 1, got {self.window!r}. "
                "Write for example sliding_window(256)."
            )

    def keep(self, batch: Any, head: Any, q_idx: Any, k_idx: Any, shape: MaskShape, tables: Mapping[str, Any]) -> Any:
        own = q_idx + shape.diagonal
        return (k_idx <= own) & (k_idx > own - self.window)

    def structure(self, shape: MaskShape) -> Structure:
        return Structure(left=shape.diagonal - self.window + 1, right=shape.diagonal)
