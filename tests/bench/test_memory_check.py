"""The resident-set mark against exact peaks, in fresh processes; and what is said where there is no figure."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from bench import memory_check
from bench.case import Case
from bench.implementation import implementations
from bench.memory_check import LEAST_PEAK_BYTES, Growth, agrees, cross_checked, resident_growth
from bench.problem import Problem

FAULTY = Path(__file__).parents[1] / "plugins" / "faulty.py"
MIB = 1 << 20


@pytest.mark.parametrize(
    ("peak", "growth", "expected"),
    [
        (8 * MIB, 8 * MIB, True),
        (8 * MIB, 9 * MIB, True),
        (8 * MIB, 9 * MIB + 1, False),
        (8 * MIB, 7 * MIB - 1, False),
        (1000 * MIB, 1020 * MIB, True),
        (1000 * MIB, 1021 * MIB, False),
        (8 * MIB - 1, 0, None),
    ],
)
def test_the_tolerance_is_two_percent_or_a_mebibyte(peak, growth, expected):
    assert agrees(peak, growth) is expected


@pytest.mark.slow
def test_the_mark_agrees_with_the_exact_law_whatever_was_called_before():
    lengths = (512, 1024, 2048, 1024, 512)
    cases = [Case(Problem(seqlen=n), "naive") for n in lengths]
    found = resident_growth(cases)
    assert [growth.reason for growth in found] == [None] * len(cases)
    for case, growth in zip(cases, found, strict=True):
        assert agrees(implementations.get("naive").predicted_peak_bytes(case.problem), growth.vm_hwm_bytes), case


@pytest.mark.slow
def test_a_case_that_fails_costs_itself_and_one_that_ends_the_process_those_after_it():
    names = ["naive", "raises", "nobody", "naive", "exits", "naive"]
    found = resident_growth([Case(Problem(seqlen=256), name) for name in names], load=(FAULTY,))
    assert [growth.vm_hwm_bytes is not None for growth in found] == [True, False, False, True, False, False]
    assert "planted failure" in found[1].reason and "UnknownNameError" in found[2].reason
    assert found[4].reason == found[5].reason == "the process ended with exit code 7"


@pytest.mark.slow
def test_a_case_that_hangs_is_ended():
    (found,) = resident_growth([Case(Problem(seqlen=256), "hangs")], load=(FAULTY,), timeout_s=5.0)
    assert found == Growth(None, "no answer for 5 s")


def test_a_system_that_cannot_reset_the_mark_gives_a_reason(monkeypatch):
    class Refuses:
        def write_text(self, text):
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(memory_check, "CLEAR_REFS", Refuses())
    assert memory_check._growth(Case(Problem(seqlen=16), "naive")) == Growth(
        None, "the mark cannot be reset here (Permission denied)"
    )


def test_a_kernel_without_a_mark_gives_a_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(memory_check, "CLEAR_REFS", tmp_path / "clear_refs")
    monkeypatch.setattr(memory_check, "own_bytes", lambda field: None)
    assert memory_check._growth(Case(Problem(seqlen=16), "naive")) == Growth(None, "this kernel keeps no VmHWM")


@pytest.mark.parametrize(
    ("peak", "growth", "mark", "reason", "flags"),
    [
        (8 * MIB, Growth(8 * MIB), 8 * MIB, None, []),
        (8 * MIB, Growth(16 * MIB), 16 * MIB, None, ["memory_disagrees"]),
        (8 * MIB, Growth(None, "no answer for 120 s"), None, "no answer for 120 s", []),
        (8 * MIB - 1, None, None, f"a peak below {LEAST_PEAK_BYTES} bytes is too small for a cross-check", []),
    ],
)
def test_each_peak_has_a_growth_beside_it_or_a_reason(make_record, monkeypatch, peak, growth, mark, reason, flags):
    asked = []
    monkeypatch.setattr(memory_check, "resident_growth", lambda cases, load: asked.extend(cases) or [growth])
    record = make_record()
    memory = record.measurement.memory.model_copy(update={"peak_bytes": peak})
    measurement = record.measurement.model_copy(update={"memory": memory})
    (found,) = cross_checked([record.model_copy(update={"measurement": measurement})])
    assert len(asked) == (growth is not None)
    assert (found.measurement.memory.vm_hwm_bytes, found.measurement.memory.vm_hwm_reason) == (mark, reason)
    assert [flag.name for flag in found.flags] == flags
