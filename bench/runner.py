"""The parent process: plans ladders, drives one worker at a time, writes each record as it ends.

Workers come from a fork server (:mod:`bench.server`). A worker that dies or hangs costs only the case that it had
announced; the rest of its ladder goes on in a fresh process.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bench.case import Arm, Case
from bench.cell import make_record
from bench.conditions import refuse_other_conditions, refuse_worthless
from bench.doctor import View, diagnose
from bench.environment import read_environment
from bench.header import RunEnd, RunHeader
from bench.implementation import implementations, refusal, untimed
from bench.inquiry import NOT_MEASURED, pursue
from bench.lifeline import end_worker, has_message, how_it_ended
from bench.machine import describe_machine
from bench.memory_check import cross_checked
from bench.problem import Problem
from bench.record import SCHEMA_VERSION, Record, Status, cell_key
from bench.replicates import Calls, replicate
from bench.request import Interrupted, Listener, Request
from bench.results import RunWriter, new_run_id, timestamp
from bench.server import worker_context
from bench.sweep import Sweep, ladders, plan
from bench.timing import FULL, SamplingPlan
from bench.units import NS_PER_S, format_bytes
from bench.worker import RESTART, SHARED, Ceiling, Description, Marker, Task, work

MEMORY_SHARE = 0.8
"""A cell whose predicted need exceeds this share of the free memory is not tried."""
NOTHING: Any = ()
"""In place of a message, where none came."""
EXIT_S = 10.0
"""A worker that has sent all it had and does not end by itself within this is ended."""
FINAL = ("ok", "verified", "incorrect", "unsupported", "unavailable")
"""Statuses that ``--resume`` takes over; the others are tried again."""


def run(request: Request, listener: Listener) -> Path:
    """Measure everything that was asked for and return the results file.

    Raises:
        UsageError: before anything is measured, if the request cannot be carried out.
        NothingSelectedError: if the filters leave nothing.
        Interrupted: after Ctrl-C, with the file closed.
    """
    request.sweep(request.device or "cpu")  # a mistake in it is found before torch is even imported
    diagnoses = diagnose(request.device, request.allocator, View(results=request.output))
    if request.timed:
        refuse_worthless(diagnoses)
    run_id = new_run_id()
    with RunWriter(request.output, run_id) as writer:
        try:
            machine = describe_machine(request.device, request.allocator, request.load, _ceilings(request))
            sweep = request.sweep(machine.device)
            cases, left_out = plan(sweep, request.selection, machine.device)
            environment = read_environment(
                machine.device_name, request.allocator, machine.threads, machine.build, machine.float32_products
            )
            if request.timed and request.resume is not None:
                refuse_other_conditions(request.resume.header.environment, environment)
        except BaseException:
            writer.discard()
            raise
        if not request.timed:
            cases = [Case(case.problem, case.implementation, timed=False) for case in cases]
        writer.write(
            RunHeader(
                schema_version=SCHEMA_VERSION,
                run_id=run_id,
                started_at=timestamp(),
                command=request.command,
                sweep=sweep.name,
                sweep_title=sweep.title,
                sweep_prose=sweep.prose,
                cells=len(cases),
                environment=environment,
                ceilings=machine.ceilings,
                diagnoses=tuple(found for found in diagnoses if found.level != "fine"),
                left_out=left_out,
                resumed_from=request.resume.run_id if request.resume else None,
            )
        )
        if request.resume is not None and request.resume.dropped_lines:
            listener.note(f"the last line of {request.resume.path} was cut off; that cell is measured again")
        listener.planned(len(cases), f"{sweep.name} on {machine.device_name}, run {run_id}")
        _Session(request, sweep, machine, writer, listener).measure(cases)
        return writer.path


def _ceilings(request: Request) -> Ceiling:
    """How well this run has to know what the machine can do."""
    if not request.timed:
        return "none"
    return "quick" if request.sweep(request.device or "cpu").quick_ceilings else "full"


class _Session:
    """One run under way."""

    def __init__(
        self, request: Request, sweep: Sweep, machine: Description, writer: RunWriter, listener: Listener
    ) -> None:
        self.request, self.machine, self.writer, self.listener = request, machine, writer, listener
        seconds = sweep.seconds_per_problem
        self.full = sweep.full
        self.time_budget_s = request.time_budget_s or sweep.time_budget_s
        budget = SamplingPlan(budget_ns=round(seconds * NS_PER_S))
        self.sampling = request.sampling or (FULL if sweep.full else budget)
        self.context = worker_context(request.allocator)
        self.stop: Any = self.context.Value("b", 0, lock=False)  # see worker.Marker
        self.worker: BaseProcess | None = None
        """The one that is at work."""
        self.spared: set[Problem] = set()
        """Problems during whose preparation for all implementations a worker died once."""
        earlier = [] if request.resume is None else request.resume.records
        self.kept = {record.cell_key: record for record in reversed(earlier) if self._is_final(record)}
        """Cells of earlier runs by key; the newest, which stand first, win."""
        taken = [record.measurement for record in self.kept.values() if record.measurement is not None]
        self.first_process = 1 + max((process for m in taken for process in m.processes), default=-1)
        """Number of the first process of this run: rows of an earlier one were not interleaved with ours."""
        self.interrupts = 0
        self.processes = 0
        self.statuses: Counter[str] = Counter()
        self.status_of: dict[tuple[Problem, str], str] = {}
        self.started = time.monotonic()

    def measure(self, cases: Sequence[Case]) -> None:
        """Write a record for every case, unless the user or the budget stops it; then the end line."""
        outcome: Any = "complete"
        with self._interruptible(), tempfile.TemporaryDirectory(prefix="attention-bench-") as logs:
            remaining = [case for case in cases if not self._settled(case)]
            try:
                for ladder in ladders(remaining, coarse_first=self.time_budget_s is not None):
                    if not self._stopped():
                        self._take(ladder, Path(logs))
                self._inquire(Path(logs))
            finally:  # where a record could not be written, leaving this process would wait for the worker
                self._end_worker()
            if self.interrupts:
                outcome = "interrupted"
            elif self._stopped():
                outcome = "budget"
        self.writer.write(
            RunEnd(
                ended_at=timestamp(),
                outcome=outcome,
                wall_s=time.monotonic() - self.started,
                statuses=dict(sorted(self.statuses.items())),
            )
        )
        if outcome == "budget":
            self.listener.note("time budget used up; --resume measures the rest")
        if outcome == "interrupted":
            raise Interrupted(f"interrupted; {sum(self.statuses.values())} finished cells are in {self.writer.path}")

    def _is_final(self, record: Record) -> bool:
        """Whether a cell of an earlier run need not be tried again: nothing that was asked for is missing."""
        measured = record.measurement
        return record.status in FINAL and (
            measured is None
            or (
                len(set(measured.processes)) >= self.sampling.processes[0]
                and (measured.energy is not None or not self.request.energy)
            )
        )

    def _settled(self, case: Case) -> bool:
        """Write the record of a case that need not be tried: taken over, or predicted not to fit."""
        version, _ = self.machine.versions.get(case.implementation, (None, None))
        member = implementations.get(case.implementation)
        kept = self.kept.get(cell_key(case.problem, case.implementation, version, self.machine.device_name))
        timed = case.timed and untimed(member, case.problem, self.machine.device) is None
        if kept is not None and kept.status != ("verified" if timed else "ok"):
            self._write(kept)
            return True
        if version is None or refusal(member, case.problem, self.machine.device) is not None:
            return False
        peak, free = member.predicted_peak_bytes(case.problem, self.machine.device), self.machine.free_bytes
        if peak is None or free is None or peak + case.problem.input_bytes <= MEMORY_SHARE * free:
            return False
        reason = f"predicted peak {format_bytes(peak)} exceeds {MEMORY_SHARE:.0%} of the free {format_bytes(free)}"
        self._write(make_record(case, self.machine.device_name, version, "out_of_memory", reason, predicted=True))
        return True

    def _take(self, ladder: list[Case], logs: Path) -> None:
        """Measure one ladder and write its records."""
        looks = self.sampling.processes
        if looks == (1,):
            for record in self._climb(ladder, None, 0, logs):
                self._write(record)
            return
        problems = dict.fromkeys(case.problem for case in ladder)
        # A comparison at one length is done with it before the next; growth wants all lengths in every process.
        parts = [[case for case in ladder if case.problem == one] for one in problems] if self.full else [ladder]
        for part in parts:
            if self._stopped():
                return
            records = list(replicate(part, partial(self._climb, logs=logs), looks, self._stopped))
            if self.full and self.machine.device == "cpu":
                records = cross_checked(records, self.request.load)
            for record in records:
                self._write(record)

    def _climb(self, ladder: Sequence[Case], calls: Calls | None, number: int, logs: Path) -> Iterator[Record]:
        """Finish a ladder, in as many processes as it takes; each one that fails finishes at least one case.

        Args:
            ladder: the cases.
            calls: see :class:`bench.worker.Task`.
            number: which replicate this is; stored with each sample.
            logs: folder for what the workers print.
        """
        outstanding, process = dict(enumerate(ladder)), self.first_process + number
        while outstanding and not self._stopped():
            indices, spared = list(outstanding), len(self.spared)
            task = Task(
                cases=tuple(outstanding.values()),
                device=self.machine.device,
                device_name=self.machine.device_name,
                plan=self.sampling,
                process=process,
                seed=self.request.seed + self.processes,
                log=logs / f"worker-{self.processes}.log",
                load=self.request.load,
                energy=self.request.energy and calls is None,
                ceilings=self.machine.ceilings,
                calls=None if calls is None else dict(calls),
            )
            self.processes += 1
            process += self.sampling.processes[-1]  # the next one has other cells, paired with none of these
            for position, record in self._drive(task):
                yield record
                del outstanding[indices[position]]
            assert len(outstanding) < len(indices) or self._stopped() or len(self.spared) > spared, (
                "a worker that ends finishes at least one case, or is forgiven once"
            )

    def _drive(self, task: Task) -> Iterator[tuple[int, Record]]:
        """Run one worker; yield its records, and one for the case that ended it, if one did."""
        receiver, sender = self.context.Pipe(duplex=False)
        marker = Marker(
            self.context.Value("i", SHARED, lock=False),
            self.context.Value("i", 0, lock=False),
            self.context.Value("d", time.monotonic(), lock=False),
        )
        worker_context(self.request.allocator)  # starts the server anew, with its variables, if something ended it
        process = self.worker = self.context.Process(target=work, args=(task, sender, marker, self.stop))
        process.start()
        sender.close()
        done: set[int] = set()
        ending: tuple[Status, str] | None = None
        while True:
            self._check_time()
            try:
                message = receiver.recv() if has_message(receiver, process, 0.2) else NOTHING
            except (EOFError, OSError):  # OSError: it died within a message
                break
            if message is None:
                process.join(EXIT_S)
                self._end_worker()
                return
            if message != NOTHING:
                index, text = message
                done.add(index)
                yield index, Record.model_validate_json(text)
            elif self.interrupts > 1:
                self._end_worker()
                return
            elif time.monotonic() - marker.beat.value > self.request.case_timeout_s:
                ending = "timeout", f"no answer for {self.request.case_timeout_s:g} s; the process was ended"
                break
        if ending is None:
            process.join()
        self._end_worker()
        if marker.case.value == RESTART:
            return
        status, reason = ending or ("crashed", how_it_ended(process.exitcode, task.log))
        culprit, problem = marker.case.value, task.cases[marker.rung.value].problem
        if culprit == SHARED and ending is None and problem not in self.spared:
            self.spared.add(problem)  # a kill from outside must not cost every implementation its cell
            return
        lost = [culprit] if culprit != SHARED else _rung_of(task.cases, marker.rung.value)
        for index in lost:
            if index not in done:
                version, _ = self.machine.versions.get(task.cases[index].implementation, (None, None))
                where = "" if culprit != SHARED else " while preparing the problem for all implementations"
                yield index, make_record(task.cases[index], task.device_name, version, status, reason + where)

    def _inquire(self, folder: Path) -> None:
        """Find out what was asked for beside the cells."""
        earlier = [] if self.request.resume is None else self.request.resume.evidence

        def stopped() -> bool:
            self._check_time()
            return self._stopped()

        def status(arm: Arm) -> str:
            return self.status_of.get((arm.problem, arm.implementation), NOT_MEASURED)

        asked = self.request.inquiries(self.machine.device)
        pursue(asked, earlier, folder, status, stopped, self.writer.write, self.listener.note)

    def _write(self, record: Record) -> None:
        self.writer.write(record)
        self.statuses[record.status] += 1
        self.status_of[record.problem, record.implementation] = record.status
        self.listener.finished(record)

    def _stopped(self) -> bool:
        """Whether the user or the time budget wants the run to end."""
        return bool(self.stop.value)

    def _end_worker(self) -> None:
        """End the worker, if there is one, and what it started."""
        if self.worker is not None:
            end_worker(self.worker)
            self.worker = None

    def _check_time(self) -> None:
        budget = self.time_budget_s
        if budget is not None and time.monotonic() - self.started > budget:
            self.stop.value = 1

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """The first Ctrl-C lets the worker finish the problem it is at; the second, or SIGTERM, ends it."""

        def handler(signum: int, frame: Any) -> None:
            self.interrupts += 1 if signum == signal.SIGINT else 2
            self.stop.value = 1
            if self.interrupts == 1:
                self.listener.note("stopping after the current problem; press Ctrl-C again to stop at once")

        try:
            previous = {signum: signal.signal(signum, handler) for signum in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread: whoever runs us handles signals
            yield
            return
        try:
            yield
        finally:
            for number, handled in previous.items():
                signal.signal(number, handled)


def _rung_of(cases: Sequence[Case], first: int) -> list[int]:
    """Indices of the cases that share the problem of case ``first``."""
    return [index for index in range(first, len(cases)) if cases[index].problem == cases[first].problem]
