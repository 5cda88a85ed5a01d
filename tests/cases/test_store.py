"""Public cases O35 and O36: a store that is cut anywhere, and values that must come back as what they were."""

from __future__ import annotations

import csv
import io
import json
import math

import pandas as pd
import pytest

from bench.analysis import COLUMNS, frame
from bench.errors import OutputError
from bench.problem import Problem
from bench.record import Measurement, TensorError
from bench.results import RunWriter, find_run, read_chain, read_run
from bench.tables import frame_rows, write_rows

NOTES = 'a comma, a "quote",\na new line; ∞ and 🙂'


def write_rows_of(writer, make_record, count):
    for number in range(1, count + 1):
        writer.write(make_record("ok", problem=Problem(seqlen=64 * number), notes={"text": NOTES}))


def test_o35_a_writer_killed_after_any_byte_leaves_all_earlier_rows(tmp_path, make_record, make_header):
    """Three rows, cut after every byte: rows 1 to n - 1 are read, the cut one is dropped and counted."""
    with RunWriter(tmp_path, "whole") as writer:
        writer.write(make_header("whole", cells=3))
        for number in (1, 2, 3):
            writer.write(make_record("error", problem=Problem(seqlen=64 * number), reason=NOTES))
    data, cut = writer.path.read_bytes(), tmp_path / "cut.jsonl"
    ends = [index + 1 for index, byte in enumerate(data) if byte == ord("\n")]
    records = read_run(writer.path).records
    for size in range(ends[0], len(data) + 1):
        cut.write_bytes(data[:size])
        run = read_run(cut)
        assert run.records == records[: sum(end <= size for end in ends) - 1]
        assert run.dropped_lines == (size not in ends)
        assert run.end is None


def test_o35_a_run_cut_in_its_first_line_is_passed_over(tmp_path, make_record, make_header):
    with RunWriter(tmp_path, "20261130T094512Z-0001") as writer:
        writer.write(make_header(writer.path.stem, cells=3))
        write_rows_of(writer, make_record, 2)
    (tmp_path / "20261130T094513Z-0002.jsonl").write_bytes(b"")
    (tmp_path / "20261130T094514Z-0003.jsonl").write_bytes(writer.path.read_bytes()[:100])
    assert find_run("auto", tmp_path) == writer.path
    with pytest.raises(OutputError, match="A run that is ended at its very start leaves such a file"):
        read_run(find_run("20261130T094514Z", tmp_path))


def test_o35_a_resumed_run_that_was_cut_loses_nothing_of_its_predecessors(tmp_path, make_record, make_header):
    """Of the third run only the first line was written, of the second a cell that was done again."""
    with RunWriter(tmp_path, "1") as writer:
        writer.write(make_header("1", cells=3))
        write_rows_of(writer, make_record, 2)
    again = make_record("ok", latency_ms=7.0, problem=Problem(seqlen=128), notes={"text": "again"})
    with RunWriter(tmp_path, "2") as writer:
        writer.write(make_header("2", cells=3, resumed_from="1"))
        writer.write(again)
    with RunWriter(tmp_path, "3") as writer:
        writer.write(make_header("3", cells=3, resumed_from="2"))
    chain = read_chain(writer.path)
    assert chain.header.run_id == "3"
    assert chain.records == [again, *read_run(tmp_path / "1.jsonl").records], "the newest stand first"
    (tmp_path / "1.jsonl").unlink()
    assert read_chain(writer.path).records == [again]


def test_o35_nothing_is_overwritten(tmp_path, make_header):
    with RunWriter(tmp_path, "same") as writer:
        writer.write(make_header("same"))
    before = writer.path.read_bytes()
    with pytest.raises(OutputError, match="File exists"):
        RunWriter(tmp_path, "same")
    assert writer.path.read_bytes() == before


