"""Failures through the command line: each costs its own cell, leaves no process behind and nothing written is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.fault_campaign import STUB, STUB_CELLS, STUB_SWEEP, RunningCommand, count_faults, judge, run_trial
from bench.record import Record
from bench.results import read_run

FAULTY = Path(__file__).parents[1] / "plugins" / "faulty.py"

SWEEP = """
title = "failures"
seconds_per_problem = 0.01
[axes]
num_heads = 1
head_dim = 16
seqlen = [128, 256, 384]
"""
CRASHES = {
    "exits_quietly": "exit code 0",
    "asks_to_exit": "exit code 0",
    "segfaults": "SIGSEGV",
    "aborts": "SIGABRT",
    "leaves_a_child": "exit code 7",
}


def words(folder: Path, verb: str, *names: str) -> list[str]:
    """Arguments of a run of implementations that fail."""
    (folder / "failures.toml").write_text(SWEEP)
    filters = [word for name in names for word in ("-i", f"^{name}$")]
    return [verb, "--sweep", str(folder / "failures.toml"), "--load", str(FAULTY), *filters]


def stub_words(folder: Path, plugin: str = STUB) -> list[str]:
    """Arguments of a run of twenty cells of 50 ms."""
    (folder / "stub.py").write_text(plugin)
    (folder / "stub.toml").write_text(STUB_SWEEP)
    return ["verify", "--sweep", str(folder / "stub.toml"), "--load", str(folder / "stub.py"), "-i", "^stub$"]


def run_words(folder: Path, arguments: list[str]) -> tuple[int, RunningCommand]:
    """Run to the end, which leaves no process behind; exit code and what ran."""
    (folder / "runs").mkdir(exist_ok=True)
    running, faults = RunningCommand(arguments, folder / "runs"), list[str]()
    code = running.wait(faults)
    assert faults == []
    return code, running


def only_file(folder: Path) -> Path:
    (path,) = folder.rglob("*.jsonl")
    return path


def by_cell(records: list[Record]) -> dict[tuple[str, int], Record]:
    cells = {(record.implementation, record.problem.seqlen_q): record for record in records}
    assert len(cells) == len(records)
    return cells


def wait_for_lines(running: RunningCommand, count: int) -> None:
    deadline = time.monotonic() + 120
    while running.lines() < count:
        assert time.monotonic() < deadline and running.process.poll() is None, running.messages()
        time.sleep(0.01)


@pytest.mark.slow
def test_every_way_to_die_costs_one_cell(tmp_path):
    code, running = run_words(tmp_path, words(tmp_path, "verify", *CRASHES, "leaves_a_thread", "sound"))
    cells = by_cell(read_run(only_file(tmp_path)).records)
    assert code == 1
    assert "Traceback" not in running.messages()
    for name, says in CRASHES.items():
        assert cells[name, 256].status == "crashed"
        assert says in cells[name, 256].reason
    others = {key: record.status for key, record in cells.items() if key[0] not in CRASHES or key[1] != 256}
    assert set(others.values()) == {"verified"}, others
    assert len(cells) == 7 * 3


@pytest.mark.slow
def test_exceptions_cost_one_cell_and_their_tensors_are_freed(tmp_path):
    names = ("memory_error", "out_of_device_memory", "fails_with_tensors", "breaks_the_device", "naive")
    code, _ = run_words(tmp_path, words(tmp_path, "measure", *names))
    cells = by_cell(read_run(only_file(tmp_path)).records)
    assert code == 1
    assert cells["memory_error", 256].status == cells["out_of_device_memory", 256].status == "out_of_memory"
    assert cells["memory_error", 256].reason == "MemoryError: "
    assert cells["fails_with_tensors", 128].reason == "RuntimeError: first failure"
    assert cells["fails_with_tensors", 256].reason == "MemoryError: from another one"
    assert cells["fails_with_tensors", 384].status == "ok", cells["fails_with_tensors", 384].reason
    assert cells["breaks_the_device", 256].status == "error"
    for seqlen in (128, 256, 384):
        peak = cells["naive", seqlen].measurement.memory.peak_bytes
        assert peak == 2 * seqlen**2 * 4 + seqlen * 16 * 4, "the peak of a cell after a failure is its own"
    processes = {seqlen: set(cells["naive", seqlen].measurement.processes) for seqlen in (128, 256, 384)}
    assert not processes[128] & processes[256], "after a broken device the rest is measured in a fresh process"


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_hangs_ends_with_its_parent(tmp_path, signum):
    (tmp_path / "runs").mkdir()
    running = RunningCommand(words(tmp_path, "verify", "hangs"), tmp_path / "runs")
    wait_for_lines(running, 2)
    time.sleep(0.5)  # now it hangs in its second cell
    assert running.worker() is not None
    os.kill(running.process.pid, signum)
    faults: list[str] = []
    assert running.wait(faults) == (-signal.SIGKILL if signum == signal.SIGKILL else 130)
    assert faults == []
    run = read_run(only_file(tmp_path))
    assert [record.status for record in run.records] == ["verified"]
    assert (run.end is None) == (signum == signal.SIGKILL)


ONCE = """
import os, pathlib, signal
import bench.rung

