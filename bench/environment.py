"""The machine and the software of a run, as an :class:`~bench.record.Environment`.

Environment variables enter a record by an allow-list of names; nothing else of the process environment is read.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench import nvml
from bench.errors import Unavailable
from bench.header import ALLOWED_VARIABLES, Environment, Gpu

PACKAGES = ("attention-bench", "torch", "triton", "numpy", "pandas", "matplotlib", "scipy", "pydantic", "nvidia-ml-py")
"""Packages whose versions a record holds."""

ALLOCATORS: dict[str, dict[str, str]] = {
    # Large tensors stay with the process instead of being unmapped and page-faulted anew on every call.
    "warm": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184"},
    "default": {},
}
"""Allocator settings of CPU workers by name: the environment they start with (glibc)."""


def worker_variables(allocator: str) -> dict[str, str]:
    """Environment variables that a worker starts with.

    Waiting OpenMP threads of the GNU runtime turn 10,000 times and then sleep. Without the variable they turn thirty
    times as often, which costs nothing on an idle machine and most of a core on a busy one. Sleeping at once
    (``OMP_WAIT_POLICY=PASSIVE``) would make calls below a millisecond up to nine times as slow as users find them, as
    each parallel region wakes its threads anew.
    What the user has set stands.
    """
    spin = {} if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys() else {"GOMP_SPINCOUNT": "10000"}
    return ALLOCATORS[allocator] | spin


def read_environment(
    device: str,
    allocator: str,
    torch_threads: int | None,
    torch_build: str | None,
    float32_products: str | None = None,
) -> Environment:
    """Describe this machine.

    Args:
        device: ``cpu`` or the GPU's name.
        allocator: name of the allocator setting that workers use.
        torch_threads: as a worker reports it.
        torch_build: as a worker reports it.
        float32_products: torch's setting, as a worker reports it.
    """
    gpus, reason = _gpus()
    commit, dirty = _git_state()
    return Environment(
        hostname=platform.node() or "unknown",
        os=f"{platform.system()} {platform.release()}",
        cpu=_cpu_name(),
        cores=available_cores(),
        memory_bytes=_memory_bytes(),
        python=platform.python_version(),
        packages={name: _version(name) for name in PACKAGES},
        torch_threads=torch_threads,
        torch_build=torch_build,
        float32_products=float32_products,
        gpus=gpus,
        gpus_reason=reason,
        device=device,
        allocator=allocator,
        variables=allowed_variables({**os.environ, **worker_variables(allocator)}),
        git_commit=commit,
        git_dirty=dirty,
    )


def allowed_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of ``variables`` that a record may hold."""
    return {name: variables[name] for name in ALLOWED_VARIABLES if name in variables}


def available_cores() -> int:
    """Cores that this process may use (its affinity, not the machine's total)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory_bytes() -> int | None:
    """Memory that can be used without swapping, as the kernel estimates it; None where it does not say."""
    return _meminfo("MemAvailable")


def _gpus() -> tuple[tuple[Gpu, ...] | None, str | None]:
    """Every GPU that NVML reports, or the reason why it cannot be asked."""
    try:
        with nvml.session() as library:
            boards, reasons = nvml.list_boards(library)
            names = [nvml.ask(library, "nvmlDeviceGetName", board.handle) for board in boards]
    except Unavailable as error:
        return None, str(error)
    reasons += [reason for _, reason in names if reason is not None]
    if reasons:
        return None, "; ".join(reasons)
    whole = [(board, name) for board, (name, _) in zip(boards, names, strict=True) if not board.instance]
    return tuple(Gpu(name=nvml.text(name), uuid=board.uuid) for board, name in whole), None


def _cpu_name() -> str:
    """Model name from ``/proc/cpuinfo``, else what the platform says."""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _memory_bytes() -> int | None:
    return _meminfo("MemTotal")


def _meminfo(field: str) -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_state() -> tuple[str | None, bool | None]:
    """Commit and dirtiness of the checkout that holds this file; (None, None) if it lies in none."""
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        if "bench/__init__.py" not in git("ls-files", "--full-name", "__init__.py"):
            return None, None  # installed inside somebody else's checkout
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None
