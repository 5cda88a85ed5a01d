from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import planted
import pytest

from bench.errors import NothingSelectedError, OutputError
from bench.plots import Reading, draw_all
from bench.record import CheckResult, Record, RunHeader, TensorError
from bench.report import build_report, repeat_command, summary_text
from bench.report.cells import MAX_ROWS, cell_table
from bench.report.findings import findings
from bench.results import Run


class Page(HTMLParser):
    """Collects the rows of the table of cells, links, images and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[tuple[str, str | None]]] = []
        self.images: list[dict[str, str | None]] = []
        self.references: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._in_cells = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.references += [str(values[name]) for name in ("src", "href") if values.get(name)]
        if tag == "table":
            self._in_cells = values.get("id") == "table"
        elif tag == "img":
            self.images.append(values)
        elif self._in_cells and tag == "tr":
            self.rows.append([])
        elif self._in_cells and tag == "td":
            self.rows[-1].append(("", values.get("title")))

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_cells and self.rows and self.rows[-1]:
            shown, title = self.rows[-1][-1]
            self.rows[-1][-1] = (shown + data.strip("\n"), title)

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._in_cells = False


def page(runs: list[Run], folder: Path) -> Page:
    return Page(build_report(runs, folder).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Page]:
    path = build_report([planted.default_run()], tmp_path_factory.mktemp("a folder with blanks") / "new" / "ü")
    return path, Page(path.read_text(encoding="utf-8"))


def test_page_is_one_file_with_the_figures_beside_it(default: tuple[Path, Page]) -> None:
    path, html = default
    assert path.name == "index.html"
    assert path.stat().st_size < 3_000_000
    pictures = sorted(file.name for file in path.parent.glob("*.png"))
    assert len(pictures) == len(html.images) >= 9
    assert all(str(image["src"]).startswith("data:image/png;base64,") for image in html.images)
    assert all(len(str(image["alt"])) > 40 for image in html.images)
    assert set(pictures) <= set(html.references)


def test_page_asks_nothing_of_a_network(default: tuple[Path, Page]) -> None:
    path, html = default
    assert not [
        ref
        for ref in html.references
        if not ref.startswith(("#", "data:image/png")) and not (path.parent / ref).is_file()
    ]
    text = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", path.read_text(encoding="utf-8"))
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttp", text)


def test_page_adapts_to_dark_light_and_paper(default: tuple[Path, Page]) -> None:
    text = default[0].read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text and "@media print" in text
    assert 'lang="en"' in text and '<meta charset="utf-8">' in text


def test_page_shows_machine_command_and_prose(default: tuple[Path, Page]) -> None:
    text = default[1].text
    for words in (
        "planted-host",
        "Planted CPU @ 2.00GHz, 2 cores usable",
        "16.0 GB",
        "none (no NVIDIA driver)",
        "not installed",
        "0123456789abcdef0123456789abcdef01234567",
        "warm: freed memory stays with the process",
        "MALLOC_MMAP_MAX_",
        "attention-bench run --sweep default",
        "Naive attention stores all scores",
        "glibc's default",
        "ceiling float3299.1 GFLOP/s in matrix products",
        "ceiling bfloat16212 GFLOP/s",
        "71.2 GB/s copied",
        "not planned: flexnot part of the sweep default",
        "2.47 to 2.57",
    ):
        assert words in text


def test_every_cell_has_a_row_and_the_command_that_repeats_it(default: tuple[Path, Page]) -> None:
    run = planted.default_run()
    rows = [row for row in default[1].rows if row]
    assert len(rows) == len(run.records) == 296
    keys = [record.problem.key for record in run.records]
    names = {record.implementation for record in run.records}
    for record, row in zip(run.records, rows, strict=True):
        words = shlex.split(row[-1][0])
        assert words[:3] == ["attention-bench", "run", "--sweep"]
        options = dict(zip(words[2::2], words[3::2], strict=True))
        assert {key for key in keys if re.search(options["-p"], key)} == {record.problem.key}
        assert {name for name in names if re.search(options["-i"], name)} == {record.implementation}


def header(command: str) -> RunHeader:
    return planted.run([planted.record()]).header.model_copy(update={"command": command})


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("attention-bench run", "attention-bench run"),
        ("attention-bench run -i flash -p causal --resume auto --time-budget 5m", "attention-bench run"),
        ("attention-bench run --implementation=flash --format json -I x -P y", "attention-bench run"),
        (
            "attention-bench measure --sweep 'my sweep.toml' --set seqlen=64 --allocator default",
            "attention-bench measure --sweep 'my sweep.toml' --set seqlen=64 --allocator default",
        ),
    ],
)
def test_repeat_keeps_what_was_measured_and_replaces_the_choice(command: str, kept: str) -> None:
    record = planted.record("naive", 128, mask="padding(0.5)")
    expected = r"-i '^naive$' -p '^B1-H4-T128-d64-float32-fwd-padding\(0\.5\)$'"
    assert repeat_command(record, header(command)) == f"{kept} {expected}"


def test_repeat_is_safe_to_paste() -> None:
    name = "x'; rm -rf ~; echo $(id) `id`"
    words = shlex.split(repeat_command(planted.record(name, 128, 1.0), header("attention-bench run")))
    assert len(words) == 6
    assert re.search(words[3], name)


def test_missing_numbers_are_dashes_with_reasons_never_zero(tmp_path: Path) -> None:
    records = [
        planted.record("naive", 128),
        planted.record("naive", 256, status="unsupported", reason="head_dim is too wide"),
        planted.record("naive", 512, status="verified", reason="not timed"),
        planted.record("naive", 1024, status="out_of_memory", reason="predicted 9 GB"),
    ]
    rows = [row for row in page([planted.run(records)], tmp_path).rows if row]
    numbers = slice(3, -1)
    assert [reason for shown, reason in rows[0][numbers] if shown in ("", "-")] == ["no padded queries"]
    for row, reason in zip(rows[1:], ("head_dim is too wide", "not timed", "predicted 9 GB"), strict=True):
        assert not [shown for shown, _ in row[numbers] if re.fullmatch(r"0(\.0*)?( \w+)?", shown)]
        dashes = [title for shown, title in row[numbers] if shown == "-"]
        assert len(dashes) >= 12
        assert all(dashes) and any(reason in str(title) for title in dashes)
        assert reason in row[2][0]


def test_the_table_shows_what_the_gate_saw(tmp_path: Path) -> None:
    rows_apart = {
        name: TensorError(max_abs=error, rmse=None, rel_rmse=None, nonfinite=0, limit=None)
        for name, error in (("valid", 1e-6), ("padded", 3e-6))
    }
    failing = {
        "needle": CheckResult(passed=True, error=0.0, limit=1.0),
        "row_sums": CheckResult(passed=False, error=2.0, limit=1.0),
    }
    records = [
        planted.record("a", mask="padding(0.5)", judged=planted.agreement(rows=rows_apart, ran=("aten::_flash",))),
        planted.record("b", judged=planted.agreement(deterministic=False, batch_invariant=False)),
        planted.record("c", status="incorrect", judged=planted.agreement(passed=False, checks=failing)),
        planted.record("d", status="unsupported", reason="too wide"),
        planted.record(
            "e", judged=planted.agreement(checks={}, deterministic=None, batch_invariant=None, certificate=None)
        ),
    ]
    table = cell_table(Reading([planted.run(records)]))
    titles = [title for title, _ in table.heads]
    shown = [dict(zip(titles, row.fields, strict=True)) for row in table.rows]
    columns = ("valid, padded", "checks", "same bits", "ran")
    assert [shown[0][name].text for name in columns] == [
        "valid 1e-06, padded 3e-06",
        "1 of 1",
        "again, alone",
        "aten::_flash",
    ]
    assert "certified on B2-H4-T160-d64-float32-fwd-full" in shown[0]["checks"].reason
    assert shown[1]["same bits"].text == "not again, not alone"
    assert shown[2]["checks"].text == "1 of 2 (failed: row_sums)"
    assert all(shown[3][name].text == "-" and "too wide" in shown[3][name].reason for name in columns)
    assert shown[4]["checks"].text == shown[4]["same bits"].text == "-"
    assert "no certificate" in shown[4]["checks"].reason


def drawn_data(records: list[Record]) -> tuple[dict[str, tuple[list[list[float]], str]], dict[str, list[str]]]:
    """By file stem: data of all lines with the caption, and the texts within the axes."""
    lines, texts = {}, {}
    for _, drawings in draw_all(Reading([planted.run(records)]))[0]:
        for drawing in drawings:
            panels = drawing.figure.axes
            data = [np.asarray(line.get_xydata()).ravel().tolist() for panel in panels for line in panel.lines]
            lines[drawing.stem] = (data, drawing.caption)
            texts[drawing.stem] = [text.get_text() for panel in panels for text in panel.texts]
    return lines, texts


def test_impossible_rows_are_struck_out_and_leave_the_figures_as_they_are(tmp_path: Path) -> None:
    honest = [
        cell
        for name in ("naive", "sdpa_flash")
        for width in (64, 128)
        for mask in ("full", "causal")
        for cell in planted.ladder(planted.TIME_LAWS[name], name, head_dim=width, mask=mask)
    ]
    magic = [
        planted.record("sdpa_math", length, 1e-4, head_dim=width, mask=mask, flags=[("impossible", "above the peak")])
        for length in planted.LENGTHS
        for width in (64, 128)
        for mask in ("full", "causal")
    ]
    html = build_report([planted.run([*honest, *magic])], tmp_path).read_text(encoding="utf-8")
    assert html.count('<tr class="ok impossible">') == len(magic) == 44
    assert html.count('title="above the peak"') == 44

    timed = {"latency_by_seqlen", "tflops_by_seqlen", "time_per_pair", "latency_by_width", "mask_cost"}
    lines, _ = drawn_data(honest)
    also, texts = drawn_data([*honest, *magic])
    drawn = {stem: data for stem, data in lines.items() if stem.split("-")[0] in timed}
    assert {stem.split("-")[0] for stem in drawn} == timed
    assert {stem: also[stem] for stem in drawn} == drawn
    shown = [text for stem, found in texts.items() if stem.startswith("speedup_heatmap") for text in found]
    assert shown.count("impossible") == 44
    (noted,) = [found for stem, found in texts.items() if stem.startswith("latency_by_seqlen")]
    assert "sdpa_math: impossible" in noted

    kept_out = "44 measured cells are flagged impossible: sdpa_math (44); kept out of every comparison."
    without, found = summary_text([planted.run(honest)]), summary_text([planted.run([*honest, *magic])])
    assert kept_out in found
    for line in without.splitlines():
        if "is fastest" in line or "grows as" in line:
            assert line in found


def test_markup_in_names_and_reasons_shows_literally(tmp_path: Path) -> None:
    name, reason = "<script>alert(1)</script>", '"><img src=x onerror=alert(2)>{{ 7*7 }}'
    records = [
        planted.record(name, 128, 1.0),
        planted.record(name, 256, 1.0, flags=[("unstable", "<b>spread</b>")]),
        planted.record(name, 512, status="crashed", reason=reason),
        planted.record("naive", 128),
    ]
    html = page([planted.run(records, hostname="<i>host</i>")], tmp_path)
    assert html.tags.count("script") == 1  # our own
    assert "i" not in html.tags and html.images[0]["src"] != "x"
    assert "<b>spread</b>" in [title for row in html.rows for _, title in row]
    for shown in (name, reason, "<i>host</i>"):
        assert shown in html.text


def test_names_outside_ascii_survive_a_c_locale_without_torch(tmp_path: Path) -> None:
    code = r"""
