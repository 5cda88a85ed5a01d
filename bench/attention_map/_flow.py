"""The flow of attention, with the branch that carries the values drawn through to the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.attention_map._matrix import HATCHED, INK
from bench.figure_style import figure_style
from bench.plots import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUERY, KEY, VALUE, SCORE = "#0072B2", "#009E73", "#D55E00", "#555555"
Point = tuple[float, float]


@dataclass(frozen=True)
class _Box:
    """A tensor (round) or an operation (square) at a place."""

    at: Point
    text: str
    color: str
    note: str = ""
    operation: bool = False
    width: float = 1.0
    height: float = 0.82


_BOXES = {
    "xq": _Box((0.75, 4.6), "$X_q$", INK, "$[T_q, D_q]$"),
    "xs": _Box((0.75, 1.75), "$X_s$", INK, "$[T_k, D_s]$"),
    "wq": _Box((2.6, 4.6), "$W_Q$", QUERY, operation=True, width=0.8, height=0.66),
    "wk": _Box((2.6, 2.75), "$W_K$", KEY, operation=True, width=0.8, height=0.66),
    "wv": _Box((2.6, 0.75), "$W_V$", VALUE, operation=True, width=0.8, height=0.66),
    "q": _Box((4.4, 4.6), "$Q$", QUERY, "$[T_q, d_k]$"),
    "k": _Box((4.4, 2.75), "$K$", KEY, "$[T_k, d_k]$"),
    "v": _Box((4.4, 0.75), "$V$", VALUE, "$[T_k, d_v]$"),
    "pairs": _Box((6.35, 3.68), "$Q\\,K^{T}$", SCORE, "every query\nwith every key", True, 1.25),
    "scale": _Box((8.35, 3.68), "$\\div\\sqrt{d_k}$", SCORE, "takes out the\ngrowth with width", True, 1.15),
    "mask": _Box((10.2, 3.68), "$+\\,M$", SCORE, "0 where seen,\n$-\\infty$ where blocked", True, 1.15),
    "softmax": _Box((12.15, 3.68), "softmax", SCORE, "along the keys:\neach row sums to 1", True, 1.35),
    "a": _Box((14.05, 3.68), "$A$", SCORE, width=0.9),
    "sum": _Box((14.05, 0.75), "$A\\,V$", VALUE, "", True, 1.15),
    "o": _Box((16.1, 0.75), "$O$", VALUE, "$[T_q, d_v]$"),
}


def draw_flow(*, stem: str = "flow") -> Drawing:
    """From the inputs over scores and weights to the output; the values run below and join at the end."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(12.6, 5.2))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_xlim(0, 17)
        axes.set_ylim(-0.75, 6.3)
        axes.set_axis_off()
        axes.text(
            0.25, 5.93, "Queries and keys decide the weights; values are what is mixed", fontsize=13, fontweight="bold"
        )
        _stage(axes, (1.85, 5.15), "project", 5.35)
        _stage(axes, (5.6, 14.7), "scores become weights", 5.35)
        for box in _BOXES.values():
            _draw_box(axes, box)
        _arrows(axes)
        _mask_sketch(axes, (10.2, 2.12))
        axes.text(
            9.2, 0.93, "value branch: no score is computed from it", color=VALUE, fontsize=9.5, ha="center", va="bottom"
        )
        axes.text(14.25, 2.2, "weights\n$[T_q, T_k]$", color=SCORE, fontsize=9.5, va="center", parse_math=True)
        axes.text(
            0.25,
            -0.42,
            "Self-attention: $X_q = X_s$, so that $T_q = T_k$. Cross-attention: queries come from one sequence, keys "
            "and values from another.   $o_i = \\sum_j A_{ij}\\,v_j$",
            fontsize=9.5,
            color="#444444",
            parse_math=True,
        )
    return Drawing(
        stem=stem,
        figure=figure,
        caption="Scaled dot-product attention. Weights follow from queries and keys alone; the values join in the last "
        "product (Vaswani 2017, section 3.2.1).",
        alt="Flow diagram: X_q gives Q, X_s gives K and V by projection. Q K^T is divided by the square root of d_k, "
        "the mask M is added, softmax along the keys gives the weights A. V runs past all of it and is multiplied by "
        "A: O = A V with shape T_q by d_v.",
    )


