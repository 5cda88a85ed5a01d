"""A device that is not there: what is launched is queued, and two clocks, the host's and the device's, move apart."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

US = 1_000
MS = 1_000_000
QUEUE = 1024
"""Launches that the device queues; the host waits for room."""


class FakeCuda:
    """Stands in for ``torch.cuda``. Times in nanoseconds; ``log`` holds what was queued and done, in order.

    Args:
        l2_bytes: size of the L2 cache.
        launch_ns: what issuing one kernel costs the host.
    """

    def __init__(self, l2_bytes=50 << 20, launch_ns=5 * US):
        self.l2_bytes, self.launch_ns = l2_bytes, launch_ns
        self.host_ns = self.device_ns = 0
        self.ends: list[int] = []
        self.warm = False
        self.recording: list[tuple[int, int]] | None = None
        self.failure: str | None = None
        self.end_failure: str | None = None
        self.sync_mode = 0
        self.streams: list[str] = ["default"]
        self.graphs: list[FakeCuda.CUDAGraph] = []
        self.log: list[str] = []

    def now(self):
        return self.host_ns

    # What calls do.

    def launch(self, hot_ns, cold_ns=None, launch_ns=None):
        """One kernel: it takes ``cold_ns`` where the cache was flushed since, and fills the cache."""
        self.host_ns += self.launch_ns if launch_ns is None else launch_ns
        if self.recording is not None:
            self.recording.append((hot_ns, cold_ns or hot_ns))
            return
        self.log.append("call")
        self._work(hot_ns if self.warm else cold_ns or hot_ns)
        self.warm = True

    def item(self):
        """What ``tensor.item()`` does: waits, which neither sync debugging nor a capture allows."""
        if self.sync_mode == 2:
            raise RuntimeError("called a synchronizing CUDA operation")
        if self.recording is not None:
            self.end_failure = "operation failed due to a previous error during capture\nsome advice"
            raise RuntimeError("operation not permitted when stream is capturing\nsome advice")
        self.synchronize()

    def buffer(self, size):
        self.log.append(f"buffer {size}")

        def zero():
            self.log.append("flush")
            self.host_ns += self.launch_ns
            self._work(80 * US)
            self.warm = False

        return SimpleNamespace(zero_=zero)

    def _work(self, ns):
        self.ends = [end for end in self.ends if end > self.host_ns]
        if len(self.ends) >= QUEUE:
            self.host_ns = self.ends[-QUEUE]
        self.device_ns = max(self.host_ns, self.device_ns) + ns
        self.ends.append(self.device_ns)

    # What torch.cuda has.

    def synchronize(self):
        self.log.append("synchronize")
        self.host_ns = max(self.host_ns, self.device_ns)
        if self.failure is not None:
            raise RuntimeError(self.failure)

    def _sleep(self, cycles):
        self.log.append("spin")
        self._work(cycles // 2)  # a clock of 2 GHz

    def get_device_properties(self):
        return SimpleNamespace(L2_cache_size=self.l2_bytes)

    def Event(self, enable_timing=False):  # noqa: N802  # torch's name
        assert enable_timing
        device = self

        class Event:
            def record(self):
                device.log.append("event")
                device._work(0)
                self.at = device.device_ns

            def elapsed_time(self, stop):
                assert device.host_ns >= stop.at, "read before the work was done"
                return (stop.at - self.at) / 1e6

        return Event()

    def Stream(self):  # noqa: N802  # torch's name
        return "side"

    def current_stream(self):
        return self.streams[-1]

    def set_stream(self, stream):
        self.streams[-1] = stream

    def stream(self, stream):
        self.log.append(f"on {stream}")
        return nullcontext()

    def get_sync_debug_mode(self):
        return self.sync_mode

    def set_sync_debug_mode(self, mode):
        self.sync_mode = {"default": 0, "warn": 1, "error": 2}.get(mode, mode)

    class CUDAGraph:
        def __init__(self):
            self.kernels: list[tuple[int, int]] = []

        def pool(self):
            return (id(self), 0)

    @contextmanager
    def graph(self, graph, stream=None):
        self.log.append("capture")
        self.set_stream(stream)
        self.recording = graph.kernels
        try:
            yield
        finally:
            self.recording = None
            if self.end_failure is not None:  # as torch does: the stream of the capture stays the current one
                raise RuntimeError(self.end_failure)
        self.set_stream("default")
        self.graphs.append(graph)

        def replay():
            self.log.append("replay")
            self.host_ns += self.launch_ns
            for hot_ns, cold_ns in graph.kernels:
                self._work(hot_ns if self.warm else cold_ns)
                self.warm = True

        graph.replay = replay

    def memory_snapshot(self):
        own = [{"segment_pool_id": graph.pool(), "total_size": 2 << 20} for graph in self.graphs]
        return [{"segment_pool_id": (0, 0), "total_size": 20 << 20}, {"total_size": 1 << 20}, *own]
