"""Memory over one call: every allocation with the tensor behind it, and who owns the peak."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from bench.calls import Step
from bench.digest import Lifetime, MemoryTimeline, Tensor
from bench.probes.allocator_events import Change, changes, record_events
from bench.profiling import Found, Subject, Tool, outputs, register_tool, warmed
from bench.profiling._operators import CALL, Operator, read_calls, read_forward
from bench.profiling._owners import Allocation, Naming
from bench.profiling._stages import place
from bench.units import ns_to_ms

SNAPSHOT = "memory.pickle"
LISTED = 2000
"""Allocations that are listed one by one, the largest."""
LEAST_SHARE = 1e-3
"""Of the peak; smaller ones are not listed."""


@register_tool
class MemoryTool(Tool):
    """Allocations over the call, each with its name."""

    name: ClassVar[str] = "memory"
    summary: ClassVar[str] = "allocations over the call by tensor, and the owners of the peak"
    default: ClassVar[bool] = True

    def look(self, subject: Subject, folder: Path) -> Found:
        """Record one call."""
        step, forward = prepared(subject)
        warmed(step, subject)
        if subject.device == "cpu":
            return Found(parts={"memory": on_cpu(subject, step.run, forward)})
        timeline = _on_cuda(step.run, folder / SNAPSHOT)
        how = "drop it onto https://pytorch.org/memory_viz, which keeps it in the browser"
        return Found(files={SNAPSHOT: how}, parts={"memory": timeline})


def prepared(subject: Subject) -> tuple[Step, list[Operator]]:
    """The step, and the operators of its forward call where that is no part of it (direction ``bwd`` on the CPU)."""
    inputs = subject.inputs()
    if subject.problem.direction != "bwd" or subject.device != "cpu":
        return subject.step(inputs), []
    found, step = record_events(partial(subject.step, inputs), record_shapes=True)
    return cast(Step, step), read_forward(found.experimental_event_tree())


def on_cpu(subject: Subject, run: Callable[[], Any], forward: Sequence[Operator] = ()) -> MemoryTimeline:
    """Timeline of one call from the events that the memory probe adds up.

    Args:
        subject: the cell.
        run: its step.
        forward: operators of the forward call before it, whose gradients it computes.
    """
    from torch.profiler import record_function

    def call() -> Any:
        with record_function(CALL):
            return run()

    found, result = record_events(call, record_shapes=True)
    tree = list(found.experimental_event_tree())
    operators = read_calls(tree, {})[0]
    placed = place(operators, subject.problem, forward)
    allocations, peak_ns = replayed(changes(tree))
    named = {tensor.untyped_storage().data_ptr(): name for name, tensor in outputs(result).items()}
    naming = Naming(placed, subject.problem, named)
    begin = operators[0].start_ns
    end = max([begin, *(one.stop_ns or one.start_ns for one in allocations), *(o.start_ns for o in operators)])
    del result
    return timeline("allocator_events", allocations, naming.owners(allocations), (begin, peak_ns, end))


def replayed(found: Iterable[Change]) -> tuple[list[Allocation], int]:
    """Allocations in order of time, and when their sum was largest.

    As in the probe, a release is believed only of a block whose allocation was seen.
    """
    alive: dict[int, Allocation] = {}
    made: list[Allocation] = []
    total = peak = peak_ns = 0
    at_peak: tuple[Allocation, ...] = ()
    for one in found:
        if one.size_bytes > 0:
            alive[one.address] = Allocation(one.address, one.size_bytes, one.time_ns, one.within)
            made.append(alive[one.address])
        elif (gone := alive.pop(one.address, None)) is not None:
            gone.stop_ns = one.time_ns
        else:
            continue
        total += one.size_bytes
        if total > peak:
            peak, peak_ns, at_peak = total, one.time_ns, tuple(alive.values())
    for held in at_peak:
        held.at_peak = True
    return made, peak_ns


def timeline(
    method: str, allocations: Sequence[Allocation], owners: Sequence[str], moments: tuple[int, int, int]
) -> MemoryTimeline:
    """The timeline of allocations with their owners.

    Args:
        method: source of the events.
        allocations: in order of time.
        owners: name of each.
        moments: begin of the call, when it held most, and its end, on the profiler's clock.
    """
    begin, peak_ns, end = moments
    sizes: dict[str, int] = defaultdict(int)
    counts: dict[str, int] = defaultdict(int)
    for one, owner in zip(allocations, owners, strict=True):
        if one.at_peak:
            sizes[owner] += one.size_bytes
            counts[owner] += 1
    peak = sum(sizes.values())
    large = [i for i, one in enumerate(allocations) if one.size_bytes >= LEAST_SHARE * peak]
    large = sorted(sorted(large, key=lambda i: -allocations[i].size_bytes)[:LISTED])

    def ms(time_ns: int) -> float:
        return ns_to_ms(max(0, time_ns - begin))

    return MemoryTimeline(
        method=method,
        peak_bytes=peak,
        peak_ms=ms(peak_ns),
        end_ms=ms(end),
        output_bytes=sum(one.size_bytes for one in allocations if one.stop_ns is None),
        owners=tuple(
            Tensor(name=name, peak_bytes=size, count=counts[name])
            for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
        ),
        lifetimes=tuple(
            Lifetime(
                owner=owners[i],
                operator=allocations[i].operator,
                size_bytes=allocations[i].size_bytes,
                start_ms=ms(allocations[i].start_ns),
                stop_ms=None if (stop := allocations[i].stop_ns) is None else ms(stop),
                at_peak=allocations[i].at_peak,
            )
            for i in large
        ),
        omitted=len(allocations) - len(large),
    )


def _on_cuda(run: Callable[[], Any], path: Path) -> MemoryTimeline:
    """Timeline of one call from the caching allocator's own history, which is kept as a pickle."""
    import torch

    history = torch.cuda.memory
    torch.cuda.synchronize()
    history._record_memory_history(max_entries=100_000)
    try:
        result = run()
        torch.cuda.synchronize()
        history._dump_snapshot(str(path))
        snapshot: Any = history._snapshot()
    finally:
        history._record_memory_history(enabled=None)
    named = {tensor.untyped_storage().data_ptr(): name for name, tensor in outputs(result).items()}
    del result
    return of_snapshot(snapshot["device_traces"][torch.cuda.current_device()], named)


