"""Every mask of the registry, with as many queries as keys, fewer, and more."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.attention_map._matrix import HATCHED, frame
from bench.errors import MaskError
from bench.figure_style import figure_style, headline, printable
from bench.masks import MaskShape, dense_rows, masks, parse_mask
from bench.plots import Drawing

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes

SHAPES = ((12, 12), (8, 12), (12, 8))
"""Queries and keys of the rows of the figure."""
EXPRESSIONS = {
    "document": "document(3)",
    "padding": "padding(0.5)",
    "prefix_lm": "prefix_lm(4)",
    "sliding_window": "sliding_window(4)",
}
"""What is drawn for a mask that cannot be built from its name alone."""
TOGETHER = "causal & padding(0.25)"
"""Masks combine; one pair of them is drawn as well."""
VERDICT = (
    "Which query may see which key: every mask",
    "bottom-right alignment lets the last query see the last key; with more queries than keys the first ones see none",
)
SEEN = "#0072B2"
NOTHING = "#D55E00"


@dataclass(frozen=True)
class MaskPanel:
    """One mask at one shape."""

    expression: str
    seqlen_q: int
    seqlen_k: int
    keep: np.ndarray | None
    """Bool ``(seqlen_q, seqlen_k)``, True = attend; None where the mask does not take this shape."""
    reason: str = ""
    """Why it does not."""


def mask_panels(shapes: Sequence[tuple[int, int]] = SHAPES) -> list[list[MaskPanel]]:
    """For each mask of the registry, and for one intersection, a panel per shape."""
    expressions = [*(EXPRESSIONS.get(name, name) for name in masks.names()), TOGETHER]
    return [[_panel(expression, *shape) for shape in shapes] for expression in expressions]


def draw_masks(*, stem: str = "masks") -> Drawing:
    """Masks side by side, shapes below one another."""
    from matplotlib.figure import Figure

    columns = mask_panels()
    empty = sum(int((~p.keep.any(axis=1)).sum()) for column in columns for p in column if p.keep is not None)
    across, down, cell = max(k for _, k in SHAPES), sum(q for q, _ in SHAPES), 0.128
    width, height = (across + 1) * cell * len(columns) + 0.9, down * cell + 0.36 * len(SHAPES) + 1.65
    note = (
        "Rows are queries from the top, columns keys from the left. Blue: may be seen. Hatched: blocked. Orange bar: "
        f"a row that sees no key ({empty} in all); its output is 0 by declared policy. causal_top_left is PyTorch's "
        "is_causal."
    )
    with figure_style():
        figure = Figure(figsize=(width, height))
        headline(figure, *VERDICT)
        figure.text(
            0.15 / width, 0.1 / height, "\n".join(textwrap.wrap(note, int(width * 14))), fontsize=8.5, color="#444444"
        )
        y = height - 1.08
        for line, (seqlen_q, seqlen_k) in enumerate(SHAPES):
            y -= seqlen_q * cell
            for at, column in enumerate(columns):
                x = 0.75 + at * (across + 1) * cell
                box = (x / width, y / height, seqlen_k * cell / width, seqlen_q * cell / height)
                one = figure.add_axes(box)
                _draw_panel(one, column[line])
                if line == 0:
                    name = printable(column[line].expression, 26).replace(" & ", "\n& ")
                    one.set_title(name, fontweight="bold", fontsize=8.5)
                if at == 0:
                    one.set_ylabel(f"{seqlen_q} queries,\n{seqlen_k} keys", fontsize=9, labelpad=12)
            y -= 0.36
    return Drawing(
        stem=stem,
        figure=figure,
        caption=f"Every mask at {', '.join(f'{q} x {k}' for q, k in SHAPES)} (queries x keys): {VERDICT[1]}.",
        alt=f"Small matrices of visible pairs. {' '.join(_described(column) for column in columns)}",
    )


def _panel(expression: str, seqlen_q: int, seqlen_k: int) -> MaskPanel:
    shape = MaskShape(batch_size=1, num_heads=1, seqlen_q=seqlen_q, seqlen_k=seqlen_k)
    try:
        mask = parse_mask(expression)
        mask.check(shape)
    except MaskError as error:
        return MaskPanel(expression, seqlen_q, seqlen_k, None, str(error))
    return MaskPanel(expression, seqlen_q, seqlen_k, dense_rows(mask, shape, 0, 0, slice(0, seqlen_q)))


def _draw_panel(axes: Axes, panel: MaskPanel) -> None:
    import numpy as np
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Rectangle

    height, width = panel.seqlen_q, panel.seqlen_k
    frame(axes, height, width)
    axes.set_xticks([])
    axes.set_yticks([])
    if panel.keep is None:
        why = textwrap.fill(printable(panel.reason.partition(", got")[0]), 17)
        axes.text(width / 2, height / 2, why, ha="center", va="center", color="#777777", fontsize=7.5)
        return
    axes.add_patch(Rectangle((0, 0), width, height, **HATCHED))
    seen = np.ma.masked_array(np.ones(panel.keep.shape), mask=~panel.keep)
    axes.pcolormesh(seen, cmap=ListedColormap([SEEN]), edgecolors="white", linewidth=0.7)
    for row in np.flatnonzero(~panel.keep.any(axis=1)):
        axes.add_patch(Rectangle((-0.9, row + 0.1), 0.55, 0.8, color=NOTHING, clip_on=False, linewidth=0))
    axes.set_xlabel(f"{int(panel.keep.sum())} of {panel.keep.size} pairs", fontsize=8, labelpad=3)


def _described(column: list[MaskPanel]) -> str:
    said = [
        f"{p.seqlen_q} x {p.seqlen_k}: " + ("not defined" if p.keep is None else f"{int(p.keep.sum())} pairs")
        for p in column
    ]
    return f"{column[0].expression}: {', '.join(said)}."
