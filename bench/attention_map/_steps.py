"""From q, k and v to the output, every matrix of one head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.attention_map._head import CAUTION, Head
from bench.attention_map._matrix import SHARES, Colours, label_room, narrow, number, paint, sheet, signed
from bench.figure_style import figure_style
from bench.plots import Drawing

if TYPE_CHECKING:
    import numpy as np


FORMULAS = (
    "scores = scale · q · kᵀ;  m: largest visible score of a row;  l = Σ exp(scores − m);  "
    "weights = exp(scores − m) / l;  u = Σ exp(scores − m) · v;  out = u / l."
)


def draw_steps(head: Head, *, stem: str = "steps") -> Drawing:
    """q, k, v, scores, then m and l, weights, u and out, in the order in which they are computed."""
    import numpy as np

    tensors = head.tensors
    sums = np.stack([tensors["m"], tensors["l"]], axis=1)
    queries, keys = head.query_tokens, head.key_tokens
    pairs: dict[str, Any] = {"rows": queries, "columns": keys, "shown": tensors["mask"]}
    q, k, v, u, out = (narrow(name, tensors[name]) for name in ("q", "k", "v", "u", "out"))
    mixed = signed(u[1], out[1])
    steps: list[tuple[str, np.ndarray, Colours, dict[str, Any]]] = [
        (*q, signed(q[1]), {"rows": queries}),
        (*k, signed(k[1]), {"rows": keys}),
        (*v, signed(v[1]), {"rows": keys}),
        ("scores", tensors["scores"], signed(tensors["scores"][tensors["mask"]]), pairs),
        ("m and l", sums, signed(sums), {"rows": queries, "columns": ("m", "l")}),
        ("weights", tensors["weights"], SHARES, pairs),
        (*u, mixed, {"rows": queries}),
        (*out, mixed, {"rows": queries}),
    ]
    shapes = [[values.shape for _, values, _, _ in steps[at : at + 4]] for at in (0, 4)]
    least, most = number(float(tensors["out"].min())), number(float(tensors["out"].max()))
    visible = int(tensors["mask"].sum())
    verdict = f"{visible} of {tensors['mask'].size} pairs are visible; entries of out from {least} to {most}"
    key = "Hatched: blocked by the mask." if head.blocked else ""
    left = label_room([*queries, *keys])
    with figure_style():
        page = sheet(
            shapes, (f"Attention step by step: {head.title}", verdict), (FORMULAS, key, CAUTION), left=left, below=0.45
        )
        flat = [one for line in page.axes for one in line]
        for (name, values, colours, look), one in zip(steps, flat, strict=True):
            paint(one, values, colours, points=page.points, **look)
            one.set_title(name, fontweight="bold", pad=7)
    return Drawing(
        stem=stem,
        figure=page.figure,
        caption=f"Every intermediate of {head.title}: {verdict}. {CAUTION}",
        alt=f"Eight matrices in the order of computation: {', '.join(name for name, *_ in steps)}. {verdict}.",
    )
