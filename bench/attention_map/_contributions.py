"""What each key adds to each output, beside the weight it is added with."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from bench.attention_map._head import CAUTION, Head
from bench.attention_map._matrix import INK, Colours, coordinates, label_room, narrow, paint, sheet, signed
from bench.attention_map._weights import sum_room, weight_panel
from bench.figure_style import figure_style, printable
from bench.plots import Drawing

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes

MOST_ROWS, MOST_KEYS, MOST_WIDTH = 4, 8, 8
"""Queries, keys and coordinates up to which every contribution is spelled out."""
SUM = "sum = out"


def draw_contributions(head: Head, *, stem: str = "contributions") -> Drawing:
    """Weights, values, the length of each ``A_ij * v_j``, and where they fit all coordinates, summed to the output."""
    import numpy as np

    added = head.tensors["contributions"]
    rows, keys, width = added.shape
    lengths = np.linalg.norm(added, axis=-1)
    spelled = rows <= MOST_ROWS and keys <= MOST_KEYS and width <= MOST_WIDTH
    verdict = _verdict(head, lengths)
    name, values = narrow("values  v", head.tensors["v"])
    shapes = [[(rows, keys), values.shape, (rows, keys)]]
    if spelled:  # a single output has its place in the same line
        shapes = [[*shapes[0], (keys + 1, width)]] if rows == 1 else [*shapes, [(keys + 1, width)] * rows]
    how = (
        "Into an output: what each key adds, coordinate by coordinate, and the sum."
        if spelled
        else "Lengths do not add up: contributions of opposite direction cancel."
    )
    left = label_room([*head.query_tokens, *head.key_tokens, *([SUM] if spelled else [])], named=True)
    with figure_style():
        page = sheet(
            shapes,
            (f"Weights are not contributions: {head.title}", verdict),
            (how, CAUTION),
            left=left,
            right=sum_room(head),
        )
        first, middle, last, *single = page.axes[0]
        weight_panel(first, head, page.points)
        first.set_title("weights  A", fontweight="bold", pad=7)
        paint(
            middle,
            values,
            signed(values),
            rows=head.key_tokens,
            columns=coordinates(values.shape[1]),
            points=page.points,
        )
        middle.set_title(name, fontweight="bold", pad=7)
        middle.set_xlabel("coordinate of v")
        _length_panel(last, head, lengths, page.points)
        colours = signed(added, head.tensors["out"])
        for row, one in enumerate(single or [one for line in page.axes[1:] for one in line]):
            _spelled(one, head, row, colours, page.points)
    return Drawing(
        stem=stem,
        figure=page.figure,
        caption=f"{verdict[0].upper()}{verdict[1:]}. {CAUTION}",
        alt=f"Weights of {head.title}, values, and the length of each weight times its value. {verdict}. "
        f"{_listed(head, lengths)}",
    )


def _length_panel(axes: Axes, head: Head, lengths: np.ndarray, points: float) -> None:
    """The same cells as the weights, with how far each contribution moves the output."""
    paint(
        axes,
        lengths,
        signed(lengths),
        rows=head.query_tokens,
        columns=head.key_tokens,
        shown=head.tensors["mask"],
        points=points,
    )
    axes.set_title("length of  $A_{ij}\\,v_j$", fontweight="bold", pad=7, parse_math=True)
    axes.set_xlabel("key position")


def _spelled(axes: Axes, head: Head, row: int, colours: Colours, points: float) -> None:
    """The contributions to one output, key by key, and their sum below a line."""
    import numpy as np

    added, out = head.tensors["contributions"][row], head.tensors["out"][row]
    seen = np.repeat(head.tensors["mask"][row][:, None], added.shape[1], axis=1)
    paint(
        axes,
        np.vstack([added, out]),
        colours,
        rows=[*head.key_tokens, SUM],
        columns=coordinates(added.shape[1]),
        shown=np.vstack([seen, np.ones_like(seen[:1])]),
        points=points,
    )
    axes.axhline(len(added), color=INK, linewidth=1.4)
    axes.set_title(f"into the output of ‘{printable(head.query_tokens[row], 12).strip()}’", fontweight="bold", pad=7)
    axes.set_xlabel("coordinate of v")


def _verdict(head: Head, lengths: np.ndarray) -> str:
    """The pair of keys in one row whose shares and contributions differ most in proportion."""
    weights, best = head.tensors["weights"], None
    for i in range(len(weights)):
        seen = [j for j in range(weights.shape[1]) if head.tensors["mask"][i, j] and lengths[i, j] > 0]
        for j in seen:
            for other in seen:
                gap = log(lengths[i, j] / lengths[i, other]) - log(weights[i, j] / weights[i, other])
                if best is None or gap > best[0] + 1e-9:
                    best = (gap, i, j, other)
    if best is None or best[0] < 1e-6:
        return "all values have one length here, so that shares and contributions are in proportion"
    _, i, j, other = best
    share, added = weights[i, j] / weights[i, other], lengths[i, j] / lengths[i, other]
    query, one, two = (f"‘{name}’" for name in (head.query_tokens[i], head.key_tokens[j], head.key_tokens[other]))
    longer = f"adds a vector {added:.3g} times as long"
    if abs(share - 1) < 1e-9:
        return f"for query {query}, keys {one} and {two} weigh the same, yet {one} {longer}"
    return f"for query {query}, key {one} weighs {share:.3g} times key {two} and {longer}"


def _listed(head: Head, lengths: np.ndarray) -> str:
    rows = [
        f"{name}: {', '.join(f'{length:.3f}' for length in row)}"
        for name, row in zip(head.query_tokens, lengths, strict=True)
    ]
    return f"Lengths by query and key: {'; '.join(rows)}."
