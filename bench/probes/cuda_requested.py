"""Exact peak bytes on CUDA: what the call requested from the caching allocator, above what was there before.

Requested bytes are what tensors asked for. Beside them stand, under names of their own, allocated bytes (requests
rounded up to 512), reserved bytes (whole segments that the caching allocator took) and what is in use on the whole
device, which holds the context, library workspaces and other processes as well. A reset sets a peak counter to the
current value, so the start is subtracted; unused segments are given back first, or the call would be served from them
and reserve nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, ClassVar

from bench.probes import Reading, probes, working_operators

KNOWN_BYTES = 1 << 20


@probes.register("cuda_requested")
class CudaRequested:
    """``requested_bytes.all.peak`` of ``torch.cuda.memory_stats``, minus its value at the start.

    Args:
        cuda: a stand-in for ``torch.cuda`` in tests.
    """

    name: ClassVar[str] = "cuda_requested"
    device: ClassVar[str] = "cuda"
    summary: ClassVar[str] = "exact: bytes requested from the CUDA caching allocator"

    def __init__(self, cuda: Any = None) -> None:
        self._cuda = cuda

    def _module(self) -> Any:
        if self._cuda is None:
            import torch

            self._cuda = torch.cuda
        return self._cuda

    def read(self, run: Callable[[], object], *, receipt: bool = True, releases: bool = False) -> Reading:
        cuda = self._module()
        gc.collect()
        cuda.synchronize()
        cuda.empty_cache()
        cuda.reset_peak_memory_stats()
        start = cuda.memory_stats()
        result = run()
        cuda.synchronize()
        stats = cuda.memory_stats()
        free, total = cuda.mem_get_info()
        del result

        def rise(kind: str, value: str = "peak") -> int:
            return int(stats[f"{kind}.all.{value}"] - start[f"{kind}.all.current"])

        return Reading(
            peak_bytes=rise("requested_bytes"),
            output_bytes=max(0, rise("requested_bytes", "current")),
            operators=self._operators(run) if receipt else (),
            allocated_bytes=rise("allocated_bytes"),
            reserved_bytes=rise("reserved_bytes"),
            device_used_bytes=total - free,
        )

    def self_test(self) -> str | None:
        import torch

        def allocate() -> torch.Tensor:
            return torch.empty(KNOWN_BYTES, dtype=torch.uint8, device="cuda")

        try:
            reading = self.read(allocate)
        except (AssertionError, AttributeError, KeyError, RuntimeError) as error:  # no device: then there is no number
            return f"{type(error).__name__}: {error}"
        if reading.peak_bytes != KNOWN_BYTES:
            return f"a known allocation of {KNOWN_BYTES} bytes read as {reading.peak_bytes}"
        return None

    def _operators(self, run: Callable[[], object]) -> tuple[str, ...]:
        """Names of operators and kernels of a second call, which is neither timed nor measured."""
        from torch.profiler import profile, supported_activities

        with profile(activities=supported_activities(), acc_events=True) as profiler:
            run()
            self._module().synchronize()
        return working_operators({event.name() for event in profiler.profiler.kineto_results.events()})
