"""Heat maps of attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.attention_map._head import CAUTION, Head
from bench.attention_map._matrix import SHARES, label_room, paint, sheet
from bench.figure_style import figure_style, printable
from bench.plots import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_weights(heads: Sequence[Head], *, across: int = 2, stem: str = "weights") -> Drawing:
    """Query rows, key columns, each row with its sum; ``across`` maps side by side."""
    cells = [head.tensors["weights"].shape for head in heads]
    lines = [cells[at : at + across] for at in range(0, len(cells), across)]
    title = "Attention weights: each row shares out 1 among the keys it may see"
    verdict = _verdict(heads)
    key = "Hatched: blocked by the mask." if any(head.blocked for head in heads) else ""
    left = label_room([token for head in heads for token in head.query_tokens], named=True)
    with figure_style():
        page = sheet(lines, (title, verdict), (key, CAUTION), left=left, right=sum_room(*heads))
        for head, one in zip(heads, [one for line in page.axes for one in line], strict=True):
            weight_panel(one, head, page.points)
            one.set_title(printable(head.title), fontweight="bold", pad=7)
    return Drawing(
        stem=stem,
        figure=page.figure,
        caption=f"{verdict[0].upper()}{verdict[1:]}. {key} {CAUTION}".replace("  ", " "),
        alt=f"Heat maps of attention weights, query rows and key columns. {' '.join(map(_described, heads))}",
    )


def sum_room(*heads: Head) -> float:
    """Inches right of a heat map for the sums of its rows."""
    return 0.95 if any(head.empty for head in heads) else 0.55


def weight_panel(axes: Axes, head: Head, points: float) -> None:
    """One heat map with the sum of each row at its right."""
    weights, mask = head.tensors["weights"], head.tensors["mask"]
    paint(axes, weights, SHARES, rows=head.query_tokens, columns=head.key_tokens, shown=mask, points=points)
    axes.set_ylabel("query position" if len(weights) > 2 else "query")
    axes.set_xlabel("key position" if weights.shape[1] > 1 else "key")
    for row in range(len(weights)):
        text = f"Σ {weights[row].sum():.6g}" if mask[row].any() else "sees no key"
        axes.text(
            len(head.key_tokens) + 0.12, row + 0.5, text, va="center", fontsize=max(points - 1, 5), color="#555555"
        )


def _verdict(heads: Sequence[Head]) -> str:
    """The largest weight in rows that have a choice, and what has no weight."""
    found = [(float(head.tensors["weights"][i, j]), head, i, j) for head in heads for i, j in _choices(head)]
    said = ["no row has a choice between keys"]
    if found:
        weight, head, i, j = max(found, key=lambda one: one[0])
        where = "" if len(heads) > 1 else f" (query ‘{head.query_tokens[i]}’, key ‘{head.key_tokens[j]}’)"
        said = [f"largest weight in a row with a choice: {weight:.3f}{where}"]
    blocked, empty = sum(head.blocked for head in heads), sum(head.empty for head in heads)
    if blocked:
        said.append(f"{blocked} blocked pairs have none")
    if empty:
        said.append(f"{empty} rows see no key and give 0")
    return "; ".join(said)


def _choices(head: Head) -> list[tuple[int, int]]:
    mask = head.tensors["mask"]
    return [(i, j) for i in range(len(mask)) if mask[i].sum() > 1 for j in range(mask.shape[1]) if mask[i, j]]


def _described(head: Head) -> str:
    rows = []
    for i, name in enumerate(head.query_tokens):
        weights, mask = head.tensors["weights"][i], head.tensors["mask"][i]
        shown = [f"{weight:.3f}" if seen else "blocked" for weight, seen in zip(weights, mask, strict=True)]
        rows.append(f"{name}: {', '.join(shown)}")
    return f"{head.title}: {'; '.join(rows)}."
