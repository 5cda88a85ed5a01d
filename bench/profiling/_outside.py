"""Starting profilers that are programs of their own, and knowing beforehand whether they may count."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.errors import Unavailable
from bench.profiling import Absence, Subject

ROOT = Path(__file__).parents[2]
"""Folder that ``bench`` is imported from."""
TARGET = Path(__file__).with_name("_target.py")
PARAMETERS = Path("/proc/driver/nvidia/params")
LIMIT_S = 300.0
PERMISSION = "ERR_NVGPUCTRPERM"
FORBIDDEN = Absence(
    f"the driver gives GPU counters to administrators only ({PERMISSION}; RmProfilingAdminOnly is 1)",
    "an administrator writes `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into "
    "/etc/modprobe.d/nvidia-profiling.conf and reboots; in a container, start it with --cap-add=SYS_ADMIN; or run "
    "this command as root",
)
"""Why counters are refused, and what helps."""


def program(name: str, fix: str) -> Absence | None:
    """Why a program cannot be started."""
    return None if shutil.which(name) else Absence(f"no program {name} is found on PATH", fix)


def needs_gpu(subject: Subject, name: str) -> Absence | None:
    """Why a tool for GPUs is no use on a CPU."""
    if subject.device == "cuda":
        return None
    return Absence(f"{name} looks at GPU kernels, and the cell runs on the CPU", applicable=False)


def counters_forbidden(parameters: Path = PARAMETERS) -> Absence | None:
    """Why the driver would refuse performance counters (ERR_NVGPUCTRPERM); None where it allows them.

    Args:
        parameters: where the driver tells its settings; where it does not, nothing is known against it.
    """
    try:
        text = parameters.read_text()
    except OSError:
        return None
    restricted = any(line.replace(" ", "") == "RmProfilingAdminOnly:1" for line in text.splitlines())
    if not restricted or _is_admin():
        return None
    return FORBIDDEN


def _is_admin(status: Path = Path("/proc/self/status")) -> bool:
    """Whether this process has CAP_SYS_ADMIN or CAP_PERFMON, which the driver asks for."""
    try:
        line = next(line for line in status.read_text().splitlines() if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return False
    return bool(int(line.split()[1], 16) & (1 << 21 | 1 << 38))


def told(tool: str, command: Sequence[str], folder: Path, limit_s: float = LIMIT_S, **variables: str) -> str:
    """Run a command and give what it said.

    Args:
        tool: its name, for messages.
        command: program and arguments.
        folder: where it runs.
        limit_s: seconds after which it is ended.
        variables: of its environment, besides those that are set.

    Raises:
        Unavailable: if it fails or takes too long; the message holds the end of what it said.
    """
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": paths} | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{tool} took more than {limit_s:.0f} s. Profile a shorter problem.") from None
    except OSError as error:
        raise Unavailable(f"{tool} cannot be started: {error}") from None
    if PERMISSION in done.stdout:  # where the driver's settings could not be read beforehand
        raise Unavailable(f"{FORBIDDEN.reason}; {FORBIDDEN.fix}")
    if done.returncode:
        last = [line for line in done.stdout.splitlines() if line.strip()][-3:]
        raise Unavailable(f"{tool} ended with code {done.returncode}: {' / '.join(last) or 'it said nothing'}")
    return done.stdout


def target(subject_file: Path, calls: int, script: Path = TARGET) -> list[str]:
    """Command of what is looked at."""
    return [sys.executable, str(script), str(subject_file), str(calls)]
