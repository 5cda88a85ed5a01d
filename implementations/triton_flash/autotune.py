"""Looking for faster blocks on the device at hand, when ``TRITON_FLASH_AUTOTUNE`` is set.

Each kernel is tuned on scratch tensors with the shapes and strides of the call, never on the caller's. What was found
is kept on disk under a key of everything that can change the answer: device, versions, kernels, direction, dtype,
shapes, strides, mask and sign of the scale. The file is ``$TRITON_FLASH_CACHE``, by default
``attention-bench/triton_flash.json`` in the user's cache folder.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton

from implementations.triton_flash.tuning import Blocks, Direction, source_digest

GRID: dict[Direction, tuple[tuple[int, ...], ...]] = {
    "fwd": ((64, 128), (32, 64, 128), (4, 8), (2, 3, 4)),
    "split": ((64,), (32, 64, 128), (4, 8), (2, 3)),
    "bwd_keys": ((32, 64), (64, 128), (4, 8), (1, 2)),
    "bwd_queries": ((64, 128), (32, 64), (4, 8), (1, 2)),
}
"""``block_m``, ``block_n``, ``num_warps`` and ``num_stages`` to try beside the line of the table."""

SEARCHES: list[float] = []
"""Seconds of each search of this process, what it compiled included; what is read from disk is none."""


def enabled() -> bool:
    """Whether the user asked for it."""
    return os.environ.get("TRITON_FLASH_AUTOTUNE", "0").lower() in ("1", "true", "on", "yes")


def cache_path() -> Path:
    """Where what was found is kept."""
    if given := os.environ.get("TRITON_FLASH_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attention-bench" / "triton_flash.json"


def candidates(direction: Direction, default: Blocks) -> Iterator[Blocks]:
    """The line of the table first, then the grid around it."""
    yield default
    for sizes in product(*GRID[direction]):
        if Blocks(*sizes) != default:
            yield Blocks(*sizes)


def key_of(direction: Direction, tensors: tuple[torch.Tensor, ...], mask: tuple[Any, ...], scale: float) -> str:
    """Everything that can change which blocks are fastest, as text."""
    device = tensors[0].device
    parts: list[Any] = [
        torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        f"torch {torch.__version__}",
        f"triton {triton.__version__}",
        source_digest(),
        direction,
        str(tensors[0].dtype),
        *(f"{tuple(tensor.shape)}{tensor.stride()}" for tensor in tensors),
        *(tuple(part.shape) if isinstance(part, torch.Tensor) else part for part in mask),
        f"sign {math.copysign(1, scale) if scale else 0}",
    ]
    return " | ".join(map(str, parts))


def best(key: str, tried: Iterable[Blocks], measure: Callable[[Blocks], float], path: Path | None = None) -> Blocks:
    """The fastest of ``tried``; from ``path`` where ``key`` was measured before, and written there otherwise.

    Args:
        key: from :func:`key_of`.
        tried: the first of them must be one that works.
        measure: milliseconds of a launch; what raises is left out, as blocks may not fit the device.
        path: None: :func:`cache_path`.
    """
    path = path or cache_path()
    known = _read(path)
    if key in known:
        return Blocks(*known[key]["blocks"])
    started = time.perf_counter()
    times: dict[Blocks, float] = {}
    for blocks in tried:
        try:
            times[blocks] = measure(blocks)
        except (RuntimeError, triton.TritonError) as error:
            if not times:  # the shipped line itself: nothing to be tuned
                raise
            if "illegal" in str(error):  # the device is broken, not the candidate too large
                raise
    SEARCHES.append(time.perf_counter() - started)
    winner = min(times, key=times.__getitem__)
    sizes = [winner.block_m, winner.block_n, winner.num_warps, winner.num_stages]
    _write(path, known | {key: {"blocks": sizes, "latency_ms": times[winner], "tried": len(times)}})
    return winner


def milliseconds(launch: Callable[[], object]) -> float:
    """Median time of a launch on the current device, with a cold second-level cache."""
    return float(triton.testing.do_bench(launch, warmup=10, rep=50, return_mode="median"))


def scratch(tensor: torch.Tensor) -> torch.Tensor:
    """Random numbers with the shape, strides and dtype of ``tensor``, in memory of their own."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    # A generator of its own: the caller's random numbers must not depend on whether something was tuned.
    generator = torch.Generator(tensor.device).manual_seed(0)
    expanded = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    return made.fill_(1.0) if expanded else made.normal_(generator=generator)


def _read(path: Path) -> dict[str, Any]:
    """What is kept; nothing where there is no readable file, which is then written anew."""
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _write(path: Path, kept: dict[str, Any]) -> None:
    """Replace the file in one step, so that nobody reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as half:
        json.dump(kept, half, indent=1)
    Path(half.name).replace(path)
