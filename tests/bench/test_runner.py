"""Whole runs through the command line, with implementations that fail in every way: a fault costs only its own case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from bench.results import read_run

FAULTY = Path(__file__).parents[1] / "plugins" / "faulty.py"

SWEEP = """
title = "faults"
seconds_per_problem = 0.02
[axes]
num_heads = 1
head_dim = 16
seqlen = [128, 256, 384]
"""


def command(*words):
    return [sys.executable, "-m", "bench", *map(str, words)]


def bench(*words, **options):
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=300, check=False, **options)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "faults.toml"
    path.write_text(SWEEP)
    return path


@pytest.fixture(scope="module")
def faulty(sweep, tmp_path_factory):
    """One run over everything that fails; the records by (implementation, length)."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["measure", "--sweep", sweep, "--load", FAULTY, "-o", folder, "--case-timeout", 3]
    planted = ("wrong", "not_finite", "raises", "raises_when_timed", "out_of_memory", "dies", "exits", "hangs")
    planted += ("refuses", "missing", "other_backend", "sound", "naive")
    planted += ("stored", "reads_past_the_end", "leaves_rows_unwritten")
    for name in planted:
        words += ["-i", f"^{name}$"]
    done = bench(*words)
    run = read_run(next(folder.glob("*.jsonl")))
    return done, run, {(r.implementation, r.problem.seqlen_q): r for r in run.records}


def test_every_case_has_exactly_one_record_and_the_file_is_closed(faulty):
    done, run, records = faulty
    assert len(run.records) == len(records) == 16 * 3 == run.header.cells
    assert run.end is not None
    assert run.end.outcome == "complete"
    assert run.end.statuses == dict(sorted(Counter(r.status for r in run.records).items()))
    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("wrong", "incorrect", "out is off by"),
        ("not_finite", "incorrect", "1 non-finite entries"),
        ("raises", "error", "RuntimeError: planted failure <b>with markup</b>"),
        ("raises_when_timed", "error", "planted failure in a timed call"),
        ("out_of_memory", "out_of_memory", "allocate"),
        ("dies", "crashed", "SIGKILL"),
        ("exits", "crashed", "exit code 7; its last output: last words"),
        ("hangs", "timeout", "no answer for 3 s"),
        ("refuses", "unsupported", "the library's own words"),
        ("stored", "incorrect", "stale: out did not follow when the inputs changed"),
        ("reads_past_the_end", "incorrect", "non-finite entries"),
        ("leaves_rows_unwritten", "incorrect", "out"),
    ],
)
def test_a_fault_costs_only_its_own_case(faulty, name, status, says):
    _, _, records = faulty
    record = records[name, 256]
    assert record.status == status
    assert says in record.reason
    assert record.measurement is None
    assert records[name, 128].status == records[name, 384].status == "ok"
    for healthy in ("sound", "naive"):
        assert records[healthy, 256].status == "ok"


def test_unavailable_and_wrong_backend_at_every_length(faulty):
    _, _, records = faulty
    for seqlen in (128, 256, 384):
        assert records["missing", seqlen].status == "unavailable"
        assert records["missing", seqlen].reason == "the library is not installed"
        assert records["other_backend", seqlen].status == "incorrect"
        assert "backend: asked for _flash_attention" in records["other_backend", seqlen].reason


def test_wrong_results_keep_their_errors_but_have_no_speed(faulty):
    _, _, records = faulty
    record = records["wrong", 256]
    assert record.agreement.tensors["out"].max_abs > record.agreement.tensors["out"].limit
    assert record.measurement is None


def test_measured_cells_hold_raw_samples_and_exact_bytes(faulty):
    _, _, records = faulty
    for seqlen in (128, 256, 384):
        measurement = records["naive", seqlen].measurement
        assert len(measurement.samples_ns) >= 6
        assert min(measurement.samples_ns) > 0
        assert measurement.memory.peak_bytes == 2 * seqlen**2 * 4 + seqlen * 16 * 4
        assert measurement.memory.output_bytes == seqlen * 16 * 4
    rounds = {len(records[name, 384].measurement.samples_ns) for name in ("naive", "sound", "wrong")}
    assert len(rounds) == 1, "interleaved implementations share their rounds"


