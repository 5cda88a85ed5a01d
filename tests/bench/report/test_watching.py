from __future__ import annotations

import json
from pathlib import Path

import planted
import pytest
from pages import NO_NOTEBOOK

from bench.errors import OutputError
from bench.report import build_report
from bench.report.watching import POLL_S, watch
from bench.results import Run


def lines(run: Run) -> list[str]:
    return [one.model_dump_json() for one in (run.header, *run.records, run.end) if one is not None]


class Scene:
    """A run that gets one line further whenever somebody waits, and a browser that looks at the page then."""

    def __init__(self, folder: Path) -> None:
        self.path, self.folder = folder / "run.jsonl", folder / "report"
        self.folder.mkdir()
        run = planted.run([planted.record("a", n) for n in (64, 128)])
        header, *rest = lines(run)
        self.rest = [*rest[:1], "", *rest[1:]]  # one wait without news
        self.path.write_text(header + "\n")
        self.built: list[tuple[int, bool]] = []
        self.seen: list[str] = []
        self.waits: list[float] = []

    def build(self, run: Run, beside: Path, ended: bool) -> Path:
        beside.mkdir(exist_ok=True)
        self.built.append((len(run.records), ended))
        (beside / "figure.png").write_bytes(b"x")
        page = beside / "index.html"
        page.write_text(f'<head>\n<meta charset="utf-8"></head>{len(run.records)} cells')
        return page

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        if self.built:
            self.seen.append((self.folder / "index.html").read_text())
        line = self.rest.pop(0)
        if line:
            with self.path.open("a") as file:
                file.write(line + "\n")


def test_the_report_follows_the_run_to_its_end(tmp_path: Path) -> None:
    scene, told = Scene(tmp_path), []
    page = watch(scene.path, scene.build, scene.folder, told.append, scene.sleep)
    assert scene.built == [(1, False), (2, False), (2, True)]
    assert page == scene.folder / "index.html"
    assert all('http-equiv="refresh"' in text for text in scene.seen)
    assert "refresh" not in page.read_text() and "2 cells" in page.read_text()
    assert told[-1] == "2 of 2 cells, and the run has ended"
    assert sorted(path.name for path in scene.folder.iterdir()) == ["figure.png", "index.html"]
    assert min(scene.waits) >= POLL_S


def test_a_run_that_has_ended_is_built_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.path.write_text("\n".join(lines(planted.run([planted.record()]))) + "\n")
    watch(scene.path, scene.build, scene.folder, lambda text: None, scene.sleep)
    assert scene.built == [(1, True)] and not scene.waits


def test_a_file_that_is_taken_away_is_an_error(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def remove(seconds: float) -> None:
        scene.path.unlink()

    with pytest.raises(OutputError, match="watched results file must stay in place"):
        watch(scene.path, scene.build, scene.folder, lambda text: None, remove)


def test_a_torn_last_line_waits_for_its_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.rest.insert(0, json.dumps({"type": "cell"})[:5])

    def tear(seconds: float) -> None:
        scene.waits.append(seconds)
        line = scene.rest.pop(0)
        if len(scene.waits) == 1:
            scene.path.write_text(scene.path.read_text() + line)  # no line feed
        elif len(scene.waits) == 2:
            scene.path.write_text("\n".join(lines(planted.run([planted.record()]))) + "\n")

    watch(scene.path, scene.build, scene.folder, lambda text: None, tear)
    assert scene.built == [(1, True)]


def test_the_page_itself_can_be_built_from_the_first_cell_on(tmp_path: Path) -> None:
    """A run under way has no cell at first, and a page of nothing is an error."""
    scene = Scene(tmp_path)

    def build(run: Run, beside: Path, ended: bool) -> Path:
        scene.built.append((len(run.records), ended))
        return build_report([run], beside, NO_NOTEBOOK, figures=ended)

    page = watch(scene.path, build, scene.folder, lambda text: None, scene.sleep)
    assert scene.built == [(1, False), (2, False), (2, True)]
    assert "None were drawn for this page" in scene.seen[0] and "None were drawn" not in page.read_text(
        encoding="utf-8"
    )
