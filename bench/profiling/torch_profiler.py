"""torch's profiler: operators with their shapes and times, summed up by stage of the theory."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, ClassVar

from bench.calls import Step
from bench.digest import Stage
from bench.profiling import Absence, Found, Subject, register_tool, stand_in, warmed
from bench.profiling._operators import (
    CALL,
    TINY,
    read_calls,
    read_forward,
    read_kernels,
    tiny_ns,
)
from bench.profiling._roofs import Limits, ceilings_for
from bench.profiling._stages import FUSED, OTHER, OVERHEAD, STAGES, Placed, described, place
from bench.units import ns_to_ms

TRACE = "trace.json.gz"
PLAIN_CALLS = 5
"""Calls without a profiler, for context."""
SECONDS = 1.0
"""Of profiled calls, about."""
MOST_STEPS = 20
MOST_EVENTS = 60_000
"""Of the trace, about; as many are some 2 MB, compressed."""
TINY_CALLS = 50
NAMED_OPERATORS = 6


@register_tool
class TorchProfiler:
    """Time by stage, with FLOP, bytes and the nearest roof, and a trace to look at."""

    name: ClassVar[str] = "torch"
    summary: ClassVar[str] = "time by stage against the measured roofs, and a Chrome trace"
    default: ClassVar[bool] = True

    def absence(self, subject: Subject) -> Absence | None:
        """It comes with torch; what stands in for an implementation is not looked at."""
        return stand_in(subject)

    def look(self, subject: Subject, folder: Path) -> Found:
        """Profile some calls, and measure the ceilings in the same process."""
        import torch

        inputs = subject.inputs()
        step = subject.step(inputs)
        warmed(step, subject)
        unprofiled_ns = median(_wall_ns(step, subject) for _ in range(PLAIN_CALLS))
        count = _steps(unprofiled_ns, _events(step, subject))
        profiler, walls = _profiled(subject, step, count, inputs)
        found = profiler.profiler.kineto_results
        tree = list(found.experimental_event_tree())
        kernels = read_kernels(found.events())
        calls = read_calls(tree, kernels)
        forward = read_forward(tree) if subject.problem.direction == "bwd" else ()
        profiler.export_chrome_trace(str(folder / TRACE))
        ceilings = ceilings_for(subject.device, subject.problem.dtype)
        limits = Limits(ceilings, subject.problem.dtype, median(tiny_ns(tree, kernels)))
        placed = [place(call, subject.problem, forward) for call in calls]
        stages = stages_of(placed, walls, limits, subject.device)
        launches = [sum(len(one.kernels) for one in call) for call in calls]
        return Found(
            files={TRACE: "open in https://ui.perfetto.dev or chrome://tracing, both of which read it compressed"},
            parts={
                "steps": count,
                "total_ms": ns_to_ms(mean(walls)),
                "unprofiled_ms": ns_to_ms(unprofiled_ns),
                "stages": stages,
                "operators": round(mean(sum(len(one.within) == 1 for one in call) for call in calls)),
                "launches": round(mean(launches)) if subject.device == "cuda" else None,
                "ceilings": ceilings,
                "threads": torch.get_num_threads(),
            },
        )


def stages_of(placed: Sequence[Sequence[Placed]], walls: Sequence[int], limits: Limits, device: str) -> list[Stage]:
    """Stages of one call, averaged over the profiled calls; the longest first, overhead last.

    Args:
        placed: operators of each call.
        walls: nanoseconds of each call.
        limits: what the stages are held against.
        device: on ``cpu`` the time of a stage is that of its operators, on ``cuda`` that of their kernels, and what is
            left of the call is overhead.
    """
    groups: dict[tuple[str, str], list[Placed]] = defaultdict(list)
    times: dict[tuple[str, str], float] = defaultdict(float)
    for one in (one for call in placed for one in call):
        key = (one.stage, one.half)
        if device == "cpu":
            times[key] += one.operator.own_ns
        elif one.operator.kernels:
            times[key] += sum(kernel.time_ns for kernel in one.operator.kernels)
        else:
            key = (OVERHEAD, "forward")
        groups[key].append(one)
    if device != "cpu":
        times[OVERHEAD, "forward"] = max(0.0, sum(walls) - sum(times.values()))
    count, total = len(placed), sum(walls)
    stages = [_stage(key, groups[key], time_ns, count, total, limits, device) for key, time_ns in times.items()]
    return sorted(stages, key=lambda stage: (stage.name == OVERHEAD, -stage.time_ms, STAGES.index(stage.name)))


def _stage(
    key: tuple[str, str], placed: list[Placed], time_ns: float, count: int, total: int, limits: Limits, device: str
) -> Stage:
    name, half = key
    own: dict[str, float] = defaultdict(float)
    for one in placed:
        kernels = one.operator.kernels if device != "cpu" else ()
        for label, spent in [(k.name, k.time_ns) for k in kernels] or [(described(one), one.operator.own_ns)]:
            own[label] += spent
    names = sorted(own, key=lambda label: -own[label])
    calls = sum(len(one.operator.kernels) if device != "cpu" else 1 for one in placed)
    common = {
        "name": name,
        "half": half,
        "time_ms": ns_to_ms(time_ns / count),
        "share": time_ns / total,
        "calls": round(calls / count),
        "operators": tuple(names[:NAMED_OPERATORS] if name != OTHER else names),
    }
    if name == OVERHEAD:
        reason = "views, calls and Python: nothing is computed or moved"
        return Stage(**common, flop=0, moved_bytes=0, roof="overhead", reason=reason)
    unknown = sorted({described(one) for one in placed if one.flop is None})
    if unknown:
        what = f"what {', '.join(unknown[:NAMED_OPERATORS])} computes and moves does not follow from its shapes"
        return Stage(**common, reason=what)
    flop, moved = sum(one.flop or 0 for one in placed), [one.moved_bytes or 0 for one in placed]
    roof, fraction = limits.roof(time_ns, calls, flop, moved)
    why = None if fraction is not None else "its time is that of calling its operators"
    if name == FUSED:
        why = "FLOP and bytes are those of the theory: inputs read and results written once"
    return Stage(
        **common,
        flop=round(flop / count),
        moved_bytes=round(sum(moved) / count),
        roof=roof,
        roof_fraction=fraction,
        reason=why,
    )


def _wall_ns(step: Step, subject: Subject) -> int:
    start = time.perf_counter_ns()
    result = step.run()
    subject.finish()
    end = time.perf_counter_ns()
    del result
    return end - start


def _events(step: Step, subject: Subject) -> int:
    """Events of one call, from a first session that also pays for starting the profiler."""
    from torch.profiler import profile, supported_activities

    with profile(activities=supported_activities(), acc_events=True) as profiler:
        step.run()
        subject.finish()
    return len(list(profiler.profiler.kineto_results.events()))


def _steps(call_ns: float, events: int) -> int:
    """How many calls to profile."""
    by_time = int(SECONDS * 1e9 / max(call_ns, 1.0))
    return max(1, min(by_time, MOST_EVENTS // max(events, 1), MOST_STEPS))


def _profiled(subject: Subject, step: Step, count: int, inputs: Any) -> tuple[Any, list[int]]:
    """The profiler after ``count`` calls, and the nanoseconds that each of them took."""
    import torch
    from torch.profiler import profile, record_function, supported_activities

    walls = []
    small = torch.zeros(1, device=subject.device)
    with profile(activities=supported_activities(), record_shapes=True, acc_events=True) as profiler:
        if subject.problem.direction == "bwd":
            step = subject.step(inputs)  # again, so that the forward operators are seen
        with record_function(TINY), torch.inference_mode():
            for _ in range(TINY_CALLS):
                small.neg_()
        subject.finish()
        for _ in range(count):
            start = time.perf_counter_ns()
            with record_function(CALL):
                result = step.run()
                subject.finish()
            walls.append(time.perf_counter_ns() - start)
            del result
    return profiler, walls
