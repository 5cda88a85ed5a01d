"""What times a block of calls. Each protocol has a name of its own, which is stored with its samples.

| name | device | what it times |
|---|---|---|
| ``perf_counter`` | CPU | wall time from before the first call to after the last, which returns when its work is done |
| ``cuda_event_cold`` | GPU | each call between two events of its own, after the L2 cache was overwritten |
| ``cuda_event_hot`` | GPU | all calls between two events, after one call that filled the L2 cache |
| ``cuda_graph`` | GPU | the same calls captured into a CUDA graph and replayed: nothing is launched by the host |
| ``host`` | GPU | wall time of issuing a call to an idle device, without waiting for its work: the cost of launching |

Before a GPU times anything it is kept busy by a spin kernel, so that the calls are queued when it gets to them and it
need not wait for the host. The spin has a fixed length: a kernel that waited for a word from the host would never end
if a call synchronises. Where issuing takes longer than the longest spin, or more launches than the device queues (about
a thousand), the events show the pace of the host; ``host`` and ``cuda_graph`` beside them tell
(:mod:`bench.cross_examination`).

Nothing here imports torch at the top; ``torch.cuda`` is passed in, so tests use a fake clock and a fake device.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from bench.errors import CaptureError

SHORTEST_SPIN_NS = 100_000
"""Spin ahead of calls of which it is not known yet what issuing them takes: a few operators."""
LONGEST_SPIN_NS = 10_000_000
"""Longest spin, however long issuing takes."""
SPIN_CYCLES_PER_NS = 3
"""No GPU clocks above 3 GHz; one that clocks lower spins longer, which costs time and changes no sample."""
LEAST_FLUSH_BYTES = 256 << 20
"""A flush overwrites at least this, as ``triton.testing.do_bench`` does, and twice the L2 cache where that is more."""


class Block(NamedTuple):
    """How long a block of calls took."""

    ns: int
    """From before the first call until all work is done."""
    cpu_ns: int | None = None
    """CPU time of the calling thread meanwhile; None where the work is done elsewhere."""


class Clock(Protocol):
    """Times a block of calls."""

    name: str
    """As stored in the record."""
    most_calls: int
    """Calls in one block at most: more would cost much and say no more."""

    def time_block(self, run: Callable[[], object], calls: int) -> Block:
        """Run ``calls`` times and say how long it took. What the work raises, it raises here and not later."""
        ...

    def excluded_bytes(self) -> dict[str, int]:
        """Memory that this clock holds at present and that no reading of memory may count, by name."""
        ...


@contextmanager
def _no_collection() -> Iterator[None]:
    """The garbage collector is off meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class PerfCounterClock:
    """Wall time on the CPU, where a call returns when its work is done. The garbage collector is off meanwhile.

    Args:
        now: nanoseconds of wall time.
    """

    name = "perf_counter"
    most_calls = 1000

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now

    def time_block(self, run: Callable[[], object], calls: int) -> Block:
        now = self._now
        with _no_collection():
            cpu = time.thread_time_ns()
            start = now()
            for _ in range(calls):
                run()
            elapsed = now() - start
            return Block(elapsed, time.thread_time_ns() - cpu)

    def excluded_bytes(self) -> dict[str, int]:
        return {}


