"""The interactive charts: Vega-Lite specifications, built with Altair, that all draw one named dataset.

A specification holds no data. The page's script fills ``cells`` with the rows that the drop-downs choose, each with
``i`` (the record that a click opens), ``implementation``, ``panel`` and its ``order``, ``x``, ``y``, ``lo`` and ``hi``.
Sizes, and titles of axes that depend on a choice, are set by the script as well, which leaves out the band, the first
layer, where there is none. Names are data: they are domains of scales, never expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from bench.report.quantities import LINES, LineChart

if TYPE_CHECKING:
    import altair as alt

DATA = "cells"
"""Name of the dataset of every chart."""
CHOSEN = "length(chosen) == 0 || indexof(chosen, datum.implementation) >= 0"
"""Whether the legend has this implementation chosen; with none chosen all are."""


def specifications(looks: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Specifications by name of chart.

    Args:
        looks: ``color``, ``dash`` and ``shape`` by implementation, as :func:`bench.report.looks.look` gives them.
    """
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):  # validating every part of every chart takes a second; a test validates the whole
        found = {chart.name: line_chart(chart, looks) for chart in LINES}
        found |= {"roofline": roofline(looks), "heat_map": heat_map(looks)}
        return found | {"samples": samples(), "quantiles": quantiles()}


