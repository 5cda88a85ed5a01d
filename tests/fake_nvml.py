"""A scripted stand-in for NVIDIA's bindings, and a compiled stand-in for NVIDIA's library that the real ones load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
STUB = Path(__file__).with_name("nvml_stub.c")
ERRORS = {
    3: "Not Supported",
    4: "Insufficient Permissions",
    12: "NVML Shared Library Not Found",
    18: "RM has detected an NVML/RM version mismatch.",
}
FIELD_IDS = {74: "power", 269: "sw_thermal", 270: "hw_thermal", 271: "brake"}


class FakeNvmlError(Exception):
    """As ``pynvml.NVMLError``: made from a code."""

    def __str__(self) -> str:
        return ERRORS.get(self.args[0], str(self.args[0]))


@dataclass
class FakeBoard:
    """One board; a script gives one value per look and repeats its last one."""

    uuid: str
    bus: int = 0
    name: str = "Card"
    sm_clock: list[float] = field(default_factory=lambda: [1980.0])
    sm_clock_max: float = 1980.0
    power_cap_count: list[int] = field(default_factory=lambda: [0])
    reasons: int = 0
    pids: tuple[int, ...] = ()
    persistence: int = 1
    mig: int = 0
    instances: tuple[FakeBoard, ...] = ()
    failing: dict[str, int] = field(default_factory=dict)
    looks: int = 0


def _next(script: list[Any]) -> Any:
    return script.pop(0) if len(script) > 1 else script[0]


class FakeNvml:
    """The functions that are used, over scripted boards; ``failing`` names functions that raise that code."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, *boards: FakeBoard, **failing: int) -> None:
        self.boards, self.failing, self.open = boards, failing, 0

    def __call__(self) -> FakeNvml:
        """As ``nvml.open_library``."""
        self.open += 1
        return self

    def _answer(self, name: str, board: FakeBoard | None, value: Callable[[], Any]) -> Any:
        code = self.failing.get(name) or (board.failing.get(name) if board else None)
        if code:
            raise FakeNvmlError(code)
        return value()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answers: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetMigMode": lambda b: [b.mig, b.mig],
            "nvmlDeviceGetMaxMigDeviceCount": lambda b: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda b, i: b.instances[i],
            "nvmlDeviceGetUUID": lambda b: b.uuid,
            "nvmlDeviceGetName": lambda b: b.name,
            "nvmlDeviceGetPciInfo": lambda b: SimpleNamespace(domain=0, bus=b.bus, device=0),
            "nvmlDeviceGetClockInfo": lambda b, kind: _next(b.sm_clock) if kind == 1 else 2619,
            "nvmlDeviceGetMaxClockInfo": lambda b, kind: b.sm_clock_max if kind == 1 else 2619,
            "nvmlDeviceGetFieldValues": self._fields,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda b: b.reasons,
            "nvmlDeviceGetPowerUsage": lambda b: 412_500,
            "nvmlDeviceGetEnforcedPowerLimit": lambda b: 700_000,
            "nvmlDeviceGetTemperatureV": lambda b, sensor: 61,
            "nvmlDeviceGetPersistenceMode": lambda b: b.persistence,
            "nvmlDeviceGetComputeRunningProcesses": lambda b: [SimpleNamespace(pid=pid) for pid in b.pids],
        }
        if name == "nvmlInit":
            return lambda: self._answer(name, None, lambda: None)
        if name == "nvmlShutdown":
            return lambda: setattr(self, "open", self.open - 1)
        if name == "nvmlDeviceGetCount":
            return lambda: self._answer(name, None, lambda: len(self.boards))
        if name == "nvmlDeviceGetHandleByIndex":
            return lambda index: self._answer(name, self.boards[index], lambda: self.boards[index])
        if name not in answers:
            raise AttributeError(name)
        return lambda board, *rest: self._answer(name, board, lambda: answers[name](board, *rest))

    def _fields(self, board: FakeBoard, identifiers: list[int]) -> list[Any]:
        board.looks += 1
        counts = {74: _next(board.power_cap_count)}
        return [
            SimpleNamespace(
                nvmlReturn=board.failing.get(FIELD_IDS[i], 0),
                valueType=3,
                value=SimpleNamespace(ullVal=counts.get(i, 0)),
            )
            for i in identifiers
        ]


def fake_cuda(*boards: FakeBoard, uuid: bool = True) -> Any:
    """``torch.cuda`` on a machine whose boards CUDA counts in this order; the first one is current."""

    def properties(index: int) -> Any:
        board = boards[index]
        about = {"uuid": board.uuid.removeprefix("GPU-").removeprefix("MIG-")} if uuid else {}
        return SimpleNamespace(pci_domain_id=0, pci_bus_id=board.bus, pci_device_id=0, **about)

    def current() -> int:
        if not boards:
            raise RuntimeError("No CUDA GPUs are available")
        return 0

    return SimpleNamespace(get_device_properties=properties, current_device=current)


@pytest.fixture(scope="session")
def nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder with a ``libnvidia-ml.so.1`` made of ``nvml_stub.c``. A C compiler is required, not optional."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler must be on PATH, got none of cc, gcc, clang. Install gcc (Debian: build-essential)."
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", str(library), str(STUB)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    yield folder


def with_library(folder: Path, script: str, **variables: str) -> Any:
    """What ``script`` prints as JSON, run where the dynamic loader finds NVML in ``folder`` first."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(ROOT)} | variables
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
