from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import bench
from bench.lifeline import end_with_parent

PRELUDE = """
import multiprocessing, os, signal, sys, time
import bench
from bench.lifeline import end_with_parent, end_worker, has_message


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pid):
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def hang(sender):
    time.sleep(600)


def leave_a_child(sender, how="die"):
    end_with_parent()
    child = os.fork()
    if child == 0:
        time.sleep(600)
    sender.send(child)
    if how == "die":
        os._exit(3)
    time.sleep(600)


def hang_with_a_child(sender):
    leave_a_child(sender, "hang")


def start(worker):
    context = multiprocessing.get_context("forkserver")  # as the runner does
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=worker, args=(sender,))
    process.start()
    sender.close()
    return process, receiver


if __name__ == "__main__":
"""


def start(folder: Path, script: str) -> subprocess.Popen[str]:
    """A process of its own, since a test of processes that fork needs one without threads."""
    path = folder / "script.py"
    path.write_text(PRELUDE + textwrap.indent(script, "    "))
    command = [sys.executable, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(bench.__file__).parents[1])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def output(folder: Path, script: str) -> list[str]:
    with start(folder, script) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert process.wait(60) == 0
    return words


def test_messages_of_a_worker_that_died_are_read_before_its_end_is_told(tmp_path):
    """Also while a child of the worker holds the pipe open: then the pipe alone never says that it is over."""
    script = """
process, receiver = start(leave_a_child)
assert has_message(receiver, process, 20)
child = receiver.recv()
try:
    has_message(receiver, process, 20)
except EOFError:
    told = alive(child)
end_worker(process)
print(told, gone(child), process.exitcode)
"""
    assert output(tmp_path, script) == ["True", "True", "3"]


def test_a_worker_that_hangs_is_ended_with_its_children(tmp_path):
    script = """
process, receiver = start(hang_with_a_child)
child = receiver.recv()
told = has_message(receiver, process, 0.1)
end_worker(process)
end_worker(process)  # once more, when all are gone
print(told, gone(child), process.exitcode)
"""
    assert output(tmp_path, script) == ["False", "True", "-9"]


def test_a_worker_that_has_no_group_of_its_own_is_ended_alone(tmp_path):
    script = """
process, receiver = start(hang)
end_worker(process)
print(process.exitcode)
"""
    assert output(tmp_path, script) == ["-9"]


@pytest.mark.parametrize("ending", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_worker_and_its_children_end_with_the_parent(tmp_path, ending):
    script = f"""
process, receiver = start(hang_with_a_child)
print(process.pid, receiver.recv(), flush=True)
{ending}
"""
    with start(tmp_path, script) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        process.wait(60)
    assert len(pids) == 2
    deadline = time.monotonic() + 20
    while (left := [pid for pid in pids if living(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == []


def living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_outside_of_a_worker_nothing_is_tied_to_anything():
    assert multiprocessing.parent_process() is None
    group = os.getpgrp()
    end_with_parent()
    assert os.getpgrp() == group
