"""Worked examples of attention that fit on a page: their numbers, and the names of their positions.

All entries are small whole numbers, exact in every dtype, so an intermediate can be followed by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.errors import UnknownNameError

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class WorkedExample:
    """One head of one sequence."""

    summary: str
    """What it shows, in a few words."""
    q: Matrix
    """``(seqlen_q, head_dim)``."""
    k: Matrix
    """``(seqlen_k, head_dim)``."""
    v: Matrix
    """``(seqlen_k, head_dim_v)``."""
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    mask: str = "full"
    """A mask expression."""
    scale: float | None = None
    """Factor before softmax; None means ``head_dim ** -0.5``."""


_SENTENCE = ("the", "cat", "sat")
_THREE_Q = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (1.0, 0.0, 1.0, 0.0))
_THREE_K = ((1.0, 1.0, 0.0, 0.0), (0.0, 1.0, 1.0, 0.0), (1.0, 0.0, 0.0, 1.0))
_THREE_V = ((1.0, 0.0, 0.0, 1.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0))
_ZEROS = ((0.0,) * 4,) * 4
_UNIT = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0))

EXAMPLES: dict[str, WorkedExample] = {
    "two_key_row": WorkedExample(
        "one query, two keys: one weighs twice the other and adds ten times as much",
        q=((1.0, 0.0),),
        k=((1.0, 0.0), (0.0, 2.0)),
        v=((10.0, 0.0), (0.0, 2.0)),
        query_tokens=("q1",),
        key_tokens=("k1", "k2"),
    ),
    "sharper_row": WorkedExample(
        "the same values under scores 2 and 0",
        q=((1.0, 0.0),),
        k=((2.0, 0.0), (0.0, 2.0)),
        v=((10.0, 0.0), (0.0, 2.0)),
        query_tokens=("q1",),
        key_tokens=("k1", "k2"),
        scale=1.0,
    ),
    "heatmap_three_tokens": WorkedExample(
        "three tokens, every one sees every other",
        q=((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)),
        k=((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)),
        v=((2.0, 0.0), (0.0, 2.0), (1.0, 1.0)),
        query_tokens=_SENTENCE,
        key_tokens=_SENTENCE,
    ),
    "padded_query_loss": WorkedExample(
        "equal scores, causal, the fourth position is padding: its query still gets an output",
        q=_ZEROS,
        k=_ZEROS,
        v=_UNIT,
        query_tokens=("x1", "x2", "x3", "pad"),
        key_tokens=("x1", "x2", "x3", "pad"),
        mask="causal & padding(lengths=[3])",
    ),
    "unscaled_demonstration": WorkedExample(
        "scores 2, 1, 0 without the division by the root of the width",
        q=((1.0, 0.0),),
        k=((2.0, 0.0), (1.0, 0.0), (0.0, 0.0)),
        v=((2.0, 0.0), (0.0, 2.0), (1.0, 1.0)),
        query_tokens=("q1",),
        key_tokens=("k1", "k2", "k3"),
        scale=1.0,
    ),
    "causal_three_tokens": WorkedExample(
        "three tokens, none sees a later one; visible scores are equal in each row",
        q=_THREE_Q,
        k=_THREE_K,
        v=_THREE_V,
        query_tokens=("The", "cat", "sat"),
        key_tokens=("The", "cat", "sat"),
        mask="causal",
    ),
    "causal_three_tokens_changed_query": WorkedExample(
        "the same with another third query: its row changes, keys and values do not",
        q=(*_THREE_Q[:2], (2.0, 0.0, 0.0, 0.0)),
        k=_THREE_K,
        v=_THREE_V,
        query_tokens=("The", "cat", "sat"),
        key_tokens=("The", "cat", "sat"),
        mask="causal",
    ),
    "fourth_future_key_blocked": WorkedExample(
        "a fourth key with huge entries that no query may see",
        q=_THREE_Q,
        k=(*_THREE_K, (1e4, 1e4, 1e4, 1e4)),
        v=(*_THREE_V, (7.0, 7.0, 7.0, 7.0)),
        query_tokens=("The", "cat", "sat"),
        key_tokens=("The", "cat", "sat", "next"),
        mask="causal_top_left",
    ),
}
"""The examples by name."""


def worked_example(name: str) -> WorkedExample:
    """The example called ``name``.

    Raises:
        UnknownNameError: if there is none; the message offers the nearest.
    """
    if name not in EXAMPLES:
        raise UnknownNameError("worked example", name, EXAMPLES)
    return EXAMPLES[name]
