"""Counters and bit masks of a GPU; the windows over them are in ``test_telemetry``."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake_nvml import FakeBoard, FakeNvml

from bench.sensors import COUNTERS, advanced, event_reasons, name_reasons, throttle_counters


def values(kind, **members):
    one = SimpleNamespace(nvmlReturn=0, valueType=kind, value=SimpleNamespace(**members))
    return SimpleNamespace(NVMLError=FakeNvml.NVMLError, nvmlDeviceGetFieldValues=lambda handle, fields: [one] * 4)


@pytest.mark.parametrize(
    ("kind", "member"),
    [(0, "dVal"), (1, "uiVal"), (2, "ulVal"), (3, "ullVal"), (4, "sllVal"), (5, "siVal"), (6, "usVal")],
)
def test_a_counter_is_read_as_the_type_that_it_says(kind, member):
    assert throttle_counters(values(kind, **{member: 9}), None) == dict.fromkeys(COUNTERS, (9.0, None))


def test_a_type_that_nobody_knows_is_a_reason():
    assert {value for value, _ in throttle_counters(values(99), None).values()} == {None}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(1, 1, True), (1, 2, True), (2, 1, False)],
)
def test_a_counter_only_ever_counts_up(before, after, expected):
    moved, reason = advanced((float(before), None), (float(after), None))
    assert (reason is None) == expected
    assert moved == ((after > before) if expected else None)


def test_a_counter_that_was_not_read_gives_its_reason():
    assert advanced((None, "first"), (None, "second")) == (None, "first")
    assert advanced((1.0, None), (None, "second")) == (None, "second")


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0x0, "0x0"),
        (0x1, "0x1 idle"),
        (0x24, "0x24 sw_power_cap sw_thermal"),
        (0xC8, "0xc8 hw_slowdown hw_thermal power_brake"),
        (0x112, "0x112 set_by_user sync_boost display"),
        (0x8000, "0x8000"),
    ],
)
def test_reasons_have_names(mask, names):
    assert name_reasons(mask) == names


def test_drivers_that_only_know_the_old_name_of_the_mask():
    board = FakeBoard("GPU-1", failing={"nvmlDeviceGetCurrentClocksEventReasons": 13})
    library = FakeNvml(board)
    library.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x4
    assert event_reasons(library, board) == 4
