"""Which blocks a kernel uses: the table of shipped configurations.

The table was chosen from the machine code: no register is spilled at widths 64 and 128, products use each target's
largest matrix instruction, and within that the blocks are as large as they can be, since a larger block of keys
rescales the output less often and a larger block of queries reads keys less often. ``TRITON_FLASH_AUTOTUNE=1``
looks for something faster on the device at hand (:mod:`implementations.triton_flash.autotune`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

Direction = Literal["fwd", "split", "bwd_keys", "bwd_queries"]
"""Kernels: out of many queries; out of few queries with the keys shared among programs; dk and dv; dq."""

TARGETS: dict[str, tuple[str, int | str, int]] = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}
"""Backend, architecture and lanes of a warp, as Triton's ``GPUTarget`` takes them."""

JOIN_WARPS = DELTA_WARPS = 4
DELTA_ROWS = 64
"""Rows of a program of the kernel that multiplies and adds up out and dout; it waits for memory alone."""
SPLIT_ROWS = {"half": 64, "float32": 16}
"""Queries times heads of a group up to which keys are shared among programs: one block of rows, otherwise idle."""
SPLIT_KEYS = 256
"""Fewest keys that a program's share is worth."""
MOST_SPLITS = 64
"""Programs that share the keys of a head, at most; what they leave is joined in one piece."""


@dataclass(frozen=True)
class Blocks:
    """How one kernel is cut and launched."""

    block_m: int
    """Queries in a block; for ``split`` at most, as it follows the number of queries."""
    block_n: int
    """Keys in a block."""
    num_warps: int
    """Warps of a program."""
    num_stages: int
    """Depth of the pipeline of loads."""

    def __str__(self) -> str:
        return f"{self.block_m}x{self.block_n}, {self.num_warps} warps, {self.num_stages} stages"

    def launch_options(self) -> dict[str, int]:
        """As keyword arguments of a launch."""
        return {
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
        }


@dataclass(frozen=True)
class Configuration:
    """One line of the table."""

    target: str
    """Key of :data:`TARGETS`."""
    direction: Direction
    """Which kernel."""
    dtype: Literal["half", "float32"]
    """``half`` is float16 and bfloat16."""
    head_dim: int
    """Widest head (keys or values, padded to a power of two) that it is for."""
    blocks: Blocks

    @property
    def name(self) -> str:
        """``sm_90-fwd-half-128``."""
        return f"{self.target}-{self.direction}-{self.dtype}-{self.head_dim}"


# head_dim: block_m, block_n, num_warps, num_stages
_TABLE: dict[tuple[str, Direction, Literal["half", "float32"]], dict[int, tuple[int, int, int, int]]] = {
    ("sm_80", "fwd", "half"): {64: (128, 64, 8, 3), 128: (128, 32, 8, 4), 256: (64, 64, 8, 2)},
    ("sm_80", "split", "half"): {256: (64, 64, 4, 2)},
    ("sm_80", "bwd_keys", "half"): {64: (64, 128, 8, 2), 128: (64, 64, 8, 2), 256: (32, 32, 8, 2)},
    ("sm_80", "bwd_queries", "half"): {64: (128, 64, 8, 2), 128: (128, 32, 8, 2), 256: (64, 32, 8, 2)},
    ("sm_80", "fwd", "float32"): {128: (32, 16, 8, 2), 256: (16, 16, 8, 2)},
    ("sm_80", "split", "float32"): {256: (16, 16, 8, 2)},
    ("sm_80", "bwd_keys", "float32"): {128: (32, 32, 16, 2), 256: (16, 16, 8, 2)},
    ("sm_80", "bwd_queries", "float32"): {128: (64, 16, 8, 2), 256: (16, 16, 8, 2)},
    ("sm_90", "fwd", "half"): {64: (128, 128, 8, 3), 128: (128, 128, 8, 2), 256: (128, 64, 8, 2)},
    ("sm_90", "split", "half"): {256: (64, 64, 8, 2)},
    ("sm_90", "bwd_keys", "half"): {64: (64, 128, 8, 2), 128: (64, 128, 8, 2), 256: (32, 32, 8, 2)},
    ("sm_90", "bwd_queries", "half"): {64: (128, 64, 8, 2), 128: (128, 64, 8, 2), 256: (64, 32, 8, 2)},
    ("sm_90", "fwd", "float32"): {128: (32, 32, 8, 1), 256: (32, 16, 8, 2)},
    ("sm_90", "split", "float32"): {256: (16, 16, 8, 2)},
    ("sm_90", "bwd_keys", "float32"): {128: (32, 32, 16, 2), 256: (16, 32, 8, 2)},
    ("sm_90", "bwd_queries", "float32"): {128: (64, 16, 8, 2), 256: (16, 16, 8, 2)},
    ("sm_100", "fwd", "half"): {64: (128, 64, 8, 3), 128: (128, 64, 8, 3), 256: (128, 32, 8, 2)},
    ("sm_100", "split", "half"): {256: (64, 64, 8, 2)},
    ("sm_100", "bwd_keys", "half"): {64: (64, 128, 8, 2), 128: (64, 128, 8, 2), 256: (32, 64, 8, 2)},
    ("sm_100", "bwd_queries", "half"): {64: (128, 64, 8, 2), 128: (128, 64, 8, 2), 256: (64, 32, 8, 2)},
    ("gfx942", "fwd", "half"): {64: (128, 64, 4, 1), 128: (128, 64, 4, 1), 256: (64, 32, 4, 1)},
    ("gfx942", "split", "half"): {256: (64, 32, 4, 1)},
    ("gfx942", "bwd_keys", "half"): {64: (64, 64, 4, 1), 128: (32, 64, 4, 1), 256: (32, 32, 4, 1)},
    ("gfx942", "bwd_queries", "half"): {64: (64, 64, 4, 1), 128: (64, 64, 4, 1), 256: (32, 32, 4, 1)},
}

