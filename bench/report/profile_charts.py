"""The interactive charts of profiles, and their rows: shares of one call over lengths, and live bytes over one call.

Specifications hold no data, as in :mod:`bench.report.charts`; the page's script fills in rows, colours of what they
hold, and sizes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.digest import Digest, Stage
from bench.profile_figures import LOOKS, stacked
from bench.report.charts import DATA, finished
from bench.report.quantities import BYTES
from bench.units import format_bytes, format_ms

UNKNOWN_ROOF = "roof not known"
COMPILED = "#00543B"
"""Of compiled code, which the figures tell from a fused kernel by its hatch."""
COLOURS: dict[str, str] = {
    **{name: colour for name, (colour, _) in LOOKS.items()},
    "compiled code": COMPILED,
    "compute": "#0072B2",
    "bandwidth": "#E69F00",
    UNKNOWN_ROOF: "#DDDDDD",
}
"""By name of a stage or of a roof: the palette of Okabe and Ito, whose products and roofs of products are blue."""
OTHER = "#DDDDDD"
"""A name that has no colour of its own."""
DARK = ("#0072B2", "#444444", COMPILED)
"""Colours on which text is white."""
OWNERS = ("#0072B2", "#E69F00", "#D55E00", "#56B4E9", "#009E73", "#CC79A7", "#F0E442", "#999999", "#444444")
"""Colours of the owners of memory, the one that holds most first; as many as the timeline keeps apart."""
NAMED = 0.09
"""A part of a bar from this share on bears its name."""


def share_of_stages(digest: Digest) -> dict[str, float]:
    """Share of the profiled call by stage, a stage's gradients with it, in the order of the bars."""
    return _shares(digest, lambda stage: stage.name)


def share_of_roofs(digest: Digest) -> dict[str, float]:
    """Share of the profiled call by the roof that the stages are nearest to."""
    return _shares(digest, lambda stage: stage.roof or UNKNOWN_ROOF)


def _shares(digest: Digest, name: Callable[[Stage], str]) -> dict[str, float]:
    shares: dict[str, float] = defaultdict(float)
    for stage in digest.stages:
        shares[name(stage)] += stage.share
    order = {known: place for place, known in enumerate(COLOURS)}
    return {one: shares[one] for one in sorted(shares, key=lambda one: (order.get(one, len(order)), one))}


KINDS: Mapping[str, Callable[[Digest], dict[str, float]]] = {"stage": share_of_stages, "roof": share_of_roofs}
"""What bars may consist of."""


def share_rows(digests: Sequence[Digest], kind: str) -> list[dict[str, Any]]:
    """Rows of the chart of shares: one for each part of a bar, and one for the total above it."""
    names = list(dict.fromkeys(digest.implementation for digest in digests))
    rows: list[dict[str, Any]] = []
    for digest in digests:
        assert digest.total_ms is not None, "only profiles with times are drawn"
        place = {"implementation": digest.implementation, "order": names.index(digest.implementation)}
        place["x"] = digest.problem.seqlen_k
        top = 0.0
        for name, share in KINDS[kind](digest).items():
            colour = COLOURS.get(name, OTHER)
            part = {"name": name, "lo": round(top, 3), "hi": round(top + 100 * share, 3), "said": f"{share:.1%}"}
            text = {"label": name if share >= NAMED else "", "ink": "#ffffff" if colour in DARK else "#000000"}
            rows.append(place | part | text | {"value": format_ms(share * digest.total_ms)})
            top += 100 * share
        rows.append(place | {"total": format_ms(digest.total_ms), "hi": round(top, 3)})
    return rows


