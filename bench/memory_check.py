"""A second opinion on peak memory: how far one call raises the resident-set mark of a fresh process.

The mark (``VmHWM``) counts pages that were touched, by whomever: it sees scratch that a library takes past torch's
allocator, and misses what was allocated and never written. So it is near the exact peak and not equal to it, and it
decides nothing: it is a cross-check of calls whose peak is large enough to stand out.

Source: proc_pid_clear_refs(5): writing 5 resets the mark to the present resident size.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from bench.calls import differentiable, make_step
from bench.case import Case
from bench.errors import BenchError
from bench.fresh_process import own_bytes, start
from bench.implementation import implementations
from bench.inputs import make_inputs
from bench.lifeline import end_worker, has_message
from bench.record import Flag, Record
from bench.registry import load_file

CLEAR_REFS = Path("/proc/self/clear_refs")
TOLERANCE_SHARE, TOLERANCE_BYTES = 0.02, 1 << 20
"""The two figures agree within this share of the peak, or within these bytes if that is more."""
LEAST_PEAK_BYTES = 8 << 20
"""Below this the tolerance is too large a part of the peak for an answer."""


@dataclass(frozen=True)
class Growth:
    """What one call did to the resident-set mark."""

    vm_hwm_bytes: int | None
    """Growth of the mark; None with a reason."""
    reason: str | None = None
    """Why there is no number."""


def agrees(peak_bytes: int, vm_hwm_bytes: int) -> bool | None:
    """Whether an exact peak and the growth of the mark tell the same; None where the peak is too small to say."""
    if peak_bytes < LEAST_PEAK_BYTES:
        return None
    return abs(vm_hwm_bytes - peak_bytes) <= max(TOLERANCE_SHARE * peak_bytes, TOLERANCE_BYTES)


def resident_growth(cases: Sequence[Case], load: tuple[Path, ...] = (), timeout_s: float = 120.0) -> list[Growth]:
    """Measure each case in one fresh process, on the CPU; the mark is reset before each.

    Args:
        cases: what is called, once for warmth and once for the figure.
        load: files of unpackaged implementations.
        timeout_s: seconds that one case may take.
    """
    found: list[Growth] = []
    ending = ""
    process, receiver = start(_measure, tuple(cases), load)
    try:
        while len(found) < len(cases):
            if not has_message(receiver, process, timeout_s):
                ending = f"no answer for {timeout_s:g} s"
                break
            found.append(receiver.recv())
    except EOFError:
        process.join()
        ending = f"the process ended with exit code {process.exitcode}"
    finally:
        end_worker(process)
    return found + [Growth(None, ending) for _ in range(len(cases) - len(found))]


def cross_checked(records: Sequence[Record], load: tuple[Path, ...] = ()) -> list[Record]:
    """The records with the growth of the mark, or why there is none, beside each exact peak; a flag where they differ.

    Args:
        records: of the CPU, with or without a measurement.
        load: files of unpackaged implementations.
    """
    peaks = [_exact_peak(record) for record in records]
    due = [i for i, peak in enumerate(peaks) if peak is not None and peak >= LEAST_PEAK_BYTES]
    cases = [Case(records[i].problem, records[i].implementation) for i in due]
    grown = dict(zip(due, resident_growth(cases, load) if cases else [], strict=True))
    too_small = Growth(None, f"a peak below {LEAST_PEAK_BYTES} bytes is too small for a cross-check")
    return [
        record if peak is None else _with_growth(record, grown.get(i, too_small))
        for i, (record, peak) in enumerate(zip(records, peaks, strict=True))
    ]


def _exact_peak(record: Record) -> int | None:
    memory = None if record.measurement is None else record.measurement.memory
    return None if memory is None else memory.peak_bytes


def _with_growth(record: Record, growth: Growth) -> Record:
    """A record that has an exact peak, with the second opinion beside it."""
    measurement = record.measurement
    assert measurement is not None and measurement.memory is not None, "its peak was read"
    memory, flags = measurement.memory, record.flags
    told = {"vm_hwm_bytes": growth.vm_hwm_bytes, "vm_hwm_reason": growth.reason}
    if growth.vm_hwm_bytes is not None and not agrees(memory.peak_bytes, growth.vm_hwm_bytes):
        reason = f"resident memory grew by {growth.vm_hwm_bytes} bytes, the peak is {memory.peak_bytes}"
        flags += (Flag(name="memory_disagrees", reason=reason),)
    changed = measurement.model_copy(update={"memory": memory.model_copy(update=told)})
    return record.model_copy(update={"measurement": changed, "flags": flags})


def _measure(cases: Sequence[Case], load: Sequence[Path], sender: Connection) -> None:
    """In the fresh process: send one :class:`Growth` per case."""
    for path in load:
        load_file(path)
    for case in cases:
        try:
            sender.send(_growth(case))
        except (BenchError, RuntimeError, MemoryError) as error:
            sender.send(Growth(None, f"{type(error).__name__}: {error}"))
        gc.collect()


def _growth(case: Case) -> Growth:
    """Call twice; the second call's touch on the mark is what counts."""
    member, problem = implementations.get(case.implementation), case.problem
    inputs = differentiable(problem, make_inputs(problem, member.layout))
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    step.run()  # code, thread stacks and whatever else only a first call touches
    gc.collect()
    try:
        CLEAR_REFS.write_text("5")
    except OSError as error:
        return Growth(None, f"the mark cannot be reset here ({error.strerror})")
    before = own_bytes("VmHWM")
    result = step.run()
    after = own_bytes("VmHWM")
    del result
    if before is None or after is None:
        return Growth(None, "this kernel keeps no VmHWM")
    return Growth(after - before)
