"""The child process: takes one ladder and climbs it, sending each record to the parent as it ends.

A *ladder* is all lengths of one mask, width, dtype and direction; a *rung* is one problem of it
(:mod:`bench.rung`). Before anything that may crash or hang, the worker writes into shared memory which case
it is about to run, so that whatever ends the process costs that case alone.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from bench.case import Case
from bench.ceilings import measure_ceilings
from bench.clocks import clocks_for, overhead_ns
from bench.environment import available_memory_bytes
from bench.errors import Unavailable
from bench.faults import recovered
from bench.header import Ceilings
from bench.implementation import Implementation, implementations
from bench.lifeline import end_with_parent
from bench.nvml import cuda_identity
from bench.probes import probe_for
from bench.problem import DTYPE_BYTES
from bench.registry import load_file
from bench.rung import SHARED, DeviceBrokenError, Rung, Setting
from bench.timing import SamplingPlan

RESTART = -2
"""Value of the case marker when the worker ends itself because the device is broken."""

Ceiling = Literal["none", "quick", "full"]
"""How well the ceilings are to be measured: a second for ``quick``, several for ``full``."""
PADDING_BYTES = 1 << 16
"""A worker puts up to this many bytes before what it allocates, so that processes differ in alignment."""

__all__ = ["RESTART", "SHARED", "Ceiling", "Description", "Marker", "Task", "describe", "work"]


@dataclass(frozen=True)
class Task:
    """What a worker is to do. Sent by pickle."""

    cases: tuple[Case, ...]
    """In the order of the ladder: all cases of a rung stand together."""
    device: str
    """Device type: ``cpu`` or ``cuda``."""
    device_name: str
    """As stored in records."""
    plan: SamplingPlan
    process: int
    """Number of this process, stored with each sample."""
    seed: int
    """Seed of the order within rounds."""
    log: Path
    """Where the process's own output goes; the parent quotes its end if the process dies."""
    load: tuple[Path, ...] = ()
    """Files of unpackaged implementations."""
    ceilings: Ceilings | None = None
    """What the machine can do at most, measured once per run."""
    energy: bool = False
    """Whether to measure energy per call, which takes seconds for each cell."""
    calls: dict[tuple[str, str], int] | None = None
    """For a later process: calls in a block by problem key and implementation, as the first process settled them."""


@dataclass(frozen=True)
class Description:
    """What only a process with torch can say about this machine."""

    device: str
    """Device type that is measured: the one asked for, else ``cuda`` where torch sees one, else ``cpu``."""
    device_name: str
    """``cpu`` or the GPU's name."""
    problem: str | None
    """Why that device cannot be used; None if it can."""
    free_bytes: int | None
    """Memory of the device that is free; None where nobody says."""
    threads: int
    """Threads that torch uses within an operator."""
    float32_products: str
    """torch's precision setting for float32 matrix products."""
    build: str
    """``cpu``, or the CUDA or ROCm version that torch was built for."""
    ceilings: Ceilings | None
    """Measured matrix-product rates and bandwidth; None if they were not asked for."""
    versions: dict[str, tuple[str | None, str | None]]
    """Per implementation its version, or None and the reason why it is unavailable."""


@dataclass(frozen=True)
class Marker:
    """Shared memory that tells the parent what the worker is about to do.

    Single words without locks: one that a killed worker held would never be free again.
    """

    case: Any
    """``Value('i', lock=False)``: index of the case, or :data:`SHARED` or :data:`RESTART`."""
    rung: Any
    """``Value('i', lock=False)``: index of the first case of the rung."""
    beat: Any
    """``Value('d', lock=False)``: ``time.monotonic()`` of the last change."""

    def set(self, case: int) -> None:
        """Say what comes next."""
        self.case.value = case
        self.beat.value = time.monotonic()


def work(task: Task, connection: Connection, marker: Marker, stop: Any) -> None:
    """Entry point of a ladder worker: sends ``(index, record as JSON)`` per finished cell, then None."""
    detach(task.log)
    for path in task.load:
        load_file(path)
    rng = random.Random(task.seed)
    padding = bytearray(rng.randrange(PADDING_BYTES))  # moves the addresses of all that comes: forks share their layout
    clock, others = clocks_for(task.device)
    setting = Setting(
        device=task.device,
        device_name=task.device_name,
        clock=clock,
        probe=probe_for(task.device)[0],
        plan=task.plan,
        process=task.process,
        ceilings=task.ceilings,
        rng=rng,
        overhead_ns=overhead_ns(clock),
        other_clocks=others,
        gpus=cuda_identity(task.device),
        energy=task.energy,
        calls=task.calls,
        announce=marker.set,
    )
    for first, cases in _rungs(task.cases):
        if stop.value:
            break
        marker.rung.value = first
        try:
            for index, record in Rung(setting, first, cases).run():
                connection.send((index, record.model_dump_json()))
        except DeviceBrokenError as broken:
            connection.send((broken.index, broken.record.model_dump_json()))
            marker.set(RESTART)
            return
        gc.collect()
        if task.device == "cuda" and not recovered():  # a capture that failed can leave the allocator unusable
            marker.set(RESTART)
            return
    connection.send(None)
    del padding


def describe(device: str | None, load: tuple[Path, ...], ceilings: Ceiling, connection: Connection) -> None:
    """Entry point of the first worker: sends a :class:`Description` of this machine."""
    detach(Path(os.devnull))
    for path in load:
        load_file(path)
    import torch

    has_cuda = torch.cuda.is_available()
    chosen = device or ("cuda" if has_cuda else "cpu")
    problem = None if chosen == "cpu" or has_cuda else "torch sees no CUDA device"
    on_gpu = chosen == "cuda" and has_cuda
    connection.send(
        Description(
            device=chosen,
            device_name=torch.cuda.get_device_name() if on_gpu else chosen,
            problem=problem,
            free_bytes=torch.cuda.mem_get_info()[0] if on_gpu else available_memory_bytes(),
            threads=torch.get_num_threads(),
            float32_products=torch.get_float32_matmul_precision(),
            build=torch.version.cuda or torch.version.hip or "cpu",
            ceilings=None if problem else _measured_ceilings(chosen, ceilings),
            versions={name: _version(member) for name, member in implementations.items()},
        )
    )


def _measured_ceilings(device: str, ceilings: Ceiling) -> Ceilings | None:
    """None if they were not asked for, or the device has no room for them now."""
    if ceilings == "none":
        return None
    try:
        return measure_ceilings(device, list(DTYPE_BYTES), quick=ceilings == "quick")
    except (RuntimeError, MemoryError):
        return None


def _rungs(cases: tuple[Case, ...]) -> Iterator[tuple[int, list[Case]]]:
    """Neighbouring cases of the same problem, with the index of the first."""
    start = 0
    for index in range(1, len(cases) + 1):
        if index == len(cases) or cases[index].problem != cases[start].problem:
            yield start, list(cases[start:index])
            start = index


def _version(member: Implementation) -> tuple[str | None, str | None]:
    """Version, or the reason why there is none."""
    try:
        return member.version(), None
    except Unavailable as error:
        return None, str(error)


def detach(log: Path) -> None:
    """Leave Ctrl-C to the parent but end when it ends; send all output (the profiler's too, from C++) to ``log``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    gc.freeze()  # what the fork server imported stays: searching it would cost each collection 0.1 s and more
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
