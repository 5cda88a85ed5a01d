"""``padding(...)``: each batch item has its own number of valid keys; the others are padding and unseen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bench.errors import MaskError
from bench.masks import Mask, MaskShape, Structure, masks


@masks.register("padding")
@dataclass(frozen=True)
class Padding(Mask):
    """Valid keys per batch item, by share or by count.

    ``padding(0.5)``: item ``b`` of ``B`` has ``floor(0.5 * (b + 1) / B * seqlen_k)`` padded keys, so lengths
    differ within a batch and the last item has half its keys padded. ``padding(lengths=[3, 4], side=left)``:
    exact counts.

    Padding hides keys. A padded *query* still gets an output from the valid keys; leaving it out of a loss is
    the caller's business.
    """

    name: ClassVar[str] = "padding"
    fraction: float | None = None
    """Padded share of the most padded batch item, at least 0 and below 1."""
    lengths: tuple[int, ...] | None = None
    """Valid keys of each batch item."""
    side: str = "right"
    """Where the padding lies: ``right`` (valid keys first) or ``left`` (valid keys last)."""

    def __post_init__(self) -> None:
        if (self.fraction is None) == (self.lengths is None):
            raise MaskError(
                "padding must have either a fraction or lengths, "
                f"got {self.fraction!r} and {self.lengths!r}. Write padding(0.5) or padding(lengths=[3, 4])."
            )
        if self.fraction is not None and not (isinstance(self.fraction, (int, float)) and 0 <= self.fraction < 1):
            raise MaskError(
                f"padding fraction must be at least 0 and below 1, got {self.fraction!r}. "
                "Give exact counts with padding(lengths=[...]) if an item is to have no valid key."
            )
        if self.lengths is not None and not (
            isinstance(self.lengths, tuple) and all(type(n) is int and n >= 0 for n in self.lengths)
        ):
            raise MaskError(
                f"padding lengths must be a list of whole numbers of at least 0, got {self.lengths!r}. "
                "Write for example padding(lengths=[3, 4])."
            )
        if self.side not in ("left", "right"):
            raise MaskError(f"padding side must be left or right, got {self.side!r}. Choose one of them.")

    def keep(self, batch: Any, head: Any, q_idx: Any, k_idx: Any, shape: MaskShape, tables: Mapping[str, Any]) -> Any:
        return (k_idx >= tables["key_start"][batch]) & (k_idx < tables["key_stop"][batch]) & (q_idx >= 0)

    def tables(self, shape: MaskShape) -> Mapping[str, tuple[int, ...]]:
        structure = self.structure(shape)
        return {"key_start": structure.key_start, "key_stop": structure.key_stop}

    def structure(self, shape: MaskShape) -> Structure:
        valid = self._valid_keys(shape)
        if self.side == "right":
            return Structure(key_start=(0,) * len(valid), key_stop=valid)
        return Structure(key_start=tuple(shape.seqlen_k - n for n in valid), key_stop=(shape.seqlen_k,) * len(valid))

    def check(self, shape: MaskShape) -> None:
        if self.lengths is None:
            return
        if len(self.lengths) != shape.batch_size:
            raise MaskError(
                f"padding lengths must have one entry per batch item ({shape.batch_size}), "
                f"got {len(self.lengths)}. Add or remove entries."
            )
        if max(self.lengths) > shape.seqlen_k:
            raise MaskError(
                f"padding lengths must be at most seqlen_k ({shape.seqlen_k}), got {max(self.lengths)}. Shorten it."
            )

    def _valid_keys(self, shape: MaskShape) -> tuple[int, ...]:
        if self.lengths is not None:
            return self.lengths
        assert self.fraction is not None, "checked in __post_init__"
        share = self.fraction / shape.batch_size
        return tuple(shape.seqlen_k - int(share * (b + 1) * shape.seqlen_k) for b in range(shape.batch_size))