def of_snapshot(trace: Sequence[Mapping[str, Any]], named: Mapping[int, str]) -> MemoryTimeline:
    """Timeline of the caching allocator's history; a tensor that is no result is named by the line that made it.

    Args:
        trace: entries of one device, in order of time.
        named: results of the call by address.
    """
    found, places = [], []
    for entry in trace:
        sign = {"alloc": 1, "free_requested": -1}.get(entry["action"])
        if sign is not None:
            time_ns = 1000 * int(entry.get("time_us", 0))
            place = _place(entry.get("frames") or ())
            found.append(Change(time_ns, int(entry["addr"]), sign * int(entry["size"]), (place,)))
            places.append(time_ns)
    allocations, peak_ns = replayed(found)
    owners = [
        named[one.address] if one.stop_ns is None and one.address in named else f"made in {one.operator}"
        for one in allocations
    ]
    begin, end = (places[0], places[-1]) if places else (0, 0)
    return timeline("cuda_memory_history", allocations, owners, (begin, peak_ns, end))


def _place(frames: Sequence[Mapping[str, Any]]) -> str:
    """The innermost line of Python that is no part of torch."""
    for frame in frames:
        name = str(frame.get("filename", ""))
        if name.endswith(".py") and "/torch/" not in name:
            return f"{frame.get('name')} ({Path(name).name}:{frame.get('line')})"
    return "torch"
