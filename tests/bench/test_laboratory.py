"""The laboratory and its notebook: what is missing is observed once, a cut line costs itself, judging is repeated."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest

from bench import laboratory
from bench.errors import NothingSelectedError, OutputError
from bench.laboratory import run_soundness
from bench.notebook import latest_findings, read_notes
from bench.soundness import Finding


class Counting:
    """Three units; the second fails as often as told."""

    name = reads = "e01_counting"
    title, target = "Does it count?", "three units"
    calls: ClassVar[list[str]] = []
    failing = 0

    def units(self, quick):
        return ["one"] if quick else ["one", "two", "three"]

    def observe(self, unit, context):
        type(self).calls.append(unit)
        if unit == "two" and type(self).failing > 0:
            type(self).failing -= 1
            raise RuntimeError("planted")
        return {"unit": unit}

    def judge(self, observations):
        return Finding(len(observations) == 3, f"{len(observations)} units", [{"count": len(observations)}])


class Reader(Counting):
    name = "e02_reader"

    def units(self, quick):
        return []


class Members:
    def items(self):
        return [("e01_counting", Counting), ("e02_reader", Reader)]

    def get(self, name):
        return dict(self.items())[name]

    def names(self):
        return [name for name, _ in self.items()]


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    monkeypatch.setattr(laboratory, "experiments", Members())
    Counting.calls, Counting.failing = [], 0
    return tmp_path / "published" / "soundness.jsonl"


def run(notebook, **options):
    said = []
    findings = run_soundness(notebook, **{"quick": False, "say": said.append, **options})
    return {note.experiment: note.content for note in findings}, said


def test_every_unit_is_observed_once_and_every_experiment_judged_on_what_it_reads(notebook):
    found, _ = run(notebook)
    assert Counting.calls == ["one", "two", "three"]
    assert found["e01_counting"]["met"] is True
    assert found["e02_reader"]["units"] == 3
    run(notebook)
    assert Counting.calls == ["one", "two", "three"]


def test_a_quick_run_is_taken_over_by_the_full_one(notebook):
    assert run(notebook, quick=True)[0]["e01_counting"]["met"] is False
    run(notebook)
    assert Counting.calls == ["one", "two", "three"]


def test_a_unit_that_fails_is_told_and_tried_again_the_next_time(notebook):
    Counting.failing = 1
    found, said = run(notebook)
    assert found["e01_counting"]["units"] == 2
    assert any("planted" in text for text in said)
    assert run(notebook)[0]["e01_counting"]["units"] == 3


def test_a_cut_last_line_costs_that_unit_alone(notebook):
    run(notebook, quick=True)
    whole = notebook.read_bytes()
    notebook.write_bytes(whole + b'{"type":"observation","experiment":"e01_cou')
    assert run(notebook)[0]["e01_counting"]["units"] == 3
    assert all(json.loads(line) for line in notebook.read_bytes().splitlines())


def test_filters_and_time_choose(notebook):
    run(notebook, only=("e02",))
    assert Counting.calls == []
    run(notebook, units=("tw",))
    assert Counting.calls == ["two"]
    run(notebook, seconds=0)
    assert Counting.calls == ["two"]
    with pytest.raises(NothingSelectedError, match="Change --only"):
        run(notebook, only=("nothing",))


def test_the_last_finding_counts(notebook):
    run(notebook, quick=True)
    run(notebook)
    assert [note.content["units"] for note in latest_findings(notebook)] == [3, 3]


def test_no_machine_name_is_noted(notebook):
    import platform

    run(notebook)
    assert platform.node() not in notebook.read_text()
    assert {"cpu", "cores", "torch", "commit", "dirty"} <= set(next(read_notes(notebook)).machine)


def test_a_foreign_line_is_an_error_with_its_place(notebook):
    run(notebook, quick=True)
    notebook.write_text('{"what": 1}\n' + notebook.read_text())
    with pytest.raises(OutputError, match=r"soundness.jsonl:1"):
        list(read_notes(notebook))


def test_a_notebook_that_cannot_be_written_is_an_error(notebook, tmp_path):
    (tmp_path / "published").write_text("a file where a folder should be")
    with pytest.raises(OutputError, match="notebook must be writable"):
        run(notebook)


def test_a_part_of_the_units_never_meets_a_target(notebook, monkeypatch):
    monkeypatch.setattr(Counting, "judge", lambda self, observations: Finding(True, "all is well"))
    assert run(notebook, quick=True)[0]["e01_counting"]["met"] is None
    assert run(notebook)[0]["e01_counting"]["met"] is True


def test_units_of_another_machine_are_told_and_stay_theirs(notebook, monkeypatch):
    monkeypatch.setattr(laboratory, "_machine", lambda: {"cpu": "theirs", "cores": 64, "torch": "1", "commit": "a"})
    run(notebook)
    monkeypatch.setattr(laboratory, "_machine", lambda: {"cpu": "ours", "cores": 2, "torch": "1", "commit": "b"})
    _, said = run(notebook)
    assert any("3 of 3 units" in text and "another machine" in text for text in said)
    assert latest_findings(notebook)[0].machine["cpu"] == "theirs"
