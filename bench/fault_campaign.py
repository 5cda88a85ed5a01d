"""Kill runs at random moments and resume them: is every finished cell there exactly once, and every file readable?

A *trial* is a sweep on its way to completion: the run is killed, resumed, killed again, and finally resumed until
nothing is missing. What is killed (the parent or its worker), by which signal and when is drawn from the trial's seed;
a third of the kills falls into the start or the end of a run. The stub sweep has 20 cells that end after 50 ms each,
without being timed: what is put to the test is the runner and the store. Runs are processes of the command line, found
and watched through ``/proc`` (Linux alone).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.record import Record
from bench.results import Run, read_run

STUB = '''"""Ends each cell after 50 ms. No reason is given twice, which tells a cell taken over from one done again."""

import time

from bench.errors import Unsupported
from bench.implementation import register_implementation


@register_implementation
class Stub:
    name = "stub"
    summary = "ends after 50 ms"
    layout = "bhsd"
    devices = ("cpu",)
    backward = False
    expects = ()

    def version(self):
        return "1"

    def unsupported(self, problem, device):
        return None

    def predicted_peak_bytes(self, problem, device):
        return None

    def prepare(self, problem, inputs):
        time.sleep(0.05)
        raise Unsupported(f"done at {time.time_ns()}")
'''
STUB_CELLS = 20
STUB_SWEEP = f"""title = "Stub"
[axes]
num_heads = 1
head_dim = 8
seqlen = {[8 * n for n in range(1, STUB_CELLS + 1)]}
"""

SIGNALS = {
    "parent": (signal.SIGKILL, signal.SIGTERM, signal.SIGINT),
    "worker": (signal.SIGKILL, signal.SIGTERM),  # it leaves SIGINT to the parent: that would be no kill
}
"""What is killed, and by what."""
START_S = 4.0
"""A run is killed within its start by a delay of up to this: a new Python and torch take about as long."""
CELL_S = 0.1
"""Between two cells the delay is up to this."""
RUN_LIMIT_S = 900.0
"""A run that goes on for longer after a kill is taken to hang."""
ORPHAN_LIMIT_S = 30.0
"""Processes of a run may outlive its parent for this long: a fork server that imports torch notices late."""

MESSAGE_CHARS = 300
"""How much of what a run said a fault quotes."""
_SETTLED = ("ok", "verified", "unsupported", "unavailable", "incorrect")


@dataclass(frozen=True)
class Kill:
    """One process that was sent a signal."""

    victim: str
    """``parent`` or ``worker``."""
    signal: str
    when: str
    """``start`` (nothing written), ``cells``, or ``end`` (every cell written)."""
    exit_code: int
    """Of the command line; negative for a signal."""


@dataclass(frozen=True)
class Trial:
    """Sweeps that were killed, resumed and completed."""

    seed: int
    kills: tuple[Kill, ...]
    cells: int
    """Planned, and so expected exactly once in the last file of their sweep."""
    lost: int
    """Cells that a killed worker cost: recorded as crashed, and tried again by the resumed run."""
    faults: tuple[str, ...]
    """What was wrong. Each begins with its kind: corrupt, duplicate, missing, repeated, lost, orphan, hang or exit."""
    seconds: float


def campaign(
    kills: int,
    folder: Path,
    *,
    seed: int = 0,
    kills_per_trial: int = 4,
    jobs: int = 2,
    words: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[Trial]:
    """Trials with ``kills`` kills in all.

    Args:
        kills: how many processes are killed.
        folder: a folder per trial is made in it.
        seed: of the first trial; the next ones count up.
        kills_per_trial: kills in each.
        jobs: trials at a time.
        words: what to run, as arguments of the command line; None is the stub sweep.
        say: told of each trial as it ends.
    """
    counts = [min(kills_per_trial, kills - done) for done in range(0, kills, kills_per_trial)]

    def one(number: int) -> Trial:
        trial = run_trial(seed + number, folder / f"trial-{seed + number}", kills=counts[number], words=words)
        say(f"trial {trial.seed}: {len(trial.kills)} kills, {trial.faults or 'no fault'}, {trial.seconds:.0f} s")
        return trial

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, range(len(counts))))


def run_trial(seed: int, folder: Path, *, kills: int = 1, words: Sequence[str] | None = None) -> Trial:
    """Kill a run, resume it, and so on until there were ``kills`` and the sweep is complete; judge the files.

    A kill of the worker leaves a run that completes: the next kill then meets a new sweep.

    Args:
        seed: decides what is killed, how and when.
        folder: for the files of this trial; must not exist yet.
        kills: at least 1. A signal that came too late for a run to be there is drawn again.
        words: as for :func:`campaign`.
    """
    started, rng = time.monotonic(), random.Random(seed)
    folder.mkdir(parents=True)
    words = _stub_words(folder) if words is None else words
    done: list[Kill] = []
    faults: list[str] = []
    sweeps: list[list[Run]] = []
    while len(done) < kills:
        runs = folder / f"sweep-{len(sweeps)}"
        runs.mkdir()
        while len(done) < kills and not _is_complete(runs):
            kill = _killed_run(rng, words, runs, faults)
            done += [] if kill is None else [kill]
        resumed = RunningCommand(words, runs)
        code = resumed.wait(faults)
        if code not in (0, 1):
            faults.append(f"exit: the last run ended with {code}: {resumed.messages()[-MESSAGE_CHARS:]}")
        sweeps.append(_read_all(runs, faults))
        faults += judge(sweeps[-1])
    lost = sum(record.status == "crashed" for files in sweeps for run in files for record in run.records)
    if lost > sum(kill.victim == "worker" for kill in done):
        faults.append(f"lost: {lost} cells crashed by {done}")
    cells = sum(files[-1].header.cells for files in sweeps if files)
    return Trial(seed, tuple(done), cells, lost, tuple(faults), time.monotonic() - started)


def judge(files: Sequence[Run]) -> list[str]:
    """Faults in the files of one sweep, oldest first: the last one should be complete.

    Every cell that an earlier file holds as settled must stand in the last one unchanged, or it was done again.
    """
    if not files:
        return ["missing: no file can be read"]
    faults = []
    last = files[-1]
    for run in files:
        twice = [key for key, count in Counter(record.cell_key for record in run.records).items() if count > 1]
        faults += [f"duplicate: {key} in {run.path.name}" for key in twice]
    final = {record.cell_key: record for record in last.records}
    if len(final) != last.header.cells or last.end is None or last.end.outcome != "complete":
        outcome = None if last.end is None else last.end.outcome
        faults.append(f"missing: {len(final)} of {last.header.cells} cells in {last.path.name}, outcome {outcome}")
    faults += [
        f"missing: {record.cell_key} is {record.status}" for record in last.records if record.status == "crashed"
    ]
    settled: dict[str, Record] = {}
    for run in files[:-1]:
        settled.update({record.cell_key: record for record in run.records if record.status in _SETTLED})
    faults += [f"repeated: {key}" for key, record in settled.items() if final.get(key, record) != record]
    return faults


def count_faults(trials: Sequence[Trial]) -> dict[str, Any]:
    """What a table shows: kills by victim, signal and moment, cells, and faults by kind."""
    kills = [kill for trial in trials for kill in trial.kills]
    return {
        "trials": len(trials),
        "kills": len(kills),
        "by_victim": dict(Counter(kill.victim for kill in kills)),
        "by_signal": dict(Counter(kill.signal for kill in kills)),
        "by_moment": dict(Counter(kill.when for kill in kills)),
        "cells": sum(trial.cells for trial in trials),
        "lost_in_flight": sum(trial.lost for trial in trials),
        "faults": dict(Counter(fault.partition(":")[0] for trial in trials for fault in trial.faults)),
    }


class RunningCommand:
    """One process of the command line, in a session of its own, resuming what is there.

    Args:
        words: arguments of the command line.
        runs: its output folder.
    """

    def __init__(self, words: Sequence[str], runs: Path) -> None:
        self.runs, self.before = runs, set(runs.glob("*.jsonl"))
        resume = ["--resume", "auto"] if any(b"\n" in path.read_bytes() for path in self.before) else []
        self.log = runs / f"messages-{time.monotonic_ns()}.txt"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench", *words, "-o", str(runs), *resume],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def lines(self) -> int:
        """Whole lines that this run has written."""
        new = [path for path in self.runs.glob("*.jsonl") if path not in self.before]
        return new[0].read_bytes().count(b"\n") if new else 0

    def messages(self) -> str:
        """What it said on stderr."""
        return self.log.read_text(errors="replace")

    def processes(self) -> dict[int, int]:
        """Living processes of its session: pid to parent."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, parent, _, session = path.read_text().rpartition(")")[2].split()[:4]
            except OSError:  # it ended meanwhile
                continue
            if int(session) == self.process.pid and state not in "ZX":
                found[int(path.parent.name)] = int(parent)
        return found

    def worker(self) -> int | None:
        """A process whose parent (the fork server) is a child of the command line; None if there is none now."""
        processes = self.processes()
        grandchildren = [pid for pid, parent in processes.items() if processes.get(parent) == self.process.pid]
        return max(grandchildren, default=None)

    def wait(self, faults: list[str]) -> int:
        """Exit code, after all processes of the session are gone; what is not is ended and told as a fault."""
        try:
            self.process.wait(RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            faults.append(f"hang: a run went on for {RUN_LIMIT_S:g} s; it said {self.messages()[-MESSAGE_CHARS:]}")
            self.process.kill()
            self.process.wait()
        deadline = time.monotonic() + ORPHAN_LIMIT_S
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            faults.append(f"orphan: process {pid} outlived its run by {ORPHAN_LIMIT_S:g} s")
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return self.process.returncode


def _killed_run(rng: random.Random, words: Sequence[str], runs: Path, faults: list[str]) -> Kill | None:
    """Start a run and kill it, or its worker, at a random moment; None if it was over before that."""
    victim = rng.choice(tuple(SIGNALS))
    signum = rng.choice(SIGNALS[victim])
    when, chance = rng.choice(("start", "cells", "cells", "cells", "cells", "end")), rng.random()
    running = RunningCommand(words, runs)
    if when == "start":
        time.sleep(START_S * chance)
    else:
        cells = _planned(running)
        wanted = 1 + cells if when == "end" else 1 + rng.randrange(max(1, cells))
        while running.process.poll() is None and running.lines() < wanted:
            time.sleep(0.002)
        time.sleep(CELL_S * chance)
    pid = running.process.pid if victim == "parent" else _await_worker(running)
    hit = pid is not None and running.process.poll() is None
    if hit and pid is not None:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            hit = False
    code = running.wait(faults)
    if hit and "Traceback" in running.messages() and when != "start":
        faults.append(f"exit: a traceback after {signum.name} of the {victim}: {running.messages()[-MESSAGE_CHARS:]}")
    return Kill(victim, signum.name, when, code) if hit else None


def _planned(running: RunningCommand) -> int:
    """Cells that the header of this run says, once it is there."""
    while running.process.poll() is None and not running.lines():
        time.sleep(0.01)
    new = [path for path in running.runs.glob("*.jsonl") if path not in running.before]
    try:
        return read_run(new[0]).header.cells if new else 0
    except BenchError:
        return 0


def _await_worker(running: RunningCommand) -> int | None:
    """The worker, once there is one; None if the run ends before."""
    while running.process.poll() is None:
        pid = running.worker()
        if pid is not None:
            return pid
        time.sleep(0.005)
    return None


def _is_complete(runs: Path) -> bool:
    """Whether one of the runs there did all its cells."""
    return any(run.end is not None and run.end.outcome == "complete" for run in _read_all(runs, []))


def _read_all(runs: Path, faults: list[str]) -> list[Run]:
    """All files that hold a whole line, in the order of their runs; one that cannot be read is a fault."""
    files = []
    for path in runs.glob("*.jsonl"):
        if b"\n" not in path.read_bytes():
            continue
        try:
            files.append(read_run(path))
        except BenchError as error:
            faults.append(f"corrupt: {error}")
    return sorted(files, key=lambda run: run.path.stat().st_ctime_ns)


def _stub_words(folder: Path) -> list[str]:
    """Write the stub implementation and its sweep; the arguments that run them."""
    (folder / "stub.py").write_text(STUB)
    (folder / "stub.toml").write_text(STUB_SWEEP)
    return ["verify", "--sweep", str(folder / "stub.toml"), "--load", str(folder / "stub.py"), "-i", "^stub$"]
