"""The figure of scores with and without scaling: moments, softmax's entropy and its largest derivative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from bench.claims import Answer, Drawing, Verdict
from bench.claims._regions import worst
from bench.figure_style import grid, headline, length_axis, line_entry, log_axis, shared_legend, slug
from bench.units import significant

Row = Mapping[str, Any]
"""Of the demonstration ``score_variance``."""

DEVIATIONS = 2.576
"""Standard errors to each side of a mean over blocks: 99 %."""
_UNSCALED: dict[str, Any] = {"color": "#D55E00", "marker": "o", "linestyle": "-"}
_SCALED: dict[str, Any] = {"color": "#0072B2", "marker": "s", "linestyle": (0, (5, 1.5))}
_SAME_MEAN: dict[str, Any] = {"color": "#009E73", "marker": "^", "linestyle": (0, (3, 1, 1, 1))}
_SAME_VARIANCE: dict[str, Any] = {"color": "#CC79A7", "marker": "D", "linestyle": (0, (1, 1))}
_THEORY: dict[str, Any] = {"color": "#999999", "linestyle": "-", "linewidth": 1.0}


def scores_figure(rows: Sequence[Row], answers: Sequence[Answer]) -> Drawing:
    figure, axes = grid(1, 3, width=4.1, height=3.6)
    widths, keys = [row["head_dim"] for row in rows], rows[0]["keys"]
    _panel(
        axes[0][0],
        rows,
        "mean or variance of scores",
        {
            "unscaled_variance": _UNSCALED,
            "scaled_variance": _SCALED,
            "same_mean": _SAME_MEAN,
            "same_variance": _SAME_VARIANCE,
        },
    )
    for theory in (widths, [1] * len(widths), [sqrt(width) for width in widths], [2] * len(widths)):
        axes[0][0].plot(widths, theory, zorder=1, **_THEORY)
    both = {"unscaled": _UNSCALED, "scaled": _SCALED}
    for one, label, name in (
        (axes[0][1], "mean entropy of a row (nats)", "entropy_nats"),
        (axes[0][2], "mean largest derivative of a row", "derivative"),
    ):
        _panel(one, rows, label, {f"{scaling}_{name}": look for scaling, look in both.items()})
    titles = ("Scores", f"Softmax of {keys} keys: entropy", "Softmax: largest derivative (at most 1/4)")
    for one, title in zip(axes[0], titles, strict=True):
        one.set_title(title, fontweight="bold")
    entries = {
        "not scaled (variance in the left panel)": _UNSCALED,
        "scaled by 1/√d_k": _SCALED,
        "scaled, k = q: mean": _SAME_MEAN,
        "scaled, k = q: variance": _SAME_VARIANCE,
        "theory: d_k, √d_k, 2, 1": _THEORY,
    }
    shared_legend(figure, [line_entry(label, **look) for label, look in entries.items()])
    found = _title(rows, worst(answer.verdict for answer in answers))
    headline(figure, *found)
    drawn = f"{min(row['blocks'] for row in rows)} blocks or more of {keys} queries and keys"
    return Drawing(
        stem=slug("scaled-scores"),
        figure=figure,
        caption=f"Standard normal entries, {drawn} at each d_k from {widths[0]} to {widths[-1]}; bars are 99 % "
        "intervals, mostly smaller than the marks. The derivative of a row is the largest p·(1-p); it rises first, as "
        "a flat row over many keys has no weight near 1/2 yet. A score of a position with itself (k = q) is no sum of "
        "independent products, and scaling does not tame it.",
        alt=f"Three panels over d_k {widths[0]} to {widths[-1]}: moments of scores, entropy and largest derivative of "
        "softmax, with and without scaling. " + " ".join(f"{one.subject}: {one.found}." for one in answers),
    )


def _title(rows: Sequence[Row], verdict: Verdict) -> tuple[str, str]:
    last = rows[-1]
    if verdict != "CONFIRMED":
        return f"{verdict}: scaling by 1/√d_k and what softmax makes of the scores", ""
    lost = f"{significant(last['unscaled_entropy_nats'])} nats of entropy without, "
    lost += f"{significant(last['scaled_entropy_nats'])} with"
    return (
        "Scaling by 1/√d_k keeps the variance of scores at 1; without it softmax sharpens until its derivatives vanish",
        f"At d_k {last['head_dim']}: {lost}. It guarantees nothing: with k = q the mean is √d_k",
    )


def _panel(axes: Any, rows: Sequence[Row], label: str, looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Means with their 99 % intervals, both axes logarithmic."""
    widths = [row["head_dim"] for row in rows]
    for name, look in looks.items():
        bars = [DEVIATIONS * row[f"{name}_se"] for row in rows]
        axes.errorbar(widths, [row[name] for row in rows], yerr=bars, markersize=4.5, **look)
    length_axis(axes, widths, "width of a key d_k")
    log_axis(axes, label, [row[name] for row in rows for name in looks])
