"""The figure of rounding errors: a column for each dtype, a row for each kind of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.claims import Answer, Drawing
from bench.claims._errors import FA3_RATIO, ROOT, STORE_SCORES, ErrorLadder
from bench.claims._regions import worst
from bench.figure_style import (
    Style,
    grid,
    headline,
    length_axis,
    line_entry,
    log_axis,
    printable,
    shared_legend,
    slug,
    styles,
)
from bench.problem import DTYPE_BYTES

GUIDE: dict[str, Any] = {"color": "#999999", "linestyle": "-", "linewidth": 1.0}


def error_figure(groups: Sequence[Sequence[ErrorLadder]], answers: Sequence[Answer]) -> Drawing:
    """Panels by kind of inputs (downwards) and dtype (across)."""
    by_place = {(one[0].rows[0]["distribution"], one[0].rows[0]["dtype"]): one for one in groups}
    inputs = list(dict.fromkeys(distribution for distribution, _ in by_place))
    dtypes = [name for name in DTYPE_BYTES if any(name == dtype for _, dtype in by_place)]
    looks = styles({one.name for group in groups for one in group})
    figure, axes = grid(len(inputs), len(dtypes), width=4.0, height=3.1)
    for down, line in zip(inputs, axes, strict=True):
        for across, one in zip(dtypes, line, strict=True):
            same = [ladder for (_, dtype), group in by_place.items() if dtype == across for ladder in group]
            if (down, across) in by_place:
                _panel(one, by_place[down, across], looks, same)
            else:
                one.set_axis_off()
    entries = [
        line_entry(printable(name), color=look.color, linestyle=look.linestyle, marker=look.marker)
        for name, look in looks.items()
    ]
    marks: dict[str, Any] = {"color": "#555555", "linestyle": "none", "marker": "o"}
    shared_legend(
        figure,
        [*entries, line_entry("largest error", markerfacecolor="none", **marks), line_entry("growth as √T", **GUIDE)],
    )
    heard = worst(answer.verdict for answer in answers)
    found = "Rounding errors grow at most as √T, and blockwise kernels in low precision err less than naive"
    row = groups[0][0].rows[0]
    constant = f"H={row['num_heads_q']}, d={row['width']}, on {row['device']}"
    headline(figure, found if heard == "CONFIRMED" else f"{heard}: growth of rounding errors, and naive beside others")
    return Drawing(
        stem=slug("error-growth"),
        figure=figure,
        caption=f"Error of the output against float64 relative to the RMS of the exact one ({constant}): RMS filled, "
        "largest open. With normal inputs the output itself shrinks as 1/√T. Titles: RMS error over that of naive, "
        f"geometric mean over T. Outlier inputs are those of FlashAttention-3, table 3, which has {FA3_RATIO:.2f}.",
        alt="Relative error against sequence length, both logarithmic, one panel for each dtype and kind of inputs. "
        + " ".join(f"{one.subject}: {one.found}." for one in answers),
    )


def _panel(axes: Any, group: Sequence[ErrorLadder], looks: Mapping[str, Style], same: Sequence[ErrorLadder]) -> None:
    """RMS and largest errors of one dtype and kind of inputs; all panels of a dtype have one range."""
    for one in group:
        look, rows = looks[one.name], sorted(one.rows, key=lambda row: row["length"])
        plain: dict[str, Any] = {"color": look.color, "marker": look.marker}
        lengths = [row["length"] for row in rows]
        axes.plot(lengths, [row["rms"] for row in rows], linestyle=look.linestyle, **plain)
        largest = [row["largest"] for row in rows]
        axes.plot(lengths, largest, linestyle="none", markerfacecolor="none", markersize=4.5, **plain)
    lengths = sorted({row["length"] for one in group for row in one.rows})
    start = max(one.rows[0]["rms"] for one in group) * 1.6
    axes.plot(lengths, [start * (length / lengths[0]) ** ROOT for length in lengths], **GUIDE)
    length_axis(axes, lengths, "sequence length T")
    log_axis(axes, "relative error", [row[name] for one in same for row in one.rows for name in ("rms", "largest")])
    first = group[0].rows[0]
    ratios = [one.ratio for one in group if one.name not in STORE_SCORES]
    known = [ratio[0] for ratio in ratios if ratio is not None]
    beside = f": {min(known):.2f} to {max(known):.2f} of naive's" if known else ""
    axes.set_title(f"{first['dtype']}, {first['distribution']}{beside}", fontweight="bold")
