from __future__ import annotations

import gzip
import json
import math
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import NO_NOTEBOOK, page, summed, titled, unpacked

from bench.plots import Reading
from bench.record import Record
from bench.report import repeat_command, samples
from bench.report.dataset import dataset
from bench.report.material import Material
from bench.report.packing import compressed, deltas, packed
from bench.results import Run

PLAIN = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(allow_nan=False)


def built(*runs: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(dataset(Material.of(runs, NO_NOTEBOOK)), allow_nan=False))
    return found


def of(*records: Record) -> dict[str, Any]:
    return built(planted.run(records))


@given(st.lists(PLAIN, max_size=12).flatmap(lambda some: st.lists(st.sampled_from(some or [None]), max_size=60)))
def test_packing_keeps_every_value_and_its_type(values: list[object]) -> None:
    found = unpacked(json.loads(json.dumps(packed(values, 17))))
    wanted = [str(value) if isinstance(value, float) and not math.isfinite(value) else value for value in values]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in wanted]


def test_packing_writes_what_repeats_once_and_tells_one_from_true() -> None:
    column = packed([1, True, 1.0, {"a": 1}] * 10)
    assert len(column["of"]) == 4
    assert [type(value) for value in unpacked(column)[:4]] == [int, bool, float, dict]


def test_numbers_that_json_does_not_know_become_words() -> None:
    assert unpacked(packed([math.inf, -math.inf, math.nan, [math.inf]])) == ["inf", "-inf", "nan", ["inf"]]


@given(st.lists(st.integers(0, 2**60)))
def test_deltas_sum_up_to_what_they_were_made_from(values: list[int]) -> None:
    assert summed(deltas(values)) == values