marker = pathlib.Path(__file__).with_suffix(".times")
prepare = bench.rung.reference


def reference(problem, inputs):
    if problem.seqlen_q == 80:
        times = len(marker.read_text()) if marker.exists() else 0
        marker.write_text("x" * (times + 1))
        if times < LIMIT:
            os.kill(os.getpid(), signal.SIGKILL)
    return prepare(problem, inputs)


bench.rung.reference = reference
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "crashed"), [(1, 0), (2, 1)])
def test_a_kill_during_the_work_for_all_is_forgiven_once(tmp_path, kills, crashed):
    arguments = stub_words(tmp_path, STUB + ONCE.replace("LIMIT", str(kills)))
    code, _ = run_words(tmp_path, [*arguments, "--set", "seqlen=72,80,88"])
    statuses = [record.status for record in read_run(only_file(tmp_path)).records]
    assert statuses.count("crashed") == crashed
    assert statuses.count("unsupported") == 3 - crashed
    assert code == crashed


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_a_message_and_resume_goes_on(tmp_path):
    """A limit on the size of files stands in for the disk."""
    arguments, runs = stub_words(tmp_path), tmp_path / "runs"
    limited = f'ulimit -f 6; exec "{sys.executable}" -m bench "$@"'
    done = subprocess.run(
        ["bash", "-c", limited, "bash", *arguments, "-o", str(runs)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "results file must be writable" in done.stderr
    assert "free some space and use --resume" in done.stderr
    assert "Traceback" not in done.stderr
    first = read_run(only_file(tmp_path))
    assert 0 < len(first.records) < STUB_CELLS
    assert first.end is None
    code, _ = run_words(tmp_path, arguments)
    files = [read_run(path) for path in sorted(runs.glob("*.jsonl"))]
    assert (code, len(files), judge(files)) == (0, 2, [])


@pytest.mark.slow
def test_a_results_folder_that_is_removed_meanwhile_comes_back(tmp_path):
    arguments, runs = stub_words(tmp_path), tmp_path / "runs"
    runs.mkdir()
    running, faults = RunningCommand(arguments, runs), list[str]()
    wait_for_lines(running, 4)
    with running.log.open() as log:  # it lies in that folder, too
        shutil.rmtree(runs)
        assert running.wait(faults) == 2
        messages = log.read()
    assert faults == []
    assert "removed. It was put back with every finished cell; use --resume" in messages
    assert "Traceback" not in messages
    assert len(read_run(only_file(tmp_path)).records) >= 3
    code, _ = run_words(tmp_path, arguments)
    files = [read_run(path) for path in sorted(runs.glob("*.jsonl"))]
    assert (code, len(files), judge(files)) == (0, 2, [])


@pytest.mark.slow
def test_a_small_campaign_finds_nothing(tmp_path):
    trial = run_trial(int(time.time()), tmp_path / "trial", kills=3)
    assert trial.faults == ()
    counts = count_faults([trial])
    assert counts["kills"] == 3
    assert counts["cells"] % STUB_CELLS == 0


def test_the_campaign_sees_what_is_wrong(make_run, make_record):
    """Files with one fault each."""
    from bench.problem import Problem

    cells = [make_record("ok", problem=Problem(seqlen=64 * n)) for n in (1, 2, 3)]
    again = make_record("ok", latency_ms=2.0, problem=cells[0].problem)
    crashed = make_record("crashed", problem=cells[2].problem)
    whole = make_run(cells)
    assert judge([make_run(cells[:2]), whole]) == []
    assert judge([make_run([*cells[:2], crashed]), whole]) == []
    assert judge([]) == ["missing: no file can be read"]
    kinds = {
        "missing": [make_run(cells[:2], cells=3)],
        "duplicate": [make_run([cells[0], cells[0], *cells[1:]], cells=3)],
        "repeated": [whole, make_run([again, *cells[1:]])],
    }
    for kind, files in kinds.items():
        assert {fault.partition(":")[0] for fault in judge(files)} == {kind}
    assert judge([make_run([*cells[:2], crashed])])[0].startswith("missing")
