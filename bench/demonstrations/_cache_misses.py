"""Misses of the last-level cache as the processor counts them, and whether the counter counts just these.

Linux's event ``PERF_COUNT_HW_CACHE_MISSES`` stands for the last cache on some processors, for an earlier one on
others, and in most virtual machines for nothing. So it is not believed until it has counted what is known: a buffer
beyond the last cache misses once a line, one that fits does not miss.

Source: ``perf_event_open(2)``, ``linux/perf_event.h``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import Unavailable
from bench.procfs import text

LINE_BYTES = 64
"""What a miss brings in from memory."""
STREAMED = (0.5, 2.0)
"""Counted over real bytes of a pass over a buffer beyond the cache; neighbours and prefetches blur it."""
RESIDENT = 0.1
"""As much at most of a pass over a buffer that the cache holds."""
BEYOND, WITHIN = 4, 8
"""Times the cache, and that part of it, that the two buffers are."""

_SYSCALLS = {"x86_64": 298, "aarch64": 241}
CACHE_MISSES = (0, 3)
"""Type and number of the event."""
_TIMES = 0b11
"""Read format: beside the count the time enabled and the time running, in nanoseconds."""
_USER_ONLY = 0b110_0000
"""Flags ``exclude_kernel`` and ``exclude_hv``: all that an ordinary user may count."""
_CLOSE_ON_EXEC = 8

Counter = Callable[[], float]
"""Misses of the calling thread so far."""


@contextmanager
def cache_misses(event: tuple[int, int] = CACHE_MISSES, root: Path = Path("/")) -> Iterator[Counter]:
    """Count the cache misses of the calling thread in user space.

    Args:
        event: type and number, as the kernel names it.
        root: folder under which ``proc`` lies.

    Raises:
        Unavailable: where the kernel refuses, with the reason.
    """
    number = _SYSCALLS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        raise Unavailable(f"cache misses are counted on Linux only, and not on {sys.platform} {platform.machine()}")
    attributes = struct.pack("IIQQQQQIIQ", event[0], 64, event[1], 0, 0, _TIMES, _USER_ONLY, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_int(0), ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_ulong(_CLOSE_ON_EXEC))
    descriptor = libc.syscall(ctypes.c_long(number), ctypes.create_string_buffer(attributes), *arguments)
    if descriptor < 0:
        raise Unavailable(_refusal(ctypes.get_errno(), root))
    try:
        yield lambda: _count(os.read(descriptor, 24))
    finally:
        os.close(descriptor)


def _refusal(code: int, root: Path) -> str:
    refused = f"perf_event_open was refused: {os.strerror(code)} (errno {code})"
    if code in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        none = "as no counter of cache misses is offered here; most virtual machines offer none"
        return f"{refused}, {none}, docs/theory.md says where one is had"
    paranoid = text(root / "proc/sys/kernel/perf_event_paranoid") or "unknown"
    return f"{refused}; kernel.perf_event_paranoid is {paranoid}, and 2 at most lets users count"


def _count(answer: bytes) -> float:
    """The count, scaled up where the kernel had the counter take turns with others."""
    value, enabled, running = struct.unpack("QQQ", answer)
    return float(value * enabled / running) if running else 0.0


def trust(count: Counter, cache_bytes: int | None, reader: Callable[[int], Callable[[], object]]) -> None:
    """Have the counter count what is known.

    Args:
        count: the counter.
        cache_bytes: size of the last cache; None if unknown.
        reader: makes a buffer of so many bytes and gives a function that reads all of it once.

    Raises:
        Unavailable: if it does not count misses of the last cache.
    """
    if cache_bytes is None:
        raise Unavailable("the size of the last cache is unknown, so nobody can tell what misses it")
    shares = []
    for size in (BEYOND * cache_bytes, cache_bytes // WITHIN):
        read = reader(size)
        read()
        before = count()
        read()
        shares.append((count() - before) * LINE_BYTES / size)
    streamed, resident = shares
    if not STREAMED[0] <= streamed <= STREAMED[1] or resident > RESIDENT:
        raise Unavailable(
            "the processor's cache-miss event does not count misses of the last cache: it saw "
            f"{streamed:.0%} of a buffer of {BEYOND} times its size and {resident:.0%} of one of 1/{WITHIN}"
        )
