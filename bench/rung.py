"""One problem with all its implementations: certify and verify each, then time them interleaved.

This is the one module that catches every exception: it turns it into a record and drops the traceback, which
would keep tensors alive.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from bench.calls import differentiable, make_step
from bench.case import Case
from bench.ceilings import higher, measure_ceilings
from bench.cell import Cell, finished_record
from bench.certificate import Certificate, attend_with, certificate_problem, certify, checks_reason
from bench.checks import affordable_checks, run_checks
from bench.clocks import Block, Clock
from bench.energy import energy_per_call
from bench.errors import CaptureError, Unavailable, Unsupported
from bench.faults import is_out_of_memory, recovered, synchronizer
from bench.flags import impossible_flag, seconds_per_call
from bench.header import Ceilings
from bench.implementation import AttentionInputs, implementations, refusal, untimed
from bench.inputs import make_inputs, place_inputs, poison
from bench.numerics import agree, row_errors
from bench.nvml import Identity
from bench.probes import Probe, read_step
from bench.problem import Problem
from bench.record import Agreement, Record, Sampled, Status
from bench.reference import Reference, naive_yardstick, reference
from bench.telemetry import Recorder
from bench.throttle import ThrottleGuard
from bench.timing import Samples, SamplingPlan, interleave

if TYPE_CHECKING:
    import torch

OTHER_PLAN = SamplingPlan(warmup_calls=2, warmup_ns=0, budget_ns=100_000_000, min_rounds=10, max_rounds=30)
"""Rounds under each further clock."""
CEILING_DOUBTS = 3
"""How often the ceilings are measured again before a row is called impossible."""

VERIFIED_BEFORE = Agreement(passed=True, tensors={}, missing={"all": "verified in the first process"})
"""Stands in a later process for the agreement of the first, which the merged record keeps."""

Failure = tuple[Status, str]
"""Status and reason of a case that is over."""


class DeviceBrokenError(Exception):
    """A case left the GPU unusable for this process; its record is attached."""

    def __init__(self, index: int, record: Record) -> None:
        """Carry the finished record of the case."""
        super().__init__(record.reason)
        self.index, self.record = index, record


@dataclass
class Setting:
    """What all rungs of one worker share."""

    device: str
    """Device type."""
    device_name: str
    """As stored."""
    clock: Clock
    probe: Probe | None
    """None where the device offers no exact reading of memory."""
    plan: SamplingPlan
    process: int
    """Number of this process, stored with each sample."""
    ceilings: Ceilings | None
    rng: random.Random
    overhead_ns: int
    """What an empty block takes on this clock."""
    other_clocks: tuple[Clock, ...]
    """Protocols under which each cell is timed once more, on its own."""
    gpus: tuple[Identity, ...]
    """Whose sensors are read while the rounds last; empty on a CPU."""
    energy: bool
    """Whether to measure energy per call."""
    calls: Mapping[tuple[str, str], int] | None
    """Calls in a block by problem key and implementation, where another process settled them: then cells were verified
    there too."""
    announce: Callable[[int], None]
    """Told which case comes next (its index), or ``SHARED`` for work of all cases."""
    certificates: dict[tuple[str, str], Certificate] = field(default_factory=dict)
    """By implementation and key of the certificate problem; made once per process."""


SHARED = -1
"""Index that announces work for all cases of a rung (inputs, reference)."""


class Rung:
    """One problem of a ladder. ``first`` is the index of its first case."""

    def __init__(self, setting: Setting, first: int, cases: list[Case]) -> None:
        """Take the cases of one problem."""
        self.setting, self.first, self.cases = setting, first, cases
        self.problem: Problem = cases[0].problem
        self.cells: dict[str, Cell] = {}

    def run(self) -> Iterator[tuple[int, Record]]:
        """Finish every case of the rung, each exactly once.

        Raises:
            DeviceBrokenError: if a case broke the GPU; the cases after it are not finished.
        """
        for offset, case in enumerate(self.cases):
            cell = Cell(self.first + offset, case, implementations.get(case.implementation))
            self.cells[case.implementation] = cell
            refused = self._refusal(cell)
            if refused is not None:
                yield self._finish(cell, *refused)
        if not self.cells:
            return
        self.setting.announce(SHARED)
        started = time.perf_counter()
        logical = make_inputs(self.problem, device=self.setting.device)
        if self.setting.calls is None:
            exact, naive = reference(self.problem, logical), naive_yardstick(self.problem, logical)
            ready = partial(self._verify, logical=logical, exact=exact, naive=naive)
        else:
            ready = partial(self._prepare_again, logical=logical)
        share_s = (time.perf_counter() - started) / len(self.cells)
        for cell in self._in_some_order():
            started, before = time.perf_counter(), cell.measure_s
            failed = self._attempt(cell, partial(ready, cell))
            cell.verify_s = time.perf_counter() - started - (cell.measure_s - before) + share_s
            if failed is not None:
                yield self._finish(cell, *failed)
        self.setting.announce(SHARED)
        for cell in list(self.cells.values()):
            reason = self._untimed(cell)
            if reason is not None:
                yield self._finish(cell, "verified", reason)
        yield from self._time()

    def _refusal(self, cell: Cell) -> Failure | None:
        """Why the case cannot be tried at all."""
        try:
            cell.version = cell.member.version()
        except Unavailable as error:
            return "unavailable", str(error)
        return refusal(cell.member, self.problem, self.setting.device)

    def _untimed(self, cell: Cell) -> str | None:
        """Why a cell is verified and not timed."""
        by_sweep = None if cell.case.timed else "this sweep verifies it without timing it"
        return untimed(cell.member, self.problem, self.setting.device) or by_sweep

    def _in_some_order(self) -> list[Cell]:
        """The cells; in a later process in random order, so that no implementation always has the same addresses."""
        cells = list(self.cells.values())
        if self.setting.calls is not None:
            self.setting.rng.shuffle(cells)
        return cells

    def _certified(self, cell: Cell) -> Certificate:
        """The certificate of this implementation for this kind of problem, made once per process."""
        key = (cell.case.implementation, certificate_problem(self.problem).key)
        if key not in self.setting.certificates:
            self.setting.certificates[key] = certify(cell.member, self.problem, self.setting.device)
        return self.setting.certificates[key]

    def _verify(self, cell: Cell, logical: AttentionInputs, exact: Reference, naive: Reference) -> Failure | None:
        """Certify, judge the first call, run the checks that are due, and read memory and operators."""
        member, device, problem = cell.member, self.setting.device, self.problem
        certificate = self._certified(cell)
        cell.setup_ns = certificate.setup_ns
        if certificate.reason is not None:
            cell.agreement = certificate.agreement
            return "incorrect", f"certificate {certificate.reason}"
        inputs, got = self._prepare(cell, logical)
        agreement = agree(problem, exact, naive, got)
        due = affordable_checks(problem)
        checks = run_checks(problem, attend_with(member, device), due) if agreement.passed and due else {}
        agreement = agreement.model_copy(
            update={
                "passed": agreement.passed and all(check.passed for check in checks.values()),
                "checks": checks,
                "rows": row_errors(problem, exact, got),
                **_carried(certificate.agreement),
            }
        )
        if self.setting.probe is not None:
            before = time.perf_counter_ns()
            cell.reading = read_step(self.setting.probe, cell.ready, problem, inputs)
            cell.measure_s += (time.perf_counter_ns() - before) / 1e9
            agreement = agreement.model_copy(update={"ran": cell.reading.operators})
        cell.agreement = agreement
        if not agreement.passed:
            return "incorrect", checks_reason(agreement)
        wanted, ran = member.expects, agreement.ran
        if cell.reading is not None and wanted and not any(w in operator for w in wanted for operator in ran):
            cell.agreement = agreement.model_copy(update={"passed": False})
            return "incorrect", f"backend: asked for {' or '.join(wanted)}, but {', '.join(ran) or 'nothing known'} ran"
        return None

    def _prepare(self, cell: Cell, logical: AttentionInputs) -> tuple[AttentionInputs, dict[str, torch.Tensor]]:
        """Make the step, call it once for the first time, and return its inputs and what it computed."""
        member, device, problem = cell.member, self.setting.device, self.problem
        inputs = differentiable(problem, place_inputs(logical, member.layout, device))
        before = time.perf_counter_ns()
        call = member.prepare(problem, inputs)
        step = make_step(call, problem, inputs, member.layout)
        cell.step, cell.prepare_ns = step, time.perf_counter_ns() - before
        cell.mask_bytes, cell.notes = call.mask_bytes, dict(call.notes)
        poison(problem, device)
        results: list[dict[str, torch.Tensor]] = []
        cell.first_call_ns = self.setting.clock.time_block(lambda: results.append(step.run().tensors()), 1).ns
        return inputs, results.pop()

    def _prepare_again(self, cell: Cell, logical: AttentionInputs) -> Failure | None:
        """In a later process: the first one verified the cell, and :meth:`_still_computes` looks again at the end."""
        self._prepare(cell, logical)
        cell.agreement = VERIFIED_BEFORE
        return None

    def _time(self) -> Iterator[tuple[int, Record]]:
        """Time the verified implementations in interleaved rounds, with other inputs in every block."""
        cells = dict(self.cells)
        failures: dict[str, Failure] = {}

        def attempt(name: str, block: Callable[[], Block]) -> Block | None:
            elapsed: list[Block] = []

            def guarded() -> None:
                cells[name].ready.negate()
                elapsed.append(block())

            failed = self._attempt(cells[name], guarded)
            if failed is not None:
                failures[name] = failed
                cells[name].step = None  # its inputs are not needed any more,
                del runs[name]  # and nobody may keep them alive while the others go on
                return None
            return elapsed[0]

        setting = self.setting
        runs = {name: cell.ready.run for name, cell in cells.items()}
        recorder, guard = Recorder(setting.gpus).start(), ThrottleGuard(setting.gpus)
        samples = interleave(
            runs,
            setting.clock,
            setting.plan,
            setting.rng,
            attempt,
            overhead_ns=setting.overhead_ns,
            calls=None if setting.calls is None else {name: setting.calls[self.problem.key, name] for name in runs},
            guard=guard,
        )
        telemetry, doubt = recorder.stop(), guard.doubt()
        guard.close()
        for name, taken in samples.items():
            if not taken.ns:
                failures[name] = "error", f"no round counted: {taken.discard_reason}"
                continue
            cells[name].telemetry, taken.throttle_doubt = telemetry, doubt
            cells[name].excluded_bytes |= setting.clock.excluded_bytes()
            cells[name].others = [self._under(clock, cells[name]) for clock in setting.other_clocks]
            failed = self._attempt(cells[name], partial(self._still_computes, cells[name]))
            if failed is None and setting.energy:
                failed = self._attempt(cells[name], partial(self._read_energy, cells[name]))
            if failed is not None:
                failures[name] = failed
        self.setting.announce(SHARED)
        for name, cell in cells.items():
            if name in failures:
                yield self._finish(cell, *failures[name])
            else:
                yield self._finish(cell, "ok", None, samples[name])

    def _under(self, clock: Clock, cell: Cell) -> Sampled:
        """Time a cell on its own under another clock protocol; a protocol that cannot be used leaves its reason."""
        if clock.name == "cuda_graph" and self.problem.direction == "bwd":
            return Sampled(clock=clock.name, reason="the gradients run outside a capture")
        reasons: list[str] = []

        def attempt(name: str, block: Callable[[], Block]) -> Block | None:
            cell.ready.negate()
            try:
                return block()
            except CaptureError as error:
                reasons.append(str(error))
                return None

        def timed() -> None:
            taken.update(interleave({clock.name: cell.ready.run}, clock, OTHER_PLAN, self.setting.rng, attempt))

        taken: dict[str, Samples] = {}
        failed = self._attempt(cell, timed)
        if not taken:
            reason = reasons[-1] if reasons else failed[1] if failed else "no block was timed"
            return Sampled(clock=clock.name, reason=reason)
        samples = taken[clock.name]
        cell.measure_s += samples.total_ns / 1e9
        cell.excluded_bytes |= clock.excluded_bytes()
        return Sampled(
            clock=clock.name,
            samples_ns=tuple(samples.ns),
            calls_per_sample=samples.calls,
            processes=(self.setting.process,) * len(samples.ns),
        )

    def _read_energy(self, cell: Cell) -> None:
        """Energy per call, from a window of its own."""
        started = time.perf_counter()
        cell.energy = energy_per_call(cell.ready.run, self.setting.gpus, synchronize=synchronizer(self.setting.device))
        cell.measure_s += time.perf_counter() - started

    def _still_computes(self, cell: Cell) -> Failure | None:
        """After timing: negated inputs must give negated results, or the blocks timed something that was stored."""
        import torch

        name = "dv" if self.problem.direction == "bwd" else "out"
        first = cell.ready.run().tensors()[name].clone()
        cell.ready.negate()
        second = cell.ready.run().tensors()[name]
        if torch.allclose(second, -first, rtol=1e-2, atol=1e-3 * float(first.abs().max())):
            return None
        agreement = cell.agreement
        cell.agreement = None if agreement is None else agreement.model_copy(update={"passed": False})
        return "incorrect", f"stale: {name} did not follow when the inputs changed between timed calls"

    def _doubt_ceilings(self, samples: Samples) -> None:
        """Before a row is called impossible, measure the ceilings again: they may have been taken in a busy moment."""
        setting, seconds = self.setting, seconds_per_call(samples)
        for _ in range(CEILING_DOUBTS):
            if setting.ceilings is None or not impossible_flag(self.problem, seconds, setting.ceilings):
                return
            again = measure_ceilings(setting.device, [self.problem.dtype], quick=True)
            setting.ceilings = higher(setting.ceilings, again)

    def _attempt(self, cell: Cell, action: Callable[[], Failure | None]) -> Failure | None:
        """Run something of one implementation; what it raises becomes a status and a reason."""
        self.setting.announce(cell.index)
        try:
            return action()
        except Unsupported as error:
            status: Status = "unsupported"
            reason = str(error)
            cell.agreement = None
        except Exception as error:  # noqa: BLE001  # the one place: it becomes a record
            status = "out_of_memory" if is_out_of_memory(error) else "error"
            reason = f"{type(error).__name__}: {error}"
        gc.collect()
        if self.setting.device == "cuda" and not recovered():
            raise DeviceBrokenError(*self._finish(cell, status, reason))
        return status, reason

    def _finish(
        self, cell: Cell, status: Status, reason: str | None, samples: Samples | None = None
    ) -> tuple[int, Record]:
        """The record of a case that is done; its tensors are released."""
        del self.cells[cell.case.implementation]
        cell.step = None
        setting = self.setting
        if samples is not None:
            self._doubt_ceilings(samples)
        record = finished_record(
            cell,
            setting.device,
            setting.device_name,
            status,
            reason,
            samples,
            clock=setting.clock.name,
            process=setting.process,
            memory_method=None if setting.probe is None else setting.probe.name,
            ceilings=setting.ceilings,
        )
        return cell.index, record


def _carried(agreement: Agreement | None) -> dict[str, object]:
    """What a record takes over from the certificate."""
    if agreement is None:
        return {}
    names = ("deterministic", "batch_invariant", "certificate")
    return {name: getattr(agreement, name) for name in names}
