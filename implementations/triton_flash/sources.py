"""What ``triton.compile`` takes for the kernels of a configuration, to compile them with no device at hand."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bench.errors import Unavailable
from bench.implementation import KernelConfiguration, KernelSource
from implementations.triton_flash.tuning import (
    DELTA_ROWS,
    DELTA_WARPS,
    JOIN_WARPS,
    MOST_SPLITS,
    TARGETS,
    Configuration,
)


def described(line: Configuration) -> KernelConfiguration:
    """A line of the table for those who know nothing of our kernels."""
    direction: Literal["fwd", "bwd"] = "bwd" if line.direction.startswith("bwd") else "fwd"
    depends = f"{line} {DELTA_ROWS} {DELTA_WARPS} {JOIN_WARPS} {MOST_SPLITS} {_texts_digest()}"
    digest = hashlib.sha256(depends.encode()).hexdigest()[:16]
    return KernelConfiguration(line.name, line.target, direction, line.dtype, line.head_dim, digest)


@cache
def _texts_digest() -> str:
    """Changes with the kernels and with how they are compiled."""
    own = Path(__file__).parent
    texts = (own / f"{name}.py" for name in ("tiles", "forward", "backward", "sources"))
    return hashlib.sha256(b"".join(text.read_bytes() for text in texts)).hexdigest()


def kernel_sources(line: Configuration, causal: bool = True) -> list[KernelSource]:
    """What a configuration launches, to be compiled with no device: heads of its full width, bfloat16 for ``half``.

    Args:
        line: of :data:`implementations.triton_flash.tuning.CONFIGURATIONS`.
        causal: under a causal mask, so that both loops of a kernel are there; else without a mask.

    Raises:
        Unavailable: in a process where the kernels are interpreted; ``TRITON_INTERPRET=0`` prevents it.
    """
    from implementations.triton_flash import backward, forward, tiles

    if tiles.INTERPRETED:
        raise Unavailable("kernels are interpreted in this process; set TRITON_INTERPRET=0 before they are imported")
    width = line.head_dim
    sizes = {"HEAD_DIM": width, "HEAD_DIM_V": width, "BLOCK_D": width, "BLOCK_DV": width, "SIGN": 1}
    sizes |= {"BLOCK_M": line.blocks.block_m, "BLOCK_N": line.blocks.block_n, "LOW": False}
    options = {"num_warps": line.blocks.num_warps, "num_stages": line.blocks.num_stages}
    band = {"right"} if causal else set()
    if line.direction == "fwd":
        return [_source(forward.attention_forward, line, sizes, options, band)]
    if line.direction == "bwd_queries":
        delta = {**sizes, "BLOCK_M": DELTA_ROWS}
        return [
            _source(backward.attention_backward_queries, line, sizes, options, band),
            _source(backward.attention_delta, line, delta, {"num_warps": DELTA_WARPS}, set()),
        ]
    if line.direction == "bwd_keys":  # the band seen from the keys: its other edge
        sizes["LOW"], band = causal, {"left"} if causal else set()
        return [_source(backward.attention_backward_keys, line, sizes, options, band)]
    join = {**sizes, "BLOCK_M": 1, "BLOCK_SPLITS": MOST_SPLITS}
    return [
        _source(forward.attention_forward_split, line, sizes, options, band),
        _source(forward.attention_forward_join, line, join, {"num_warps": JOIN_WARPS}, set()),
    ]


_FLOAT32_POINTERS = {"lse_ptr", "stats_ptr", "delta_ptr", "acc_ptr", "sums_ptr"}
_ABSENT = {"key_first_ptr", "key_stop_ptr", "first_table_ptr", "stop_table_ptr", "dlse_ptr", "left", "right"}
"""Arguments of masks and gradients that a plain call passes as None."""


def _source(
    function: Any, line: Configuration, sizes: Mapping[str, int], options: Mapping[str, int], given: set[str]
) -> KernelSource:
    """A kernel with contiguous tensors; ``given`` names arguments that are not None though they may be."""
    signature: dict[str, str] = {}
    constexprs: dict[tuple[int], object] = {}
    attrs: dict[tuple[int], list[list[object]]] = {}
    for position, kind, value in _arguments(function.arg_names, line, sizes, given):
        name = function.arg_names[position]
        signature[name] = kind
        if kind == "constexpr":
            constexprs[(position,)] = value
        elif kind.startswith("*") or name.startswith("stride_"):
            attrs[(position,)] = [["tt.divisibility", 16]]
    keys = "BLOCK_N" in signature or "BLOCK_SPLITS" in signature
    blocks = f"{sizes['BLOCK_M']}x{sizes.get('BLOCK_SPLITS', sizes['BLOCK_N'])}" if keys else f"{sizes['BLOCK_M']}"
    return KernelSource(function, signature, constexprs, attrs, options, TARGETS[line.target], blocks)


def _arguments(
    names: list[str], line: Configuration, sizes: Mapping[str, int], given: set[str]
) -> Iterator[tuple[int, str, object]]:
    """Position, type, and value where it is known at compile time."""
    element = "*fp32" if line.dtype == "float32" else "*bf16"
    for position, name in enumerate(names):
        if name in sizes:
            yield position, "constexpr", sizes[name]
        elif name in _ABSENT - given:
            yield position, "constexpr", None
        elif name.endswith("_ptr"):
            yield position, "*fp32" if name in _FLOAT32_POINTERS else element, None
        elif name.startswith("stride_") and name.endswith("d"):
            yield position, "constexpr", 1
        elif name in ("scale", "exponent_scale"):
            yield position, "fp32", None
        else:
            yield position, "i32", None
