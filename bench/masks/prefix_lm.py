"""``prefix_lm(n)``: the first ``n`` keys are visible to every query, the rest causally."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bench.errors import MaskError
from bench.masks import Mask, MaskShape, masks

if TYPE_CHECKING:
    import numpy as np


@masks.register("prefix_lm")
@dataclass(frozen=True)
class PrefixLM(Mask):
    """Key ``j`` is visible to query ``i`` if ``j < prefix`` or ``j <= i + seqlen_k - seqlen_q``.

    Not a band, so it has no :class:`~bench.masks.Structure`; its visible keys are still contiguous per row.
    """

    name: ClassVar[str] = "prefix_lm"
    prefix: int

    def __post_init__(self) -> None:
        if type(self.prefix) is not int or self.prefix < 0:
            raise MaskError(
                f"prefix_lm must be a whole number of keys of at least 0, got {self.prefix!r}. "
                "Write for example prefix_lm(64)."
            )

    def keep(self, batch: Any, head: Any, q_idx: Any, k_idx: Any, shape: MaskShape, tables: Mapping[str, Any]) -> Any:
        return (k_idx < self.prefix) | (k_idx <= q_idx + shape.diagonal)

    def row_range(self, batch: int, shape: MaskShape) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np

        stop = np.maximum(np.arange(shape.seqlen_q) + shape.diagonal + 1, self.prefix)
        return np.zeros_like(stop), np.minimum(stop, shape.seqlen_k)

    def check(self, shape: MaskShape) -> None:
        if self.prefix > shape.seqlen_k:
            raise MaskError(
                f"prefix_lm must be at most seqlen_k ({shape.seqlen_k}), got {self.prefix}. Shorten the prefix."
            )
