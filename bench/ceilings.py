"""What this machine can do at most: matrix-product rates and bandwidths, measured, the best of several.

A row that is faster than its FLOP over the rate, or than the bytes it must read and write over the bandwidth, is
impossible: it is flagged and kept out of rankings. The same figures are the roofs of a roofline. For a ceiling the
best of several repetitions is right, since nothing makes a machine faster than it is.

Bandwidth is measured over *working sets*, the bytes that an operation touches, from 32 KiB to beyond the last cache:

* ``copy``: ``b = a``, two streams;
* ``triad``: ``a = b + s · c``, three streams;
* ``read``: the sum of ``a``, one stream.

Each figure holds the cost of calling an operator, as every implementation's does; in a small working set that is most
of it. Every buffer is written with random numbers before it is timed: pages that were never touched are all one page
of zeros, and a GPU draws less power, and so clocks higher, on zeros.

A rate belongs to torch's setting for float32 products (``float32_products``): ``highest`` is IEEE float32, others
allow TF32.

Source: J. McCalpin, STREAM (1995), for copy and triad and for arrays of at least four times the last cache.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bench.environment import available_memory_bytes
from bench.header import Bandwidth, Ceilings

if TYPE_CHECKING:
    import torch

Kind = Literal["copy", "triad", "read"]

STREAMS: dict[Kind, int] = {"copy": 2, "triad": 3, "read": 1}
"""Buffers that an operation passes over; its bytes are theirs together."""
MATMUL_SIZES = (128, 256, 512, 1024)
"""Square matrices on a CPU; a GPU takes eight times as wide ones."""
LEAST_SHAPES = 3
"""Shapes that are tried of every dtype, however slow it is: emulated dtypes are slow at any size."""
SECONDS_PER_DTYPE, QUICK_SECONDS_PER_DTYPE = 0.8, 0.3
"""A larger matrix is not tried where a dtype would then take longer than this."""
QUICK_WORKING_SETS = (1 << 19, 1 << 22, 1 << 27)
SMALLEST_WORKING_SET = {"cpu": 1 << 15, "cuda": 1 << 20}
"""On a GPU less than this takes no longer than launching the kernel."""
BEYOND_CACHE = 4
"""A working set of so many times the last cache is served by memory."""
UNKNOWN_CACHE_SET = 1 << 28
"""Largest working set where nobody says how large the last cache is."""
MEMORY_SHARE = 0.25
"""Share of the free memory that one working set may take; the buffers of all operations take twice that."""


@dataclass(frozen=True)
class Stopwatch:
    """The best time of a call, over blocks that are long against the clock's own cost.

    Clock and waiting are passed in, so that tests use a scripted clock.
    """

    clock: Callable[[], float] = time.perf_counter
    """Seconds."""
    finish: Callable[[], object] = lambda: None
    """Waits until all queued work is done."""
    block_s: float = 2e-4
    """Calls are added to a block until it takes this long."""
    blocks: int = 20
    """Blocks that are taken,"""
    least_blocks: int = 3
    """or only so many where they take longer than the limit."""
    limit_s: float = 0.05
    """Seconds after which :attr:`least_blocks` suffice."""

    def best_s(self, run: Callable[[], object]) -> float:
        """Seconds of one call in the best block; the first call is not timed."""
        run()
        self.finish()
        calls, best, taken, spent = 1, math.inf, 0, 0.0
        while taken < self.least_blocks or (taken < self.blocks and spent < self.limit_s):
            start = self.clock()
            for _ in range(calls):
                run()
            self.finish()
            elapsed = self.clock() - start
            spent += elapsed
            if elapsed < self.block_s and calls < 1 << 14:
                calls *= 2
                continue
            best = min(best, elapsed / calls)
            taken += 1
        return best


def measure_ceilings(
    device: str, dtypes: Sequence[str], quick: bool = False, stopwatch: Stopwatch | None = None
) -> Ceilings:
    """Best rates and bandwidths of ``device``, with all threads and, on a CPU, with one.

    Args:
        device: ``cpu`` or ``cuda``.
        dtypes: names of the dtypes whose matrix products are timed.
        quick: only what the flag ``impossible`` needs, in about a second: rates with all threads and the best copy.
        stopwatch: what times a call; made for the device if left out.
    """
    import torch

    watch = stopwatch or _stopwatch(device)
    cache = cache_bytes(device)
    with torch.inference_mode():
        if quick:
            copies = list(_curve(device, QUICK_WORKING_SETS, ("copy",), None, watch))
            rates = _rates(device, dtypes, watch, QUICK_SECONDS_PER_DTYPE)
            best = max(found.bytes_per_s for found in copies)
            return Ceilings(flop_per_s=rates, bytes_per_s=best, cache_bytes=cache)
        every = None if device == "cuda" else torch.get_num_threads()
        by_threads: dict[int | None, dict[str, float]] = {}
        curve: list[Bandwidth] = []
        for threads in dict.fromkeys((every, every and 1)):
            with _threads(threads):
                by_threads[threads] = _rates(device, dtypes, watch, SECONDS_PER_DTYPE)
                sets = working_sets(SMALLEST_WORKING_SET[device], cache, free_bytes(device))
                curve += _curve(device, sets, tuple(STREAMS), threads, watch)
    return summary(by_threads, curve, cache, torch.get_float32_matmul_precision())


def summary(
    rates: Mapping[int | None, Mapping[str, float]],
    curve: Iterable[Bandwidth],
    cache: int | None,
    float32_products: str,
) -> Ceilings:
    """The ceilings that follow from rates by thread count and dtype, and from a curve of bandwidths.

    The rate of the machine is the best one, whatever the threads: on a busy machine one may do more than all.
    """
    curve = tuple(curve)
    beyond = [b.bytes_per_s for b in curve if cache is not None and b.working_set_bytes >= BEYOND_CACHE * cache]
    return Ceilings(
        flop_per_s={name: max(found[name] for found in rates.values()) for name in next(iter(rates.values()))},
        bytes_per_s=max(found.bytes_per_s for found in curve),
        flop_per_s_one_thread=dict(rates.get(1, {})),
        memory_bytes_per_s=max(beyond, default=None),
        bandwidth=curve,
        cache_bytes=cache,
        float32_products=float32_products,
    )


def higher(known: Ceilings, again: Ceilings) -> Ceilings:
    """``known``, with every rate and the bandwidth raised to those of a second measurement that are higher."""
    rates = {name: max(rate, again.flop_per_s.get(name, 0.0)) for name, rate in known.flop_per_s.items()}
    best = max(known.bytes_per_s, again.bytes_per_s)
    return known.model_copy(update={"flop_per_s": rates, "bytes_per_s": best})


def working_sets(smallest: int, cache: int | None, free: int | None) -> tuple[int, ...]:
    """Sizes in bytes from ``smallest`` on, each four times the last, to the first beyond the cache; all fit in memory.

    Args:
        smallest: the first size.
        cache: bytes of the last cache; None where nobody says.
        free: bytes that may be used; None where nobody says.
    """
    last = UNKNOWN_CACHE_SET if cache is None else BEYOND_CACHE * cache
    sizes = [smallest]
    while sizes[-1] < last:
        sizes.append(sizes[-1] * 4)
    fitting = math.inf if free is None else MEMORY_SHARE * free
    return tuple(size for size in sizes if size <= fitting) or (smallest,)


def cache_bytes(device: str, folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """Size of the last cache of a core, as the kernel lists it in ``folder``, or of a GPU's L2; None if nobody says."""
    if device == "cuda":
        import torch

        size = getattr(torch.cuda.get_device_properties(), "L2_cache_size", None)
        return int(size) if size else None
    sizes = {}
    for index in folder.glob("index*"):
        try:
            level, size = (index.joinpath(name).read_text().strip() for name in ("level", "size"))
            sizes[int(level)] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1:]]
        except (OSError, ValueError, KeyError):
            continue  # a kernel that says less than others
    return sizes[max(sizes)] if sizes else None


