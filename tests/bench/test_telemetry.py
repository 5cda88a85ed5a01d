"""Readings over a window: each alone, differenced where they count up, null with a reason where there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fake_nvml import FakeBoard, FakeNvml, nvml_stub, with_library

from bench import sensors
from bench.errors import Unavailable
from bench.nvml import Identity
from bench.telemetry import GPU_READINGS, Recorder

__all__ = ["nvml_stub"]

UUID = "GPU-aaaa0000-0000"
GPU = (Identity(UUID),)


def record(board, **failing):
    cpu, gpu = Recorder(GPU, opener=FakeNvml(board, **failing)).start().stop()
    assert cpu.device == "cpu"
    return gpu


def test_every_reading_of_a_gpu():
    board = FakeBoard(UUID, sm_clock=[1980, 1710], reasons=0x24, pids=(os.getpid(), 1, 2), persistence=0)
    gpu = record(board)
    assert gpu.device == UUID
    assert gpu.reasons == {}
    assert gpu.readings == {
        "sm_clock_start_mhz": 1980,
        "sm_clock_end_mhz": 1710,
        "sm_clock_max_mhz": 1980,
        "memory_clock_start_mhz": 2619,
        "memory_clock_end_mhz": 2619,
        "memory_clock_max_mhz": 2619,
        "throttled_sw_power_cap": False,
        "throttled_sw_thermal": False,
        "throttled_hw_thermal": False,
        "throttled_power_brake": False,
        "clocks_event_reasons": "0x24 sw_power_cap sw_thermal",
        "power_w": 412.5,
        "power_limit_w": 700,
        "temperature_c": 61,
        "other_processes": 2,
        "mig": False,
        "persistence_mode": False,
    }


def test_a_counter_is_told_as_advanced_or_not():
    assert record(FakeBoard(UUID, power_cap_count=[5_000, 5_001])).readings["throttled_sw_power_cap"] is True
    assert record(FakeBoard(UUID, power_cap_count=[5_000, 5_000])).readings["throttled_sw_power_cap"] is False


def test_a_counter_that_was_reset_says_nothing():
    gpu = record(FakeBoard(UUID, power_cap_count=[5_000, 3]))
    assert gpu.readings["throttled_sw_power_cap"] is None
    assert "reset" in gpu.reasons["throttled_sw_power_cap"]


CALLS = {
    "nvmlDeviceGetClockInfo": {"sm_clock_start_mhz", "sm_clock_end_mhz"}
    | {"memory_clock_start_mhz", "memory_clock_end_mhz"},
    "nvmlDeviceGetMaxClockInfo": {"sm_clock_max_mhz", "memory_clock_max_mhz"},
    "nvmlDeviceGetFieldValues": set(sensors.COUNTERS),
    "nvmlDeviceGetCurrentClocksEventReasons": {"clocks_event_reasons"},
    "nvmlDeviceGetPowerUsage": {"power_w"},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_w"},
    "nvmlDeviceGetTemperatureV": {"temperature_c"},
    "nvmlDeviceGetPersistenceMode": {"persistence_mode"},
    "nvmlDeviceGetComputeRunningProcesses": {"other_processes"},
    "nvmlDeviceGetMigMode": set(),
    "nvmlDeviceGetPciInfo": set(),
}


@pytest.mark.parametrize(("code", "message"), [(3, "NVML: Not Supported"), (4, "NVML: Insufficient Permissions")])
@pytest.mark.parametrize("call", CALLS)
def test_one_refused_call_costs_its_own_readings_alone(call, code, message):
    gpu = record(FakeBoard(UUID, failing={call: code}))
    assert gpu.reasons == dict.fromkeys(CALLS[call], message)


def test_one_refused_counter_costs_no_other():
    gpu = record(FakeBoard(UUID, failing={"hw_thermal": 3}))
    assert gpu.reasons == {"throttled_hw_thermal": "NVML: Not Supported"}


def test_processes_of_another_namespace_are_not_counted_as_others():
    gpu = record(FakeBoard(UUID, pids=(4194999,)))
    assert gpu.readings["other_processes"] is None
    assert "container" in gpu.reasons["other_processes"]


def test_a_board_that_is_not_found_has_every_reading_null_for_that_reason():
    library = FakeNvml(FakeBoard("GPU-bbbb"))
    _, gpu = Recorder(GPU, opener=library).start().stop()
    assert gpu.device == UUID
    assert set(gpu.readings) == set(gpu.reasons) == set(GPU_READINGS)
    assert all("GPU-bbbb" in reason for reason in gpu.reasons.values())
    assert library.open == 0


def test_without_nvml_the_processor_is_still_read():
    def opener():
        raise Unavailable("NVML: Driver Not Loaded")

    cpu, gpu = Recorder((Identity(None),), opener=opener).start().stop()
    assert cpu.readings["load_1min"] is not None
    assert gpu.device == "unknown"
    assert set(gpu.reasons.values()) == {"NVML: Driver Not Loaded"}
    assert json.loads(gpu.model_dump_json())["readings"]["power_w"] is None


def test_the_window_is_timed_and_the_library_given_back():
    library, times = FakeNvml(FakeBoard(UUID)), iter([10.0, 12.5])
    telemetry = Recorder(GPU, opener=library, clock=lambda: next(times)).start().stop()
    assert {one.window_s for one in telemetry} == {2.5}
    assert library.open == 0


# ------------------------------------------------------------------------------------------------ the processor


@pytest.fixture
def machine(tmp_path):
    """A planted ``/proc`` and ``/sys``; call it again to change a file."""

    def plant(**files: str) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path

    plant(
        **{
            "proc/stat": "cpu  1000 0 500 8000 100 0 0 400 0 0\ncpu0 1 2 3\n",
            "proc/loadavg": "0.50 1.25 2.00 3/90 8894\n",
            "proc/cpuinfo": "processor : 0\ncpu MHz\t\t: 2596.144\n\nprocessor : 1\ncpu MHz\t\t: 800.0\n",
        }
    )
    return plant


def processor(machine, change=lambda: None, environ=None):
    recorder = Recorder(root=machine(), environ=environ or {}).start()
    change()
    (cpu,) = recorder.stop()
    return cpu


def test_shares_are_those_of_the_window(machine):
    cpu = processor(machine, lambda: machine(**{"proc/stat": "cpu  1060 0 500 8020 100 0 0 420 60 0\n"}))
    assert cpu.readings["busy_share"] == pytest.approx(0.6)  # 60 of 100 ticks; guest time is part of user time
    assert cpu.readings["steal_share"] == pytest.approx(0.2)


def test_waiting_for_disks_is_not_being_busy(machine):
    cpu = processor(machine, lambda: machine(**{"proc/stat": "cpu  1010 0 500 8000 190 0 0 400 0 0\n"}))
    assert cpu.readings["busy_share"] == pytest.approx(0.1)


def test_what_this_process_used_is_not_counted_as_others(machine, monkeypatch):
    seconds = iter([5.0, 5.0 + 40 / os.sysconf("SC_CLK_TCK")])
    monkeypatch.setattr("bench.telemetry.time.process_time", lambda: next(seconds))
    cpu = processor(machine, lambda: machine(**{"proc/stat": "cpu  1060 0 500 8040 100 0 0 400 0 0\n"}))
    assert cpu.readings["busy_elsewhere_share"] == pytest.approx(0.2)


def test_a_window_below_one_tick_has_no_shares(machine):
    assert "tick" in processor(machine).reasons["busy_share"]


def test_loads_frequencies_and_thread_settings(machine):
    cpu = processor(machine, environ={"OMP_NUM_THREADS": "2"})
    told = {name: cpu.readings[name] for name in ("load_1min", "load_15min", "frequency_min_mhz", "frequency_max_mhz")}
    assert told == {
        "load_1min": 0.5,
        "load_15min": 2.0,
        "frequency_min_mhz": 800.0,
        "frequency_max_mhz": pytest.approx(2596.144),
    }
    assert (cpu.readings["omp_num_threads"], cpu.readings["kmp_affinity"]) == ("2", "not set")


def test_frequencies_of_cpufreq_win(machine):
    processor_number = min(os.sched_getaffinity(0))
    machine(**{f"sys/devices/system/cpu/cpu{processor_number}/cpufreq/scaling_cur_freq": "3100000"})
    assert processor(machine).readings["frequency_max_mhz"] == 3100


def test_heat_is_told_as_slowed_down_or_not(machine):
    path = "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count"
    machine(**{path: "7"})
    assert processor(machine).readings["throttled_thermal"] is False
    assert processor(machine, lambda: machine(**{path: "8"})).readings["throttled_thermal"] is True


def test_energy_of_the_packages(machine):
    zone = "sys/class/powercap/intel-rapl:0"
    machine(**{f"{zone}/name": "package-0", f"{zone}/energy_uj": "1000000", f"{zone}/max_energy_range_uj": "9000000"})
    cpu = processor(machine, lambda: machine(**{f"{zone}/energy_uj": "3500000"}))
    assert cpu.readings["package_energy_j"] == 2.5
    assert "did not advance" in processor(machine).reasons["package_energy_j"]


def test_a_machine_that_tells_nothing_gives_reasons_and_no_zero(tmp_path):
    (cpu,) = Recorder(root=tmp_path, environ={}).start().stop()
    named = {name for name, value in cpu.readings.items() if value is None}
    assert named == set(cpu.readings) - {"omp_num_threads", "omp_proc_bind", "kmp_affinity"}


def test_this_machine_tells_its_load_where_it_has_one():
    (cpu,) = Recorder().start().stop()
    assert (cpu.readings["load_1min"] is not None) == Path("/proc/loadavg").exists()


# ------------------------------------------------------------------------------------------- the real bindings

SCRIPT = """
import sys
from types import SimpleNamespace
from fake_nvml import FakeBoard, fake_cuda
from bench.nvml import cuda_identity
from bench.telemetry import Recorder
first = FakeBoard("GPU-11111111-1111-1111-1111-111111111111", bus=0x17)
second = FakeBoard("GPU-22222222-2222-2222-2222-222222222222", bus=0x65)
instance = FakeBoard("MIG-33333333-3333-3333-3333-333333333333")
cuda = {"second": fake_cuda(second, first), "address": fake_cuda(second, first, uuid=False),
        "instance": fake_cuda(instance)}[sys.argv[1] if len(sys.argv) > 1 else "second"]
