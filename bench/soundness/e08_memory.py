"""E8: are peak bytes exact, and the same in every reading?

Planted allocations whose peak is known by construction, and the laws of three implementations, each read a hundred
times in one worker by the probe that reads measurements. As a second opinion the resident-set mark of a fresh process
(:mod:`bench.memory_check`), which is near the peak and not equal to it.

One planted case lies beyond the probe's reach and is expected to read 0: what threads that Python started allocate.
torch's profiler follows only its own thread and threads of torch. The resident-set mark is what would tell.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from bench.calls import differentiable, make_step
from bench.case import Case
from bench.fresh_call import in_fresh_process
from bench.implementation import implementations
from bench.inputs import make_inputs, place_inputs
from bench.memory_check import agrees, resident_growth
from bench.memory_law import NAIVE, naive_law_bytes
from bench.probes import probe_for
from bench.problem import Problem
from bench.soundness import Context, Finding, Observation, experiments
from bench.soundness._planted import BEYOND_REACH, PLANTED, Planted, nothing

READINGS = 100


@experiments.register("e08_memory")
class MemoryTruth:
    """Truth of peak bytes."""

    name: ClassVar[str] = "e08_memory"
    title: ClassVar[str] = "Are peak bytes exact, and the same every time?"
    target: ClassVar[str] = (
        "0 bytes error and 0 spread in 100 readings of planted allocations and of three laws; "
        "VmHWM within 2 % or 1 MiB of peaks from 8 MiB on"
    )
    reads: ClassVar[str] = "e08_memory"

    def units(self, quick: bool) -> list[str]:
        planted = [f"planted/{name}" for name in PLANTED]
        laws = [f"law/{name}" for name in LAWS]
        resident = [f"resident/{name}" for name in RESIDENT]
        return [*planted[3:9], laws[0], resident[0]] if quick else [*planted, *laws, *resident]

    def observe(self, unit: str, context: Context) -> Observation:
        what, name = unit.split("/")
        if what == "resident":
            implementation, problem = RESIDENT[name]
            growth = resident_growth([Case(problem, implementation)])[0]
            return {"vm_hwm_bytes": growth.vm_hwm_bytes, "reason": growth.reason, **self._read(unit, context, 1)}
        return self._read(unit, context, READINGS)

    def _read(self, unit: str, context: Context, readings: int) -> Observation:
        found: Observation = in_fresh_process(read_peaks, unit, readings, log=context.folder / "memory.log")
        return found

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        exact = {unit: one for unit, one in observations.items() if not unit.startswith("resident/")}
        rows = [_row(unit, one) for unit, one in exact.items()]
        resident = [_resident_row(unit, one) for unit, one in observations.items() if unit not in exact]
        if not rows or not resident:
            return Finding(None, "too little was read: exact readings and resident growth are both needed", rows)
        held = [row for row in rows if row["within reach"]]
        error = max((row["largest error"] for row in held), default=0)
        spread = max((row["spread"] for row in rows), default=0)
        told = [row for row in resident if row["agrees"] is not None]
        agreed = sum(bool(row["agrees"]) for row in told)
        beyond = ", ".join(f"{row['case']} read as {row['largest']} bytes" for row in rows if not row["within reach"])
        found = (
            f"largest error {error} bytes and largest spread {spread} bytes in {sum(row['readings'] for row in held)} "
            f"readings of {len(held)} cases; VmHWM agrees with {agreed} of {len(told)} peaks"
            + (f"; beyond the probe's reach: {beyond}" if beyond else "")
        )
        return Finding(error == 0 and spread == 0 and agreed == len(told) > 0, found, [*rows, *resident])


def _row(unit: str, one: Observation) -> dict[str, Any]:
    """Errors and spread of one case; ``peaks`` maps what was read to how often."""
    peaks = [int(value) for value in one["peaks"]]
    return {
        "case": unit.partition("/")[2],
        "expected": one["expected"],
        "readings": sum(one["peaks"].values()),
        "smallest": min(peaks),
        "largest": max(peaks),
        "largest error": max(abs(peak - one["expected"]) for peak in peaks),
        "spread": max(peaks) - min(peaks),
        "within reach": unit.partition("/")[2] not in BEYOND_REACH,
    }


def _resident_row(unit: str, one: Observation) -> dict[str, Any]:
    """Growth of the resident-set mark beside the exact peak."""
    peak, grown = one["expected"], one["vm_hwm_bytes"]
    return {
        "case": unit.partition("/")[2],
        "expected": peak,
        "vm_hwm_bytes": grown,
        "difference": None if grown is None else grown - peak,
        "agrees": None if grown is None else agrees(peak, grown),
        "reason": one["reason"],
    }


def read_peaks(unit: str, readings: int) -> dict[str, Any]:
    """In a fresh process: read a planted case or a law again and again.

    Returns:
        ``expected`` bytes; ``peaks``, how often each peak was read, by its bytes as text.
    """
    probe, reason = probe_for("cpu")
    if probe is None:
        raise RuntimeError(f"the probe must pass its self-test, got {reason}")
    what, name = unit.split("/")
    run, expected, before = PLANTED[name]() if what == "planted" else _law(*{**LAWS, **RESIDENT}[name])
    gc.collect()
    gc.freeze()  # a probe collects garbage first, and all of torch need not be searched a hundred times
    peaks: Counter[int] = Counter()
    for _ in range(readings):
        before()
        peaks[probe.read(run, receipt=False).peak_bytes] += 1
    return {"expected": expected, "peaks": {str(peak): count for peak, count in peaks.items()}}


LAWS: dict[str, tuple[str, Problem]] = {
    f"{implementation} T={seqlen}": (implementation, Problem(seqlen=seqlen))
    for implementation in (NAIVE, "sdpa_flash", "online_softmax")
    for seqlen in (128, 512, 1024)
}
"""Forward passes whose peak follows a law to the byte; what is said of gradients is a prediction within 5 %."""
RESIDENT: dict[str, tuple[str, Problem]] = {
    "naive T=1024 resident": (NAIVE, Problem(seqlen=1024)),
    "naive T=2048 resident": (NAIVE, Problem(seqlen=2048)),
    "online_softmax T=2048 resident": ("online_softmax", Problem(seqlen=2048)),
    "online_softmax T=1024 B=4 resident": ("online_softmax", Problem(seqlen=1024, batch_size=4)),
}
"""What is large enough for the resident-set mark to tell."""


def _law(implementation: str, problem: Problem) -> Planted:
    """A step of an implementation and the peak that its law predicts: the theory's for a naive forward pass."""
    member = implementations.get(implementation)
    inputs = differentiable(problem, place_inputs(make_inputs(problem), member.layout, "cpu"))
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    expected = member.predicted_peak_bytes(problem)
    if implementation == NAIVE and problem.direction == "fwd":
        expected = naive_law_bytes(problem)
    if expected is None:
        raise RuntimeError(f"{implementation} must predict its peak, got None for {problem.key}")
    step.run()
    return step.run, expected, nothing
