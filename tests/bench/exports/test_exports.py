"""What every export holds to: nothing lost, nothing made up, names that are unique and stable, one unit."""

from __future__ import annotations

import io
import json
import sys

import planted
import pytest

from bench.errors import NothingSelectedError, UsageError
from bench.exports import cell_name, exports, numbers, sound_time, timed_cells

TABLES = ("csv", "parquet")
OTHERS = tuple(name for name in exports.names() if name not in TABLES)
STATUSES = ("verified", "incorrect", "unsupported", "unavailable", "out_of_memory", "timeout", "crashed", "error")
SECRET = 123.456
"""Milliseconds that no export may show: they belong to cells that have no sound time."""


def mixed():
    """Two sound cells, one of each other status, one impossible, one whose clock read 0."""
    records = [planted.record("naive", 128, 1.5), planted.record("sdpa_flash", 128, 0.5, rounds=3)]
    records += [planted.record("naive", 256 + 16 * i, status=status) for i, status in enumerate(STATUSES)]
    records.append(planted.record("sdpa_flash", 256, SECRET, noise=0.0, flags=[("impossible", "beats the roof")]))
    records.append(planted.record("sdpa_flash", 512, 0.0))
    return planted.run(records)


def text(name, *runs):
    """All files of an export in one text."""
    return b"\n".join(exports.get(name).files(runs).values()).decode()


def test_there_is_an_export_for_each_tool_that_people_use():
    assert {
        "pytest-benchmark",
        "github-action-benchmark",
        "bencher",
        "pytorch-oss-benchmark",
        "csv",
        "parquet",
        "asv",
    } == set(exports.names())
    assert not exports.broken


def test_only_cells_with_a_sound_time_have_numbers():
    run = mixed()
    assert [cell_name(record) for record, _ in timed_cells(run)] == [cell_name(record) for record in run.records[:2]]
    assert [sound_time(record) is not None for record in run.records] == [True, True] + [False] * (len(STATUSES) + 2)


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "pytest-benchmark"])
def test_nothing_of_an_unsound_cell_reaches_another_tool(name):
    run = mixed()
    whole = text(name, run)
    for record in run.records[2:]:
        assert record.problem.key not in whole
    assert "123" not in text(name, planted.run([*run.records[:2], run.records[-2]])).replace(run.run_id, "").replace(
        run.header.environment.git_commit, ""
    )


@pytest.mark.parametrize("name", OTHERS)
def test_a_missing_number_is_left_out_and_never_zero(name):
    blank = planted.record("naive", 128, 1.5, judged=planted.agreement(None), measured={"memory": None})
    assert [number.name for number in numbers(blank, blank.measurement)] == ["latency_ms"]
    values = []

    def walk(value, key=""):
        if isinstance(value, dict):
            for inner, item in value.items():
                walk(item, inner)
        elif isinstance(value, list):
            for item in value:
                walk(item, key)
        elif isinstance(value, float) and not isinstance(value, bool):
            values.append(value)

    for content in exports.get(name).files([planted.run([blank])]).values():
        walk(json.loads(content))
    assert values
    if name != "pytest-benchmark":  # which has statistics that may be 0, and the whole record
        assert 0.0 not in values


def test_an_interval_needs_six_samples():
    few, enough = planted.record("naive", 128, rounds=5), planted.record("naive", 128, rounds=6)
    assert numbers(few, few.measurement)[0].lo is None
    assert numbers(enough, enough.measurement)[0].lo is not None


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_without_a_time_is_no_empty_file(name):
    with pytest.raises(NothingSelectedError, match="at least one measured cell"):
        exports.get(name).files([planted.run([planted.record("naive", status="unsupported")])])


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_nothing_is_no_empty_file(name):
    with pytest.raises(NothingSelectedError, match="at least one cell"):
        exports.get(name).files([planted.run([])])


@pytest.mark.parametrize("name", exports.names())
def test_the_same_run_gives_the_same_bytes(name):
    assert exports.get(name).files([mixed()]) == exports.get(name).files([mixed()])


