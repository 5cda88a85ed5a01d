"""``document(n)``: the sequence holds ``n`` documents of equal length; no position sees another document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bench.errors import MaskError
from bench.masks import Mask, MaskShape, Structure, masks


@masks.register("document")
@dataclass(frozen=True)
class Document(Mask):
    """Position ``p`` of ``T`` lies in document ``p * count // T``; a query sees the keys of its own document.

    Packed sequences are self-attention, so ``seqlen_q == seqlen_k`` is required.
    """

    name: ClassVar[str] = "document"
    count: int

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 1:
            raise MaskError(
                f"document must be a whole number of documents of at least 1, got {self.count!r}. "
                "Write for example document(4)."
            )

    def keep(self, batch: Any, head: Any, q_idx: Any, k_idx: Any, shape: MaskShape, tables: Mapping[str, Any]) -> Any:
        return q_idx * self.count // shape.seqlen_q == k_idx * self.count // shape.seqlen_k

    def structure(self, shape: MaskShape) -> Structure:
        first = [-(-document * shape.seqlen_k // self.count) for document in range(self.count)]
        return Structure(documents=(*first, shape.seqlen_k))

    def check(self, shape: MaskShape) -> None:
        if shape.seqlen_q != shape.seqlen_k:
            raise MaskError(
                "document must be used where seqlen_q equals seqlen_k, "
                f"got {shape.seqlen_q} and {shape.seqlen_k}. Make the lengths equal."
            )
        if self.count > shape.seqlen_k:
            raise MaskError(
                f"document must be at most seqlen_k ({shape.seqlen_k}), got {self.count}. Use fewer documents."
            )
