"""Exact peak bytes on the CPU, from the profiler's allocator events.

Every allocation and release of torch's CPU allocator is an event with a size, workspace inside fused
operators included, so the running sum is exact and the same to the byte in every repetition. Memory that a
library takes past torch's allocator (oneDNN or MKL scratch) is not seen, nor is what threads allocate that
Python started: torch's profiler follows its own thread and torch's.

torch remembers the sizes of blocks by address and forgets none that is released while no profiler runs. So a
release is believed only of a block whose allocation was seen, in this reading or (for ``releases``) in the last.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from bench.probes import Reading, probes, working_operators

KNOWN_BYTES = 1 << 20


@dataclass(frozen=True)
class Change:
    """One allocation or release on the CPU."""

    time_ns: int
    """On the profiler's clock."""
    address: int
    size_bytes: int
    """Negative for a release."""
    within: tuple[str, ...]
    """Names of the operators and ranges that were running, outermost first."""


@probes.register("allocator_events")
class AllocatorEvents:
    """Peak of the running sum of allocator events. Source: the event tree of torch's profiler, which is private API."""

    name: ClassVar[str] = "allocator_events"
    device: ClassVar[str] = "cpu"
    summary: ClassVar[str] = "exact: sum of the CPU allocator's events, from the profiler"

    def __init__(self) -> None:
        self._left: frozenset[int] = frozenset()
        """Addresses of what the last call left alive."""

    def read(self, run: Callable[[], object], *, receipt: bool = True, releases: bool = False) -> Reading:
        found, result = record_events(run)
        older = set(self._left) if releases else set[int]()
        made: dict[int, int] = {}
        change = peak = 0
        for one in changes(found.experimental_event_tree()):
            if one.size_bytes > 0:
                made[one.address] = one.size_bytes
            elif made.pop(one.address, None) is None:
                if one.address not in older:
                    continue
                older.discard(one.address)
            change += one.size_bytes
            peak = max(peak, change)
        del result
        self._left = frozenset(made)
        ran = working_operators({event.name() for event in found.events()}) if receipt else ()
        return Reading(peak, sum(made.values()), ran)

    def self_test(self) -> str | None:
        import torch

        def allocate() -> torch.Tensor:
            torch.empty(2 * KNOWN_BYTES, dtype=torch.uint8)
            return torch.empty(KNOWN_BYTES, dtype=torch.uint8)

        try:
            reading = self.read(allocate)
        except (AttributeError, RuntimeError, TypeError) as error:  # private API may change: then there is no number
            return f"{type(error).__name__}: {error}"
        if (reading.peak_bytes, reading.output_bytes) != (2 * KNOWN_BYTES, KNOWN_BYTES):
            return f"a known allocation read as {reading.peak_bytes} and {reading.output_bytes} bytes"
        return None


def record_events(run: Callable[[], object], **options: Any) -> tuple[Any, object]:
    """Run once under torch's profiler: its results (private API), and what ``run`` returned.

    Args:
        run: what is looked at.
        options: what else the profiler is to record.
    """
    from torch.profiler import ProfilerActivity, profile

    gc.collect()  # nothing older may be released meanwhile and lower the sum
    enabled = gc.isenabled()
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True, **options) as profiler:
            result = run()
    finally:
        if enabled:
            gc.enable()
    return profiler.profiler.kineto_results, result


def changes(tree: Iterable[Any]) -> list[Change]:
    """Every allocation and release on the CPU in a tree of the profiler's events, in the order of time."""

    def nodes(level: Iterable[Any], within: tuple[str, ...]) -> Iterator[Change]:
        for node in level:
            found = node.extra_fields
            if node.tag.name == "Allocation" and found.device.type == "cpu":
                yield Change(int(node.start_time_ns), int(found.ptr), int(found.alloc_size), within)
            yield from nodes(node.children, (*within, str(node.name)))

    return sorted(nodes(tree, ()), key=lambda change: change.time_ns)
