"""`export` and `import` on the command line: where files go, what is said, what is refused."""

from __future__ import annotations

import json

import planted
import pytest

from bench.cli import main
from bench.exports import exports
from bench.results import RunWriter, read_run


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A folder with two stored runs as the working directory."""
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        cells = [planted.record("naive", 128, number), planted.record("sdpa_flash", 128, 0.5)]
        cells.append(planted.record("naive", 256, status="unsupported"))
        run = planted.run(cells, run_id=f"2026113{number}T120000Z-000{number}", git_commit=f"{number}" * 40)
        with RunWriter(tmp_path / "results" / "runs", run.run_id) as writer:
            for line in (run.header, *run.records, run.end):
                writer.write(line)
    return tmp_path


def call(capfdbinary, *words):
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    captured = capfdbinary.readouterr()
    return caught.value.code, captured.out, captured.err.decode()


def test_one_file_goes_to_stdout_and_the_counts_to_stderr(stored, capfdbinary):
    code, out, said = call(capfdbinary, "export", "--to", "bencher")
    assert (code, len(json.loads(out))) == (0, 2)
    assert said == "2 of 3 cells have a time; 1 unsupported\n"


def test_filters_and_names_of_runs_are_those_of_the_other_verbs(stored, capfdbinary):
    _, out, said = call(capfdbinary, "export", "20261131", "-i", "^naive$", "--to", "csv")
    assert out.count(b"\n") == 3
    assert b"sdpa_flash" not in out
    assert said == "1 of 2 cells have a time; 1 unsupported\n"


@pytest.mark.parametrize("name", exports.names())
def test_every_format_goes_to_a_file_or_a_folder(stored, capfdbinary, name):
    code, out, _ = call(capfdbinary, "export", "--to", name, "-o", f"new/{name}")
    target = stored / "new" / name
    assert (code, out) == (0, b"")
    assert target.is_dir() if name == "asv" else target.stat().st_size > 100


def test_several_files_want_a_folder(stored, capfdbinary):
    code, _, said = call(capfdbinary, "export", "20261131", "20261132", "--to", "bencher")
    assert (code, "must go to a folder, got 2 files" in said) == (2, True)
    code, _, _ = call(capfdbinary, "export", "20261131", "20261132", "--to", "bencher", "-o", "folder")
    assert (code, len(list((stored / "folder").iterdir()))) == (0, 2)


def test_nothing_is_overwritten_without_force(stored, capfdbinary):
    there = stored / "out.json"
    there.write_text("mine")
    code, _, said = call(capfdbinary, "export", "--to", "bencher", "-o", "out.json")
    assert (code, there.read_text()) == (2, "mine")
    assert "must not write over a file, got 'out.json'" in said
    code, _, _ = call(capfdbinary, "export", "--to", "bencher", "-o", "out.json", "--force")
    assert (code, len(json.loads(there.read_text()))) == (0, 2)


def test_a_tree_is_written_whole_or_not_at_all(stored, capfdbinary):
    (stored / "tree").mkdir()
    (stored / "tree" / "benchmarks.json").write_text("mine")
    code, _, _ = call(capfdbinary, "export", "--to", "asv", "-o", "tree")
    assert code == 2
    assert [path.name for path in (stored / "tree").rglob("*")] == ["benchmarks.json"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--to", "benchr"], 2, "did you mean bencher"),
        (["nothing", "--to", "csv"], 2, "run must name one results file"),
        (["-i", "nobody", "--to", "bencher"], 5, "at least one measured cell"),
        (["-i", "nobody", "--to", "csv"], 5, "at least one cell"),
        (
            ["--to", "csv", "-o", "results/runs/20261131T120000Z-0001.jsonl/x"],
            2,
            "must go to a writable path",
        ),
        ([], 2, "--to"),
    ],
)
def test_bad_input_is_said_and_writes_nothing(stored, capfdbinary, words, code, says):
    found, out, said = call(capfdbinary, "export", *words)
    assert (found, out) == (code, b"")
    assert says in said


def test_import_takes_an_export_back_into_the_store(stored, capfdbinary):
    call(capfdbinary, "export", "latest", "--to", "pytest-benchmark", "-o", "latest.json")
    code, out, _ = call(capfdbinary, "import", "latest.json", "-o", "again")
    assert code == 0
    path = stored / out.decode().strip()
    before = read_run(stored / "results" / "runs" / path.name)
    assert (read_run(path).header, read_run(path).end) == (before.header, before.end)
    assert sorted(map(repr, read_run(path).records)) == sorted(map(repr, before.records))
    code, _, said = call(capfdbinary, "import", "latest.json", "-o", "again")
    assert (code, "must not be there yet" in said) == (2, True)
