"""The only place that reads, converts or formats physical quantities.

Stored units: nanoseconds for raw samples, milliseconds for derived latencies, bytes, FLOP.
Decimal prefixes are powers of 1000 (``MB``), binary ones powers of 1024 (``MiB``); the reports use decimal,
as the theory does (1,000 positions squared at 4 bytes are 4 MB).
"""

from __future__ import annotations

import math

from bench.errors import UsageError

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
ROUNDS_TO_1000 = 999.5
"""Least value that three significant digits show as 1000, where the next prefix begins."""


def ns_to_ms(ns: float) -> float:
    """Nanoseconds to milliseconds."""
    return ns / NS_PER_MS


def ms_to_s(ms: float) -> float:
    """Milliseconds to seconds."""
    return ms / 1000


def ns_to_s(ns: float) -> float:
    """Nanoseconds to seconds."""
    return ns / NS_PER_S


def tflops(flop: float, latency_ms: float) -> float:
    """FLOP done in ``latency_ms`` milliseconds, as 1e12 FLOP per second."""
    return flop / (latency_ms * 1e9)


def gb_per_s(moved_bytes: float, latency_ms: float) -> float:
    """Bytes moved in ``latency_ms`` milliseconds, as 1e9 bytes per second."""
    return moved_bytes / (latency_ms * 1e6)


def format_ms(ms: float | None) -> str:
    """A latency with three significant digits and its unit: ``0.0123 ms``, ``12.3 ms``, ``1.23 s``."""
    if ms is None or not math.isfinite(ms):
        return "-"
    return f"{significant(ms / 1000)} s" if ms >= ROUNDS_TO_1000 else f"{significant(ms)} ms"


def format_bytes(count: float | None) -> str:
    """A byte count with a decimal prefix: ``512 B``, ``4.00 MB``."""
    if count is None or not math.isfinite(count):
        return "-"
    value, prefixes = float(count), ["B", "kB", "MB", "GB", "TB"]
    while abs(value) >= ROUNDS_TO_1000 and len(prefixes) > 1:
        value /= 1000
        prefixes.pop(0)
    return f"{int(value)} B" if prefixes[0] == "B" else f"{significant(value)} {prefixes[0]}"


def format_seconds(seconds: float) -> str:
    """A duration for people: ``0.4 s``, ``42 s``, ``3 min 20 s``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def significant(value: float, digits: int = 3) -> str:
    """``value`` with ``digits`` significant digits, in scientific form outside 1e-4 to 1e5."""
    if value == 0:
        return "0"
    magnitude = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of the rounded value: 9.999 is 10.0
    if magnitude < -4 or magnitude > 4:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - magnitude)}f}"


def parse_bytes(text: str) -> int:
    """Bytes of ``2GiB``, ``500MB`` or a bare number of bytes.

    Raises:
        UsageError: if it is no positive size.
    """
    from pydantic import ByteSize, TypeAdapter, ValidationError

    from bench.errors import UsageError

    try:
        size = int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        size = 0
    if size <= 0:
        raise UsageError(f"memory must be a positive size, got {text!r}. Write for example 2GiB or 500MB.")
    return size


def parse_duration(text: str) -> float:
    """Seconds of ``90s``, ``5m``, ``1h`` or a bare number of seconds.

    Raises:
        UsageError: if it is no positive duration.
    """
    factor = {"s": 1, "m": 60, "h": 3600}.get(text[-1:])
    try:
        seconds = float(text[:-1]) * factor if factor else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < math.inf:
        raise UsageError(f"time budget must be a positive duration, got {text!r}. Write for example 90s, 5m or 1h.")
    return seconds
