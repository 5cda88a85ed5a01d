"""What the claims on memory, crossover and shared heads have in common: who stores no scores, and ladders in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from bench.claims import Scope
from bench.claims._ladders import LENGTHS, ladder
from bench.metrics import Row
from bench.plots import LADDER, Reading, grouped

STORES_NO_SCORES = (
    "online_softmax",
    "sdpa_flash",
    "sdpa_efficient",
    "sdpa_cudnn",
    "flex",
    "triton_flash",
    "flash_attn",
)
"""Work block by block and keep no score once its block is done."""
WHOLE_BLOCKS = 1024
"""From this length on blocks have their full size: none of ours has more queries or keys. Below, they are cut to the
length, so what a block takes still grows as T²."""
WHOLE_LENGTHS = (1024, 1152, 1280, 1536)
"""As few as decide a law of bytes, three to solve it and one to test it, and as short as blocks allow."""
GPU_MULTIPLE = 128
"""Kernels on a GPU round the length up to whole blocks, so that only such lengths lie on one line."""


class Along(Protocol):
    """Rows of one implementation along the length."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """By ascending length."""

    @property
    def implementation(self) -> str:
        """Whose rows they are."""


L = TypeVar("L", bound=Along)


def plain_lengths(scope: Scope) -> tuple[int, ...]:
    """The shared ladder, and where it is too short or odd for a law of bytes, lengths that decide one."""
    more = WHOLE_LENGTHS if scope.device != "cpu" else LENGTHS[2:6]  # from WHOLE_BLOCKS on
    return tuple(dict.fromkeys((*ladder(scope), *more)))


def by_length(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows sorted into ladders of one implementation with as many queries as keys, each by ascending length."""
    ladders = grouped([row for row in rows if row["shape"] == "square"], *LADDER, "implementation").values()
    return [sorted(rows, key=lambda row: int(row["length"])) for rows in ladders]


def whole_blocks(rows: Sequence[Row]) -> list[Row]:
    """Rows whose length is at least :data:`WHOLE_BLOCKS`, on a GPU a multiple of :data:`GPU_MULTIPLE` as well."""
    multiple = 1 if rows[0]["device"] == "cpu" else GPU_MULTIPLE
    return [row for row in rows if row["length"] >= WHOLE_BLOCKS and row["length"] % multiple == 0]


def deciding(found: Sequence[L], decides: Callable[[L], bool]) -> list[L]:
    """Those that can be decided, and of implementations that have none, the longest one, which says what is missing.

    Rows that were measured for something else and are too few are no experiment.
    """
    decided = {one.implementation for one in found if decides(one)}
    longest = {one.implementation: one for one in sorted(found, key=lambda one: len(one.rows))}
    return [
        one
        for one in found
        if decides(one) or (one.implementation not in decided and longest[one.implementation] is one)
    ]


def constants(row: Row, several_machines: bool = False) -> str:
    """What does not differ along a ladder: ``causal, fwd, float32, B=1, H=4, d=64``."""
    heads = (
        f"{row['num_heads_q']}"
        if row["num_heads_kv"] == row["num_heads_q"]
        else f"{row['num_heads_q']}:{row['num_heads_kv']}"
    )
    special = [
        "" if row["distribution"] == "normal" else f"{row['distribution']} inputs",
        "" if row["scale"] is None else f"scale {row['scale']:g}",
        f"on {row['machine']}" if several_machines else "",
    ]
    parts = [row["mask"], row["direction"], row["dtype"], f"B={row['batch_size']}", f"H={heads}", f"d={row['width']}"]
    return ", ".join(str(part) for part in (*parts, *special) if part)


def several_machines(reading: Reading) -> bool:
    """Whether subjects have to name the machine."""
    return len({row["machine"] for row in reading.rows}) > 1


def span(lengths: Sequence[int]) -> str:
    """``128 to 4,096``, or the one length."""
    return f"{lengths[0]:,}" if lengths[0] == lengths[-1] else f"{lengths[0]:,} to {lengths[-1]:,}"