print(Recorder(cuda_identity("cuda", cuda)).start().stop()[1].model_dump_json())
"""
TESTS = str(Path(__file__).parents[1])
SECOND = "GPU-22222222-2222-2222-2222-222222222222"


def script(cuda="second"):
    return f"import sys; sys.path.append({TESTS!r}); sys.argv[1:] = [{cuda!r}]\n{SCRIPT}"


@pytest.mark.parametrize("cuda", ["second", "address"])
def test_the_real_bindings_read_the_board_that_cuda_means(nvml_stub, cuda):
    """NVML's board 1 is CUDA's device 0; each reading of the stub ends in the number of its board."""
    gpu = with_library(nvml_stub, script(cuda), STUB_THROTTLE="1")
    assert gpu["device"] == SECOND
    assert gpu["reasons"] == {}
    assert gpu["readings"] == {
        "sm_clock_start_mhz": 1501.0,
        "sm_clock_end_mhz": 1501.0,
        "sm_clock_max_mhz": 1981.0,
        "memory_clock_start_mhz": 2601.0,
        "memory_clock_end_mhz": 2601.0,
        "memory_clock_max_mhz": 2620.0,
        "throttled_sw_power_cap": True,
        "throttled_sw_thermal": False,
        "throttled_hw_thermal": False,
        "throttled_power_brake": False,
        "clocks_event_reasons": "0x24 sw_power_cap sw_thermal",
        "power_w": 300.001,
        "power_limit_w": 700.001,
        "temperature_c": 61.0,  # through the old name, as the stub lacks the new one
        "other_processes": 1.0,
        "mig": False,
        "persistence_mode": True,
    }


def test_the_real_bindings_refuse_field_by_field(nvml_stub):
    refused = "nvmlDeviceGetPowerUsage=3,nvmlDeviceGetEnforcedPowerLimit=4,270=3,nvmlDeviceGetTemperature=999"
    gpu = with_library(nvml_stub, script(), STUB_FAIL=refused)
    assert gpu["reasons"] == {
        "throttled_hw_thermal": "NVML: Not Supported",
        "power_w": "NVML: Not Supported",
        "power_limit_w": "NVML: Insufficient Permissions",
        "temperature_c": "NVML: Function Not Found",  # of the new name, which was asked first
    }
    assert gpu["readings"]["throttled_sw_power_cap"] is False


def test_the_real_bindings_read_an_instance_and_not_its_board(nvml_stub):
    gpu = with_library(nvml_stub, script("instance"), STUB_MIG="1")
    assert gpu["device"].startswith("MIG-3333")
    assert gpu["readings"]["mig"] is True
    assert gpu["reasons"]["sm_clock_end_mhz"] == gpu["reasons"]["throttled_sw_thermal"] == "NVML: Not Supported"


def test_the_real_bindings_without_a_library_give_null_readings(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    gpu = with_library(tmp_path, script())
    assert set(gpu["reasons"].values()) == {"NVML: NVML Shared Library Not Found"}
    assert set(gpu["reasons"]) == set(GPU_READINGS)
