"""The PNG figures of a report: saved beside the page, embedded as long as that stays small."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.plots import draw_all, save_all
from bench.report import claims, profiles
from bench.report.material import Material


@dataclass(frozen=True)
class Image:
    """A figure as the template needs it."""

    page: Path
    """The file for pages."""
    print_file: str
    """Name of the file for print."""
    caption: str
    alt: str


@dataclass(frozen=True)
class Figures:
    """All figures of a report, saved in its folder."""

    plots: dict[str, list[Image]]
    """By the title of the plot."""
    claims: dict[str, list[Image]]
    """By the title of the claim's section."""
    missing: dict[str, str]
    """What the data lack, by the title of the plot."""

    @property
    def images(self) -> list[Image]:
        """All of them, those that nothing else in the page shows in front."""
        return [image for group in (self.claims, self.plots) for images in group.values() for image in images]


def draw_figures(material: Material, folder: Path) -> Figures:
    """Draw every plot and the figures of every claim that some row bears on, into ``folder``."""
    drawn, missing = draw_all(material.reading)
    proofs = list(claims.drawings(material.judged, material.reading))
    groups = [*((plot.title, drawings) for plot, drawings in drawn), *profiles.drawings(material)]
    saved = iter(save_all([drawing for _, drawings in (*groups, *proofs) for drawing in drawings], folder))
    found = [
        {
            title: [
                Image((files := next(saved)).page_path, files.print_path.name, one.caption, one.alt) for one in ones
            ]
            for title, ones in group
        }
        for group in (groups, proofs)
    ]
    return Figures(found[0], found[1], missing)


def embedded(images: Iterable[Image], budget: int) -> dict[str, str]:
    """What the page loads by file name: the picture itself while ``budget`` bytes last, then the file beside it."""
    sources = {}
    for image in images:
        raw = image.page.read_bytes()
        size = len(raw) * 4 // 3
        if size <= budget:
            budget -= size
            sources[image.page.name] = f"data:image/png;base64,{base64.b64encode(raw).decode()}"
        else:
            sources[image.page.name] = image.page.name
    return sources
