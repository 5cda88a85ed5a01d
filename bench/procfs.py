"""What the Linux kernel says of the processor under ``/proc`` and ``/sys``; a value, or None with the reason.

Every function takes the folder under which ``proc`` and ``sys`` lie, so tests plant their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

Reading = tuple[float | None, str | None]
"""A value, or None with the reason."""

IDLE, IOWAIT, STEAL = 3, 4, 7
"""Places in the first line of ``/proc/stat``; the two after ``steal`` are already counted in the first two."""


def text(path: Path) -> str | None:
    """Content of a small file without surrounding blanks; None if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> float | None:
    """Content of a file that holds one number; None if it does not."""
    try:
        return float(text(path) or "")
    except ValueError:
        return None


def affinity() -> list[int]:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def ticks(root: Path) -> list[int] | None:
    """Time of all processors together since the machine started, by kind: user, nice, system, idle and so on."""
    words = (text(root / "proc/stat") or "").partition("\n")[0].split()
    if len(words) < STEAL + 2 or words[0] != "cpu":
        return None
    return [int(word) for word in words[1 : STEAL + 2]]


def loads(root: Path) -> tuple[dict[str, Reading], int | None]:
    """Load averages, and how many threads want to run at this moment, the reader included."""
    names = ("load_1min", "load_5min", "load_15min")
    words = (text(root / "proc/loadavg") or "").split()
    try:
        values = [float(word) for word in words[:3]]
        runnable = int(words[3].partition("/")[0])
        return {name: (value, None) for name, value in zip(names, values, strict=True)}, runnable
    except (IndexError, ValueError):
        return dict.fromkeys(names, (None, "/proc/loadavg cannot be read")), None


def frequencies(root: Path, processors: Iterable[int]) -> dict[str, Reading]:
    """Lowest and highest clock among ``processors`` now; of all where only ``/proc/cpuinfo`` tells."""
    scaling = [number(root / f"sys/devices/system/cpu/cpu{i}/cpufreq/scaling_cur_freq") for i in processors]
    found = [khz / 1000 for khz in scaling if khz is not None]
    if not found:
        lines = (text(root / "proc/cpuinfo") or "").splitlines()
        found = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    if not found:
        reason = "neither cpufreq nor /proc/cpuinfo tells the clock"
        return {"frequency_min_mhz": (None, reason), "frequency_max_mhz": (None, reason)}
    return {"frequency_min_mhz": (min(found), None), "frequency_max_mhz": (max(found), None)}


def thermal_throttles(root: Path) -> float | None:
    """How often the processors slowed down for heat since the machine started; None where nobody counts."""
    paths = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/*_throttle_count")
    counts = [count for count in map(number, paths) if count is not None]
    return sum(counts) if counts else None