import sys
sys.path.insert(0, sys.argv[1])
import planted
from pathlib import Path
from bench.report import build_report
cells = [planted.record("\u03bb\u2212\U0001f680", n, 1.0) for n in (64, 128)]
build_report([planted.run(cells)], Path(sys.argv[2]))
names = "worker runner numerics timing probes inputs reference calls".split()
measuring = {f"bench.{name}" for name in names}
loaded = ({"torch", "triton", "implementations"} | measuring) & set(sys.modules)
assert not loaded, loaded
"""
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    arguments = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path)]
    subprocess.run(arguments, env=env, check=True, cwd=Path(__file__).parents[2])
    assert "\u03bb\u2212\U0001f680" in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_five_thousand_cells_stay_small_and_say_what_is_left_out(tmp_path: Path) -> None:
    measurement = planted.record(rounds=200).measurement
    assert measurement is not None
    records = [
        planted.record("naive", n, batch_size=b, status="verified").model_copy(
            update={"status": "ok", "reason": None, "measurement": measurement}
        )
        for b in range(1, 51)
        for n in range(16, 1616, 16)
    ]
    records[-1] = planted.record("naive", 1600, batch_size=50, status="crashed")
    path = build_report([planted.run(records)], tmp_path)
    assert len(records) == 5000
    assert path.stat().st_size < 10_000_000
    html = Page(path.read_text(encoding="utf-8"))
    rows = [row for row in html.rows if row]
    assert len(rows) == MAX_ROWS
    assert "4000 of 5000 cells are left out of this table" in html.text and "results/runs/" in html.text
    assert rows[0][2][0].startswith("crashed")
    assert "further figures were left out" in html.text


def test_figures_that_are_not_drawn_say_why(tmp_path: Path) -> None:
    text = page([planted.run([planted.record()])], tmp_path).text
    assert "Latency by head width: needs at least two head widths at one sequence length." in text
    assert not list(tmp_path.glob("*.png"))


def test_two_runs_show_both_machines_and_what_differs(tmp_path: Path) -> None:
    runs = [
        planted.run(planted.ladder(lambda t: 1e-5 * t**2, lengths=(64, 128)), run_id="first", allocator="warm"),
        planted.run(planted.ladder(lambda t: 2e-5 * t**2, lengths=(64, 128)), run_id="second", allocator="default"),
    ]
    text = page(runs, tmp_path).text
    assert "first" in text and "second" in text
    assert "allocator (differs)" in text and "host (differs)" not in text


def test_statuses_are_counted_and_reasons_listed(default: tuple[Path, Page]) -> None:
    assert "sdpa_flash unsupported (11): planted unsupported" in " ".join(default[1].text.split())


def test_nothing_to_report_is_an_error_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(NothingSelectedError, match="report must have at least one cell"):
        build_report([planted.run([])], tmp_path)


def test_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="report folder must be writable"):
        build_report([planted.run([planted.record()])], tmp_path / "file")


def test_summary_is_the_findings(default: tuple[Path, Page]) -> None:
    run = planted.default_run()
    lines = summary_text([run]).splitlines()
    assert lines == [f"- {finding.text}" for finding in findings(Reading([run]))]
    assert 8 < len(lines) < 25
    assert all(line.removeprefix("- ") in default[1].text for line in lines)


def test_table_names_every_column_once() -> None:
    table = cell_table(Reading([planted.run([planted.record()])]))
    titles = [title for title, _ in table.heads]
    assert len(titles) == len(set(titles)) == len(table.rows[0].fields)
