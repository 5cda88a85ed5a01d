"""Checks of the GPUs that will be used, as far as variables tell which; all of them where they do not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from bench import nvml, sensors
from bench.doctor._view import Check, View, fine, found
from bench.errors import Unavailable
from bench.header import Diagnosis
from bench.nvml import Board

FIXES = {
    "nvidia-ml-py is not installed": "Run `pip install nvidia-ml-py`.",
    "old package": "Run `pip uninstall pynvml`, then `pip install --force-reinstall nvidia-ml-py`.",
    "Not Found": "Install the driver's libnvidia-ml.so.1, or let the container see it (NVIDIA_DRIVER_CAPABILITIES).",
    "version mismatch": "Restart the machine: the driver was updated and its kernel module is still the old one.",
    "Driver Not Loaded": "Load the kernel module: `sudo modprobe nvidia`.",
}
"""What to do, by a part of the reason."""


def gpus(view: View) -> Iterator[Diagnosis]:
    """NVML once, then every check of every board."""
    try:
        with nvml.session(view.opener) as library:
            boards, reasons = nvml.list_boards(library)
            yield from _library(view, None if boards else "; ".join(reasons) or "NVML shows no GPU")
            for reason in reasons if boards else ():
                yield found("NVML", "warning", reason, "Run `nvidia-smi` to see which GPU does not answer.")
            shown = nvml.visible_boards(
                view.environ.get("CUDA_VISIBLE_DEVICES"), view.environ.get("CUDA_DEVICE_ORDER"), boards
            )
            for board in boards if shown is None else shown:
                yield from _board(library, board)
    except Unavailable as error:
        yield from _library(view, str(error))


def _library(view: View, reason: str | None) -> Iterator[Diagnosis]:
    """Without NVML a run goes on, with telemetry null for this reason; only a machine with a GPU misses anything."""
    if reason is None:
        yield fine("NVML", "answers")
    elif not view.has_gpu and not view.on_gpu:
        yield fine("NVML", f"no GPU here ({reason})")
    else:
        fix = next((fix for part, fix in FIXES.items() if part in reason), "Run `nvidia-smi`; it says more.")
        yield found("NVML", "warning", f"no telemetry: {reason}", fix)


def _board(library: Any, board: Board) -> Iterator[Diagnosis]:
    name = f"GPU {board.uuid}"
    if board.split:
        fix = "Expect null clocks and power, and neighbours on the same memory; turn MIG off for steadier numbers."
        yield found(name, "note", "MIG is on: sensors are those of the whole board", fix)
    processes, reason = sensors.compute_processes(library, board.handle)
    others = set(processes or ()) - {os.getpid()}
    if others:
        fix = "End them, or choose another GPU with CUDA_VISIBLE_DEVICES."
        yield found(name, "warning", f"{len(others)} other processes compute on it", fix)
    elif processes is not None:
        yield fine(name, "nobody else computes on it")
    else:
        yield fine(name, f"other processes are not known ({reason})")
    state = sensors.state(library, board.handle)
    if state["persistence_mode"][0] is False:
        fix = "Run `sudo nvidia-smi -pm 1`."
        yield found(name, "note", "persistence mode is off: the driver unloads between processes", fix)
    yield from _clocks(name, library, board, state)


def _clocks(name: str, library: Any, board: Board, state: dict[str, sensors.Reading]) -> Iterator[Diagnosis]:
    mask, reason = nvml.read(library, lambda: sensors.event_reasons(library, board.handle))
    if mask is None:
        yield fine(name, f"why its clocks are what they are is not known ({reason})")
        return
    said = sensors.name_reasons(mask)
    if mask & sensors.SLOWED:
        fix = "Let it cool down, raise its power limit, or lock its clocks lower: `sudo nvidia-smi -lgc`."
        yield found(name, "warning", f"throttled now ({said}, {state['temperature_c'][0]} °C)", fix)
    elif not mask & sensors.SET_BY_USER:
        fix = "For steadier clocks: `sudo nvidia-smi -lgc MHZ`, `-rgc` afterwards."
        yield found(name, "note", f"no sign of locked clocks ({said})", fix)
    else:
        yield fine(name, f"clocks are set by the user ({said})")


GPU_CHECKS: tuple[Check, ...] = (gpus,)
