"""The machine and the software of each run: environment, ceilings, and what ``doctor`` found."""

from __future__ import annotations

from collections.abc import Sequence

from bench.header import ALLOWED_VARIABLES
from bench.results import Run
from bench.units import format_bytes, significant

ALLOCATORS = {
    "warm": "warm: freed memory stays with the process, so page faults are paid once",
    "default": "default: large tensors go back to the system and fault in anew on every call, which is timed",
}
"""What the two allocator settings mean for the numbers."""


def machine_table(runs: Sequence[Run]) -> list[tuple[str, list[str], bool]]:
    """Name, one value for each run, and whether these differ."""
    names: dict[str, list[str]] = {}
    tables = [_environment(run) for run in runs]
    for table in tables:
        for name in table:
            names.setdefault(name, [])
    for name, values in names.items():
        values.extend(table.get(name, "-") for table in tables)
    return [(name, values, len(set(values)) > 1) for name, values in names.items()]


def _environment(run: Run) -> dict[str, str]:
    """What is known of the machine and the software, in words."""
    env = run.header.environment
    gpus = (
        ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in env.gpus or ())
        or f"none ({env.gpus_reason or 'NVML lists none'})"
    )
    state = {True: ", with uncommitted changes", False: "", None: ""}[env.git_dirty]
    shown = {
        "started": run.header.started_at,
        "host": env.hostname,
        "operating system": env.os,
        "processor": f"{env.cpu}, {env.cores} cores usable",
        "memory": format_bytes(env.memory_bytes),
        "GPUs": gpus,
        "device measured": env.device,
        "allocator": ALLOCATORS.get(env.allocator, env.allocator),
        "torch threads": "-" if env.torch_threads is None else str(env.torch_threads),
        "torch build": env.torch_build or "-",
        "float32 products": env.float32_products or "-",
        "Python": env.python,
        "git commit": f"{env.git_commit}{state}" if env.git_commit else "- (not a git checkout)",
    }
    shown |= {f"package {name}": version or "not installed" for name, version in env.packages.items()}
    shown |= {f"variable {name}": value for name, value in env.variables.items() if name in ALLOWED_VARIABLES}
    return shown | _ceilings(run) | {f"not planned: {name}": why for name, why in run.header.left_out.items()}


def _ceilings(run: Run) -> dict[str, str]:
    """What the machine can do at most, measured at the start of the run; empty if it was not."""
    ceilings = run.header.ceilings
    if ceilings is None:
        return {}
    shown = {
        f"ceiling {dtype}": f"{significant(rate / 1e9)} GFLOP/s in matrix products"
        for dtype, rate in ceilings.flop_per_s.items()
    }
    shown |= {
        f"ceiling {dtype}, one thread": f"{significant(rate / 1e9)} GFLOP/s"
        for dtype, rate in ceilings.flop_per_s_one_thread.items()
    }
    shown["ceiling of memory"] = f"{significant(ceilings.bytes_per_s / 1e9)} GB/s at best, read and written"
    if ceilings.memory_bytes_per_s is not None:
        shown["ceiling out of cache"] = f"{significant(ceilings.memory_bytes_per_s / 1e9)} GB/s"
    if ceilings.cache_bytes is not None:
        shown["last cache"] = format_bytes(ceilings.cache_bytes)
    return shown


def bandwidth_tables(runs: Sequence[Run]) -> list[tuple[str, list[str], list[list[str]]]]:
    """For each run with a bandwidth curve its id, heads and rows: one row per size, one column per operation."""
    tables = []
    for run in runs:
        curve = run.header.ceilings.bandwidth if run.header.ceilings else ()
        if not curve:
            continue
        columns = list(dict.fromkeys((one.threads, one.kind) for one in curve))
        columns.sort(key=lambda column: -(column[0] or 0))
        sizes: dict[str, dict[tuple[int | None, str], float]] = {}
        for one in sorted(curve, key=lambda one: one.working_set_bytes):
            sizes.setdefault(format_bytes(one.working_set_bytes), {})[one.threads, one.kind] = one.bytes_per_s
        heads = ["working set", *(f"{kind}{_threads(threads)}, GB/s" for threads, kind in columns)]
        rows = [
            [size, *(significant(rates[column] / 1e9) if column in rates else "-" for column in columns)]
            for size, rates in sizes.items()
        ]
        tables.append((run.run_id, heads, rows))
    return tables


def _threads(threads: int | None) -> str:
    return "" if threads is None else f", {threads} {'thread' if threads == 1 else 'threads'}"


def diagnoses(runs: Sequence[Run]) -> list[list[str]]:
    """Run, name, level, what was seen and the fix, the worst first; what was fine is not stored."""
    levels = ("fatal", "warning", "note", "fine")
    rows = [
        [run.run_id, found.name, found.level, found.seen, found.fix or "-"]
        for run in runs
        for found in run.header.diagnoses
    ]
    return sorted(rows, key=lambda row: levels.index(row[2]))