def drifting(make_record):
    """What drifts: columns all null or whole numbers in one run and floats in another, None, commas and quotes."""
    whole = (1_000_000, 2_000_000, 1_000_000, 2_000_000, 1_000_000, 2_000_000)
    odd = tuple(math.floor(1e9 / math.sqrt(n)) for n in range(2, 8))
    base = make_record("ok").measurement.model_dump()
    records = [
        make_record("error", reason=NOTES, problem=Problem(seqlen=64, head_dim=128)),
        make_record("ok", measurement=Measurement(**(base | {"samples_ns": whole, "memory": None, "setup_ns": None}))),
        make_record(
            "ok",
            problem=Problem(seqlen=96, head_dim=128, scale=1 / math.sqrt(128), mask="sliding_window(64)"),
            measurement=Measurement(**(base | {"samples_ns": odd, "calls_per_sample": 7})),
        ),
        make_record("unsupported", reason="False", implementation_version=None, problem=Problem(seqlen=33)),
    ]
    out = records[2].agreement.tensors["out"]
    tensors = {"out": TensorError(**(out.model_dump() | {"max_abs": 1 / 3, "rmse_over_naive": None}))}
    records[2] = records[2].model_copy(
        update={"agreement": records[2].agreement.model_copy(update={"tensors": tensors})}
    )
    return records


def read_back(text, style):
    """As a reader would who knows the declared types and nothing else."""
    if style == "csv":
        return pd.read_csv(io.StringIO(text), dtype=COLUMNS, keep_default_na=False, na_values=[""])
    rows = json.loads(text) if style == "json" else [json.loads(line) for line in text.splitlines()]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


@pytest.mark.parametrize("style", ["csv", "json", "jsonl"])
def test_o36_values_and_types_come_back_equal(make_record, make_run, style):
    """Together and each record alone, where a column may be null throughout."""
    records = drifting(make_record)
    for chosen in (records, *([record] for record in records)):
        table = frame([make_run(chosen)])
        stream = io.StringIO()
        write_rows(frame_rows(table, style), style, stream)
        assert read_back(stream.getvalue(), style).equals(table), "dtypes and every bit of every value"


def test_o36_tables_of_runs_that_drift_are_appended_and_joined(make_record, make_run):
    """A column that was all null in one run holds floats in another; keys are hashes of exact text, never of floats."""
    records = drifting(make_record)
    early, late = frame([make_run(records[:1])]), frame([make_run(records, run_id="later")])
    assert dict(early.dtypes) == dict(late.dtypes)
    both = pd.concat([early, late])
    assert dict(both.dtypes) == dict(late.dtypes)
    joined = early.merge(late, on="cell_key")
    assert len(joined) == len(early)
    unversioned = frame([make_run(records[3:])]).merge(late, on="cell_key")
    assert len(unversioned) == 1, "no version is a version like any other"


def test_o36_equal_numbers_make_equal_keys_and_different_ones_do_not(make_record):
    """A scale of 1 is one of 1.0; one that float32 rounded is another problem."""

    def key(scale):
        return make_record("ok", problem=Problem(seqlen=64, head_dim=128, scale=scale)).cell_key

    exact = 1 / math.sqrt(128)
    assert key(1) == key(1.0)
    assert key(exact) == key(float(repr(exact)))
    assert key(exact) != key(0.0883883461356163)


def test_o36_the_store_keeps_every_type(tmp_path, make_record, make_header):
    """Booleans are no words, whole floats no integers that drift, None stays None, texts keep their bytes."""
    notes = {"yes": True, "no": False, "word": "False", "none": None, "one": 1, "whole": 1.0, "text": NOTES}
    record = make_record("ok", notes=notes, problem=Problem(seqlen=64, scale=None))
    with RunWriter(tmp_path, "run") as writer:
        writer.write(make_header("run"))
        writer.write(record)
    read = read_run(writer.path).records[0]
    assert read == record
    for name, value in notes.items():
        assert type(read.notes[name]) is type(value), name
    assert read.problem.scale is None


def test_o36_a_csv_says_nothing_for_a_missing_number(make_record, make_run):
    stream = io.StringIO()
    write_rows(frame_rows(frame([make_run(drifting(make_record))]), "csv"), "csv", stream)
    rows = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert [row["latency_ms"] for row in rows] == ["", "1.5", rows[2]["latency_ms"], ""]
    assert rows[0]["reason"] == NOTES
    assert rows[3]["reason"] == "False"
