"""The guard against throttled rounds: it objects, it never objects for ever, and it says what it saw."""

from __future__ import annotations

import pytest
from fake_nvml import FakeBoard, FakeNvml

from bench.errors import Unavailable
from bench.nvml import Identity
from bench.throttle import ThrottleGuard

UUID = "GPU-aaaa"
GPU = (Identity(UUID),)


def guarded(rounds, limit=10, **board):
    guard = ThrottleGuard(GPU, limit=limit, opener=FakeNvml(FakeBoard(UUID, **board)))
    return guard, [guard() for _ in range(rounds)]


def test_a_steady_gpu_keeps_every_round():
    guard, verdicts = guarded(50)
    assert verdicts == [None] * 50
    assert guard.doubt() is None


def test_a_round_in_which_a_counter_advanced_is_discarded():
    guard, verdicts = guarded(12, power_cap_count=[0, 0, 0, 9, 9])
    assert [index for index, verdict in enumerate(verdicts) if verdict] == [2]
    assert verdicts[2] == "throttled_sw_power_cap"
    assert guard.doubt() is None  # one of twelve, and it was discarded


def test_a_round_whose_clock_fell_is_discarded():
    _, verdicts = guarded(12, sm_clock=[1980] * 8 + [1700] + [1980])
    assert [index for index, verdict in enumerate(verdicts) if verdict] == [8]
    assert "1700 MHz, the median so far 1980 MHz" in verdicts[8]


def test_a_clock_within_a_tenth_is_no_reason():
    assert set(guarded(12, sm_clock=[2000] * 8 + [1810, 2000])[1]) == {None}


def test_a_clock_is_not_judged_before_there_is_a_median():
    assert guarded(3, sm_clock=[1980, 900, 1980])[1] == [None] * 3


def test_the_guard_gives_up_after_its_limit_and_says_so():
    guard, verdicts = guarded(40, limit=6, power_cap_count=list(range(99)))
    assert [bool(verdict) for verdict in verdicts] == [True] * 6 + [False] * 34
    assert guard.doubt() == "the GPU throttled in 40 of 40 rounds, 6 were discarded"


@pytest.mark.parametrize("failing", ["nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues", "nvmlDeviceGetMaxClockInfo"])
def test_a_missing_sensor_leaves_the_other_at_work(failing):
    guard, verdicts = guarded(12, failing={failing: 3}, power_cap_count=[0, 0, 5], sm_clock=[1980] * 8 + [900, 1980])
    assert sum(map(bool, verdicts)) == (2 if failing == "nvmlDeviceGetMaxClockInfo" else 1)
    assert guard.doubt() is None


def test_without_a_gpu_or_a_library_nothing_is_discarded():
    def opener():
        raise Unavailable("NVML: Driver Not Loaded")

    for guard in (ThrottleGuard(), ThrottleGuard(GPU, opener=opener), ThrottleGuard(GPU, opener=FakeNvml())):
        assert [guard() for _ in range(5)] == [None] * 5
        assert guard.doubt() is None
        guard.close()


def test_the_library_is_given_back_once():
    library = FakeNvml(FakeBoard(UUID))
    guard = ThrottleGuard(GPU, opener=library)
    assert library.open == 1
    guard.close()
    guard.close()
    assert library.open == 0
    missing = FakeNvml()
    ThrottleGuard(GPU, opener=missing)
    assert missing.open == 0
