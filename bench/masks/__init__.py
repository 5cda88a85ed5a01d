"""Which query may see which key: the contract of the mask family. ``True`` means attend.

A mask says what it *is* with :meth:`Mask.keep`, written with operators only, so that the same line works on
NumPy arrays, torch tensors and inside FlexAttention. Where true, it also says what *structure* it has:
kernels take any mask whose structure they support, mask-generic implementations use ``keep``, the rest answer
``unsupported``.

Masks combine by intersection: ``causal & padding(0.5)``. The alignment of ``causal`` and ``sliding_window``
is bottom-right (the last query sees the last key), which is what decoding needs; ``causal_top_left`` is
PyTorch's ``is_causal``. They coincide when ``seqlen_q == seqlen_k``::

    causal, seqlen_q=2, seqlen_k=4        causal_top_left
        k0 k1 k2 k3                           k0 k1 k2 k3
    q0   x  x  x  .                       q0   x  .  .  .
    q1   x  x  x  x                       q1   x  x  .  .
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from bench.errors import MaskError
from bench.registry import Registry

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Intersection",
    "Mask",
    "MaskShape",
    "Structure",
    "attended_pairs",
    "dense_rows",
    "empty_rows",
    "masks",
    "parse_mask",
]

masks: Registry[type[Mask]] = Registry("masks", "mask", "bench.masks")

ROWS_PER_CHUNK_ENTRIES = 1 << 24
"""Score-matrix entries that counting by ``keep`` looks at in one go (16 MB of booleans)."""


@dataclass(frozen=True, kw_only=True)
class MaskShape:
    """The sizes a mask is evaluated for."""

    batch_size: int
    num_heads: int
    seqlen_q: int
    seqlen_k: int

    @property
    def diagonal(self) -> int:
        """Key index of query 0 on the bottom-right diagonal: ``seqlen_k - seqlen_q``."""
        return self.seqlen_k - self.seqlen_q


@dataclass(frozen=True, kw_only=True)
class Structure:
    """What a kernel may rely on instead of asking ``keep`` for each pair.

    Key ``j`` is visible to query ``i`` of batch item ``b`` exactly if all of the following hold, where
    ``None`` (or an empty tuple) means that the condition is absent: ``i + left <= j <= i + right``,
    ``key_start[b] <= j < key_stop[b]`` and ``i`` and ``j`` lie in the same document.
    """

    left: int | None = None
    """First visible key minus the query's index."""
    right: int | None = None
    """Last visible key minus the query's index."""
    key_start: tuple[int, ...] = ()
    """First valid key of each batch item."""
    key_stop: tuple[int, ...] = ()
    """One past the last valid key of each batch item."""
    documents: tuple[int, ...] = ()
    """Document boundaries ``(0, ..., seqlen)``, the same for queries and keys."""

    def intersect(self, other: Structure) -> Structure:
        """The structure of both conditions together."""
        return Structure(
            left=_tightest(max, self.left, other.left),
            right=_tightest(min, self.right, other.right),
            key_start=_elementwise(max, self.key_start, other.key_start),
            key_stop=_elementwise(min, self.key_stop, other.key_stop),
            documents=tuple(sorted({*self.documents, *other.documents})),
        )

    def row_range(self, batch: int, shape: MaskShape) -> tuple[np.ndarray, np.ndarray]:
        """First visible key and one past the last, int64 ``(seqlen_q,)``; empty rows: ``stop <= start``."""
        import numpy as np

        rows = np.arange(shape.seqlen_q)
        start, stop = np.zeros_like(rows), np.full_like(rows, shape.seqlen_k)
        if self.left is not None:
            start = np.maximum(start, rows + self.left)
        if self.right is not None:
            stop = np.minimum(stop, rows + self.right + 1)
        if self.key_start:
            start = np.maximum(start, self.key_start[batch])
        if self.key_stop:
            stop = np.minimum(stop, self.key_stop[batch])
        if self.documents:
            bounds = np.asarray(self.documents)
            document = np.searchsorted(bounds, rows, side="right") - 1
            start, stop = np.maximum(start, bounds[document]), np.minimum(stop, bounds[document + 1])
        return start, stop