def _arrows(axes: Axes) -> None:
    """Everything that flows."""
    for start, end, color in (
        ("xq", "wq", INK),
        ("wq", "q", QUERY),
        ("wk", "k", KEY),
        ("wv", "v", VALUE),
        ("pairs", "scale", SCORE),
        ("scale", "mask", SCORE),
        ("mask", "softmax", SCORE),
        ("softmax", "a", SCORE),
    ):
        _arrow(axes, _edge(start, 1), _edge(end, -1), color)
    xs, fork = _edge("xs", 1), 1.65
    _path(axes, [xs, (fork, xs[1]), (fork, _edge("wk", -1)[1]), _edge("wk", -1)], INK)
    _path(axes, [(fork, xs[1]), (fork, _edge("wv", -1)[1]), _edge("wv", -1)], INK)
    (x, y), meet = _edge("pairs", -1), 5.3
    for name, color, above in (("q", QUERY, 0.2), ("k", KEY, -0.2)):
        out = _edge(name, 1)
        _path(axes, [out, (meet, out[1]), (meet, y + above), (x, y + above)], color)
    weights, product = _BOXES["a"], _BOXES["sum"]
    down = (weights.at[0], weights.at[1] - weights.height / 2), (product.at[0], product.at[1] + product.height / 2)
    _arrow(axes, *down, SCORE)
    _arrow(axes, _edge("v", 1), _edge("sum", -1), VALUE, thick=True)
    _arrow(axes, _edge("sum", 1), _edge("o", -1), VALUE, thick=True)


def _edge(name: str, side: int) -> Point:
    """The middle of a box's right (1) or left (-1) edge."""
    box = _BOXES[name]
    return box.at[0] + side * box.width / 2, box.at[1]


def _draw_box(axes: Axes, box: _Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y = box.at
    corner = 0.04 if box.operation else 0.22
    axes.add_patch(
        FancyBboxPatch(
            (x - box.width / 2, y - box.height / 2),
            box.width,
            box.height,
            boxstyle=f"round,pad=0,rounding_size={corner}",
            facecolor=box.color if not box.operation else "white",
            edgecolor=box.color,
            linewidth=1.8,
            zorder=3,
        )
    )
    ink = box.color if box.operation else "white"
    axes.text(x, y, box.text, ha="center", va="center", fontsize=14, color=ink, parse_math=True, zorder=4)
    if box.note:
        below = y - box.height / 2 - 0.1
        axes.text(
            x, below, box.note, ha="center", va="top", fontsize=9, color="#444444", parse_math=True, linespacing=1.3
        )


def _stage(axes: Axes, span: Point, text: str, y: float) -> None:
    """A bracket over a part of the flow."""
    axes.plot(span, (y, y), color="#bbbbbb", linewidth=1.0)
    axes.text(sum(span) / 2, y + 0.06, text, ha="center", va="bottom", fontsize=9.5, color="#777777")


def _mask_sketch(axes: Axes, at: Point, size: int = 4, cell: float = 0.19) -> None:
    """A small causal mask below the step that adds it."""
    from matplotlib.patches import Rectangle

    x, y = at[0] - size * cell / 2, at[1] - size * cell / 2
    for row in range(size):
        for key in range(size):
            look: dict[str, Any] = HATCHED if key > row else {"facecolor": "#0072B2", "linewidth": 0}
            place = (x + key * cell, y + (size - 1 - row) * cell)
            axes.add_patch(Rectangle(place, cell * 0.88, cell * 0.88, **look))


def _arrow(axes: Axes, start: Point, end: Point, color: str, *, thick: bool = False) -> None:
    axes.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={
            "arrowstyle": "-|>,head_width=0.28,head_length=0.55",
            "color": color,
            "linewidth": 3.2 if thick else 1.7,
            "shrinkA": 0,
            "shrinkB": 1,
            "mutation_scale": 13,
        },
        zorder=2,
    )


def _path(axes: Axes, points: list[Point], color: str) -> None:
    """Straight pieces, the last one an arrow."""
    xs, ys = zip(*points[:-1], strict=True)
    axes.plot(xs, ys, color=color, linewidth=1.7, solid_capstyle="round", zorder=2)
    _arrow(axes, points[-2], points[-1], color)
