"""Reports of odd data, in odd places, and of more data than a browser opens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import planted
import pytest

from bench.cli import main
from bench.plots import Reading, draw_all
from bench.record import Record
from bench.report.cells import cell_table
from bench.report.material import Material
from bench.report.sentences import CHARTS, for_chart
from bench.report.summary import markdown
from bench.results import Run, RunWriter

ROOT = Path(__file__).resolve().parents[2]
NO_NOTEBOOK = Path("there is no such notebook")
NAME = "λ−🚀"


def errors(*values: float | None) -> list[Record]:
    """One implementation at growing lengths with these errors; None is not finite."""
    return [
        planted.record(
            "a",
            64 * 2**place,
            status="incorrect" if value is None else "ok",
            judged=planted.agreement(value, nonfinite=0 if value is not None else 5, passed=value is not None),
        )
        for place, value in enumerate(values)
    ]


def drawn_errors(records: list[Record]) -> list[float]:
    """Heights of the points in the error figure, those of the limit left out."""
    plots, missing = draw_all(Reading([planted.run(records)]))
    assert "Error by sequence length" not in missing or len(records) < 2
    figures = [one.figure for plot, found in plots if plot.name == "error_by_seqlen" for one in found]
    lines = [line for figure in figures for axes in figure.axes for line in axes.lines if line.get_marker() == "o"]
    return [float(y) for line in lines for y in np.ravel(line.get_ydata())]


@pytest.mark.parametrize("values", [(0.0, 0.0, 0.0), (0.0, 1e-7, None), (0.0,), (None, None), ()])
def test_o39_odd_values_give_a_report_and_keep_their_true_values(values: tuple[float | None, ...]) -> None:
    """Zeros, a missing value, a single point, nothing finite and no group at all."""
    others = [planted.record("b", 64, status="unsupported")]
    material = Material.of([planted.run([*errors(*values), *others])], NO_NOTEBOOK)
    assert len(cell_table(material.reading).rows) == len(values) + 1
    text = markdown(material)
    for value in values:
        assert f"| {'-' if value is None else f'{value:.2g}'} |" in text
    for chart in CHARTS:
        assert for_chart(chart, material.reading.rows, material.reading)
    heights = drawn_errors(errors(*values))
    assert all(height > 0 and np.isfinite(height) for height in heights)


def test_o39_a_zero_stands_at_a_floor_below_all_others_and_is_said_to_be_exact() -> None:
    heights = drawn_errors(errors(0.0, 1e-7, 3e-7))
    assert sorted(heights)[1:] == [1e-7, 3e-7] and heights[0] < 1e-7
    rows = Reading([planted.run(errors(0.0, 1e-7, None))]).rows
    said = for_chart("error", rows)
    assert "1 cell with error 0" in said and "1 cell with values that are not finite" in said


def stored(folder: Path, records: list[Record], **options: object) -> Path:
    run = planted.run(records, **options)  # type: ignore[arg-type]  # options of a run
    with RunWriter(folder, run.run_id) as writer:
        for line in (run.header, *run.records, run.end):
            assert line is not None
            writer.write(line)
    return writer.path


def test_o40_names_in_any_script_reach_every_file_under_an_ascii_locale(tmp_path: Path) -> None:
    path = stored(tmp_path / "runs", [planted.record(NAME, n, 1.0) for n in (64, 128)], hostname=NAME)
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env["PYTHONPATH"] = str(ROOT)
    words = ["report", str(path), "-o", str(tmp_path / "a folder" / "with blanks ü")]
    subprocess.run([sys.executable, "-m", "bench", *words], env=env, check=True, cwd=tmp_path, capture_output=True)
    (folder,) = (tmp_path / "a folder" / "with blanks ü").iterdir()
    for name in ("index.html", "summary.md"):
        assert NAME in (folder / name).read_text(encoding="utf-8")
    assert all(re.fullmatch(r"[\x21-\x7e]+", file.name) for file in folder.iterdir())


def run_verb(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    return caught.value.code, capsys.readouterr().err


def test_o40_a_folder_that_cannot_be_written_is_found_first_and_the_run_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path / "runs", [planted.record("a", 64)])
    before = path.read_bytes()
    (tmp_path / "file").write_text("x")
    for output in (tmp_path / "file", tmp_path / "file" / "below"):
        code, said = run_verb(capsys, "report", str(path), "-o", str(output))
        assert code == 2 and "must be writable" in said and "Traceback" not in said
    assert path.read_bytes() == before


def many(count: int) -> Run:
    measured = planted.record("a", 64, rounds=200).measurement
    assert measured is not None
    records = [planted.record(f"n{n % 7}", 64 + 8 * (n // 7), rounds=1) for n in range(count)]
    return planted.run([record.model_copy(update={"measurement": measured}) for record in records])


def test_o41_beyond_its_limit_the_page_embeds_quantiles_and_names_the_raw_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.report import build_report

    run = many(42)
    sizes = {}
    for limit in (1000, 1):
        monkeypatch.setattr("bench.report.samples.MAX_RECORDS", limit)
        page = build_report([run], tmp_path / str(limit), NO_NOTEBOOK, figures=False)
        sizes[limit] = page.stat().st_size
    assert not list((tmp_path / "1000").glob("*.jsonl"))
    (raw,) = (tmp_path / "1").glob("*.jsonl")
    text = page.read_text(encoding="utf-8")
    assert "32 quantiles of the samples" in text and raw.name in text
    assert len(raw.read_text(encoding="utf-8").splitlines()) == len(run.records) + 2


def test_o41_the_summary_stays_below_its_limit_and_says_what_it_left_out() -> None:
    whole = Material.of([many(420)], NO_NOTEBOOK)
    text = markdown(whole, 30_000)
    assert len(text.encode()) <= 30_000
    assert re.search(r"\*\*\d{3} lines were cut\*\*", text)
    assert "were cut" not in markdown(whole)
