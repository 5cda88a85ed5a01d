from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import altair as alt
import pytest
import vl_convert

from bench.figure_style import styles
from bench.report.charts import specifications
from bench.report.dataset import DRAWN, RATES, VALUES
from bench.report.looks import SHAPES, look
from bench.report.quantities import LINES
from bench.report.vega import vega_script

HOSTILE = "a'];alert(1)//</script>"
NAMES = ("naive", "sdpa_flash", HOSTILE)


@pytest.fixture(scope="module")
def charts() -> dict[str, dict[str, Any]]:
    return specifications({name: look(style) for name, style in styles(NAMES).items()})


def point(name: str, x: float, y: float, panel: str = "head_dim 64, full", **more: Any) -> dict[str, Any]:
    return {"i": 0, "implementation": name, "panel": panel, "order": 0, "x": x, "y": y, "lo": y / 2, "hi": y * 2} | more


def drawn(chart: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    return vl_convert.vegalite_to_svg(chart | {"datasets": {"cells": rows}})


def marks(svg: str, kind: str) -> int:
    """How many symbols, lines or areas there are."""
    return sum(
        group.count("<path") for group in re.findall(rf'<g class="mark-{kind} [^"]*layer[^>]*>.*?</g>', svg, re.S)
    )


def test_the_library_and_the_specifications_are_of_one_major_version() -> None:
    ours = alt.SCHEMA_VERSION.removeprefix("v").split(".")[0]
    assert vl_convert.get_vegalite_versions()[-1].split(".")[0] == ours


def test_no_chart_holds_data_or_reaches_for_any(charts: dict[str, dict[str, Any]]) -> None:
    for name, chart in charts.items():
        data = [*re.findall(r"'url'|'values'", str({key: chart[key] for key in chart if key != "$schema"}))]
        assert not data, name
        assert "'name': 'cells'" in str(chart)


def test_each_specification_is_valid_as_a_whole(charts: dict[str, dict[str, Any]]) -> None:
    for chart in charts.values():
        alt.Chart.from_dict(chart)  # validates against the schema of Vega-Lite
    broken = charts["latency"] | {"columns": "three"}
    with pytest.raises(Exception, match="columns"):
        alt.Chart.from_dict(broken)


def test_names_are_domains_and_never_expressions(charts: dict[str, dict[str, Any]]) -> None:
    def strings(part: Any, key: str = "") -> list[tuple[str, str]]:
        if isinstance(part, dict):
            return [found for name, inner in part.items() for found in strings(inner, name)]
        if isinstance(part, list):
            return [found for inner in part for found in strings(inner, key)]
        return [(key, part)] if isinstance(part, str) else []

    for chart in charts.values():
        assert {key for key, text in strings(chart) if HOSTILE in text} <= {"domain"}


@pytest.mark.parametrize("chart", LINES, ids=lambda chart: chart.name)
def test_each_line_has_points_and_a_band(charts: dict[str, dict[str, Any]], chart: Any) -> None:
    rows = [point(name, x, x * scale) for scale, name in enumerate(NAMES, 1) for x in (128, 256, 512)]
    svg = drawn(charts[chart.name], rows)
    assert marks(svg, "symbol") == len(rows)
    assert marks(svg, "line") == marks(svg, "area") == len(NAMES)


def test_a_panel_for_each_mask_and_width_in_the_order_of_the_data(charts: dict[str, dict[str, Any]]) -> None:
    rows = [point("naive", x, x, panel, order=order) for order, panel in enumerate(("z", "a", "m")) for x in (1, 2)]
    svg = drawn(charts["latency"], rows)
    titles = re.findall(r'<g class="mark-text role-title-text".*?<text[^>]*>([^<]*)</text>', svg, re.S)
    assert [title for title in titles if title in ("z", "a", "m")] == ["z", "a", "m"]


def test_axes_are_logarithmic(charts: dict[str, dict[str, Any]]) -> None:
    for name in (*(chart.name for chart in LINES), "roofline"):
        for layer in charts[name]["spec"]["layer"]:
            scales = [
                layer["encoding"][axis]["scale"] for axis in ("x", "y") if "scale" in layer["encoding"].get(axis, {})
            ]
            assert [scale["type"] for scale in scales] == ["log", "log"]


def test_roofs_are_lines_of_their_own(charts: dict[str, dict[str, Any]]) -> None:
    roofs = [
        {"panel": "p", "order": 0, "roof": roof, "x": x, "y": 1.0}
        for roof in ("memory", "one thread")
        for x in (1.0, 9.0)
    ]
    svg = drawn(charts["roofline"], [point("naive", x, 0.5, "p") for x in (2.0, 4.0)] + roofs)
    assert marks(svg, "line") == 3 and marks(svg, "symbol") == 2


def test_the_heat_map_says_who_and_why_not(charts: dict[str, dict[str, Any]]) -> None:
    tiles = [
        point("naive", 128, 1, label="naive\n1.20x", clear=True, ink="#000000"),
        point(None, 256, 1, label="no memory", clear=True, ink="var(--fg)", said="predicted 9 GB"),  # type: ignore[arg-type]
    ]
    svg = drawn(charts["heat_map"] | {"width": {"step": 90}}, tiles)
    assert all(f">{text}</t" in svg for text in ("naive", "1.20x", "no memory"))
    tiles_drawn = re.findall(r'aria-roledescription="rect mark" d="[^"]*"( fill="#[0-9A-F]*")?', svg)
    assert [bool(fill) for fill in tiles_drawn] == [True, False]


def test_a_distribution_shows_samples_median_and_interval(charts: dict[str, dict[str, Any]]) -> None:
    rows = [{"x": place, "y": 1 + place / 10, "process": "1"} for place in range(7)]
    interval = {"y": 1.3, "lo": 1.1, "hi": 1.5}
    svg = drawn(charts["samples"], [*rows, interval])
    assert (
        marks(svg, "symbol") == len(rows) and marks(svg, "rect") == 1 and svg.count('class="mark-rule role-mark') == 1
    )
    svg = drawn(charts["quantiles"], [row | {"x": row["x"] / 6} for row in rows] + [interval])
    assert marks(svg, "line") == 1 and marks(svg, "rect") == 1


def test_implementations_differ_in_more_than_colour() -> None:
    looks = [look(style) for style in styles([f"implementation {n}" for n in range(12)]).values()]
    told = [(str(one["dash"]), one["shape"]) for one in looks]
    assert len(set(told)) == len(looks)
    assert {one["shape"] for one in looks} <= set(SHAPES.values())


def test_every_quantity_that_a_chart_offers_is_in_the_dataset() -> None:
    from bench.report.cells import DERIVED

    known = {*DRAWN.values(), *RATES, *VALUES, *DERIVED}
    assert {choice.key for chart in LINES for choice in chart.choices} <= known


def test_the_library_is_kept_and_cannot_end_its_script(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: "let a = '</script><!--';")
    assert vega_script() == vega_script() == "let a = '<\\/script><\\!--';"
    monkeypatch.setattr(vl_convert, "javascript_bundle", None)
    assert vega_script() == "let a = '<\\/script><\\!--';"
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: "")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert vega_script() == ""


def test_a_user_without_a_home_gets_the_library_and_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: "text")
    monkeypatch.chdir(tmp_path)
    assert vega_script() == "text" and not list(tmp_path.iterdir())
