"""The verbs that read runs: report with its options, rank with baselines, compare by significance."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import planted
import pytest

from bench.cli import main
from bench.record import Record
from bench.results import Run, RunWriter


def stored(folder: Path, run: Run) -> None:
    with RunWriter(folder, run.run_id) as writer:
        for line in (run.header, *run.records, run.end):
            if line is not None:
                writer.write(line)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, the later one slower, in the folder that the verbs look into."""
    monkeypatch.chdir(tmp_path)
    for run_id, factor in (("20261130T100000Z-aaaa", 1.0), ("20261130T110000Z-bbbb", 2.0)):
        records: list[Record] = [
            planted.record(name, n, ms * (factor if name == "new" else 1.0), processes=6, noise=0.001)
            for n in (128, 256)
            for name, ms in (("new", 1.0), ("naive", 4.0), ("math", 3.0))
        ]
        stored(tmp_path / "results" / "runs", planted.run(records, run_id=run_id))
    return tmp_path


def verb(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


def test_report_writes_page_summary_and_figures(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = verb(capsys, "report", "20261130T10")
    folder = runs / "reports" / "20261130T100000Z-aaaa"
    assert (code, out.strip()) == (0, str(folder.relative_to(runs) / "index.html"))
    assert {path.suffix for path in folder.iterdir()} >= {".html", ".md", ".png"}
    assert "is fastest" in err


def test_several_runs_make_one_report(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = verb(capsys, "report", "20261130T10", "20261130T11", "--redact")
    page = runs / out.strip()
    assert code == 0 and page.parent.name == "20261130T100000Z-aaaa+20261130T110000Z-bbbb"
    assert "planted-host" not in page.read_text(encoding="utf-8")


def test_watching_ends_at_once_with_a_run_that_has_ended(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("os.nice", lambda by: by)  # the tests after this one keep their priority
    code, out, err = verb(capsys, "report", "20261130T10", "--watch")
    assert code == 0 and "6 of 6 cells, and the run has ended" in err
    assert 'http-equiv="refresh"' not in (runs / out.strip()).read_text(encoding="utf-8")


def test_watching_follows_one_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = verb(capsys, "report", "20261130T10", "20261130T11", "--watch")
    assert code == 2 and "--watch must follow one run, got 2" in err


def test_rank_states_the_speed_over_the_best_of_the_baselines(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = verb(capsys, "rank", "20261130T10", "--baseline", "naive", "--baseline", "math", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and "hides where it wins" in err
    assert [row["implementation"] for row in rows] == ["new", "math", "naive"]
    assert float(rows[0]["over_best_baseline"]) == pytest.approx(3.0, rel=0.01)
    code, _, err = verb(capsys, "rank", "20261130T10", "--baseline", "nothing")
    assert code == 2 and "baseline must be one of math, naive, new" in err


def test_compare_lists_the_most_significant_change_first(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = verb(capsys, "compare", "20261130T10", "20261130T11", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and "2 are slower and 0 faster" in err
    assert [row["verdict"] for row in rows[:2]] == ["REGRESSED", "REGRESSED"]
    assert {row["implementation"] for row in rows[:2]} == {"new"}
    assert {row["verdict"] for row in rows[2:]} == {"UNCHANGED"}
