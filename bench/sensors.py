"""What the sensors of a GPU say, by the names that telemetry uses; a value, or None with the reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench import nvml

Value = float | bool | str
Reading = tuple[Value | None, str | None]
"""A value, or None with the reason."""
Counter = tuple[float | None, str | None]
"""A count, or None with the reason."""

COUNTERS = {
    # Field identifiers of nvml.h, NVML_FI_DEV_CLOCKS_EVENT_REASON_*: they count up while the reason holds.
    "throttled_sw_power_cap": 74,
    "throttled_sw_thermal": 269,
    "throttled_hw_thermal": 270,
    "throttled_power_brake": 271,
}
"""Cumulative throttle counters. Their unit differs by board and driver: only whether one advanced means anything."""

EVENT_REASONS = {
    0x1: "idle",
    0x2: "set_by_user",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
    0x100: "display",
}
"""Bits of the mask that says why clocks are below their maximum (nvml.h, nvmlClocksEventReason*)."""
SET_BY_USER = 0x2
SLOWED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""Those that mean throttling."""

_UNION_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of a field value's union, in the order of nvmlValueType_t."""


def throttle_counters(library: Any, handle: Any) -> dict[str, Counter]:
    """The counters of :data:`COUNTERS` as they stand."""
    values, reason = nvml.ask(library, "nvmlDeviceGetFieldValues", handle, list(COUNTERS.values()))
    if values is None:
        return dict.fromkeys(COUNTERS, (None, reason))
    named = zip(COUNTERS, values, strict=True)
    return {name: nvml.read(library, partial(_field, library, value)) for name, value in named}


def advanced(before: Counter, after: Counter) -> tuple[bool | None, str | None]:
    """Whether a counter moved between two looks at it."""
    if before[0] is None or after[0] is None:
        return None, before[1] or after[1]
    if after[0] < before[0]:
        return None, "the counter was reset within the window"
    return after[0] > before[0], None


def _field(library: Any, value: Any) -> float:
    if value.nvmlReturn != 0:
        raise library.NVMLError(value.nvmlReturn)
    return float(getattr(value.value, _UNION_MEMBERS[value.valueType]))


def sm_clock_mhz(library: Any, handle: Any) -> tuple[float | None, str | None]:
    """The clock of the streaming multiprocessors now."""
    return nvml.read(library, lambda: float(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM)))


def state(library: Any, handle: Any) -> dict[str, Reading]:
    """What the sensors of a board say now, by the names that telemetry uses.

    Power is an average over the last second on most boards since Ampere. ``clocks_event_reasons`` is the bit mask
    in hexadecimal with its names.
    """
    calls: dict[str, Callable[[], Value]] = {
        "memory_clock_mhz": lambda: float(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM)),
        "sm_clock_max_mhz": lambda: float(library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_SM)),
        "memory_clock_max_mhz": lambda: float(library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_MEM)),
        "clocks_event_reasons": lambda: name_reasons(event_reasons(library, handle)),
        "power_w": lambda: library.nvmlDeviceGetPowerUsage(handle) / 1000,
        "power_limit_w": lambda: library.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "temperature_c": lambda: float(
            nvml.call_either(library, ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"), handle, 0)
        ),
        "persistence_mode": lambda: library.nvmlDeviceGetPersistenceMode(handle) == 1,
    }
    said: dict[str, Reading] = {"sm_clock_mhz": sm_clock_mhz(library, handle)}
    return said | {name: nvml.read(library, call) for name, call in calls.items()}


def event_reasons(library: Any, handle: Any) -> int:
    """Bit mask of why the clocks are below their maximum, see :data:`EVENT_REASONS`."""
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    return int(nvml.call_either(library, names, handle))


def name_reasons(mask: int) -> str:
    """For example ``0x24 sw_power_cap sw_thermal``."""
    return " ".join([f"{mask:#x}", *(name for bit, name in EVENT_REASONS.items() if mask & bit)])


def compute_processes(library: Any, handle: Any) -> tuple[list[int] | None, str | None]:
    """Process ids with a compute context on the board; in a container they may be those of the host."""
    found, reason = nvml.ask(library, "nvmlDeviceGetComputeRunningProcesses", handle)
    return (None, reason) if found is None else ([int(process.pid) for process in found], None)