def free_bytes(device: str) -> int | None:
    """Memory of the device that can be used; None where nobody says."""
    if device != "cuda":
        return available_memory_bytes()
    import torch

    return int(torch.cuda.mem_get_info()[0])


def _stopwatch(device: str) -> Stopwatch:
    """A GPU's blocks are long, since each one waits for the device once."""
    if device != "cuda":
        return Stopwatch()
    import torch

    return Stopwatch(finish=torch.cuda.synchronize, block_s=5e-3)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """torch with ``count`` threads within an operator; None leaves it alone."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _rates(device: str, dtypes: Sequence[str], watch: Stopwatch, limit_s: float) -> dict[str, float]:
    """Best FLOP/s of a square matrix product per dtype."""
    import torch

    def rate(dtype: str, width: int) -> float:
        a, b = (torch.randn(width, width, device=device).to(getattr(torch, dtype)) for _ in range(2))
        return 2 * width**3 / watch.best_s(partial(torch.mm, a, b, out=torch.empty_like(a)))

    widths = [size * (8 if device == "cuda" else 1) for size in MATMUL_SIZES]
    return {dtype: _best_rate(partial(rate, dtype), widths, watch.clock, limit_s) for dtype in dtypes}


def _best_rate(
    rate: Callable[[int], float], widths: Sequence[int], clock: Callable[[], float], limit_s: float
) -> float:
    """The best of ``rate(width)``; each next width, eight times the work, is tried if it promises to end in time."""
    best, started, last_s = 0.0, clock(), 0.0
    for tried, width in enumerate(widths):
        before = clock()
        if tried >= LEAST_SHAPES and before - started + 8 * last_s > limit_s:
            break
        best = max(best, rate(width))
        last_s = clock() - before
    return best


def _curve(
    device: str, sets: Sequence[int], kinds: Sequence[Kind], threads: int | None, watch: Stopwatch
) -> Iterator[Bandwidth]:
    """Bandwidth by working set and operation, on float32 numbers."""
    import torch

    # Made and written once: the n-th buffer of an operation is never larger than an n-th of the largest working set.
    pool = [
        torch.rand(-(-max(sets) // (4 * share)), device=device)
        for share in range(1, max(STREAMS[kind] for kind in kinds) + 1)
    ]
    for size in sets:
        for kind in kinds:
            streams = STREAMS[kind]
            count = -(-size // (4 * streams))  # rounded up: a set of four times the cache must not fall short of it
            seconds = watch.best_s(_operation(kind, [buffer[:count] for buffer in pool[:streams]]))
            moved = streams * count * 4
            yield Bandwidth(kind=kind, working_set_bytes=moved, threads=threads, bytes_per_s=moved / seconds)


def _operation(kind: Kind, buffers: list[torch.Tensor]) -> Callable[[], object]:
    """One pass over the buffers."""
    import torch

    if kind == "copy":
        return partial(buffers[0].copy_, buffers[1])
    if kind == "triad":
        return partial(torch.add, buffers[1], buffers[2], alpha=0.5, out=buffers[0])
    return partial(torch.sum, buffers[0])
