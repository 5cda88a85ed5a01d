"""Bytes that attention moves between main memory and the last cache, by the processor's counter of cache misses.

One thread, so that one counter sees all of a call; that changes who moves the bytes, not how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bench.ceilings import cache_bytes
from bench.demonstrations import Rows, demonstrations
from bench.demonstrations._cache_misses import LINE_BYTES, Counter, cache_misses, trust
from bench.demonstrations._members import one_thread
from bench.errors import Unavailable
from bench.implementation import implementations
from bench.inputs import make_inputs
from bench.problem import DTYPE_BYTES, Problem

COMPARED = ("naive", "online_softmax", "sdpa_flash")
BEYOND_CACHE = 2
"""The score matrix is at least so many times the last cache,"""
LONGEST = 8192
"""but of no more positions than this, 268 MB."""
LEAST_LENGTH = 1024
CALLS, QUICK_CALLS = 9, 6
"""Counted one by one."""

Moved = Mapping[str, Sequence[float] | None]
"""By implementation: bytes of each call, or None where nothing counts."""


@demonstrations.register("memory_traffic")
@one_thread()
def memory_traffic(quick: bool) -> Rows:
    """Misses of the last cache, in bytes, for one head of width 64 in float32.

    Returns:
        One row per length and implementation: ``device``, ``implementation``, ``seqlen``, ``score_bytes`` (one score
        matrix), ``least_bytes`` (inputs read and output written once), ``cache_bytes`` (of the last cache; null if
        unknown), ``moved_bytes`` (one number per call; null if nothing counts) and ``reason`` (why it is null).
    """
    cache = cache_bytes("cpu")
    longest = longest_length(cache)
    lengths = (longest,) if quick else (longest // 4, longest // 2, longest)
    problems = [Problem(seqlen=length, num_heads=1) for length in lengths]
    calls = QUICK_CALLS if quick else CALLS
    moved: list[Moved] = [dict.fromkeys(COMPARED)] * len(problems)
    reason = None
    try:
        with cache_misses() as count:
            trust(count, cache, _reader)
            moved = [moved_bytes(count, _runners(problem), calls) for problem in problems]
    except Unavailable as refused:
        reason = str(refused)
    pairs = zip(problems, moved, strict=True)
    return [row for problem, found in pairs for row in traffic_rows("cpu", problem, cache, found, reason)]


def longest_length(cache: int | None, dtype: str = "float32") -> int:
    """Smallest power of two whose score matrix is well beyond a cache of so many bytes, within bounds."""
    length = LEAST_LENGTH
    while length < LONGEST and length**2 * DTYPE_BYTES[dtype] < BEYOND_CACHE * (cache or 0):
        length *= 2
    return length


def moved_bytes(count: Counter, runners: Mapping[str, Callable[[], object]], calls: int) -> Moved:
    """Bytes that each call brought in: all take turns, after a call that warms up."""
    found: dict[str, list[float]] = {name: [] for name in runners}
    for turn in range(calls + 1):
        for name, run in runners.items():
            before = count()
            run()
            if turn:
                found[name].append((count() - before) * LINE_BYTES)
    return found


def traffic_rows(device: str, problem: Problem, cache: int | None, moved: Moved, reason: str | None) -> Rows:
    """One row per implementation."""
    return [
        {
            "device": device,
            "implementation": name,
            "dtype": problem.dtype,
            "seqlen": problem.seqlen_q,
            "score_bytes": problem.all_pairs * problem.element_bytes,
            "least_bytes": problem.least_bytes,
            "cache_bytes": cache,
            "moved_bytes": None if counted is None else list(counted),
            "reason": reason,
        }
        for name, counted in moved.items()
    ]


def _runners(problem: Problem) -> dict[str, Callable[[], object]]:
    return {name: partial(_run, implementations.get(name).prepare(problem, make_inputs(problem))) for name in COMPARED}


def _run(call: Any) -> None:
    import torch

    with torch.inference_mode():
        call.run()


def _reader(size: int) -> Callable[[], object]:
    import torch

    buffer = torch.ones(size // 4)
    return buffer.sum