@runtime_checkable
class Mask(Protocol):
    """One rule of visibility. Members are frozen dataclasses; their fields are the mask's parameters."""

    name: ClassVar[str]
    """The name in expressions, as registered."""

    def keep(self, batch: Any, head: Any, q_idx: Any, k_idx: Any, shape: MaskShape, tables: Mapping[str, Any]) -> Any:
        """Whether query ``q_idx`` of (``batch``, ``head``) may see key ``k_idx``.

        Args:
            batch, head, q_idx, k_idx: integer arrays that broadcast together (NumPy, torch or FlexAttention's
                scalars).
            shape: the sizes.
            tables: :meth:`tables` with each tuple turned into an array of the caller's kind.

        Returns:
            A boolean array of the broadcast shape.
        """
        ...

    def tables(self, shape: MaskShape) -> Mapping[str, tuple[int, ...]]:
        """Integer tables that ``keep`` looks up, for example valid key counts per batch item."""
        return {}

    def structure(self, shape: MaskShape) -> Structure | None:
        """The structure, or None where ``keep`` is all there is to say."""
        return None

    def row_range(self, batch: int, shape: MaskShape) -> tuple[np.ndarray, np.ndarray] | None:
        """First visible key and one past the last per query, or None where they are not contiguous."""
        structure = self.structure(shape)
        return None if structure is None else structure.row_range(batch, shape)

    def check(self, shape: MaskShape) -> None:
        """Raise :class:`~bench.errors.MaskError` where the parameters do not fit ``shape``."""

    @property
    def spec(self) -> str:
        """The expression that builds this mask again: ``sliding_window(256)``."""
        shown = []
        for index, field in enumerate(dataclasses.fields(self)):  # type: ignore[arg-type]  # members are dataclasses
            value = getattr(self, field.name)
            if value != field.default:
                text = str(list(value)) if isinstance(value, tuple) else str(value)
                shown.append(text if index == 0 else f"{field.name}={text}")
        return f"{self.name}({', '.join(shown)})" if shown else self.name

    def __and__(self, other: Mask) -> Mask:
        """The intersection: visible where both say so."""
        return intersection(self, other)


@dataclass(frozen=True)
class Intersection(Mask):
    """Visible where every member says so. Built by :func:`intersection`, which orders the members."""

    name: ClassVar[str] = "intersection"
    members: tuple[Mask, ...]

    def keep(self, batch: Any, head: Any, q_idx: Any, k_idx: Any, shape: MaskShape, tables: Mapping[str, Any]) -> Any:
        kept = True
        for index, member in enumerate(self.members):
            prefix = f"{index}."
            own = {key.removeprefix(prefix): table for key, table in tables.items() if key.startswith(prefix)}
            kept = member.keep(batch, head, q_idx, k_idx, shape, own) & kept
        return kept

    def tables(self, shape: MaskShape) -> Mapping[str, tuple[int, ...]]:
        return {
            f"{index}.{key}": table
            for index, member in enumerate(self.members)
            for key, table in member.tables(shape).items()
        }

    def structure(self, shape: MaskShape) -> Structure | None:
        combined = Structure()
        for member in self.members:
            structure = member.structure(shape)
            if structure is None:
                return None
            combined = combined.intersect(structure)
        return combined

    def row_range(self, batch: int, shape: MaskShape) -> tuple[np.ndarray, np.ndarray] | None:
        import numpy as np

        ranges = [member.row_range(batch, shape) for member in self.members]
        known = [r for r in ranges if r is not None]
        if len(known) < len(ranges):
            return None
        return np.max([r[0] for r in known], axis=0), np.min([r[1] for r in known], axis=0)

    def check(self, shape: MaskShape) -> None:
        for member in self.members:
            member.check(shape)

    @property
    def spec(self) -> str:
        return " & ".join(member.spec for member in self.members)


def intersection(*parts: Mask) -> Mask:
    """Intersect masks: flattened, without ``full`` and repeats, in alphabetical order."""
    flat: dict[str, Mask] = {}
    for part in parts:
        for member in part.members if isinstance(part, Intersection) else (part,):
            flat[member.spec] = member
    if len(flat) > 1:
        flat.pop("full", None)
    members = tuple(flat[spec] for spec in sorted(flat))
    return members[0] if len(members) == 1 else Intersection(members)


