from __future__ import annotations

from pathlib import Path

import planted
import pytest
from matplotlib.figure import Figure
from PIL import Image

from bench.claims import Hearing, hear
from bench.errors import OutputError
from bench.figure_style import figure_style
from bench.plots import Drawing, Reading, draw_all, save_all
from bench.plots._saving import COLOURS, PAGE_DPI, PRINT_DPI, unique_stems


def drawing(stem: str, title: str = "x") -> Drawing:
    figure = Figure(figsize=(3, 2))
    figure.subplots().set_title(title)
    return Drawing(stem=stem, figure=figure, caption="c", alt="a")


@pytest.mark.parametrize("processes", [1, 2])
def test_every_figure_has_a_file_for_print_and_one_for_pages(tmp_path: Path, processes: int) -> None:
    stems = ["b", "a", "a", "A"]
    saved = save_all([drawing(stem) for stem in stems], tmp_path, processes)
    assert [one.print_path.name for one in saved] == ["b.png", "a.png", "a-2.png", "A-3.png"]
    assert [one.page_path.name for one in saved] == ["b@2x.png", "a@2x.png", "a-2@2x.png", "A-3@2x.png"]
    for one in saved:
        for path, dpi in ((one.print_path, PRINT_DPI), (one.page_path, PAGE_DPI)):
            with Image.open(path) as image:
                assert image.size == (3 * dpi, 2 * dpi)
                assert image.info["dpi"] == pytest.approx((dpi, dpi), abs=0.1)
                assert len(image.getcolors(COLOURS) or ()) > 2  # not blank


def test_processes_draw_the_same_as_one(tmp_path: Path) -> None:
    for folder, processes in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        save_all([drawing(f"f{n}", f"title {n}") for n in range(4)], tmp_path / folder, processes)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_what_a_child_could_not_draw_is_an_error_here(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="figure must be written into a writable folder"):
        save_all([drawing(stem) for stem in "abcd"], tmp_path / "missing", 2)


def test_files_of_an_earlier_report_do_not_pass_for_new_ones(tmp_path: Path) -> None:
    for title in ("old", "new"):
        saved = save_all([drawing(stem, title) for stem in "abc"], tmp_path, 2)
        bytes_now = saved[0].print_path.read_bytes()
        if title == "old":
            before = bytes_now
    assert bytes_now != before


def test_stems_are_unique_even_where_numbers_are_taken() -> None:
    stems = ["a", "a", "a-2", "A", "b"]
    unique = unique_stems(stems)
    assert unique == ["a", "a-2", "a-2-2", "A-3", "b"]
    assert len({stem.lower() for stem in unique}) == len(stems)


def test_every_figure_of_the_suite_can_go_to_another_process() -> None:
    """A figure that holds a lambda could not; then it would be drawn here, alone."""
    import pickle

    run = planted.default_run()
    reading = Reading([run])
    drawings = [one for _, found in draw_all(reading)[0] for one in found]
    judged = [one for one in hear([run], reading) if one.heard]
    with figure_style():
        drawings += [figure for one in judged for figure in one.claim.draw(Hearing(reading), one.answers)]
    assert len(drawings) > 10
    for one in drawings:
        assert pickle.dumps(one.figure)