@pytest.mark.parametrize("name", [name for name in exports.names() if name != "parquet"])
def test_files_are_utf_8_and_json_has_no_nan(name):
    names = ("naïve «α»", 'with "quotes", comma\nand line')
    run = planted.run([planted.record(each, 128, 1.0) for each in names])
    for path, content in exports.get(name).files([run]).items():
        if path.endswith(".json"):
            held = json.loads(content, parse_constant=pytest.fail)
            assert held
    assert "naïve «α»" in text(name, run)


def test_of_two_records_of_a_cell_the_later_one_counts():
    run = planted.run([planted.record("naive", 128, 9.0), planted.record("naive", 128, 1.0)])
    ((_, measurement),) = timed_cells(run)
    assert max(measurement.samples_ns) < 2_000_000


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "asv"])
def test_each_run_has_a_file_of_its_own(name):
    runs = [planted.run([planted.record("naive", 128)], run_id=f"2026113{i}T120000Z-0001") for i in (0, 1)]
    assert list(exports.get(name).files(runs)) == [f"{run.run_id}.json" for run in runs]


def test_a_table_holds_every_status_with_its_reason_and_hides_what_is_impossible():
    import pandas as pd

    run = mixed()
    table = pd.read_csv(io.BytesIO(exports.get("csv").files([run])["cells.csv"]))
    assert table["status"].tolist() == [record.status for record in run.records]
    assert [reason for reason in table["reason"] if isinstance(reason, str)] == [f"planted {s}" for s in STATUSES]
    impossible = table[table["flags"].notna()]
    assert impossible["flags"].tolist() == ["impossible: beats the roof"]
    assert impossible[["latency_ms", "latency_min_ms", "samples", "peak_bytes", "memory_method"]].isna().all(axis=None)
    assert impossible["out_max_abs"].notna().all()
    assert f"{SECRET}" not in text("csv", run)


def read_back(name, content):
    import pandas as pd

    from bench.analysis import COLUMNS

    if name == "parquet":
        return pd.read_parquet(io.BytesIO(content)).astype(COLUMNS)
    return pd.read_csv(io.BytesIO(content), dtype=COLUMNS, keep_default_na=False, na_values=[""])


@pytest.mark.parametrize("name", TABLES)
def test_a_table_comes_back_equal_in_values_and_types(name):
    """Texts that look like missing values, booleans or numbers, whole-number latencies, columns without a value."""
    import pandas as pd

    from bench.exports.csv_table import sound_frame

    awkward = ("null", "NA", "False", "1.0", 'a,"b"\n c', "naïve «α»", " spaced ")
    first = planted.run([planted.record(each, 128, 2.0, noise=0.0) for each in awkward])
    second = planted.run(
        [
            planted.record("naive", 128, status="error", reason="None"),
            planted.record("naive", 144, 1 / 3, scale=0.1, error=1.2345678901234567e-7),
            planted.record("naive", 160, judged=planted.agreement(None)),
        ],
        run_id="20261201T000000Z-0002",
    )
    ((_, content),) = exports.get(name).files([first, second]).items()
    pd.testing.assert_frame_equal(read_back(name, content), sound_frame([first, second]), check_exact=True)


def test_rows_of_the_two_tables_find_each_other():
    """By what a cell is: None meets None, and a scale that is no short decimal meets itself."""
    cells = [planted.record("naive", 128, 2.0), planted.record("naive", 128, 3.0, scale=128**-0.5)]
    run = planted.run([*cells, planted.record("naive", 144, status="error")])
    left, right = (read_back(name, *exports.get(name).files([run]).values()) for name in TABLES)
    for keys in (["implementation", "problem"], ["seqlen_q", "scale"]):
        joined = left.merge(right, on=keys, validate="one_to_one")
        assert len(joined) == 3
        assert joined["latency_ms_x"].equals(joined["latency_ms_y"])


def test_without_pyarrow_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"attention-bench\[parquet\]"):
        exports.get("parquet").files([mixed()])
