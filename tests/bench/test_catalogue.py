"""What `list profilers` says of a tool follows from what the tool says of cells on a CPU and on a GPU."""

from __future__ import annotations

import pytest

from bench.catalogue import catalogue
from bench.profiling import Absence, tools

GPU_ONLY = Absence("looks at kernels, and the cell runs on the CPU", applicable=False)
NO_PROGRAM = Absence("no program looker is found on PATH", "install it")


class Looker:
    """A tool that is absent as its answers by device say."""

    summary = "what a planted tool gives"
    default = True

    def __init__(self, answers):
        self.answers = answers

    def absence(self, subject):
        return self.answers[subject.device]


@pytest.mark.parametrize(
    ("cpu", "cuda", "gpu", "reason"),
    [
        (None, None, False, None),
        (None, GPU_ONLY, True, None),
        (GPU_ONLY, None, True, None),
        (GPU_ONLY, None, False, "it needs a GPU, and none is seen here"),
        (GPU_ONLY, NO_PROGRAM, False, "no program looker is found on PATH. To get it: install it"),
        (GPU_ONLY, NO_PROGRAM, True, "no program looker is found on PATH. To get it: install it"),
        (GPU_ONLY, GPU_ONLY, True, "looks at kernels, and the cell runs on the CPU"),
    ],
)
def test_a_tool_is_available_if_it_can_look_at_something_here(monkeypatch, cpu, cuda, gpu, reason):
    tool = type("Planted", (Looker,), {"__init__": lambda self: Looker.__init__(self, {"cpu": cpu, "cuda": cuda})})
    monkeypatch.setattr(tools, "items", lambda: iter([("looker", tool)]))
    monkeypatch.setattr("bench.catalogue._has_gpu", lambda: gpu)
    (row,) = catalogue("profilers")
    assert row == {
        "name": "looker",
        "default": "yes",
        "available": "no" if reason else "yes",
        "reason": reason,
        "summary": "what a planted tool gives",
    }


def test_every_registered_tool_is_listed_and_those_of_torch_are_available():
    rows = {row["name"]: row for row in catalogue("profilers")}
    assert list(rows) == tools.names()
    assert rows["torch"]["available"] == rows["memory"]["available"] == "yes"


def test_a_tool_that_does_not_load_is_listed_with_the_reason(monkeypatch):
    monkeypatch.setattr(tools, "broken", {"bench.profiling.lost": "ImportError: no lost"})
    row = catalogue("profilers")[-1]
    assert (row["name"], row["available"], row["summary"]) == (
        "bench.profiling.lost",
        "no",
        "not loaded: ImportError: no lost",
    )
