"""What sensors say over a window: of the processor through ``/proc`` and ``/sys``, of GPUs through NVML.

Each reading stands alone. One that cannot be had is None with its reason; it costs neither another reading nor the
measurement it accompanies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import nvml, procfs, sensors
from bench.energy import RaplMeter
from bench.errors import Unavailable
from bench.nvml import Board, Identity
from bench.record import Telemetry
from bench.sensors import Reading

GPU_READINGS = (
    "sm_clock_start_mhz",
    "sm_clock_end_mhz",
    "sm_clock_max_mhz",
    "memory_clock_start_mhz",
    "memory_clock_end_mhz",
    "memory_clock_max_mhz",
    *sensors.COUNTERS,
    "clocks_event_reasons",
    "power_w",
    "power_limit_w",
    "temperature_c",
    "other_processes",
    "mig",
    "persistence_mode",
)
"""Every reading of a GPU; where it cannot be found, all are null for that reason."""


class Recorder:
    """Reads every sensor at the start and at the end of a window.

    Args:
        gpus: the GPUs, as from :func:`~bench.nvml.cuda_identity`; the processor is always read.
        root: where ``proc`` and ``sys`` lie.
        environ: environment variables.
        clock: seconds.
        opener: opens NVML.
    """

    def __init__(
        self,
        gpus: Sequence[Identity] = (),
        *,
        root: Path = Path("/"),
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
        opener: Callable[[], Any] = nvml.open_library,
    ) -> None:
        self._gpus, self._root, self._environ = gpus, root, environ
        self._clock, self._opener = clock, opener

    def start(self) -> Recorder:
        """Begin the window."""
        self._library: Any = None
        self._reason: str | None = None
        if self._gpus:
            try:
                self._library = self._opener()
            except Unavailable as error:
                self._reason = str(error)
        self._begun = [_GpuWindow(self._library, gpu, self._reason) for gpu in self._gpus]
        self._processor = _ProcessorWindow(self._root, self._environ)
        self._started = self._clock()
        return self

    def stop(self) -> tuple[Telemetry, ...]:
        """End the window: the processor's readings, then those of each GPU."""
        window_s = max(0.0, self._clock() - self._started)
        found = [("cpu", self._processor.end())] + [(gpu.name, gpu.end()) for gpu in self._begun]
        if self._library is not None:
            nvml.close_library(self._library)
        return tuple(_telemetry(device, window_s, readings) for device, readings in found)


def _telemetry(device: str, window_s: float, readings: Mapping[str, Reading]) -> Telemetry:
    return Telemetry(
        device=device,
        window_s=window_s,
        readings={name: value for name, (value, _) in readings.items()},
        reasons={name: reason or "unknown" for name, (value, reason) in readings.items() if value is None},
    )


class _GpuWindow:
    """One GPU from start to end; without a library or a board, every reading is null for that reason."""

    def __init__(self, library: Any, gpu: Identity, reason: str | None) -> None:
        self._library, self._reason = library, reason
        self.name = gpu.uuid or "unknown"
        self._board: Board | None = None
        if library is None:
            return
        try:
            self._board = nvml.find_board(library, gpu)
        except Unavailable as error:
            self._reason = str(error)
            return
        self.name = self._board.uuid
        self._state = sensors.state(library, self._board.handle)
        self._counters = sensors.throttle_counters(library, self._board.handle)

    def end(self) -> dict[str, Reading]:
        if self._board is None:
            return dict.fromkeys(GPU_READINGS, (None, self._reason))
        library, handle, before = self._library, self._board.handle, self._state
        after = sensors.state(library, handle)
        counters = sensors.throttle_counters(library, handle)
        readings: dict[str, Reading] = {
            "sm_clock_start_mhz": before["sm_clock_mhz"],
            "sm_clock_end_mhz": after.pop("sm_clock_mhz"),
            "memory_clock_start_mhz": before["memory_clock_mhz"],
            "memory_clock_end_mhz": after.pop("memory_clock_mhz"),
            **{name: sensors.advanced(self._counters[name], counters[name]) for name in sensors.COUNTERS},
            **after,
            "other_processes": _others(*sensors.compute_processes(library, handle)),
            "mig": (self._board.split, None),
        }
        return {name: readings[name] for name in GPU_READINGS}


def _others(processes: list[int] | None, reason: str | None) -> Reading:
    """How many processes beside this one compute on the board.

    In a container NVML names processes as the host does, so ours may be among them under another number.
    """
    if processes is None:
        return None, reason
    if processes and os.getpid() not in processes:
        return None, f"{len(processes)} found, but numbered as outside this container: ours cannot be told apart"
    return float(len(set(processes) - {os.getpid()})), None


class _ProcessorWindow:
    """The processor from start to end."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self._root, self._environ = root, environ
        self._meter: RaplMeter | None = None
        try:
            self._meter = RaplMeter(root)
        except Unavailable as error:
            self._unmetered = str(error)
        self._throttles = procfs.thermal_throttles(root)
        self._ticks = procfs.ticks(root)
        self._own_s = time.process_time()

    def end(self) -> dict[str, Reading]:
        readings: dict[str, Reading] = dict(self._shares())
        readings.update(procfs.loads(self._root)[0])
        readings.update(procfs.frequencies(self._root, procfs.affinity()))
        readings["throttled_thermal"] = sensors.advanced(
            (self._throttles, "the kernel counts none"), (procfs.thermal_throttles(self._root), None)
        )
        readings["package_energy_j"] = self._energy()
        for name in ("OMP_NUM_THREADS", "OMP_PROC_BIND", "KMP_AFFINITY"):
            readings[name.lower()] = (self._environ.get(name, "not set"), None)
        return readings

    def _shares(self) -> dict[str, procfs.Reading]:
        """Of all processor time: busy at all, busy for other processes, taken by the hypervisor."""
        names = ("busy_share", "busy_elsewhere_share", "steal_share")
        own_s, now = time.process_time() - self._own_s, procfs.ticks(self._root)
        if self._ticks is None or now is None:
            return dict.fromkeys(names, (None, "/proc/stat cannot be read"))
        spent = [max(0, after - before) for before, after in zip(self._ticks, now, strict=True)]
        total, steal = sum(spent), spent[procfs.STEAL]
        if total == 0:
            return dict.fromkeys(names, (None, "the window is shorter than the kernel's tick"))
        busy = total - spent[procfs.IDLE] - spent[procfs.IOWAIT] - steal
        elsewhere = max(0.0, busy - own_s * os.sysconf("SC_CLK_TCK"))
        return {name: (part / total, None) for name, part in zip(names, (busy, elsewhere, steal), strict=True)}

    def _energy(self) -> Reading:
        if self._meter is None:
            return None, self._unmetered
        try:
            joules = self._meter.joules()
        except Unavailable as error:
            return None, str(error)
        return (joules, None) if joules > 0 else (None, "the counter did not advance within the window")