def parse_mask(text: str) -> Mask:
    """Read a mask expression: ``causal & padding(lengths=[3, 4], side=left)``.

    Raises:
        MaskError: if the expression cannot be read or a parameter is impossible.
        UnknownNameError: if a name is no mask; the message offers the nearest.
    """
    try:
        return intersection(*_terms(ast.parse(text.strip(), mode="eval").body, text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # what ast.parse can raise
        raise MaskError(
            f"mask must be an expression such as 'causal & padding(0.5)', got {text!r}. Check the brackets."
        ) from error


def dense_rows(mask: Mask, shape: MaskShape, batch: int, head: int, rows: slice) -> np.ndarray:
    """``keep`` evaluated with NumPy for some rows: bool of shape ``(len(rows), seqlen_k)``."""
    import numpy as np

    tables = {key: np.asarray(table) for key, table in mask.tables(shape).items()}
    q_idx = np.arange(shape.seqlen_q)[rows, None]
    k_idx = np.arange(shape.seqlen_k)[None, :]
    kept = mask.keep(np.asarray(batch), np.asarray(head), q_idx, k_idx, shape, tables)
    return np.broadcast_to(kept, (q_idx.shape[0], shape.seqlen_k))


def attended_pairs(mask: Mask, shape: MaskShape) -> int:
    """Exact number of visible (query, key) pairs over the whole batch and all heads."""
    return sum(int(row.sum()) for row in _visible_per_row(mask, shape))


def empty_rows(mask: Mask, shape: MaskShape) -> int:
    """Number of query rows, over the whole batch and all heads, that may see no key."""
    return sum(int((row == 0).sum()) for row in _visible_per_row(mask, shape))


def _visible_per_row(mask: Mask, shape: MaskShape) -> Iterator[np.ndarray]:
    """Visible keys per query, int64 of shape ``(seqlen_q,)``, for each (batch, head)."""
    import numpy as np

    for batch in range(shape.batch_size):
        bounds = mask.row_range(batch, shape)
        if bounds is not None:  # contiguous rows cannot depend on the head
            counts = np.maximum(bounds[1] - bounds[0], 0)
            for _ in range(shape.num_heads):
                yield counts
            continue
        step = max(1, ROWS_PER_CHUNK_ENTRIES // shape.seqlen_k)
        for head in range(shape.num_heads):
            yield np.concatenate(
                [
                    dense_rows(mask, shape, batch, head, slice(row, row + step)).sum(axis=1)
                    for row in range(0, shape.seqlen_q, step)
                ]
            )


def _terms(tree: ast.expr, text: str) -> Iterator[Mask]:
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitAnd):
        yield from _terms(tree.left, text)
        yield from _terms(tree.right, text)
    elif isinstance(tree, ast.Name):
        yield _build(tree.id, [], {}, text)
    elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        args = [_value(arg, text) for arg in tree.args]
        kwargs = {str(kw.arg): _value(kw.value, text) for kw in tree.keywords}
        yield _build(tree.func.id, args, kwargs, text)
    else:
        raise MaskError(f"mask must be masks joined by '&', got {text!r}. Write for example 'causal & padding(0.5)'.")


def _value(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise MaskError(
            f"mask parameter must be a number, a word or a list, got {text!r}. Write for example 0.5."
        ) from error
    return tuple(value) if isinstance(value, list) else value


def _build(name: str, args: list[Any], kwargs: dict[str, Any], text: str) -> Mask:
    member = masks.get(name)
    try:
        return member(*args, **kwargs)
    except TypeError as error:
        fields = ", ".join(field.name for field in dataclasses.fields(member))  # type: ignore[arg-type]  # as above
        raise MaskError(
            f"mask {name} must be given its parameters ({fields or 'none'}), got {text!r}. "
            "See `attention-bench list masks`."
        ) from error


def _tightest(pick: Any, a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else int(pick(a, b))


def _elementwise(pick: Any, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(pick(x, y)) for x, y in zip(a, b, strict=True)) if a and b else a or b