def test_what_would_end_a_script_does_not_appear() -> None:
    hostile = {"name": "</script><!--<script>"}
    assert set(compressed(hostile)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    assert json.loads(gzip.decompress(b64decode(compressed(hostile)))) == hostile
    assert compressed(hostile) == compressed(hostile)


def test_every_number_of_the_table_is_the_record_s() -> None:
    run = planted.default_run()
    found = built(run)
    latency, peak, error = (titled(found, title, "number") for title in ("latency", "peak", "error"))
    rows = Reading([run]).rows
    assert len(rows) == len(latency) == 296
    for row, ms, peak_bytes, out in zip(rows, latency, peak, error, strict=True):
        assert ms == (None if row["latency_ms"] is None else pytest.approx(row["latency_ms"], rel=1e-6))
        assert peak_bytes == row["peak_bytes"]
        assert out == pytest.approx(row["out_max_abs"], rel=1e-6) if row["out_max_abs"] is not None else out is None


def test_a_missing_number_has_its_reason_in_every_column() -> None:
    found = of(planted.record("a", 128), planted.record("a", 256, status="timeout", reason="took too long"))
    numbers = [c for head, c in zip(found["heads"], found["table"], strict=True) if head["kind"] != "text"]
    assert {unpacked(column["number"])[1] for column in numbers} == {None}
    reasons = [unpacked(column["reason"])[1] for column in numbers]
    assert all(reasons) and sum("took too long" in reason for reason in reasons) > len(reasons) // 2


def test_small_pages_hold_every_raw_sample() -> None:
    records = [planted.record("a", 128, processes=3), planted.record("b", 128, status="error")]
    found = of(*records)["samples"]
    assert found["kind"] == "raw"
    assert records[0].measurement is not None
    assert tuple(summed(found["samples_ns"][0])) == records[0].measurement.samples_ns
    assert tuple(unpacked(found["processes"])[0]) == records[0].measurement.processes
    assert found["samples_ns"][1] is None


@pytest.mark.parametrize("limit", ["MAX_RECORDS", "MAX_SAMPLES"])
def test_large_pages_hold_quantiles_close_to_the_samples(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(samples, limit, 3)
    records = [planted.record("a", n, n / 7, rounds=rounds) for n in (128, 256) for rounds in (50, 80)]
    records = [*records[:3:2], *records[1::2], planted.record("a", 512, status="crashed")]
    found = samples.sample_columns(records)
    assert found["kind"] == "quantiles"
    assert found["quantiles"][-1] is found["median_ns"][-1] is None
    for record, steps, median in zip(records[:-1], found["quantiles"], found["median_ns"], strict=False):
        assert record.measurement is not None
        ns = record.measurement.samples_ns
        wanted = np.quantile(ns, np.linspace(0, 1, samples.QUANTILES))
        assert median == np.median(ns)
        assert len(steps) == samples.QUANTILES
        np.testing.assert_allclose(np.array(summed(steps)) * samples.STEP * median, wanted, atol=samples.STEP * median)


def test_samples_of_zero_have_quantiles_of_zero() -> None:
    zero = planted.record("a", 128, 0.0, noise=0)
    found = samples._quantiles([zero])
    assert summed(found["quantiles"][0]) == [0] * samples.QUANTILES


def test_a_page_that_holds_quantiles_has_the_samples_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [planted.record("a", n) for n in (128, 256)]
    run = planted.run(records, run_id="../a <b>")
    assert not page([run], tmp_path / "raw", figures=False).dataset["samples"].get("step")
    assert not list((tmp_path / "raw").glob("*.jsonl"))
    monkeypatch.setattr(samples, "MAX_RECORDS", 1)
    found = page([run], tmp_path / "many", figures=False).dataset
    (file,) = (tmp_path / "many").glob("*.jsonl")
    assert found["runs"][0]["file"] == file.name == "a-b.jsonl"
    assert [json.loads(line)["type"] for line in file.read_text().splitlines()] == ["run", "cell", "cell", "end"]


def test_families_hold_what_may_share_a_chart() -> None:
    runs = [
        planted.run([planted.record("a", n, dtype=dtype) for n in (128, 256) for dtype in ("float32", "bfloat16")]),
        planted.run([planted.record("a", 512)], run_id="same-machine"),
        planted.run([planted.record("a", 512)], run_id="other-torch", packages={"torch": "2.12.0"}),
    ]
    found = built(*runs)
    keys, values = found["families"]["keys"], found["families"]["values"]
    at, lengths = unpacked(found["cells"]["family"]), unpacked(found["problems"]["seqlen_k"])
    cells = [(at[i], lengths[place]) for i, place in enumerate(unpacked(found["cells"]["problem"]))]
    members = {family: sorted(length for one, length in cells if one == family) for family in set(at)}
    assert sorted(members.values()) == [[128, 256], [128, 256, 512], [512]]
    assert len(values) == 3 and {value[keys.index("dtype")] for value in values} == {"float32", "bfloat16"}
    assert len({value[keys.index("machine")] for value in values}) == 2
    assert all(len(unpacked(column)) == 3 for column in found["families"]["sentences"].values())


def test_the_fastest_of_each_problem_is_who_the_reading_says() -> None:
    run = planted.default_run()
    found, reading = built(run), Reading([run])
    best = {unpacked(found["cells"]["problem"])[i]: i for i in unpacked(found["fastest"]["best"])}
    names, clear = unpacked(found["cells"]["implementation"]), unpacked(found["fastest"]["clear"])
    assert len(best) == 66
    for index, (place, cell) in enumerate(best.items()):
        key = found["problems"]["key"][place]
        row, sure = reading.fastest([row for row in reading.rows if row["problem"] == key and row["sound"]])
        assert (names[cell], clear[index]) == (row["implementation"], sure)


def test_impossible_times_are_never_the_fastest() -> None:
    found = of(planted.record("a", 128, 1.0), planted.record("magic", 128, 1e-6, flags=[("impossible", "planted")]))
    assert unpacked(found["fastest"]["best"]) == [0]
    assert unpacked(found["fastest"]["next"]) == [None]
    assert unpacked(found["cells"]["sound"]) == [True, False]


def test_the_command_of_a_record_is_put_together_as_everywhere() -> None:
    hostile = planted.record("x'; rm -rf ~; echo $(id)", 128, 1.0, mask="padding(0.5)")
    run = planted.run([hostile], header={"command": "attention-bench run -i 'a b' --set seqlen=128"})
    found = built(run)
    said = f"{found['runs'][0]['command']} -i {found['quoted'][hostile.implementation]}"
    assert f"{said} -p {found['problems']['quoted'][0]}" == repeat_command(hostile, run.header)


def test_agreements_are_whole_on_small_pages_and_cut_on_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    record = planted.record("a", 128)
    assert record.agreement is not None
    whole = unpacked(of(record)["cells"]["agreement"])[0]
    assert whole["checks"]["needle"]["limit"] == 1e-6 and whole["tensors"]["out"]["rel_rmse"] is not None
    monkeypatch.setattr(samples, "MAX_RECORDS", 0)
    cut = unpacked(of(record)["cells"]["agreement"])[0]
    assert cut["tensors"]["out"]["max_abs"] == 1e-6 and cut["checks"] == {"needle": {"passed": True}}
    assert cut["ran"] == ["aten::planted_attention"] and cut["certificate"] == record.agreement.certificate
