"""The machine as the checks see it: files under a root, environment variables, and a few facts of this process."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from bench import nvml, procfs
from bench.header import Diagnosis

Level = Literal["fine", "note", "warning", "fatal"]


def _interpreter() -> frozenset[str]:
    """What slows this interpreter down or changes what it does."""
    facts = {
        "development mode (-X dev)": sys.flags.dev_mode,
        "a debug build of Python": hasattr(sys, "gettotalrefcount"),
        "a trace function (debugger or coverage)": sys.gettrace() is not None,
        "a profile function": sys.getprofile() is not None,
    }
    return frozenset(name for name, true in facts.items() if true)


def _torch() -> tuple[str | None, str | None]:
    """Version of torch and what it was built for, without importing it."""
    try:
        number = version("torch")
        found = importlib.util.find_spec("torch")
    except (PackageNotFoundError, ImportError, ValueError):
        return None, None
    about = procfs.text(Path(found.origin).with_name("version.py")) if found and found.origin else None
    builds = re.findall(r"^(cuda|hip)\b[^=\n]*= *'([^']+)'", about or "", re.MULTILINE)
    return number, None if about is None else " ".join(builds[0]) if builds else "cpu"


def _free_bytes(folder: Path) -> int | None:
    """Free space where ``folder`` is or would be made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything that a check may look at; tests plant each condition here."""

    root: Path = Path("/")
    """Where ``proc`` and ``sys`` lie."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """Environment variables that the run will start with."""
    cores: int = field(default_factory=lambda: len(procfs.affinity()))
    """Processors that this process may use."""
    results: Path = Path("results")
    """Folder where results will be written."""
    interpreter: frozenset[str] = field(default_factory=_interpreter)
    """What slows this interpreter down."""
    torch: tuple[str | None, str | None] = field(default_factory=_torch)
    """Version of torch, and ``cpu``, ``cuda 12.8`` or ``hip 6.4``; None where unknown."""
    opener: Callable[[], Any] = nvml.open_library
    """Opens NVML or raises Unavailable."""
    free_bytes: Callable[[Path], int | None] = _free_bytes
    """Free space of the file system that holds a folder."""
    device: str | None = None
    """As asked for."""
    allocator: str = "warm"
    """As asked for."""

    def asked(self, device: str | None, allocator: str) -> View:
        """The same machine with what was asked for."""
        return replace(self, device=device, allocator=allocator)

    @property
    def has_gpu(self) -> bool:
        """Whether an NVIDIA driver serves a GPU here, as the kernel shows it."""
        driver = self.root / "proc/driver/nvidia/gpus"
        return (driver.is_dir() and any(driver.iterdir())) or (self.root / "dev/nvidia0").exists()

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU will be measured, as far as that is known before torch is asked."""
        if self.device is not None:
            return self.device == "cuda"
        return self.has_gpu and self.torch[1] != "cpu"

    def text(self, path: str) -> str | None:
        """Content of a small file under the root; None if it cannot be read."""
        return procfs.text(self.root / path)

    def number(self, path: str) -> float | None:
        """Content of a file that holds one number; None if it does not."""
        return procfs.number(self.root / path)


Check = Callable[[View], Iterator[Diagnosis]]


def fine(name: str, seen: str) -> Diagnosis:
    """Nothing to do."""
    return Diagnosis(name=name, level="fine", seen=seen)


def found(name: str, level: Level, seen: str, fix: str) -> Diagnosis:
    """Something to do."""
    return Diagnosis(name=name, level=level, seen=seen, fix=fix)