def test_failures_are_told_when_they_happen_and_data_stay_off_stderr(faulty):
    done, _, _ = faulty
    assert "crashed: dies on B1-H1-T256-d16-float32-fwd-full" in done.stderr
    assert "USDT" not in done.stderr
    assert done.stdout == ""


def start(folder, *words):
    return subprocess.Popen(
        command("measure", "-o", folder, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_cells(folder, count, process):
    """Until the results file holds ``count`` whole cells."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        files = list(folder.glob("*.jsonl"))
        if files and files[0].read_bytes().count(b"\n") > count:
            return files[0]
        time.sleep(0.05)
    pytest.fail("the run wrote no cell")


LONG = [
    "--sweep",
    "default",
    "-i",
    "^naive$",
    "--set",
    "seqlen=128,256,384,512,640,768,896,1024",
    "--set",
    "dtype=float32",
]


def test_ctrl_c_keeps_every_finished_cell_and_closes_the_file(tmp_path):
    process = start(tmp_path, *LONG)
    path = wait_for_cells(tmp_path, 2, process)
    os.killpg(process.pid, signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 130, messages
    run = read_run(path)
    assert run.end.outcome == "interrupted"
    assert run.dropped_lines == 0
    assert 2 <= len(run.records) < run.header.cells
    assert "press Ctrl-C again" in messages


def test_kill_nine_loses_at_most_the_cell_in_flight_and_resume_measures_only_what_is_missing(tmp_path):
    process = start(tmp_path, *LONG[:-4], "--set", "seqlen=128,256,384", "--set", "mask=full", "--set", "dtype=float32")
    path = wait_for_cells(tmp_path, 2, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    first = read_run(path)
    assert first.end is None
    done = bench(
        "measure",
        "-o",
        tmp_path,
        "--resume",
        "auto",
        *LONG[:-4],
        "--set",
        "seqlen=128,256,384",
        "--set",
        "mask=full",
        "--set",
        "dtype=float32",
    )
    assert done.returncode == 0, done.stderr
    resumed = read_run(max(tmp_path.glob("*.jsonl")))
    assert resumed.header.resumed_from == first.run_id
    assert len({r.cell_key for r in resumed.records}) == len(resumed.records) == resumed.header.cells
    kept = {r.cell_key: r for r in first.records}
    again = {r.cell_key: r for r in resumed.records}
    assert all(again[key] == record for key, record in kept.items())


def test_time_budget_stops_cleanly(tmp_path):
    done = bench("measure", "-o", tmp_path, *LONG, "--time-budget", "3s")
    assert done.returncode == 0, done.stderr
    run = read_run(next(tmp_path.glob("*.jsonl")))
    assert run.end.outcome == "budget"
    assert 0 < len(run.records) < run.header.cells
    assert "--resume" in done.stderr


def test_a_cell_that_cannot_fit_is_predicted_and_not_tried(tmp_path):
    done = bench(
        "measure",
        "-o",
        tmp_path,
        "--sweep",
        "smoke",
        "-i",
        "^naive$",
        "--set",
        "seqlen=4000000",
        "--set",
        "mask=full",
        "--set",
        "dtype=float32",
    )
    run = read_run(next(tmp_path.glob("*.jsonl")))
    assert {(r.status, r.predicted) for r in run.records} == {("out_of_memory", True)}
    assert "predicted peak" in run.records[0].reason
    assert done.returncode == 0


def test_a_planted_secret_reaches_no_results(tmp_path):
    environment = {**os.environ, "MY_TOKEN": "planted-secret-4711", "OMP_NUM_THREADS": "1"}
    done = bench(
        "measure",
        "-o",
        tmp_path,
        "--sweep",
        "smoke",
        "-i",
        "^naive$",
        "--set",
        "seqlen=64",
        "--format",
        "json",
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    text = next(tmp_path.glob("*.jsonl")).read_text() + done.stdout + done.stderr
    assert "planted-secret" not in text
    run = read_run(next(tmp_path.glob("*.jsonl")))
    assert run.header.environment.variables["OMP_NUM_THREADS"] == "1"
    assert run.header.environment.torch_threads == 1
    assert json.loads(done.stdout)[0]["implementation"] == "naive"


def test_two_runs_in_the_same_second_are_two_files(tmp_path):
    words = ["--sweep", "smoke", "-i", "^naive$", "--set", "seqlen=32", "--set", "mask=full", "--set", "dtype=float32"]
    both = [start(tmp_path, *words) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    for process in both:
        process.communicate()
    assert len(list(tmp_path.glob("*.jsonl"))) == 2


def test_a_resumed_run_takes_over_times_of_the_same_conditions_alone_and_pairs_none_of_them(tmp_path):
    words = ["measure", "--sweep", "smoke", "--set", "seqlen=64", "-p", "full", "-o", tmp_path]
    assert bench(*words, "-i", "^naive$").returncode == 0
    refused = bench(*words, "--resume", "auto", "--allocator", "default")
    assert refused.returncode == 2
    assert "allocator 'warm', now 'default'" in refused.stderr
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    assert bench(*words, "--resume", "auto", "-i", "^naive$|sdpa_math").returncode == 0
    run = read_run(sorted(tmp_path.glob("*.jsonl"))[-1])
    by_name = {r.implementation: r.measurement for r in run.records if r.status == "ok"}
    assert set(by_name) == {"naive", "sdpa_math"}
    assert not set(by_name["naive"].processes) & set(by_name["sdpa_math"].processes)


def test_what_something_else_stands_in_for_is_verified_never_timed_and_taken_over_as_it_is(sweep, tmp_path):
    words = ["measure", "--sweep", sweep, "--load", FAULTY, "-o", tmp_path, "-i", "^stands_in$", "-i", "^sound$"]
    assert bench(*words).returncode == 0
    first = read_run(next(tmp_path.glob("*.jsonl")))
    records = {(r.implementation, r.problem.seqlen_q): r for r in first.records}
    for seqlen in (128, 256):
        record = records["stands_in", seqlen]
        assert (record.status, record.reason, record.measurement) == ("verified", "runs in an emulator", None)
        assert record.agreement.passed
    assert records["stands_in", 384].status == "unavailable"
    assert "an hour" in records["stands_in", 384].reason
    assert {records["sound", seqlen].status for seqlen in (128, 256, 384)} == {"ok"}
    done = bench(*words, "--resume", "auto")
    assert done.returncode == 0
    again = read_run(max(tmp_path.glob("*.jsonl")))
    assert {r.cell_key: r for r in again.records} == {r.cell_key: r for r in first.records}
    planned = bench(*words, "--dry-run").stdout
    assert "3 cells of stands_in; verified; 1 refused" in planned


def test_a_timed_cell_that_was_verified_is_settled_only_where_it_is_never_timed(monkeypatch):
    """Claims plan cells themselves, as timed ones."""
    from types import SimpleNamespace

    from bench import runner
    from bench.case import Case
    from bench.cell import make_record
    from bench.problem import Problem
    from bench.record import Agreement

    case, written = Case(Problem(seqlen=8), "naive"), []
    record = make_record(case, "cpu", "1", "verified", "not timed", agreement=Agreement(passed=True, tensors={}))
    machine = SimpleNamespace(versions={"naive": ("1", None)}, device_name="cpu", device="cpu", free_bytes=None)
    session = SimpleNamespace(kept={record.cell_key: record}, machine=machine, _write=written.append)
    assert runner._Session._settled(session, case) is False
    monkeypatch.setattr(runner, "untimed", lambda member, problem, device: "runs in an emulator")
    assert runner._Session._settled(session, case) is True
    assert written == [record]


@pytest.mark.parametrize(("processes", "energy", "final"), [(6, False, True), (2, False, False), (6, True, False)])
def test_a_cell_that_lacks_what_was_asked_for_is_tried_again(processes, energy, final):
    from types import SimpleNamespace

    from bench.case import Case
    from bench.cell import make_record
    from bench.problem import Problem
    from bench.record import Agreement, Measurement
    from bench.runner import _Session
    from bench.timing import FULL

    measurement = Measurement(
        samples_ns=(1,) * processes,
        calls_per_sample=1,
        processes=tuple(range(processes)),
        clock="perf_counter",
        first_call_ns=1,
        prepare_ns=1,
        memory=None,
    )
    agreement = Agreement(passed=True, tensors={})
    record = make_record(
        Case(Problem(seqlen=8), "naive"), "cpu", "1", "ok", None, agreement=agreement, measurement=measurement
    )
    session = SimpleNamespace(sampling=FULL, request=SimpleNamespace(energy=energy))
    assert _Session._is_final(session, record) is final
