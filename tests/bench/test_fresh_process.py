from __future__ import annotations

import os

import pytest

from bench.fresh_process import VARIABLES, own_bytes, start, variables
from bench.lifeline import end_worker


def report(word, sender):
    """In the fresh process: what it was started with."""
    os.write(1, b"never seen\n")
    sender.send((word, {name: os.environ.get(name) for name in VARIABLES}))


def test_a_process_starts_with_the_settings_and_leaves_ours_alone(monkeypatch, capfd):
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "0")
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    process, receiver = start(report, "hello")
    assert receiver.recv() == ("hello", VARIABLES)
    end_worker(process)
    assert os.environ["MALLOC_MMAP_MAX_"] == "0" and "MALLOC_TRIM_THRESHOLD_" not in os.environ
    assert capfd.readouterr().out == ""


def test_variables_come_back_after_a_failure(monkeypatch):
    monkeypatch.setenv("PRESENT", "before")
    monkeypatch.delenv("ABSENT", raising=False)
    with pytest.raises(ZeroDivisionError), variables({"PRESENT": None, "ABSENT": "1"}):
        assert ("PRESENT" in os.environ, os.environ["ABSENT"]) == (False, "1")
        raise ZeroDivisionError
    assert (os.environ["PRESENT"], "ABSENT" in os.environ) == ("before", False)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("Name:\tpython\nVmHWM:\t  123 kB\nVmRSS:\t 99 kB\n", 123 * 1024),
        ("Name:\tVmHWM\nVmRSS:\t 99 kB\n", None),
        ("VmHWM:\n", None),
        ("VmHWM:\tmany kB\n", None),
    ],
)
def test_a_figure_of_the_status_is_in_bytes_or_missing(tmp_path, status, expected):
    path = tmp_path / "status"
    path.write_text(status)
    assert own_bytes("VmHWM", path) == expected
    assert own_bytes("VmHWM", tmp_path / "absent") is None
