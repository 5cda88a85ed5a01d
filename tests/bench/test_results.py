from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench import results
from bench.errors import OutputError
from bench.header import RunEnd, RunHeader
from bench.problem import Problem
from bench.record import SCHEMA_VERSION, Record
from bench.results import RunWriter, find_run, new_run_id, read_chain, read_run, timestamp

Records = Callable[..., Record]
Headers = Callable[..., RunHeader]


@pytest.fixture
def stored(tmp_path: Path, make_record: Records, make_header: Headers) -> tuple[Path, list[Record]]:
    """A complete file of three cells."""
    records = [
        make_record("ok", implementation="naive"),
        make_record("unsupported", implementation="sdpa_flash", reason='no mask, “please” — ∞ ε 🙂,\n"quoted"'),
        make_record("ok", implementation="sdpa_math", problem=Problem(seqlen=64, scale=0.1)),
    ]
    with RunWriter(tmp_path / "runs", "20261130T094512Z-3fa9") as writer:
        writer.write(make_header(cells=3))
        for record in records:
            writer.write(record)
        writer.write(
            RunEnd(
                ended_at=timestamp(),
                outcome="complete",
                wall_s=1.5,
                statuses={"ok": 2, "unsupported": 1},
            )
        )
    return writer.path, records


def test_what_was_written_is_read_back_equal(stored: tuple[Path, list[Record]], make_header: Headers) -> None:
    path, records = stored
    run = read_run(path)
    assert run.header == make_header(cells=3)
    assert run.run_id == path.stem
    assert run.records == records
    assert run.end is not None
    assert run.end.statuses == {"ok": 2, "unsupported": 1}
    assert run.dropped_lines == 0
    text = path.read_bytes()
    assert text.count(b"\n") == 5
    assert "🙂" in text.decode("utf-8")


def test_a_kill_after_any_byte_costs_at_most_the_line_in_flight(
    stored: tuple[Path, list[Record]], tmp_path: Path
) -> None:
    path, records = stored
    data = path.read_bytes()
    cut = tmp_path / "cut.jsonl"
    header_bytes = data.index(b"\n") + 1
    for size in range(len(data) + 1):
        cut.write_bytes(data[:size])
        if size < header_bytes:
            with pytest.raises(OutputError, match="without a whole line"):
                read_run(cut)
            continue
        run = read_run(cut)
        whole_lines = data[:size].count(b"\n")
        assert run.records == records[: whole_lines - 1]
        assert (run.end is not None) == (whole_lines == 5)
        assert run.dropped_lines == (0 if data[size - 1 : size] == b"\n" else 1)


def test_two_runs_of_one_second_are_two_files(tmp_path: Path, make_header: Headers) -> None:
    now = datetime(2026, 11, 30, 9, 45, 12, tzinfo=UTC)
    ids = {new_run_id(now) for _ in range(20)}
    assert all(run_id.startswith("20261130T094512Z-") for run_id in ids)
    assert len(ids) > 1
    with RunWriter(tmp_path, "same") as writer:
        writer.write(make_header("same"))
    with pytest.raises(OutputError, match="File exists"):
        RunWriter(tmp_path, "same")
    assert read_run(tmp_path / "same.jsonl").run_id == "same"


def test_run_ids_sort_by_time() -> None:
    moments = [datetime(2026, 11, 30, 9, 59, 59, tzinfo=UTC), datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC)]
    earlier, later = map(new_run_id, moments)
    assert earlier < later


def test_a_folder_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    in_the_way = tmp_path / "taken"
    in_the_way.write_text("a file, not a folder")
    with pytest.raises(OutputError, match=r"output folder must be writable, got .*taken") as caught:
        RunWriter(in_the_way, "run")
    assert caught.value.exit_code == 2
    with pytest.raises(OutputError, match="output folder must be writable"):
        RunWriter(in_the_way / "below", "run")


def test_missing_folders_are_made_even_with_odd_names(tmp_path: Path, make_header: Headers) -> None:
    folder = tmp_path / "with space" / "Größe"
    with RunWriter(folder, "run") as writer:
        writer.write(make_header("run"))
    assert read_run(folder / "run.jsonl").run_id == "run"


