"""The verb ``explain``: how a cell is named, the formats, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import planted
import pytest

from bench.cli import main
from bench.results import RunWriter


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A folder with one run of two implementations on three problems."""
    records = [planted.record(name, length) for name in ("naive", "sdpa_flash") for length in (256, 512)]
    records.append(planted.record("naive", 512, status="unsupported", mask="causal"))
    records.append(planted.record("naive", 512, mask="causal_top_left"))
    run = planted.run(records)
    with RunWriter(tmp_path, run.run_id) as writer:
        for line in (run.header, *run.records, *([run.end] if run.end else [])):
            writer.write(line)
    return tmp_path


def explain(capsys: pytest.CaptureFixture[str], stored: Path, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["explain", *words, "--results", str(stored), "--profiles", str(stored / "profiles")])
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


def test_json_has_one_object_per_cell_of_the_problem(capsys, stored):
    code, out, _ = explain(capsys, stored, "latest", "B1-H4-T512-d64-float32-fwd-full", "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert [one["implementation"] for one in found] == ["naive", "sdpa_flash"]
    assert all(sentence["support"] for one in found for sentence in one["sentences"])
    assert "there is no profile of this cell" in json.dumps(found[0]["refusals"])


def test_i_chooses_the_implementation_and_the_run_goes_by_its_beginning(capsys, stored):
    code, out, _ = explain(capsys, stored, "20261130", "T256", "-i", "flash")
    assert code == 0
    assert out.startswith("sdpa_flash on B1-H4-T256-d64-float32-fwd-full, cpu, run 20261130T120000Z-0001\n\noutcome\n")
    assert "      <- record: measurement.samples_ns" in out
    assert "\nnot said\n" in out


def test_a_whole_key_is_not_a_beginning_of_another(capsys, stored):
    code, out, _ = explain(capsys, stored, "latest", "B1-H4-T512-d64-float32-fwd-causal", "--format", "markdown")
    assert code == 0
    assert "`B1-H4-T512-d64-float32-fwd-causal`" in out and "causal_top_left" not in out
    assert "It cannot compute this problem" in out


def test_a_cell_key_names_one_cell(capsys, stored):
    key = planted.record("sdpa_flash", 256).cell_key
    _, out, _ = explain(capsys, stored, "latest", key, "--format", "json")
    assert [one["implementation"] for one in json.loads(out)] == ["sdpa_flash"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["latest", "T512"], 2, "cell must name one problem, got 'T512', which matches 3: B1-H4-T512"),
        (["latest", "T999"], 5, "cell must be one of the run's, got 'T999', which matches none"),
        (["latest", "T256", "-i", "flex"], 5, "with that -i"),
        (["latest", "("], 2, "filter must be a regular expression"),
        (["latest", "T256", "-i", "("], 2, "filter must be a regular expression"),
        (["nothing", "T256"], 2, "run must name one results file"),
        (["latest", "T256", "--format", "csv"], 2, "csv"),
    ],
)
def test_what_names_no_one_cell_is_refused(capsys, stored, words, code, says):
    found, out, err = explain(capsys, stored, *words)
    assert (found, out) == (code, "")
    assert says in err
