"""Reads a built page: its tags and text, and the dataset that its script draws from."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from typing import Any

from bench.report import build_report
from bench.results import Run

NO_NOTEBOOK = Path("there is no such notebook")


class Page(HTMLParser):
    """Links, images, tags and all text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.images: list[dict[str, str | None]] = []
        self.references: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.dataset: dict[str, Any] = {}
        self._in: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.references += [str(values[name]) for name in ("src", "href") if values.get(name)]
        if tag == "img":
            self.images.append(values)
        self._in = (values.get("id") or tag) if tag in ("script", "style") else None

    def handle_data(self, data: str) -> None:
        if self._in is None:
            self.text += data
        elif self._in == "dataset":
            self.dataset = json.loads(gzip.decompress(base64.b64decode(data)))
        elif self._in == "details":
            details = json.loads(gzip.decompress(base64.b64decode(data)))
            assert not details["cells"].keys() & self.dataset["cells"].keys()
            self.dataset["cells"] |= details["cells"]
            self.dataset["samples"] = details["samples"]

    def handle_endtag(self, tag: str) -> None:
        self._in = None
        if tag in ("td", "th"):
            self.text += " "

    @property
    def words(self) -> str:
        """The text with single blanks."""
        return " ".join(self.text.split())


def page(runs: list[Run], folder: Path, notebook: Path = NO_NOTEBOOK, figures: bool = True) -> Page:
    return Page(build_report(runs, folder, notebook, figures=figures).read_text(encoding="utf-8"))


def own_text(html: str) -> str:
    """The page without what others wrote (the charts' library) and without pictures and dataset."""
    html = re.sub(r'<script type="module">\n(?!// Numbers).*?</script>', "", html, count=1, flags=re.S)
    return re.sub(r"base64,[A-Za-z0-9+/=]+|>H4s[A-Za-z0-9+/=]+<", "", html)


def unpacked(column: dict[str, Any]) -> list[Any]:
    """The values of a packed column."""
    return column["v"] if "v" in column else [column["of"][place] for place in column["at"]]


def summed(steps: list[int]) -> list[int]:
    """Values from their distances."""
    return list(accumulate(steps))


def titled(dataset: dict[str, Any], title: str, part: str = "text") -> list[Any]:
    """A column of the table of cells: its ``text``, ``number`` or ``reason``."""
    (place,) = [place for place, head in enumerate(dataset["heads"]) if head["title"] == title]
    return unpacked(dataset["table"][place][part])
