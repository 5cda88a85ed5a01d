"""pytest-benchmark's JSON: read by the tool itself, and back by us."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import planted
import pytest

from bench.errors import OutputError
from bench.exports import exports
from bench.exports.pytest_benchmark import KEY, read

ROOT = Path(__file__).resolve().parents[3]


def written(folder, run):
    """The file that the export makes of a run."""
    ((name, content),) = exports.get("pytest-benchmark").files([run]).items()
    path = folder / name
    path.write_bytes(content)
    return path


def content_of(*records, **header):
    return json.loads(exports.get("pytest-benchmark").files([planted.run(records, **header)]).popitem()[1])


def test_times_are_seconds_per_call_with_the_tools_own_statistics():
    samples = (2_000_000, 4_000_000, 6_000_000, 8_000_000)
    measured = {"samples_ns": samples, "calls_per_sample": 2, "processes": (0,) * 4}
    (benchmark,) = content_of(planted.record("naive", 128, measured=measured))["benchmarks"]
    stats = benchmark["stats"]
    assert stats["data"] == [0.001, 0.002, 0.003, 0.004]
    assert (stats["min"], stats["median"], stats["max"]) == (0.001, 0.0025, 0.004)
    assert stats["stddev"] == pytest.approx(0.00129099, rel=1e-5)
    assert (stats["rounds"], stats["iterations"]) == (4, 2)
    assert benchmark["name"] == "naive/B1-H4-T128-d64-float32-fwd-full"
    assert benchmark["group"] == "B1-H4-T128-d64-float32-fwd-full"


def test_names_are_unique():
    content = json.loads(exports.get("pytest-benchmark").files([planted.default_run()]).popitem()[1])
    names = [benchmark["fullname"] for benchmark in content["benchmarks"]]
    assert len(set(names)) == len(names) > 200


def test_the_tool_compares_two_exported_runs(tmp_path):
    first = planted.run([planted.record("naive", 128, 1.0, noise=0.0), planted.record("sdpa_flash", 128, 0.5)])
    second = planted.run([planted.record("naive", 128, 2.0, noise=0.0)], run_id="20261201T120000Z-0002")
    paths = [written(tmp_path, run) for run in (first, second)]
    command = [sys.executable, "-m", "pytest_benchmark", "compare", "--group-by=fullname", "--columns=median,rounds"]
    done = subprocess.run([*command, *map(str, paths)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    table = done.stdout
    assert "benchmark 'attention-bench::naive/B1-H4-T128-d64-float32-fwd-full': 2 tests" in table
    assert "benchmark 'attention-bench::sdpa_flash/B1-H4-T128-d64-float32-fwd-full': 1 tests" in table
    assert "1.0000 (1.0)" in table
    assert "2.0000 (2.00)" in table


def test_an_exported_run_comes_back_whole(tmp_path):
    records = [
        planted.record("naive", 128, 1 / 3, processes=3, flags=[("unstable", "it jumps")]),
        planted.record("sdpa_flash", 128, 7.0, measured={"calls_per_sample": 3}),
        planted.record("sdpa_flash", 256, 0.1, flags=[("impossible", "beats the roof")]),
        planted.record("naive", 256, status="out_of_memory"),
        planted.record("naive", 128, status="verified", dtype="float16"),
    ]
    run = planted.run(records)
    back, _ = read(written(tmp_path, run))
    assert back.header == run.header
    assert back.end == run.end
    assert back.records == run.records
    assert content_of(*records)[KEY]["cells_without_a_time"][1]["reason"] == "planted out_of_memory"


def test_evidence_and_an_interrupted_end_come_back_too(tmp_path):
    from dataclasses import replace

    from bench.evidence import Evidence

    found = [Evidence(kind="pair", name="a pair", rows=({"log_ratio": 0.1, "a_ms": 2.0},), seconds=1.0)]
    run = replace(planted.run([planted.record()]), evidence=found, end=None)
    back, _ = read(written(tmp_path, run))
    assert (back.evidence, back.end) == (found, None)


TIMED = {"stats": {"data": [1.0], "iterations": 1}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "Expecting property name"),
        ("[]", "list indices"),
        (json.dumps({"benchmarks": []}), f"no '{KEY}' in it"),
        (json.dumps({"benchmarks": [TIMED | {"extra_info": {}}], KEY: {"header": {}}}), "it holds no cell"),
    ],
)
def test_benchmarks_of_others_and_broken_files_are_refused(tmp_path, text, says):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(OutputError, match="must be pytest-benchmark's JSON of attention-bench") as caught:
        read(path)
    assert says in str(caught.value)
    with pytest.raises(OutputError, match="must be readable"):
        read(tmp_path / "missing.json")


def test_other_benchmarks_beside_ours_are_passed_over_and_counted(tmp_path):
    content = content_of(planted.record("naive", 128))
    content["benchmarks"].insert(0, {"stats": {"data": [1.0], "iterations": 1}, "extra_info": {}})
    path = tmp_path / "both.json"
    path.write_text(json.dumps(content))
    run, passed_over = read(path)
    assert ([record.implementation for record in run.records], passed_over) == (["naive"], 1)


def test_a_time_without_a_verified_result_is_not_imported(tmp_path):
    content = content_of(planted.record("naive", 128))
    content["benchmarks"][0]["extra_info"][KEY]["agreement"] = None
    path = tmp_path / "unverified.json"
    path.write_text(json.dumps(content))
    with pytest.raises(OutputError, match="Times without a verified result"):
        read(path)


@pytest.mark.slow
def test_the_suites_run_and_their_json_becomes_a_run(tmp_path):
    path = tmp_path / "suite.json"
    command = [
        "-m",
        "pytest",
        "benchmarks",
        "--benchmark-only",
        f"--benchmark-json={path}",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    few = ["-k", "(naive or cudnn) and not compiled", "--benchmark-max-time=0.01"]
    done = subprocess.run([sys.executable, *command, *few], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    run, _ = read(path)
    assert {record.implementation for record in run.records} == {"naive"}
    assert {record.status for record in run.records} == {"ok"}
    assert all(record.agreement.passed and record.measurement.prepare_ns > 0 for record in run.records)
    assert {record.problem.direction for record in run.records} == {"fwd", "fwd_bwd"}
    processes = [record.measurement.processes[0] for record in run.records]
    assert len(set(processes)) == 4  # never taken for rounds that were interleaved
    raw = json.loads(path.read_text())["benchmarks"][0]["stats"]
    first = run.records[0].measurement
    assert [ns / first.calls_per_sample / 1e9 for ns in first.samples_ns] == pytest.approx(raw["data"], abs=1e-9)
