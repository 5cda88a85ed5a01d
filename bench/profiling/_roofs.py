"""What this machine can do at most, and which limit a stage is nearest to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench.ceilings import BEYOND_CACHE, MEMORY_SHARE, UNKNOWN_CACHE_SET, Stopwatch, free_bytes, measure_ceilings
from bench.digest import Roof
from bench.header import Bandwidth, Ceilings
from bench.profiling._names import is_product
from bench.profiling._stages import Placed
from bench.profiling._work import factors

OVERHEAD_SHARE = 0.5
"""A stage most of whose time is the cost of calling so many operators is bound by that."""


@dataclass(frozen=True)
class Limits:
    """What stages are held against."""

    ceilings: Ceilings
    dtype: str
    """Of the problem; its rate of matrix products is the roof of arithmetic."""
    operator_ns: float
    """What calling an operator that does nothing takes, under the same profiler; on a GPU an empty kernel."""

    def bandwidth(self, working_set_bytes: int) -> float:
        """Bytes per second at most: of memory for what the last cache cannot hold, else the best there is."""
        ceilings = self.ceilings
        beyond = ceilings.cache_bytes is not None and working_set_bytes > ceilings.cache_bytes
        return (beyond and ceilings.memory_bytes_per_s) or ceilings.bytes_per_s

    def roof(
        self, time_ns: float, calls: int, flop: Mapping[str, int], moved_bytes: Sequence[int]
    ) -> tuple[Roof, float | None]:
        """Which limit a stage is nearest to, and the least time that it allows over the time taken.

        Args:
            time_ns: of the stage.
            calls: operators in it.
            flop: their arithmetic by the dtype that it is done in.
            moved_bytes: bytes of each.
        """
        compute_ns = sum(1e9 * count / self.ceilings.flop_per_s[dtype] for dtype, count in flop.items() if count)
        moving_ns = sum(1e9 * size / self.bandwidth(size) for size in moved_bytes)
        least_ns = max(compute_ns, moving_ns)
        if time_ns <= 0 or least_ns <= 0 or calls * self.operator_ns >= OVERHEAD_SHARE * time_ns:
            return "overhead", None
        return ("compute" if compute_ns >= moving_ns else "bandwidth"), least_ns / time_ns

    def dtype_of(self, placed: Placed) -> str:
        """In which dtype an operator computes: in the problem's, unless it multiplies what was made float32 before."""
        factor, _ = factors(placed.operator)
        widened = factor is not None and factor.element_bytes == 4 and is_product(placed.operator.name)
        return "float32" if widened else self.dtype


def ceilings_for(device: str, dtype: str, watch: Stopwatch | None = None) -> Ceilings:
    """Rates and bandwidths in about a second: products of the dtype and of float32, copies in and beyond the cache."""
    import torch

    # Half precision may be computed in float32, so both rates are known.
    found = measure_ceilings(device, list(dict.fromkeys((dtype, "float32"))), quick=True, stopwatch=watch)
    free = free_bytes(device)
    wanted = UNKNOWN_CACHE_SET if found.cache_bytes is None else BEYOND_CACHE * found.cache_bytes
    if free is not None and wanted > MEMORY_SHARE * free:
        return found
    if watch is None:
        watch = Stopwatch(finish=torch.cuda.synchronize if device == "cuda" else lambda: None)
    source, target = (torch.ones(wanted // 8, device=device) for _ in range(2))  # written: no page is the zero page
    moved = 2 * source.nbytes
    rate = moved / watch.best_s(partial(target.copy_, source))
    threads = None if device == "cuda" else torch.get_num_threads()
    curve = (Bandwidth(kind="copy", working_set_bytes=moved, threads=threads, bytes_per_s=rate),)
    return found.model_copy(
        update={"memory_bytes_per_s": rate, "bytes_per_s": max(found.bytes_per_s, rate), "bandwidth": curve}
    )
