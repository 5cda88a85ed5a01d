"""Small files of the kernel, planted; the windows over them are in ``test_telemetry``."""

from __future__ import annotations

import pytest

from bench import procfs


def plant(root, name, content):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


@pytest.mark.parametrize("content", ["", "cpu", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9"])
def test_a_first_line_that_is_not_that_of_all_processors_is_nothing(tmp_path, content):
    plant(tmp_path, "proc/stat", content)
    assert procfs.ticks(tmp_path) is None


def test_ticks_end_with_the_stolen_ones(tmp_path):
    plant(tmp_path, "proc/stat", "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 0 0 0\n")
    ticks = procfs.ticks(tmp_path)
    assert ticks == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (ticks[procfs.IDLE], ticks[procfs.IOWAIT], ticks[procfs.STEAL]) == (4, 5, 8)


@pytest.mark.parametrize("content", ["", "1.0", "a b c 1/2 3", "0.1 0.2 0.3 x"])
def test_a_load_that_cannot_be_read_has_a_reason(tmp_path, content):
    plant(tmp_path, "proc/loadavg", content)
    averages, runnable = procfs.loads(tmp_path)
    assert runnable is None
    assert {value for value, _ in averages.values()} == {None}
    assert all(reason for _, reason in averages.values())


def test_throttles_are_added_over_processors(tmp_path):
    for index, count in enumerate((3, 4)):
        plant(tmp_path, f"sys/devices/system/cpu/cpu{index}/thermal_throttle/core_throttle_count", f"{count}\n")
    assert procfs.thermal_throttles(tmp_path) == 7


def test_clocks_are_those_of_the_processors_asked_for(tmp_path):
    for index, khz in enumerate((1_000_000, 2_000_000, 3_000_000)):
        plant(tmp_path, f"sys/devices/system/cpu/cpu{index}/cpufreq/scaling_cur_freq", str(khz))
    found = procfs.frequencies(tmp_path, [0, 1])
    assert found == {"frequency_min_mhz": (1000, None), "frequency_max_mhz": (2000, None)}
