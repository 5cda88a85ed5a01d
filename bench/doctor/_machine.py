"""Checks of the machine: who else uses it, how its clocks behave, and what limits this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from bench import procfs
from bench.doctor._view import Check, View, fine, found
from bench.header import Diagnosis
from bench.units import format_bytes

BUSY_SHARE = 0.25
"""Load per core from which on the others are felt in every block."""
STEAL_SHARE = 0.01
FREE_MEMORY_BYTES = 2_000_000_000
"""Less available memory than this ends the longer lengths of every ladder."""
FREE_DISK_BYTES = 200_000_000
"""A long run with its report takes tens of megabytes."""
SLOW_CLOCK_SOURCES = ("acpi_pm", "hpet", "jiffies", "refined-jiffies", "pit")
"""Read through a system call or a slow bus: microseconds a reading instead of tens of nanoseconds."""
UNLIMITED = 1 << 60
"""Version 1 of control groups writes a huge number for no limit."""


def load(view: View) -> Iterator[Diagnosis]:
    """Other processes take turns with the measured one; the order of rounds only spreads the damage evenly."""
    averages, runnable = procfs.loads(view.root)
    average, reason = averages["load_1min"]
    if average is None:
        yield fine("load", str(reason))
        return
    others = max(0, (runnable or 1) - 1)  # whoever reads the file is running
    seen = f"load {average:.2f} over the last minute on {view.cores} cores, {others} other threads runnable now"
    if average > BUSY_SHARE * view.cores or others > BUSY_SHARE * view.cores:
        yield found("load", "warning", seen, "End what else is running, or wait until it has.")
    else:
        yield fine("load", seen)


def steal(view: View) -> Iterator[Diagnosis]:
    """A hypervisor that serves other guests in between."""
    ticks = procfs.ticks(view.root)
    if ticks is None or not sum(ticks):
        yield fine("steal", "/proc/stat cannot be read")
        return
    share = ticks[procfs.STEAL] / sum(ticks)
    seen = f"{share:.1%} of processor time since the start went to other guests"
    if share > STEAL_SHARE:
        yield found("steal", "warning", seen, "Compare within one run only, or use a machine with dedicated cores.")
    else:
        yield fine("steal", seen)


def governor(view: View) -> Iterator[Diagnosis]:
    """A governor that lowers the clock between blocks makes the first calls of each block slower."""
    paths = sorted((view.root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    names = sorted({name for name in map(procfs.text, paths) if name})
    if not names:
        yield fine("frequency governor", "the kernel shows none (a virtual machine or a container)")
    elif names == ["performance"]:
        yield fine("frequency governor", "performance")
    else:
        fix = "Run `sudo cpupower frequency-set --governor performance`."
        yield found("frequency governor", "warning", ", ".join(names), fix)


def turbo(view: View) -> Iterator[Diagnosis]:
    """Boosted clocks depend on heat and on how many cores are busy, so they drift within a run."""
    off, boost = (view.number(f"sys/devices/system/cpu/{path}") for path in ("intel_pstate/no_turbo", "cpufreq/boost"))
    if off == 0 or (off is None and boost == 1):
        path = "cpufreq/boost" if off is None else "intel_pstate/no_turbo"
        fix = f"For steadier clocks: `echo {int(off is not None)} | sudo tee /sys/devices/system/cpu/{path}`."
        yield found("turbo", "note", "on", fix)
    else:
        yield fine("turbo", "off" if off == 1 or boost == 0 else "the kernel does not say")


def clock_source(view: View) -> Iterator[Diagnosis]:
    """A clock that is slow to read adds its own cost to every block."""
    source = view.text("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source in SLOW_CLOCK_SOURCES:
        fix = "Boot with `clocksource=tsc`, or find in the kernel's log why it distrusts the TSC."
        yield found("clock source", "warning", source, fix)
    else:
        yield fine("clock source", source or "the kernel does not say")


def battery(view: View) -> Iterator[Diagnosis]:
    """On battery, firmware lowers clocks as it likes."""
    supplies = sorted((view.root / "sys/class/power_supply").glob("*"))
    states = {(procfs.text(s / "type"), procfs.text(s / "status"), procfs.text(s / "scope")) for s in supplies}
    # A battery of scope "Device" is that of a mouse.
    if any(kind == "Battery" and status == "Discharging" and scope != "Device" for kind, status, scope in states):
        yield found("power supply", "warning", "running on battery", "Plug the machine in.")
    else:
        yield fine("power supply", "mains, or the kernel shows no battery")


def _group_paths(view: View, controller: str, names: tuple[str, str]) -> Iterator[str]:
    """Files of one limit from this process's own control group up to the root, version 2 before version 1."""
    for line in (view.text("proc/self/cgroup") or "0::/").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        second = number == "0" and not controllers
        if not second and controller not in controllers.split(","):
            continue
        base = "sys/fs/cgroup" if second else f"sys/fs/cgroup/{controllers}"
        # Inside a container the path may be that of the host, and the limits lie at the root.
        for folder in (PurePosixPath(path), *PurePosixPath(path).parents):
            yield f"{base}/{folder.relative_to('/')}/{names[0 if second else 1]}"