def test_a_full_disk_is_reported_and_leaves_whole_lines(
    tmp_path: Path, make_record: Records, make_header: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunWriter(tmp_path, "run") as writer:
        writer.write(make_header("run"))
        file = writer._file

        class HalfWritten:
            def write(self, data: bytes) -> int:
                return file.write(data[:10])

            def fileno(self) -> int:
                return file.fileno()

        monkeypatch.setattr(writer, "_file", HalfWritten())
        with pytest.raises(OutputError, match=r"results file must be writable, got .*No space left"):
            writer.write(make_record("ok"))
        monkeypatch.undo()
    run = read_run(tmp_path / "run.jsonl")
    assert (run.records, run.dropped_lines) == ([], 1)


def test_a_refused_write_is_reported(tmp_path: Path, make_header: Headers, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with RunWriter(tmp_path, "run") as writer:
        monkeypatch.setattr(results.os, "fsync", refuse)
        with pytest.raises(OutputError, match="Input/output error"):
            writer.write(make_header("run"))


@pytest.mark.parametrize("lost", ["file", "folder"])
def test_a_file_that_is_removed_is_put_back_with_every_line(
    tmp_path: Path, make_record: Records, make_header: Headers, lost: str
) -> None:
    folder = tmp_path / "below" / "runs"
    records = [make_record("ok", problem=Problem(seqlen=64 * n)) for n in (1, 2, 3)]
    with RunWriter(folder, "run") as writer:
        writer.write(make_header("run"))
        writer.write(records[0])
        writer.write(records[1])
        if lost == "file":
            writer.path.unlink()
        else:
            shutil.rmtree(tmp_path / "below")
        with pytest.raises(OutputError, match=r"must stay in place during a run, got .* removed. It was put back with"):
            writer.write(records[2])
    assert read_run(writer.path).records == records


def test_a_file_that_cannot_be_put_back_is_told(tmp_path: Path, make_header: Headers) -> None:
    folder = tmp_path / "runs"
    with RunWriter(folder, "run") as writer:
        writer.write(make_header("run"))
        shutil.rmtree(folder)
        folder.write_text("a file in its place")
        with pytest.raises(OutputError, match=r"could not be put back \(.*\): its cells are lost"):
            writer.write(make_header("run"))


def test_a_run_that_came_to_nothing_leaves_no_file(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, "run")
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rewrite(path: Path, lines: list[Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[2].update(status="ok"), r"run\.jsonl:3: .*agreement is required"),
        (lambda lines: lines[1].update(verify_s=float("nan")), r"run\.jsonl:2: NaN is not JSON"),
        (lambda lines: lines[1]["problem"].update(seqlen_q=0), r"run\.jsonl:2: seqlen_q must be at least 1"),
        (lambda lines: lines[1]["problem"].update(mask="casual"), r"run\.jsonl:2: .*did you mean causal"),
        (lambda lines: lines.insert(1, 7), r"run\.jsonl:2: "),
        (lambda lines: lines.pop(0), "must begin with a run line"),
        (lambda lines: lines.insert(0, []), "must begin with a run line"),
        (lambda lines: lines.clear(), "without a whole line"),
        (lambda lines: lines.extend(lines[:2]), "hold one run"),
        (lambda lines: lines.insert(2, lines[-1]), "hold one run"),
        (lambda lines: lines[0].update(schema_version=0), "must begin with a run line"),
        (lambda lines: lines[0].update(schema_version=True), "must begin with a run line"),
        (lambda lines: lines[0].update(schema_version="1"), "must begin with a run line"),
        (
            lambda lines: lines[0].update(schema_version=SCHEMA_VERSION + 1),
            f"schema_version of at most {SCHEMA_VERSION}, got {SCHEMA_VERSION + 1} .* Update attention-bench",
        ),
    ],
)
def test_a_file_that_breaks_the_rules_is_refused(
    stored: tuple[Path, list[Record]], tmp_path: Path, change: Callable[[list[Any]], Any], message: str
) -> None:
    lines = lines_of(stored[0])
    change(lines)
    path = tmp_path / "run.jsonl"
    rewrite(path, lines)
    with pytest.raises(OutputError, match=message) as caught:
        read_run(path)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n\x00\xff",
        b"\xff\xfe{\x00\n\x00",
        b"implementation,latency_ms\nnaive,1.0\n",
        b"[" * 100_000 + b"\n",
        b"9" * 100_000 + b"\n",
        b"\n\n",
        b'{"type": "run"}\n',
        b'{"schema_version": 1}\n',
    ],
)
def test_foreign_files_are_refused_with_a_message(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "foreign.jsonl"
    path.write_bytes(data)
    with pytest.raises(OutputError, match=r"results file must (begin|hold)"):
        read_run(path)


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"results file must be readable, got .*No such file"):
        read_run(tmp_path / "nowhere.jsonl")


