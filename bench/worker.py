"""The child process: takes one ladder and, at each rung, verifies and then times all implementations interleaved.

A *ladder* is all lengths of one mask, width, dtype and direction; a *rung* is one problem of it. Finished
cells are sent to the parent one by one. Before anything that may crash or hang, the worker writes into shared
memory which case it is about to run, so that whatever ends the process costs that case alone.

This is the one module that catches every exception: it turns it into a record and drops the traceback, which would keep
tensors alive.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.calls import Step, differentiable, make_step
from bench.environment import available_memory_bytes
from bench.errors import Unavailable, Unsupported
from bench.implementation import Implementation, implementations
from bench.inputs import make_inputs
from bench.numerics import agree, failure_reason
from bench.probes import Probe, Reading, probe_for
from bench.problem import Problem
from bench.record import Agreement, Flag, Measurement, Memory, Record, Status
from bench.reference import Reference, naive_yardstick, reference
from bench.registry import load_file
from bench.sweep import Case
from bench.timing import Clock, PerfCounterClock, Samples, SamplingPlan, cuda_clock, interleave

if TYPE_CHECKING:
    import torch

SHARED = -1
"""Value of the case marker while work for all cases of a rung is done (inputs, reference)."""
RESTART = -2
"""Value of the case marker when the worker ends itself because the device is broken."""

UNSTABLE_SPREAD = 0.25
"""Interquartile range over median from which a cell is flagged ``unstable``."""
REASON_CHARS = 600
"""Longer reasons are cut."""


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
    build: str
    """``cpu``, or the CUDA or ROCm version that torch was built for."""
    versions: dict[str, tuple[str | None, str | None]]
    """Per implementation its version, or None and the reason why it is unavailable."""


@dataclass(frozen=True)
class Marker:
    """Shared memory that tells the parent what the worker is about to do."""

    case: Any
    """``multiprocessing.Value('i')``: index of the case, or :data:`SHARED` or :data:`RESTART`."""
    rung: Any
    """``multiprocessing.Value('i')``: index of the first case of the rung."""
    beat: Any
    """``multiprocessing.Value('d')``: ``time.monotonic()`` of the last change."""

    def set(self, case: int) -> None:
        """Say what comes next."""
        self.case.value = case
        self.beat.value = time.monotonic()


def work(task: Task, connection: Connection, marker: Marker, stop: Any) -> None:
    """Entry point of a ladder worker: sends ``(index, record as JSON)`` per finished cell, then None."""
    _detach(task.log)
    for path in task.load:
        load_file(path)
    clock, (probe, _) = _clock(task.device), probe_for(task.device)
    rng = random.Random(task.seed)
    for first, cases in _rungs(task.cases):
        if stop.is_set():
            break
        marker.rung.value = first
        rung = _Rung(task, first, cases, marker, clock, probe, rng)
        try:
            for index, record in rung.run():
                connection.send((index, record.model_dump_json()))
        except _DeviceBrokenError as broken:
            index, record = rung.finish(broken.entry, broken.status, broken.reason)
            connection.send((index, record.model_dump_json()))
            marker.set(RESTART)
            return
        gc.collect()
    connection.send(None)


def describe(device: str | None, load: tuple[Path, ...], connection: Connection) -> None:
    """Entry point of the first worker: sends a :class:`Description` of this machine."""
    _detach(Path(os.devnull))
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
            build=torch.version.cuda or torch.version.hip or "cpu",
            versions={name: _version(member) for name, member in implementations.items()},
        )
    )


@dataclass
class _Rung:
    """One problem with all its implementations."""

    task: Task
    first: int
    cases: list[Case]
    marker: Marker
    clock: Clock
    probe: Probe | None
    rng: random.Random
    entries: dict[str, _Entry] = field(default_factory=dict)

    @property
    def problem(self) -> Problem:
        return self.cases[0].problem

    def run(self) -> Iterator[tuple[int, Record]]:
        """Finish every case of the rung, each exactly once."""
        for offset, case in enumerate(self.cases):
            entry = _Entry(self.first + offset, case, implementations.get(case.implementation))
            self.entries[case.implementation] = entry
            refused = self._refusal(entry)
            if refused is not None:
                yield self.finish(entry, *refused)
        if not self.entries:
            return
        self.marker.set(SHARED)
        started = time.perf_counter()
        logical = make_inputs(self.problem, "bhsd")
        exact, naive = reference(self.problem, logical), naive_yardstick(self.problem, logical)
        share_s = (time.perf_counter() - started) / len(self.entries)
        for entry in list(self.entries.values()):
            failed = self._attempt(entry, partial(self._verify, entry, exact, naive))
            entry.verify_s += share_s
            if failed is not None:
                yield self.finish(entry, *failed)
        self.marker.set(SHARED)
        timed = {name: entry for name, entry in self.entries.items() if entry.case.timed}
        for name, entry in list(self.entries.items()):
            if name not in timed:
                yield self.finish(entry, "verified", "this sweep verifies it without timing it")
        yield from self._time(timed)

    def _refusal(self, entry: _Entry) -> tuple[Status, str] | None:
        """Why the case cannot be tried at all."""
        try:
            entry.version = entry.member.version()
        except Unavailable as error:
            return "unavailable", str(error)
        if self.task.device not in entry.member.devices:
            return "unavailable", f"runs on {' and '.join(entry.member.devices)} only"
        if self.problem.direction != "fwd" and not entry.member.backward:
            return "unsupported", "has no backward pass"
        reason = entry.member.unsupported(self.problem, self.task.device)
        return None if reason is None else ("unsupported", reason)

    def _verify(self, entry: _Entry, exact: Reference, naive: Reference) -> tuple[Status, str] | None:
        """Prepare, make the first call, judge it, and read memory and operators from a call of their own."""
        started = time.perf_counter_ns()
        inputs = differentiable(self.problem, make_inputs(self.problem, entry.member.layout, self.task.device))
        before = time.perf_counter_ns()
        call = entry.member.prepare(self.problem, inputs)
        step = make_step(call, self.problem, inputs, entry.member.layout)
        entry.step, entry.prepare_ns = step, time.perf_counter_ns() - before
        entry.mask_bytes, entry.notes = call.mask_bytes, dict(call.notes)
        results: list[dict[str, torch.Tensor]] = []
        entry.first_call_ns = self.clock.time_block(lambda: results.append(step.run().tensors()), 1)
        got = results.pop()
        agreement = agree(self.problem, exact, naive, got)
        del got
        entry.verify_s = (time.perf_counter_ns() - started) / 1e9
        if self.probe is not None:
            before = time.perf_counter_ns()
            entry.reading = self.probe.read(step.run)
            entry.measure_s += (time.perf_counter_ns() - before) / 1e9
            agreement = agreement.model_copy(update={"ran": entry.reading.operators})
        entry.agreement = agreement
        if not agreement.passed:
            return "incorrect", failure_reason(agreement)
        wanted, ran = entry.member.expects, agreement.ran
        if entry.reading is not None and wanted and not any(w in operator for w in wanted for operator in ran):
            entry.agreement = agreement.model_copy(update={"passed": False})
            return "incorrect", f"backend: asked for {' or '.join(wanted)}, but {', '.join(ran) or 'nothing known'} ran"
        return None

    def _time(self, entries: dict[str, _Entry]) -> Iterator[tuple[int, Record]]:
        """Time the verified implementations in interleaved rounds."""
        failures: dict[str, tuple[Status, str]] = {}

        def attempt(name: str, block: Callable[[], int]) -> int | None:
            elapsed: list[int] = []
            failed = self._attempt(entries[name], lambda: elapsed.append(block()))
            if failed is not None:
                failures[name] = failed
                return None
            return elapsed[0]

        runs = {name: entry.step.run for name, entry in entries.items() if entry.step is not None}
        samples = interleave(runs, self.clock, self.task.plan, self.rng, attempt)
        self.marker.set(SHARED)
        for name, entry in entries.items():
            if name in failures:
                yield self.finish(entry, *failures[name])
            else:
                yield self.finish(entry, "ok", None, samples[name])

    def _attempt(self, entry: _Entry, action: Callable[[], tuple[Status, str] | None]) -> tuple[Status, str] | None:
        """Run something of one implementation; what it raises becomes a status and a reason."""
        self.marker.set(entry.index)
        try:
            return action()
        except Unsupported as error:
            status: Status = "unsupported"
            reason = str(error)
            entry.agreement = None
        except Exception as error:  # noqa: BLE001  # the one place: it becomes a record
            status = "out_of_memory" if _is_out_of_memory(error) else "error"
            reason = f"{type(error).__name__}: {error}"
        gc.collect()
        if self.task.device == "cuda" and not _recovered():
            raise _DeviceBrokenError(entry, status, reason)
        return status, reason

    def finish(
        self, entry: _Entry, status: Status, reason: str | None, samples: Samples | None = None
    ) -> tuple[int, Record]:
        """The record of a case that is done; its tensors are released."""
        del self.entries[entry.case.implementation]
        entry.step = None
        measurement = None
        if samples is not None:
            entry.measure_s += samples.total_ns / 1e9
            measurement = self._measurement(entry, samples)
        record = make_record(
            entry.case,
            self.task.device_name,
            entry.version,
            status,
            reason,
            agreement=entry.agreement,
            measurement=measurement,
            flags=() if samples is None else stability_flags(samples.ns),
            notes=entry.notes,
            verify_s=entry.verify_s,
            measure_s=entry.measure_s,
        )
        return entry.index, record

    def _measurement(self, entry: _Entry, samples: Samples) -> Measurement:
        memory = None
        if entry.reading is not None and self.probe is not None:
            reading = entry.reading
            memory = Memory(
                peak_bytes=reading.peak_bytes,
                output_bytes=reading.output_bytes,
                workspace_bytes=reading.peak_bytes - reading.output_bytes,
                mask_bytes=entry.mask_bytes,
                predicted_peak_bytes=entry.member.predicted_peak_bytes(self.problem, self.task.device),
                method=self.probe.name,
            )
        return Measurement(
            samples_ns=tuple(samples.ns),
            calls_per_sample=samples.calls,
            processes=(self.task.process,) * len(samples.ns),
            clock=self.clock.name,
            first_call_ns=entry.first_call_ns,
            prepare_ns=entry.prepare_ns,
            memory=memory,
        )


class _DeviceBrokenError(Exception):
    """A case left the GPU unusable for this process."""

    def __init__(self, entry: _Entry, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.entry, self.status, self.reason = entry, status, reason


@dataclass
class _Entry:
    """One case on its way to a record."""

    index: int
    case: Case
    member: Implementation
    version: str | None = None
    step: Step | None = None
    agreement: Agreement | None = None
    reading: Reading | None = None
    prepare_ns: int = 0
    first_call_ns: int = 0
    verify_s: float = 0.0
    measure_s: float = 0.0
    mask_bytes: int = 0
    notes: dict[str, Any] = field(default_factory=dict)


def make_record(
    case: Case,
    device_name: str,
    version: str | None,
    status: Status,
    reason: str | None,
    **parts: Any,
) -> Record:
    """A record of ``case``; the counts that follow from the problem are filled in, long reasons are cut."""
    problem = case.problem
    if reason is not None and len(reason) > REASON_CHARS:
        reason = f"{reason[:REASON_CHARS]} [cut]"
    return Record(
        problem=problem,
        implementation=case.implementation,
        implementation_version=version,
        device=device_name,
        status=status,
        reason=reason,
        attended_pairs=problem.attended_pairs,
        empty_rows=problem.empty_rows,
        flop=problem.flop,
        **parts,
    )


def stability_flags(samples_ns: list[int]) -> tuple[Flag, ...]:
    """Doubts that the samples themselves raise."""
    ordered = sorted(samples_ns)
    quarter, middle = len(ordered) // 4, ordered[len(ordered) // 2]
    if middle == 0:
        return (Flag(name="unstable", reason="the clock read 0 for half of the blocks"),)
    spread = (ordered[-1 - quarter] - ordered[quarter]) / middle
    if spread > UNSTABLE_SPREAD:
        return (
            Flag(name="unstable", reason=f"the middle half of the samples spreads over {spread:.0%} of the median"),
        )
    return ()


def _rungs(cases: tuple[Case, ...]) -> Iterator[tuple[int, list[Case]]]:
    """Neighbouring cases of the same problem, with the index of the first."""
    start = 0
    for index in range(1, len(cases) + 1):
        if index == len(cases) or cases[index].problem != cases[start].problem:
            yield start, list(cases[start:index])
            start = index


def _clock(device: str) -> Clock:
    return cuda_clock() if device == "cuda" else PerfCounterClock()


def _version(member: Implementation) -> tuple[str | None, str | None]:
    """Version, or the reason why there is none."""
    try:
        return member.version(), None
    except Unavailable as error:
        return None, str(error)


def _recovered() -> bool:
    """After a failure on a GPU, give memory back; False if the device is broken and only a new process can go on."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True


def _is_out_of_memory(error: Exception) -> bool:
    """Python's, CUDA's, or the text that torch's CPU allocator raises as a plain RuntimeError."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def _detach(log: Path) -> None:
    """Leave Ctrl-C to the parent, and send this process's output (the profiler's too, written by C++) to ``log``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
