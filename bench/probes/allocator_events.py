"""Exact peak bytes on the CPU, from the profiler's allocator events.

Every allocation and release of torch's CPU allocator is an event with a size, workspace inside fused
operators included, so the running sum is exact and the same to the byte in every repetition. Memory that a
library takes past torch's allocator (oneDNN or MKL scratch) is not seen.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, ClassVar

from bench.probes import Reading, probes, working_operators

KNOWN_BYTES = 1 << 20


@probes.register("allocator_events")
class AllocatorEvents:
    """Peak of the running sum of allocator events. Source: the ``[memory]`` events of kineto, which are private API."""

    name: ClassVar[str] = "allocator_events"
    device: ClassVar[str] = "cpu"
    summary: ClassVar[str] = "exact: sum of the CPU allocator's events, from the profiler"

    def read(self, run: Callable[[], object], *, receipt: bool = True) -> Reading:
        import torch
        from torch.profiler import ProfilerActivity, profile

        gc.collect()  # nothing older may be released meanwhile and lower the sum
        enabled = gc.isenabled()
        gc.disable()
        try:
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
                result = run()
        finally:
            if enabled:
                gc.enable()
        events: list[Any] = profiler.profiler.kineto_results.events()
        cpu = torch._C._autograd.DeviceType.CPU
        changes = [e for e in events if e.name() == "[memory]" and e.device_type() == cpu]
        live = peak = 0
        for event in sorted(changes, key=lambda e: e.start_ns()):
            live += event.nbytes()
            peak = max(peak, live)
        del result
        ran = working_operators({event.name() for event in events}) if receipt else ()
        return Reading(peak, max(0, live), ran)

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
