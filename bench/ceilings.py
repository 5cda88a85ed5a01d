"""What this machine can do at most: matrix-product rate and copy bandwidth, measured, best of several.

A row that is faster than its FLOP over the rate, or than the bytes it must read and write over the bandwidth,
is impossible: it is flagged and kept out of rankings. For a ceiling the best of several repetitions is right.
The bandwidth is the best over sizes in and out of cache, since inputs may lie in cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from bench.record import Ceilings

MATMUL_SIZES = (128, 256, 512, 1024)
"""Square matrices on a CPU; a GPU takes eight times as wide ones."""
SECONDS_PER_DTYPE = 0.3
"""Larger matrices are not tried once a dtype has taken this long: emulated ones are slow at any size."""
COPY_BYTES = (1 << 18, 1 << 21, 1 << 26)
REPEATS = 6


def measure_ceilings(device: str, dtypes: Sequence[str]) -> Ceilings:
    """Best matrix-product rate per dtype and best copy bandwidth of ``device``, within about a second."""
    import torch

    def best_s(run: Callable[[], object]) -> float:
        best = float("inf")
        for _ in range(REPEATS):
            start = time.perf_counter()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            best = min(best, time.perf_counter() - start)
        return best

    rates = {}
    with torch.inference_mode():
        for dtype in dtypes:
            rate, started = 0.0, time.perf_counter()
            for size in MATMUL_SIZES:
                if time.perf_counter() - started > SECONDS_PER_DTYPE:
                    break
                width = size * (8 if device == "cuda" else 1)
                a = torch.randn(width, width, device=device).to(getattr(torch, dtype))
                out = torch.empty_like(a)
                torch.mm(a, a, out=out)
                rate = max(rate, 2 * width**3 / best_s(partial(torch.mm, a, a, out=out)))
            rates[dtype] = rate
        bandwidth = 0.0
        for count in COPY_BYTES:
            source = torch.zeros(count, dtype=torch.uint8, device=device)
            target = torch.empty_like(source)
            target.copy_(source)
            bandwidth = max(bandwidth, 2 * count / best_s(partial(target.copy_, source)))
    return Ceilings(flop_per_s=rates, bytes_per_s=bandwidth)