INTERPRETER = Blocks(128, 64, 1, 1)
"""In the interpreter; the two sizes differ, so that none can stand in for the other by mistake."""
INTERPRETER_LONG = Blocks(256, 256, 1, 1)
"""The same from :data:`LONG` positions on: a block takes 4 ms whatever its size, and then 6 ms."""
LONG = 1024

CONFIGURATIONS: tuple[Configuration, ...] = tuple(
    Configuration(target, direction, dtype, head_dim, Blocks(*blocks))
    for (target, direction, dtype), rows in _TABLE.items()
    for head_dim, blocks in rows.items()
)
"""Every shipped configuration."""


def padded_width(width: int) -> int:
    """Width of a tile that holds ``width`` columns: a power of two, at least the 16 that a product needs."""
    return max(16, 1 << (width - 1).bit_length())


def configuration(target: str, direction: Direction, dtype: str, head_dim: int) -> Configuration:
    """The first line of the table whose heads are wide enough; ``dtype`` is a problem's.

    Products of float32 in full precision use no matrix unit, so a target without lines for them takes those of sm_80.
    """
    fitting = (
        line
        for own in (target, "sm_80")
        for line in CONFIGURATIONS
        if (line.target, line.direction, line.dtype) == (own, direction, kind_of(dtype)) and line.head_dim >= head_dim
    )
    return next(fitting)


def kind_of(dtype: str) -> Literal["half", "float32"]:
    """What the table calls a problem's dtype."""
    return "float32" if dtype == "float32" else "half"


def num_splits(seqlen_q: int, seqlen_k: int, group: int, dtype: str) -> int:
    """Programs that share the keys of one key head; 1 where there are queries enough to go without.

    It follows from the lengths alone, so that the bits of a batch item do not depend on what else is in the batch.
    """
    if seqlen_q * group > SPLIT_ROWS[kind_of(dtype)]:
        return 1
    return min(-(-seqlen_k // SPLIT_KEYS), MOST_SPLITS)


@contextmanager
def compilations() -> Iterator[list[float]]:
    """Seconds of each compilation inside the block; what Triton takes from its cache on disk is none."""
    import triton

    seconds: list[float] = []
    before = triton.knobs.compilation.listener

    def listen(*, times: Any, cache_hit: bool, **rest: Any) -> None:
        if not cache_hit:
            seconds.append(times.total / 1e6)
        if before is not None:
            before(times=times, cache_hit=cache_hit, **rest)

    triton.knobs.compilation.listener = listen
    try:
        yield seconds
    finally:
        triton.knobs.compilation.listener = before


@cache
def target_of(index: int) -> str:
    """The target whose configurations a GPU uses: its own, or the nearest older one with no more shared memory."""
    import torch

    if torch.version.hip is not None:
        return "gfx942"
    major, _ = torch.cuda.get_device_capability(index)
    return {9: "sm_90", 10: "sm_100", 11: "sm_100"}.get(major, "sm_80")


def interpreter_blocks(seqlen_q: int, seqlen_k: int) -> Blocks:
    """What every kernel uses in the interpreter."""
    return INTERPRETER_LONG if max(seqlen_q, seqlen_k) >= LONG else INTERPRETER


def default_blocks(direction: Direction, device: torch.device, dtype: str, head_dim: int) -> Blocks:
    """What the table says for a GPU."""
    target = target_of(device.index or 0)
    return configuration(target, direction, dtype, head_dim).blocks


@cache
def source_digest() -> str:
    """Eight hexadecimal digits that change with the kernels, how they are launched, or the table."""
    own = Path(__file__).parent
    texts = (own / f"{name}.py" for name in ("tiles", "forward", "backward", "launch", "tuning"))
    return hashlib.sha256(b"".join(text.read_bytes() for text in texts)).hexdigest()[:8]
