"""Builds planted reports once and opens them in a real browser, without a network."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import planted
from pages import NO_NOTEBOOK
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from bench.report import build_report
from bench.results import Run

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SECONDS = 60
"""How long anything may take before a test gives up; nothing is judged by it."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.fail(
            "browser must be installed to test the report's page, got no chromium on PATH. Install it "
            "(apt-get install chromium) or name it in the variable CHROMIUM.",
            pytrace=False,
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A page of some runs, built once for each set of them."""
    built: dict[str, Path] = {}

    def of(name: str, *runs: Run, figures: bool = False) -> Path:
        if name not in built:
            built[name] = build_report(list(runs), tmp_path_factory.mktemp(name), NO_NOTEBOOK, figures=figures)
        return built[name]

    return of


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page; whatever it asks of the network or complains about fails the test at its end."""
    contexts, complaints, asked = [], list[str](), list[str]()

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def page(path: Path, *, fragment: str = "", **options: Any) -> Page:
        usual: dict[str, Any] = {"offline": True, "color_scheme": "light", "viewport": {"width": 1280, "height": 900}}
        context = browser.new_context(**(usual | options))
        context.set_default_timeout(SECONDS * 1000)
        contexts.append(context)
        shown = context.new_page()
        shown.on("console", said)
        shown.on("pageerror", lambda error: complaints.append(str(error)))
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(f"{path.as_uri()}{fragment}")
        shown.locator("html[data-drawn=all]").wait_for(state="attached")
        return shown

    yield page
    for context in contexts:
        context.close()
    assert not complaints
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]


@pytest.fixture(scope="session")
def default_page(build: Callable[..., Path]) -> Path:
    """Four implementations, three masks, two widths, three dtypes, with holes."""
    return build("default", planted.default_run())


@pytest.fixture(scope="session")
def illustrated(build: Callable[..., Path]) -> Path:
    """The same with the PNG figures."""
    return build("illustrated", planted.default_run(), figures=True)
