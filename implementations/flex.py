"""``flex``: PyTorch's FlexAttention, compiled, always with a BlockMask.

Without a BlockMask FlexAttention's CPU code stores the scores, so even ``full`` gets one. The mask function
looks up the first and last visible key of each query in two tables: one compiled kernel then serves every
mask and every length, where a function with the sizes in it would be compiled anew for each. Masks whose
visible keys are not contiguous are handed over as they are.

Compilation happens in ``prepare``, with dynamic lengths. PyTorch's answer to too many recompilations is to go
on without compiling and without saying so, which would store the scores; that answer is turned off, and
raises instead.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from bench.errors import Unavailable, Unsupported
from bench.implementation import (
    AttentionInputs,
    AttentionOutput,
    Call,
    Layout,
    mask_differs,
    mask_tables,
    register_implementation,
)
from bench.problem import Problem

if TYPE_CHECKING:
    import torch

BLOCK = 128
"""Queries and keys of a block of the BlockMask: FlexAttention's default."""
TABLE_LENGTH = 1 << 14
"""Queries that the tables have room for, at least.

A fixed size keeps symbolic sizes out of the mask function, in whose C++ PyTorch 2.13 may mistake one symbol
for the beginning of another (``ks1`` and ``ks17``), which then does not compile.
"""
RECOMPILE_LIMIT = 64
"""Compiled variants (widths, dtypes, head counts) that one process may hold."""


@register_implementation
class Flex:
    """FlexAttention; forward only on the CPU, where it also returns no log-sum-exp."""

    name = "flex"
    summary = "PyTorch's FlexAttention, compiled with dynamic lengths, always with a BlockMask."
    layout: Layout = "bhsd"
    devices = ("cpu", "cuda")
    backward = True
    expects: tuple[str, ...] = ("CompiledFxGraph",)

    def version(self) -> str:
        """Version of torch."""
        import torch

        if importlib.util.find_spec("torch.nn.attention.flex_attention") is None:
            raise Unavailable(f"torch {torch.__version__} has no FlexAttention")
        return str(torch.__version__)

    def unsupported(self, problem: Problem, device: str) -> str | None:
        """The CPU's gradients are missing."""
        if device == "cpu" and problem.direction != "fwd":
            return "no gradients: torch.compile on CPU only supports inference"
        return None

    def predicted_peak_bytes(self, problem: Problem, device: str = "cpu") -> int | None:
        """On the CPU the output, copies of k and v, and per thread a block of everything."""
        if device != "cpu" or problem.direction != "fwd":
            return None
        rows, keys = min(BLOCK, problem.seqlen_q), min(BLOCK, problem.seqlen_k)
        scores = 4 * (rows * keys + 2 * rows + rows * problem.head_dim_v)
        tiles = problem.element_bytes * (rows * keys + keys * (problem.head_dim + problem.head_dim_v))
        queries = problem.batch_size * problem.num_heads_q * problem.seqlen_q * problem.head_dim
        copies = problem.input_bytes - queries * problem.element_bytes
        return problem.output_bytes + copies + _threads() * (scores + tiles)

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        """Build the BlockMask and compile, by a first call."""
        import torch
        from torch.nn.attention.flex_attention import create_block_mask

        device = inputs.q.device
        visible, tables = _mask_function(problem, device)
        per_item, per_head = mask_differs(problem)
        block_mask = create_block_mask(
            visible,
            problem.batch_size if per_item else None,
            problem.num_heads_q if per_head else None,
            *(problem.seqlen_q, problem.seqlen_k),
            device=str(device),
            BLOCK_SIZE=BLOCK,
        )
        with_lse = device.type != "cpu"
        attention, options = _compiled(), {"block_mask": block_mask, "scale": problem.softmax_scale}
        options |= {"enable_gqa": problem.num_heads_q != problem.num_heads_kv, "return_lse": with_lse}

        def run() -> AttentionOutput:
            result = attention(inputs.q, inputs.k, inputs.v, **options)
            return AttentionOutput(*result) if with_lse else AttentionOutput(result)

        try:
            with torch.inference_mode(problem.direction == "fwd"):
                run()
        except (RuntimeError, NotImplementedError) as error:
            if "out of memory" in str(error):
                raise
            raise Unsupported(_reason(error)) from None
        tensors = [t for t in (*tables, *block_mask.as_tuple()) if isinstance(t, torch.Tensor)]
        return Call(run, mask_bytes=sum(tensor.nbytes for tensor in tensors), notes={"block": BLOCK})


def _mask_function(problem: Problem, device: torch.device) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """FlexAttention's ``mask_mod`` and the tensors it holds."""
    import torch

    shape = problem.mask_shape
    ranges = [problem.mask.row_range(item, shape) for item in range(problem.batch_size)]
    if any(bounds is None for bounds in ranges):
        mask, tables = problem.mask, mask_tables(problem, device)
        return (lambda batch, head, q, k: mask.keep(batch, head, q, k, shape, tables)), [*tables.values()]
    length = max(TABLE_LENGTH, 1 << (problem.seqlen_q - 1).bit_length())
    table = torch.zeros((2, problem.batch_size, length), dtype=torch.int32)
    for item, bounds in enumerate(ranges):
        assert bounds is not None, "asked above"
        table[:, item, : problem.seqlen_q] = torch.tensor([bounds[0].tolist(), bounds[1].tolist()])
    start, stop = table.to(device).unbind()
    for tensor in (start, stop):
        torch._dynamo.mark_static(tensor)
    return (lambda batch, head, q, k: (k >= start[batch, q]) & (k < stop[batch, q])), [start, stop]


@cache
def _compiled() -> Callable[..., Any]:
    """The compiled function, one per process."""
    import torch._dynamo
    from torch.nn.attention.flex_attention import flex_attention

    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, RECOMPILE_LIMIT)
    config.fail_on_recompile_limit_hit = True
    return torch.compile(flex_attention, dynamic=True, fullgraph=True)


def _reason(error: Exception) -> str:
    """The library's own words: the innermost message, without the dump that follows it."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def _threads() -> int:
    """Threads of an operator: torch's word where it is loaded, else what it is going to be."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    return int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
