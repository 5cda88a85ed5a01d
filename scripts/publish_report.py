"""Make the report of a stored run that the repository shows: ``python scripts/publish_report.py RUN NAME``.

Writes ``reports/published/NAME/`` with ``index.html`` and ``summary.md``, redacted and without PNG figures, and
``first_screen.png``, what a browser shows first. Needs chromium on PATH or in the variable CHROMIUM.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from bench.cli._shared import RESULTS, build_in
from bench.errors import BenchError, UsageError
from bench.figure_style import slug
from bench.results import find_run, read_run

FOLDER = Path(__file__).resolve().parent.parent / "reports" / "published"
SIZE = (1280, 960)
"""Pixels of the window."""
SCALE = 1.5
"""Pixels of the picture for each of the window."""


def publish(run: str, name: str) -> Path:
    """Build the report of ``run`` and its picture; returns the folder.

    Raises:
        BenchError: if there is no such run, no chromium, or the folder cannot be written.
    """
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise UsageError("chromium must be installed to take the picture, got none on PATH. Name it in CHROMIUM.")
    folder = FOLDER / slug(name)
    page, _ = build_in([read_run(find_run(run, RESULTS))], folder, redact=True, figures=False)
    _picture(page, chromium)
    return folder


def _picture(page: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    width, height = SIZE
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(
            offline=True,
            color_scheme="light",
            viewport={"width": width, "height": height},
            device_scale_factor=SCALE,
        )
        shown = context.new_page()
        shown.goto(page.as_uri())
        shown.locator("html[data-drawn=all]").wait_for(state="attached")
        shown.screenshot(path=page.parent / "first_screen.png")
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python scripts/publish_report.py RUN NAME")
    try:
        print(publish(*sys.argv[1:]))
    except BenchError as error:
        sys.exit(str(error))