def test_an_older_file_is_upgraded_line_by_line(
    stored: tuple[Path, list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, records = stored
    lines = lines_of(path)
    lines[0]["schema_version"] = SCHEMA_VERSION - 1
    for line in lines:
        line["kind"] = line.pop("type")  # as if an older version had called it so
    rewrite(path, lines)

    def upgrade(line: dict[str, Any]) -> dict[str, Any]:
        return {"type" if name == "kind" else name: value for name, value in line.items()}

    monkeypatch.setitem(results.UPGRADES, SCHEMA_VERSION - 1, upgrade)
    assert read_run(path).records == records


def test_a_file_of_schema_1_is_read() -> None:
    """Six cells of a real run, written before version 2 was thought of."""
    path = Path(__file__).parents[1] / "data" / "schema_1.jsonl"
    lines = lines_of(path)
    assert lines[0]["schema_version"] == 1
    run = read_run(path)
    assert run.end is not None
    assert [record.status for record in run.records] == ["ok", "verified", "verified", "ok", "ok", "ok"]
    for line, record in zip(lines[1:-1], run.records, strict=True):
        written = record.model_dump(mode="json")
        assert record.problem.model_dump(mode="json") == line["problem"]
        if record.measurement is not None:
            assert list(record.measurement.samples_ns) == line["measurement"]["samples_ns"]
            assert written["measurement"]["memory"].items() >= line["measurement"]["memory"].items()
            assert written["measurement"]["cpu_ns"] is None, "what version 1 did not know is missing, not 0"
    rewritten = json.loads(json.dumps([record.model_dump(mode="json") for record in run.records]))
    assert [Record.model_validate(record) for record in rewritten] == run.records


def test_upgrades_reach_the_present_version() -> None:
    assert sorted(results.UPGRADES) == list(range(1, SCHEMA_VERSION))


def test_runs_are_found_by_path_name_beginning_and_age(tmp_path: Path, make_header: Headers) -> None:
    for run_id in ("20261130T094512Z-3fa9", "20261130T094512Z-77aa", "20261201T000000Z-0001"):
        with RunWriter(tmp_path, run_id) as writer:
            writer.write(make_header(run_id))
    newest = tmp_path / "20261201T000000Z-0001.jsonl"
    assert find_run("latest", tmp_path) == newest
    assert find_run("20261201", tmp_path) == newest
    assert find_run("20261130T094512Z-3fa9", tmp_path).stem == "20261130T094512Z-3fa9"
    assert find_run(str(newest), tmp_path / "elsewhere") == newest
    with pytest.raises(OutputError, match=r"run must name one results file, got '20261130' \(2 match\)"):
        find_run("20261130", tmp_path)
    with pytest.raises(OutputError, match=r"got 'nothing' \(0 match\). Latest runs: 20261130T094512Z-3fa9, "):
        find_run("nothing", tmp_path)
    with pytest.raises(OutputError, match="Latest runs: none; `attention-bench run` makes one"):
        find_run("latest", tmp_path / "empty")


def test_latest_passes_over_runs_that_never_began(tmp_path: Path, make_header: Headers) -> None:
    with RunWriter(tmp_path, "1") as writer:
        writer.write(make_header("1"))
    RunWriter(tmp_path, "2").__exit__()
    (tmp_path / "3.jsonl").write_bytes(b'{"type":"run","schema')
    assert find_run("latest", tmp_path) == find_run("auto", tmp_path) == writer.path
    assert find_run("3", tmp_path).stem == "3"
    writer.path.unlink()
    with pytest.raises(OutputError, match=r"got 'latest' \(0 match\). Latest runs: 2, 3"):
        find_run("latest", tmp_path)


def test_a_chain_of_resumed_runs_is_one_run(tmp_path: Path, make_record: Records, make_header: Headers) -> None:
    earlier = {"1": None, "2": "1", "3": "2"}
    for run_id, before in earlier.items():
        with RunWriter(tmp_path, run_id) as writer:
            writer.write(make_header(run_id, resumed_from=before))
            writer.write(make_record("ok", latency_ms=float(run_id)))
    run = read_chain(writer.path)
    assert (run.run_id, run.path) == ("3", writer.path)
    medians = [record.measurement.samples_ns[2] for record in run.records if record.measurement is not None]
    assert medians == [3_000_000, 2_000_000, 1_000_000]


def test_a_chain_that_bites_its_tail_ends(tmp_path: Path, make_record: Records, make_header: Headers) -> None:
    for run_id, before in (("1", "2"), ("2", "1")):
        with RunWriter(tmp_path, run_id) as writer:
            writer.write(make_header(run_id, resumed_from=before))
            writer.write(make_record("ok"))
    assert len(read_chain(writer.path).records) == 2