def line_chart(chart: LineChart, looks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Lines with markers and bands over lengths, one panel for each head width and mask."""
    import altair as alt

    labels: Any = {"labelExpr": chart.ticks} if chart.ticks else {"format": "~g"}
    y = alt.Y("y:Q", scale=_log(10), axis=alt.Axis(title=chart.choices[0].title, tickCount=6, **labels, **GRID))
    base = alt.Chart().encode(x=_length_axis(), color=_scale(alt.Color, "color", looks))
    band = (
        base.transform_filter("isValid(datum.lo)")
        .mark_area(tooltip=None)
        .encode(
            y=alt.Y("lo:Q", scale=_log(10)),
            y2="hi:Q",
            opacity=alt.condition(CHOSEN, alt.value(0.22), alt.value(0.02)),
        )
    )
    return _paneled(alt.layer(band, *_line_and_points(base, y, looks)), chart.title)


def roofline(looks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Rate against arithmetic intensity, under the roofs that were measured; roofs are rows with ``roof``."""
    import altair as alt

    x = alt.X("x:Q", scale=_log(2), axis=alt.Axis(title="FLOP per byte", format="~g", tickCount=5))
    y = alt.Y("y:Q", scale=_log(10), axis=alt.Axis(title="TFLOP/s, exact pairs", format="~g", tickCount=6, **GRID))
    base = alt.Chart().transform_filter("!isValid(datum.roof)").encode(x=x, color=_scale(alt.Color, "color", looks))
    dashes = alt.Scale(domain=["memory", "cache", "one thread"], range=[[1, 0], [6, 3], [2, 3]])
    roofs = (
        alt.Chart()
        .transform_filter("isValid(datum.roof)")
        .mark_line(color="var(--fg)", strokeWidth=1.4, tooltip=None)
        .encode(x=x, y=y, strokeDash=alt.StrokeDash("roof:N", scale=dashes, legend=None))
    )
    layers = alt.layer(*_line_and_points(base, y, looks), roofs).resolve_scale(strokeDash="independent")
    return _paneled(layers, "Roofline")


def heat_map(looks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The fastest implementation of every cell, by panel and length; a cell without one says why."""
    import altair as alt

    base = alt.Chart(alt.NamedData(DATA)).encode(
        x=alt.X("x:O", axis=alt.Axis(title="sequence length", labelAngle=0, orient="top", grid=False)),
        y=alt.Y(
            "panel:N",
            sort=alt.EncodingSortField("order", op="min"),
            axis=alt.Axis(title=None, labelLimit=260, grid=False),
        ),
        tooltip=[alt.Tooltip(f"{name}:N", title=title) for name, title in HEAT_TIPS.items()],
    )
    fill = alt.condition(
        "isValid(datum.implementation)",
        _scale(alt.Color, "color", looks),
        alt.value("transparent"),
    )
    tiles = base.mark_rect(stroke="var(--line)", cursor="pointer").encode(
        fill=fill,
        opacity=alt.condition("datum.clear", alt.value(1), alt.value(0.3)),
    )
    text = base.mark_text(fontSize=10, lineBreak="\n", limit=92, baseline="middle", dy=-6, cursor="pointer").encode(
        text="label:N",
        color=alt.Color("ink:N", scale=None),
        opacity=alt.condition(f"!isValid(datum.implementation) || {CHOSEN}", alt.value(1), alt.value(0.25)),
    )
    chart = alt.layer(tiles, text).properties(width=alt.Step(96), height=alt.Step(40))
    return finished(chart, "Fastest implementation in every cell", chosen=True)


GRID: dict[str, Any] = {
    "gridOpacity": {
        "condition": {"test": "abs(log(datum.value) / LN10 - round(log(datum.value) / LN10)) < 1e-6", "value": 1},
        "value": 0.35,
    }
}
"""Lines of a logarithmic axis: those of the decades stand out."""
HEAT_TIPS = {"panel": "problem", "x": "length", "who": "fastest", "value": "latency", "said": "against the next"}
"""What hovering over a cell of the heat map says."""


def samples() -> dict[str, Any]:
    """Every sample of one cell in the order of the rounds, with the median and its interval."""
    import altair as alt

    base = alt.Chart(alt.NamedData(DATA))
    y = alt.Y("y:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title="ms per call", format="~g"))
    points = base.mark_point(filled=True, size=36, opacity=0.85).encode(
        x=alt.X(
            "x:Q", axis=alt.Axis(title="sample, in the order of the rounds", format="d"), scale=alt.Scale(nice=False)
        ),
        y=y,
        color=alt.Color("process:N", legend=alt.Legend(title="process"), scale=alt.Scale(range=PROCESSES)),
        shape=alt.Shape("process:N", legend=alt.Legend(title="process")),
        tooltip=[alt.Tooltip("x:Q", title="sample"), alt.Tooltip("value:N", title="per call"), "process:N"],
    )
    return finished(alt.layer(_interval(base, y), points).properties(width=520, height=200), "Samples of one cell")


def quantiles() -> dict[str, Any]:
    """Quantiles of the samples of one cell, with the median and its interval."""
    import altair as alt

    base = alt.Chart(alt.NamedData(DATA))
    y = alt.Y("y:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title="ms per call", format="~g"))
    line = base.mark_line(point=True, color="#0072B2").encode(
        x=alt.X("x:Q", axis=alt.Axis(title="share of the samples at or below", format="~%")),
        y=y,
        tooltip=[alt.Tooltip("x:Q", title="share", format=".0%"), alt.Tooltip("value:N", title="per call")],
    )
    chart = alt.layer(_interval(base, y), line).properties(width=520, height=200)
    return finished(chart, "Quantiles of the samples of one cell")


PROCESSES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]


def _interval(base: alt.Chart, y: alt.Y) -> Any:
    """The median as a line and its interval as a band, from the row that has ``lo``."""
    import altair as alt

    whole = base.transform_filter("isValid(datum.lo)")
    band = whole.mark_rect(color="var(--soft)", opacity=0.18, tooltip=None).encode(y=alt.Y("lo:Q"), y2="hi:Q")
    return alt.layer(band, whole.mark_rule(color="var(--fg)", strokeDash=[4, 3], tooltip=None).encode(y=y))


def _line_and_points(base: alt.Chart, y: alt.Y, looks: Mapping[str, Mapping[str, Any]]) -> list[alt.Chart]:
    import altair as alt

    shown = alt.condition(CHOSEN, alt.value(1), alt.value(0.12))
    line = base.mark_line(strokeWidth=1.8, tooltip=None).encode(
        y=y, strokeDash=_scale(alt.StrokeDash, "dash", looks), opacity=shown
    )
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in TIPS.items()]
    points = base.mark_point(filled=True, size=58, cursor="pointer").encode(
        y=y, shape=_scale(alt.Shape, "shape", looks), opacity=shown, tooltip=tips
    )
    return [line, points]


TIPS = {"implementation": "implementation", "panel": "panel", "length": "length", "value": "value", "said": "interval"}
"""What hovering over a point says."""


def _paneled(layers: Any, title: str) -> dict[str, Any]:
    import altair as alt

    header = alt.Header(title=None, labelFontWeight="bold", labelLimit=300, labelColor="var(--fg)")
    chart = layers.properties(width=270, height=190).facet(
        facet=alt.Facet("panel:N", sort=alt.EncodingSortField("order", op="min"), header=header),
        columns=3,
        data=alt.NamedData(DATA),
    )
    return finished(chart, title, chosen=True)


def finished(chart: Any, title: str, chosen: bool = False) -> dict[str, Any]:
    """The specification with the look of the page; colours are variables of the style sheet."""
    import altair as alt

    if chosen:
        chart = chart.add_params(alt.param(name="chosen", value=[]))
    found: dict[str, Any] = chart.to_dict(validate=False)
    return found | {"config": _configuration(), "description": title}


@cache
def _configuration() -> dict[str, Any]:
    """The same for all charts; set on each of them, it would copy all of it again and again."""
    import altair as alt

    axis = {name: f"var(--{colour})" for name, colour in AXIS_COLOURS.items()}
    chart = (
        alt.Chart(alt.NamedData(DATA))
        .mark_point()
        .configure(background="transparent", font="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif")
        .configure_axis(**axis, labelFontSize=11, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelColor="var(--fg)", titleColor="var(--fg)")
        .configure_view(stroke="var(--line)")
    )
    found: dict[str, Any] = chart.to_dict()["config"]
    return found


AXIS_COLOURS = {"labelColor": "fg", "titleColor": "fg", "gridColor": "line", "domainColor": "soft", "tickColor": "soft"}


def _length_axis() -> alt.X:
    import altair as alt

    return alt.X("x:Q", scale=_log(2), axis=alt.Axis(title="sequence length", format="d", tickCount=6))


def _log(base: int) -> alt.Scale:
    import altair as alt

    return alt.Scale(type="log", base=base, nice=False, padding=8)


def _scale(channel: Any, name: str, looks: Mapping[str, Mapping[str, Any]]) -> Any:
    """A channel that tells implementations apart; the page has the legend."""
    import altair as alt

    scale = alt.Scale(domain=list(looks), range=[one[name] for one in looks.values()])
    return channel("implementation:N", scale=scale, legend=None)
