"""One row of attention with and without the division by the root of the width."""

from __future__ import annotations

from math import isclose

from bench.attention_map._head import CAUTION, Head
from bench.attention_map._matrix import SHARES, coordinates, label_room, paint, sheet, signed
from bench.figure_style import figure_style
from bench.plots import Drawing


def draw_scaling(unscaled: Head, scaled: Head, *, stem: str = "scaled_unscaled") -> Drawing:
    """Scores, weights and output of the first query, unscaled above scaled; both heads share q, k and v."""
    import numpy as np

    both = {name: np.stack([h.tensors[name][0] for h in (unscaled, scaled)]) for name in ("scores", "weights", "out")}
    shown = np.stack([h.tensors["mask"][0] for h in (unscaled, scaled)])
    factor = both["scores"][1].sum() / both["scores"][0].sum()
    assert not isclose(factor, 1.0), "the two heads differ in their scale"
    entropy = [_entropy(weights) for weights in both["weights"]]
    top = int(both["weights"][0].argmax())
    width = unscaled.tensors["q"].shape[1]
    verdict = (
        f"without it key {unscaled.key_tokens[top]} takes {both['weights'][0, top]:.3f} instead of "
        f"{both['weights'][1, top]:.3f}, and the entropy of the weights falls from {entropy[1]:.3f} to {entropy[0]:.3f}"
    )
    rows = ("q·k", f"q·k / √{width}")
    keys = unscaled.key_tokens
    shapes = [[(2, len(keys)), (2, len(keys)), (2, both["out"].shape[1])]]
    title = f"Dividing the scores by √{width} flattens the weights"
    with figure_style():
        page = sheet(shapes, (title, verdict), (CAUTION,), left=label_room(rows))
        looks = (signed(both["scores"]), SHARES, signed(both["out"]))
        for one, (name, values), colours in zip(page.axes[0], both.items(), looks, strict=True):
            pairs = name != "out"
            paint(
                one,
                values,
                colours,
                rows=rows,
                columns=keys if pairs else coordinates(values.shape[1]),
                shown=shown if pairs else None,
                points=page.points,
            )
            one.set_title(name, fontweight="bold", pad=7)
            one.set_xlabel("key position" if pairs else "coordinate of v")
    listed = "; ".join(
        f"{label}: {', '.join(f'{w:.3f}' for w in weights)}"
        for label, weights in zip(rows, both["weights"], strict=True)
    )
    return Drawing(
        stem=stem,
        figure=page.figure,
        caption=f"One query, {len(keys)} keys: {verdict}. {CAUTION}",
        alt=f"Scores, weights and output, unscaled above scaled. Weights {listed}. {verdict}.",
    )


def _entropy(weights: object) -> float:
    """In nats."""
    import numpy as np

    positive = np.asarray(weights)[np.asarray(weights) > 0]
    return float(-(positive * np.log(positive)).sum())
