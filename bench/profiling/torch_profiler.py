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
from bench.profiling import Found, Subject, Tool, register_tool, warmed
from bench.profiling._names import FUSED, OTHER, OVERHEAD, STAGES
from bench.profiling._operators import CALL, TINY, Operator, read_calls, read_forward, read_kernels, tiny_ns
from bench.profiling._roofs import Limits, ceilings_for
from bench.profiling._stages import Placed, described, place
from bench.units import format_bytes, ns_to_ms

TRACE = "trace.json.gz"
HOW_TO_OPEN = "open in https://ui.perfetto.dev or chrome://tracing, both of which read it compressed"
PLAIN_CALLS = 5
"""Calls without a profiler, for context, at most."""
SECONDS = 1.0
"""Of profiled calls, about; of others, after which there is no further one."""
MOST_STEPS = 20
MOST_EVENTS = 60_000
"""Of the trace, about; as many are some 2 MB, compressed."""
MOST_TRACE_BYTES = 20_000_000
"""Of the compressed trace. One call may have more events than all calls should; viewers open no larger file."""
TINY_CALLS = 50
NAMED_OPERATORS = 6


@register_tool
class TorchProfiler(Tool):
    """Time by stage, with FLOP, bytes and the nearest roof, and a trace to look at."""

    name: ClassVar[str] = "torch"
    summary: ClassVar[str] = "time by stage against the measured roofs, and a Chrome trace"
    default: ClassVar[bool] = True

    def look(self, subject: Subject, folder: Path) -> Found:
        """Profile some calls, and measure the ceilings in the same process."""
        import torch

        inputs = subject.inputs()
        step = subject.step(inputs)
        warmed(step, subject, calls=1)
        events = _events(step, subject)
        unprofiled_ns = median(_plain(step, subject))
        count = _steps(unprofiled_ns, events)
        profiler, all_walls = _profiled(subject, step, count, inputs)
        found = profiler.profiler.kineto_results
        tree = list(found.experimental_event_tree())
        kernels = read_kernels(found.events())
        calls, walls = undisturbed(read_calls(tree, kernels), all_walls)
        forward = read_forward(tree) if subject.problem.direction == "bwd" else ()
        profiler.export_chrome_trace(str(folder / TRACE))
        dropped = _too_large(folder / TRACE)
        ceilings = ceilings_for(subject.device, subject.problem.dtype)
        limits = Limits(ceilings, subject.problem.dtype, median(tiny_ns(tree, kernels)))
        placed = [place(call, subject.problem, forward) for call in calls]
        stages = stages_of(placed, walls, limits, subject.device)
        launches = [sum(len(one.kernels) for one in call) for call in calls]
        return Found(
            files={} if dropped else {TRACE: HOW_TO_OPEN},
            parts={
                "steps": len(walls),
                "total_ms": ns_to_ms(mean(walls)),
                "unprofiled_ms": ns_to_ms(unprofiled_ns),
                "stages": stages,
                "operators": round(mean(sum(len(one.within) == 1 for one in call) for call in calls)),
                "launches": round(mean(launches)) if subject.device == "cuda" else None,
                "ceilings": ceilings,
                "threads": torch.get_num_threads(),
                "notes": {"trace": dropped} if dropped else {},
            },
        )


def undisturbed(calls: Sequence[list[Operator]], walls: Sequence[int]) -> tuple[list[list[Operator]], list[int]]:
    """The quicker half of the calls: one that lost the processor would give its time to whatever stage it was in."""
    limit = median(walls)
    kept = [(call, wall) for call, wall in zip(calls, walls, strict=True) if wall <= limit]
    return [call for call, _ in kept], [wall for _, wall in kept]


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
        elif not one.flop and not one.moved_bytes:
            key = (OVERHEAD, "forward")  # else its work is done by the kernels of operators that it calls
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
        for label, spent in [(k.name, k.time_ns) for k in kernels]:
            own[label] += spent
        if device == "cpu" or name == OVERHEAD:
            own[described(one)] += one.operator.own_ns
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
    moved = [one.moved_bytes or 0 for one in placed]
    flop: dict[str, int] = defaultdict(int)
    for one in placed:
        flop[limits.dtype_of(one)] += one.flop or 0
    roof, fraction = limits.roof(time_ns, calls, flop, moved)
    why = None if fraction is not None else "its time is that of calling its operators"
    if name == FUSED:
        why = (
            "one kernel does products, mask and softmax, whose parts cannot be told apart; FLOP and bytes are those of "
            "the theory, inputs read and results written once"
        )
    return Stage(
        **common,
        flop=round(sum(flop.values()) / count),
        moved_bytes=round(sum(moved) / count),
        roof=roof,
        roof_fraction=fraction,
        reason=why,
    )


def _too_large(trace: Path) -> str | None:
    """Remove a trace that no viewer opens, and say so."""
    size = trace.stat().st_size
    if size <= MOST_TRACE_BYTES:
        return None
    trace.unlink()
    limit = format_bytes(MOST_TRACE_BYTES)
    return f"not kept, as it has {format_bytes(size)} and viewers open {limit}; profile a shorter problem"


def _plain(step: Step, subject: Subject) -> list[int]:
    """Nanoseconds of some calls without a profiler; one of a slow call."""
    walls = [_wall_ns(step, subject)]
    while len(walls) < PLAIN_CALLS and sum(walls) < SECONDS * 1e9:
        walls.append(_wall_ns(step, subject))
    return walls


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