class HostClock:
    """Wall time of issuing a call to an idle device. For a call that synchronises, its work is in it.

    Args:
        cuda: ``torch.cuda`` or a stand-in.
        now: nanoseconds of wall time.
    """

    name = "host"
    most_calls = 10

    def __init__(self, cuda: Any, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._cuda, self._wall = cuda, PerfCounterClock(now)

    def time_block(self, run: Callable[[], object], calls: int) -> Block:
        issued = []
        for _ in range(calls):
            self._cuda.synchronize()
            issued.append(self._wall.time_block(run, 1))
        self._cuda.synchronize()
        return Block(sum(block.ns for block in issued), sum(block.cpu_ns or 0 for block in issued))

    def excluded_bytes(self) -> dict[str, int]:
        return {}


class _EventClock:
    """Device time between two events.

    Args:
        cuda: ``torch.cuda`` or a stand-in.
        now: nanoseconds of wall time, for the length of the spin.
    """

    def __init__(self, cuda: Any, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._cuda, self._now = cuda, now
        self._issue_ns: WeakKeyDictionary[Callable[[], object], int] = WeakKeyDictionary()

    def _interval_ns(self, run: Callable[[], object], calls: int) -> int:
        """Device time of ``calls``, issued while the device spins. The device must be idle before, and is after."""
        start, stop = (self._cuda.Event(enable_timing=True) for _ in range(2))
        spin = min(max(2 * calls * self._issue_ns.get(run, 0), SHORTEST_SPIN_NS), LONGEST_SPIN_NS)
        with _no_collection():
            self._cuda._sleep(SPIN_CYCLES_PER_NS * spin)
            before = self._now()
            start.record()
            for _ in range(calls):
                run()
            stop.record()
            self._issue_ns[run] = (self._now() - before) // calls
            self._cuda.synchronize()  # surfaces errors of the queued work here, at the calls that caused them
        return max(0, int(start.elapsed_time(stop) * 1e6 + 0.5))

    def excluded_bytes(self) -> dict[str, int]:
        return {}


class CudaColdClock(_EventClock):
    """Sum of the times of single calls, each of which finds nothing in the L2 cache: ``cuda_event_cold``.

    Args:
        cuda: ``torch.cuda`` or a stand-in.
        now: nanoseconds of wall time, for the length of the spin.
        buffer: makes a tensor of so many bytes on the device.
    """

    name = "cuda_event_cold"
    most_calls = 10

    def __init__(
        self,
        cuda: Any,
        now: Callable[[], int] = time.perf_counter_ns,
        buffer: Callable[[int], Any] | None = None,
    ) -> None:
        super().__init__(cuda, now)
        self._buffer = buffer or _device_bytes
        self._flush: Any = None
        self._bytes = 0

    def time_block(self, run: Callable[[], object], calls: int) -> Block:
        if self._flush is None:
            properties = self._cuda.get_device_properties()
            self._bytes = max(2 * getattr(properties, "L2_cache_size", 0), LEAST_FLUSH_BYTES)
            self._flush = self._buffer(self._bytes)
        total = 0
        for _ in range(calls):
            self._flush.zero_()
            self._cuda.synchronize()
            total += self._interval_ns(run, 1)
        return Block(total)

    def excluded_bytes(self) -> dict[str, int]:
        return {} if self._flush is None else {"flush_buffer": self._bytes}


class CudaHotClock(_EventClock):
    """Time of calls one after another, whose inputs are in the L2 cache if they fit: ``cuda_event_hot``."""

    name = "cuda_event_hot"
    most_calls = 1000

    def time_block(self, run: Callable[[], object], calls: int) -> Block:
        run()
        self._cuda.synchronize()
        return Block(self._interval_ns(run, calls))


class _Captured(NamedTuple):
    """A CUDA graph of so many calls."""

    calls: int
    graph: Any
    pool_bytes: int


class CudaGraphClock(_EventClock):
    """Time of calls that were captured into a CUDA graph, replayed: ``cuda_graph``.

    Nothing is flushed inside the graph, so nothing is subtracted. The graph of one callable is held at a time, with the
    memory it reserved (its private pool), until another is captured or the callable is gone.

    Gradients alone (direction ``bwd``) must not be given: autograd computes them on the stream of the forward call,
    which is outside the capture. A call that synchronises is refused before anything is captured. A capture that fails
    all the same can leave torch's allocator unusable for further captures (``empty_cache`` then raises, too), so this
    clock tries none again.

    Raises:
        CaptureError: by :meth:`time_block`, if the call cannot be captured.
    """

    name = "cuda_graph"
    most_calls = 100

    def __init__(self, cuda: Any, now: Callable[[], int] = time.perf_counter_ns) -> None:
        super().__init__(cuda, now)
        self._held: WeakKeyDictionary[Callable[[], object], _Captured] = WeakKeyDictionary()
        self._stream: Any = None
        self._failed: str | None = None

    def time_block(self, run: Callable[[], object], calls: int) -> Block:
        held = self._held.get(run)
        if held is None or held.calls != calls:
            held = self._capture(run, calls)
        held.graph.replay()
        self._cuda.synchronize()
        return Block(self._interval_ns(held.graph.replay, 1))

    def excluded_bytes(self) -> dict[str, int]:
        held = sum(captured.pool_bytes for captured in self._held.values())
        return {"graph_pool": held} if held else {}

    def _capture(self, run: Callable[[], object], calls: int) -> _Captured:
        if self._failed is not None:
            raise _refused(f"an earlier failure in this process ({self._failed})")
        self._held.clear()
        self._cuda.synchronize()
        self._rehearse(run)
        previous, graph = self._cuda.current_stream(), self._cuda.CUDAGraph()
        try:
            with self._cuda.graph(graph, stream=self._stream):
                for _ in range(calls):
                    run()
        except RuntimeError as error:
            # The error of ending a capture that was spoilt hides the one that spoilt it.
            self._failed = _first_line(error.__context__ or error)
            raise _refused(self._failed) from None
        finally:
            self._cuda.set_stream(previous)  # torch does not where ending the capture fails
        pool = sum(
            segment["total_size"]
            for segment in self._cuda.memory_snapshot()
            if segment.get("segment_pool_id") == graph.pool()
        )
        captured = self._held[run] = _Captured(calls, graph, pool)
        return captured

    def _rehearse(self, run: Callable[[], object]) -> None:
        """One call on the stream of the capture, where libraries make their workspaces; synchronising raises."""
        cuda = self._cuda
        if self._stream is None:
            self._stream = cuda.Stream()
        mode = cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that not every operation which synchronises is known to torch
            cuda.set_sync_debug_mode("error")
        try:
            with cuda.stream(self._stream):
                run()
        except RuntimeError as error:
            raise _refused(_first_line(error)) from None
        finally:
            cuda.set_sync_debug_mode(mode)
        cuda.synchronize()


def _refused(reason: str) -> CaptureError:
    return CaptureError(f"a call must go into a CUDA graph to be replayed, got {reason}. Read its other clocks.")


def _first_line(error: BaseException) -> str:
    """Of CUDA's errors the first line says what happened; advice for debugging follows."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _device_bytes(size: int) -> Any:
    import torch

    return torch.empty(size, dtype=torch.uint8, device="cuda")


def clocks_for(device: str, cuda: Any = None) -> tuple[Clock, tuple[Clock, ...]]:
    """The clock whose samples are compared, and the others that are reported beside it.

    On a GPU the first is ``cuda_event_cold``, which can be compared with ``triton.testing.do_bench``.

    Args:
        device: device type.
        cuda: a stand-in for ``torch.cuda``.
    """
    if device != "cuda":
        return PerfCounterClock(), ()
    if cuda is None:
        import torch

        cuda = torch.cuda
    # Capturing gives cached memory back, which disturbs what is timed after it: the graph comes last.
    return CudaColdClock(cuda), (CudaHotClock(cuda), HostClock(cuda), CudaGraphClock(cuda))


def overhead_ns(clock: Clock, repeats: int = 101) -> int:
    """What a block without work takes: the cost of the clock itself, median of ``repeats``."""
    return round(median(clock.time_block(lambda: None, 1).ns for _ in range(repeats)))
