from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import planted
import pytest
from axe_playwright_python.sync_playwright import Axe
from planted_profile import digest, overhead, stage
from playwright.sync_api import Page

from bench.plots import Reading
from bench.problem import Problem
from bench.report import Material, build_report
from bench.report.profile_sentences import held_sentence, roof_sentence, stage_sentence
from bench.report.stored_profiles import Profile, Profiles

pytestmark = pytest.mark.browser

FUSED = (stage("fused attention", 97.0, roof="compute"), overhead(3.0))
FULL = [digest(n, *rest) for n in (256, 512) for rest in (("naive",), ("sdpa_flash", FUSED))]
BARE = (stage("other", 95.0, roof=None, roof_fraction=None, reason="no shapes"), overhead(5.0))
CAUSAL = digest(problem=Problem(seqlen=512, mask="causal"), stages=BARE)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two implementations at two lengths, and one on another mask whose roofs are not known."""
    known = Profiles(tuple(Profile(one, "folder") for one in (*FULL, CAUSAL)))
    run = planted.run([planted.record(name, n) for n in (256, 512) for name in ("naive", "sdpa_flash")])
    material = Material(Reading([run]), [], profiles=known)
    return build_report([run], tmp_path_factory.mktemp("profiled"), material=material, figures=False)


def drawn(page: Page, chart: str) -> list[dict[str, Any]]:
    """Draws what is chosen, and gives the rows out of Vega itself."""
    script = """async name => {
      const chart = attentionBench.profiles.all.find((one) => one.name === name);
      await attentionBench.profiles.draw(chart);
      return chart.view.data("cells").map((row) => ({ ...row }));
    }"""
    rows: list[dict[str, Any]] = page.evaluate(script, chart)
    return rows


def said(page: Page, chart: str) -> str:
    return page.locator(f"#profile-{chart} .said").inner_text()


def test_charts_of_profiles_follow_their_drop_downs(opened: Callable[..., Page], profiled: Path) -> None:
    page = opened(profiled)
    figure = page.locator("#profile-stages")
    assert figure.locator(".which option").all_inner_texts() == [
        "B1-H4-d64-float32-fwd-full on cpu",
        "B1-H4-d64-float32-fwd-causal on cpu",
    ]
    rows = drawn(page, "stages")
    assert {(row["implementation"], row["x"]) for row in rows} == {
        (n, x) for n in ("naive", "sdpa_flash") for x in (256, 512)
    }
    assert figure.locator(".mark-rect.role-mark path").count() == sum("name" in row for row in rows)
    assert said(page, "stages") == f"B1-H4-d64-float32-fwd-full on cpu. {stage_sentence(FULL)}"
    figure.locator(".kind").select_option("roof")
    assert {row["name"] for row in drawn(page, "stages") if "name" in row} == {"overhead", "compute", "bandwidth"}
    assert said(page, "stages").endswith(roof_sentence(FULL))
    figure.locator(".which").select_option(index=1)
    assert {row["name"] for row in drawn(page, "stages") if "name" in row} == {"other", "overhead"}
    assert figure.locator(".kind").is_hidden()  # no roof is known there
    assert said(page, "stages").endswith(stage_sentence([CAUSAL]))
    timeline = page.locator("#profile-timeline")
    assert timeline.locator(".which option").count() == len(FULL) + 1
    timeline.locator(".which").select_option(label="naive on B1-H4-T256-d64-float32-fwd-full (cpu)")
    rows = drawn(page, "timeline")
    assert FULL[0].memory is not None and {row["hi"] for row in rows if "peak" in row} == {FULL[0].memory.peak_bytes}
    assert said(page, "timeline").endswith(held_sentence(FULL[0]))
    timeline.locator(".numbers summary").click()
    timeline.locator(".numbers tbody tr").first.wait_for()
    assert timeline.locator(".numbers tbody tr").count() == sum("name" in row for row in rows)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_profiles(opened: Callable[..., Page], profiled: Path, scheme: str) -> None:
    page = opened(profiled, color_scheme=scheme)
    for chart in ("stages", "timeline"):
        drawn(page, chart)
    page.locator("#profiles details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