def quota_cores(view: View) -> float | None:
    """Processors that the tightest control group grants on average; None without a limit."""
    quotas: list[float] = []
    for path in _group_paths(view, "cpu", ("cpu.max", "cpu.cfs_quota_us")):
        words = (view.text(path) or "").split()
        if path.endswith("cpu.cfs_quota_us"):
            words += [view.text(path.replace("quota", "period")) or ""]
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def quota(view: View) -> Iterator[Diagnosis]:
    """More threads than the quota pays for are stopped together in the middle of a block, until the next period."""
    granted = quota_cores(view)
    if granted is None:
        yield fine("processor quota", "none")
    elif granted < view.cores:
        fix = f"Raise the container's quota, or bind the run to {max(1, int(granted))} cores with `taskset`."
        yield found("processor quota", "warning", f"{granted:g} cores of the {view.cores} in view", fix)
    else:
        yield fine("processor quota", f"{granted:g} cores for the {view.cores} in view")


def memory(view: View) -> Iterator[Diagnosis]:
    """Too little memory ends cells; swapped-out pages are read back in the middle of a block."""
    amounts: dict[str, int] = {}
    for line in (view.text("proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        if rest.split() and rest.split()[0].isdigit():
            amounts[name] = int(rest.split()[0]) * 1024
    available, limit = amounts.get("MemAvailable"), _memory_limit(view)
    if available is None:
        yield fine("memory", "the kernel does not say")
    elif available < FREE_MEMORY_BYTES:
        yield found("memory", "warning", f"{format_bytes(available)} available", "End what else holds memory.")
    else:
        yield fine("memory", f"{format_bytes(available)} available")
    if limit is not None and limit < amounts.get("MemTotal", limit + 1):
        seen = f"the control group may hold {format_bytes(limit)}"
        fix = "Expect cells beyond it to be killed; raise the container's limit for longer lengths."
        yield found("memory limit", "note", seen, fix)
    swapped = amounts.get("SwapTotal", 0) - amounts.get("SwapFree", 0)
    if swapped > 0:
        yield found("swap", "warning", f"{format_bytes(swapped)} in use", "Free memory, then `sudo swapoff -a`.")
    else:
        yield fine("swap", "not in use")


def _memory_limit(view: View) -> int | None:
    texts = map(view.text, _group_paths(view, "memory", ("memory.max", "memory.limit_in_bytes")))
    limits = [int(text) for text in texts if text is not None and text.isdigit()]
    return min((limit for limit in limits if limit < UNLIMITED), default=None)


def disk(view: View) -> Iterator[Diagnosis]:
    """A full disk ends the run at the cell that no longer fits; what was written stays."""
    free = view.free_bytes(view.results)
    if free is None:
        yield fine("disk", f"nobody says how much is free at {view.results}")
    elif free < FREE_DISK_BYTES:
        fix = "Free some space, or choose another folder with --output."
        yield found("disk", "warning", f"{format_bytes(free)} free at {view.results}", fix)
    else:
        yield fine("disk", f"{format_bytes(free)} free at {view.results}")


MACHINE_CHECKS: tuple[Check, ...] = (
    load,
    steal,
    governor,
    turbo,
    clock_source,
    battery,
    quota,
    memory,
    disk,
)