def colours(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """``domain`` and ``range`` of what the rows hold, in the order of the bars."""
    present = {row["name"]: COLOURS.get(row["name"], OTHER) for row in rows if "name" in row}
    order = {known: place for place, known in enumerate(COLOURS)}
    domain = sorted(present, key=lambda one: (order.get(one, len(order)), one))
    return {"domain": domain, "range": [present[name] for name in domain]}


def timeline_rows(digest: Digest) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Rows of the chart of memory, a step for each change of an owner's bytes, and the owners' colours."""
    memory = digest.memory
    assert memory is not None, "only profiles with memory are drawn"
    times, layers = stacked(memory)
    moments = times[::2]
    below = [0] * len(moments)
    rows: list[dict[str, Any]] = []
    for name, levels in layers.items():
        after = levels[1::2]
        for moment, low, size in zip(moments, below, after, strict=True):
            held = {"name": name, "x": round(moment, 6), "lo": low, "hi": low + size}
            rows.append(held | {"value": format_bytes(size), "at": format_ms(moment)})
        below = [low + size for low, size in zip(below, after, strict=True)]
    peak = {"peak": f"peak {format_bytes(memory.peak_bytes)}", "x": memory.peak_ms, "hi": memory.peak_bytes}
    return [*rows, peak], {"domain": list(layers), "range": list(OWNERS[: len(layers)])}


def profile_specifications() -> dict[str, dict[str, Any]]:
    """Specifications by name of chart."""
    return {"stages": stage_chart(), "timeline": timeline_chart()}


def stage_chart() -> dict[str, Any]:
    """Stacked shares of the profiled call over lengths, a panel for each implementation."""
    import altair as alt

    x = alt.X("x:O", axis=alt.Axis(title="sequence length", labelAngle=0, grid=False))
    axis = alt.Axis(title="share of the profiled call, %", values=list(range(0, 101, 20)))
    y = alt.Y("lo:Q", axis=axis, scale=alt.Scale(domain=[0, 112], nice=False))
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in SHARE_TIPS.items()]
    parts = alt.Chart().transform_filter("isValid(datum.name)").encode(x=x)
    bars = parts.mark_bar(stroke="var(--soft)", strokeWidth=0.5).encode(y=y, y2="hi:Q", color=_named(), tooltip=tips)
    labels = (
        parts.transform_calculate(middle="(datum.lo + datum.hi) / 2")
        .mark_text(fontSize=10, tooltip=None)
        .encode(y=alt.Y("middle:Q"), text="label:N", color=alt.Color("ink:N", scale=None))
    )
    totals = (
        alt.Chart()
        .transform_filter("isValid(datum.total)")
        .mark_text(dy=-7, fontSize=10, color="var(--fg)", tooltip=None)
        .encode(x=x, y=alt.Y("hi:Q"), text="total:N")
    )
    header = alt.Header(title=None, labelFontWeight="bold", labelLimit=300, labelColor="var(--fg)")
    chart = alt.layer(bars, labels, totals).properties(width=270, height=260)
    faceted = chart.facet(
        facet=alt.Facet("implementation:N", sort=alt.EncodingSortField("order", op="min"), header=header),
        columns=3,
        data=alt.NamedData(DATA),
    )
    return finished(faceted, "Where the time of one call goes, by sequence length")


def timeline_chart() -> dict[str, Any]:
    """Live bytes over one call, stacked by owner, with the peak."""
    import altair as alt

    base = alt.Chart(alt.NamedData(DATA))
    x = alt.X("x:Q", axis=alt.Axis(title="time in the profiled call, ms", tickCount=8), scale=alt.Scale(nice=False))
    axis = alt.Axis(title="live bytes beyond the inputs", labelExpr=BYTES, tickCount=6)
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in TIMELINE_TIPS.items()]
    held = base.transform_filter("isValid(datum.name)").encode(x=x)
    areas = held.mark_area(interpolate="step-after", stroke="var(--bg)", strokeWidth=0.5, tooltip=None).encode(
        y=alt.Y("lo:Q", axis=axis), y2="hi:Q", color=_named()
    )
    points = (
        held.transform_filter("datum.hi > datum.lo")
        .mark_point(filled=True, size=22, color="var(--fg)")
        .encode(y="hi:Q", tooltip=tips)
    )
    peak = base.transform_filter("isValid(datum.peak)")
    line = peak.mark_rule(color="var(--fg)", strokeDash=[4, 3], tooltip=None).encode(y="hi:Q")
    label = peak.mark_text(align="left", x=4, dy=-7, color="var(--fg)", tooltip=None).encode(y="hi:Q", text="peak:N")
    chart = alt.layer(areas, points, line, label).properties(width=640, height=260)
    return finished(chart, "Live bytes over one call, by tensor")


SHARE_TIPS = {"implementation": "implementation", "x": "length", "name": "part", "said": "share", "value": "time"}
TIMELINE_TIPS = {"name": "tensor", "value": "holds", "at": "from"}
"""What hovering says."""


def _named() -> Any:
    """Colour by name; the script sets domain and range to what is drawn."""
    import altair as alt

    scale = alt.Scale(domain=[], range=[])
    return alt.Color("name:N", scale=scale, legend=alt.Legend(title=None, orient="bottom", columns=4, labelLimit=260))
