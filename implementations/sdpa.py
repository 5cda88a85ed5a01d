"""``sdpa_*``: ``torch.nn.functional.scaled_dot_product_attention``, pinned to one of its kernels each.

Left to itself PyTorch chooses a kernel by the arguments and says nothing. Here exactly one is allowed, so
what it cannot do raises, and the reason given is PyTorch's own, with the warnings that explain it.

How a mask is said, since PyTorch's ``is_causal`` is aligned top-left: not at all where every key is visible;
``is_causal`` where the mask is that very triangle; else as a boolean mask, built in ``prepare``. A scale of
zero or below always takes the boolean mask: the CPU's flash kernel turns ``is_causal`` with such a scale into
NaN, because it scales the ``-inf`` of masked scores.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bench.errors import Unavailable, Unsupported
from bench.implementation import (
    AttentionInputs,
    AttentionOutput,
    Call,
    Layout,
    dense_mask,
    implementations,
    mask_differs,
)
from bench.masks import Structure
from bench.problem import Problem

if TYPE_CHECKING:
    import torch

MaskWay = Literal["none", "is_causal", "boolean"]

TRIAL_LENGTH = 32
"""Queries and keys of the trial call on the CPU, whose kernel choice does not depend on lengths."""


@dataclass
class Sdpa:
    """PyTorch's attention with one kernel allowed."""

    name: str
    summary: str
    backend: str
    """Member of ``torch.nn.attention.SDPBackend``."""
    devices: tuple[str, ...]
    expects: tuple[str, ...]
    layout: Layout = "bhsd"
    backward: bool = True

    def version(self) -> str:
        """Version of torch."""
        import torch

        if not any(device == "cpu" or torch.cuda.is_available() for device in self.devices):
            raise Unavailable(f"{self.name} runs on a CUDA GPU, and torch {torch.__version__} sees none")
        return str(torch.__version__)

    def unsupported(self, problem: Problem, device: str) -> str | None:
        """What is known without asking the library."""
        if self.backend == "FLASH_ATTENTION" and problem.head_dim_v != problem.head_dim:
            return f"its kernel needs head_dim_v == head_dim, got {problem.head_dim_v} and {problem.head_dim}"
        if self.backend == "FLASH_ATTENTION" and device == "cuda" and mask_way(problem) == "boolean":
            return "its kernel takes no mask but is_causal"
        return None

    def predicted_peak_bytes(self, problem: Problem, device: str = "cpu") -> int | None:
        """Memory law of the kernel; None where it is not known."""
        if self.backend == "MATH":
            return _math_peak(problem)
        if device == "cpu":
            return _cpu_flash_peak(problem)
        if problem.direction == "fwd" and self.backend != "CUDNN_ATTENTION":
            return problem.output_bytes + _lse_bytes(problem) + _mask_elements(problem) * problem.element_bytes
        return None

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        """Build the mask and try the kernel once: small on the CPU, in full on a GPU."""
        import torch.nn.functional as F  # noqa: N812  # its usual name
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend, way = getattr(SDPBackend, self.backend), mask_way(problem)
        mask = dense_mask(problem, inputs.q.device) if way == "boolean" else None

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(
                    *(q, k, v),
                    attn_mask=mask,
                    is_causal=way == "is_causal",
                    scale=problem.softmax_scale,
                    enable_gqa=problem.num_heads_q != problem.num_heads_kv,
                )

        _try(attend, problem, inputs, mask)
        return Call(
            lambda: AttentionOutput(attend(inputs.q, inputs.k, inputs.v, mask)),
            mask_bytes=0 if mask is None else mask.nbytes,
            notes={"mask": way},
        )


def mask_way(problem: Problem) -> MaskWay:
    """How the mask of ``problem`` is told to PyTorch."""
    if problem.attended_pairs == problem.all_pairs:
        return "none"
    top_left = problem.mask.structure(problem.mask_shape) == Structure(right=0)
    return "is_causal" if top_left and problem.softmax_scale > 0 else "boolean"


def _try(attend: Any, problem: Problem, inputs: AttentionInputs, mask: torch.Tensor | None) -> None:
    """Call the kernel once, so that what it refuses becomes ``Unsupported`` before anything is measured."""
    import torch

    q, k, v = inputs.q, inputs.k, inputs.v
    if q.device.type == "cpu":
        q, k, v = (tensor[:1, :, :TRIAL_LENGTH] for tensor in (q, k, v))
        mask = None if mask is None else mask[:1, :, :TRIAL_LENGTH, :TRIAL_LENGTH]
    with (
        warnings.catch_warnings(record=True) as caught,
        torch.no_grad() if problem.direction == "fwd" else nullcontext(),
    ):
        warnings.simplefilter("always")
        try:
            attend(q, k, v, mask)
        except RuntimeError as error:
            if "out of memory" in str(error):
                raise
            told = [
                str(error).splitlines()[0],
                *(str(warning.message).split(" (Triggered")[0] for warning in caught),
            ]
            raise Unsupported("; ".join(dict.fromkeys(told))) from None


def _lse_bytes(problem: Problem) -> int:
    return 4 * problem.batch_size * problem.num_heads_q * problem.seqlen_q


def _mask_elements(problem: Problem) -> int:
    """Entries of the boolean mask, 0 where none is built."""
    if mask_way(problem) != "boolean":
        return 0
    per_item, per_head = mask_differs(problem)
    heads = problem.num_heads_q if per_head else 1
    return (problem.batch_size if per_item else 1) * heads * problem.seqlen_q * problem.seqlen_k


def _threads() -> int:
    """Threads of an operator: torch's word where it is loaded, else what it is going to be."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    return int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))


def _cpu_flash_peak(problem: Problem) -> int:
    """Results, the mask in the problem's dtype, and per thread a tile of scores with its statistics.

    Source: tile sizes of ``cpu_flash_attention`` in PyTorch's
    ``aten/src/ATen/native/cpu/FlashAttentionKernel.cpp``.
    """
    threads, half = _threads(), problem.dtype != "float32"
    rows = min(256 if problem.seqlen_q >= 768 else 64 if problem.seqlen_q >= 192 else 32, problem.seqlen_q)
    tile = rows * min(512, problem.seqlen_k)
    scratch = threads * (4 * (tile + 2 * rows + rows * problem.head_dim) + 2 * half * tile)
    kept = problem.output_bytes + _lse_bytes(problem) + problem.element_bytes * _mask_elements(problem)
    # Backward: dq, dk, dv, a contiguous dout, two tiles per thread, and oneDNN's packed operands for
    # bfloat16.
    packed = 2 * tile + 198_400 if problem.dtype == "bfloat16" else 0
    backward = problem.input_bytes + problem.output_bytes + threads * 2 * tile * (4 + 2 * half) + packed
    return {"fwd": kept + scratch, "bwd": backward, "fwd_bwd": kept + max(scratch, backward)}[problem.direction]


def _math_peak(problem: Problem) -> int:
    """Two or three score matrices in float32, a boolean one, and float32 copies of the inputs.

    The decomposition scales q and k by ``sqrt(scale)`` into copies, repeats the heads of k and v for grouped
    queries, computes half precision in float32, and looks for rows of ``-inf`` with a boolean matrix.
    """
    half, grouped = problem.dtype != "float32", problem.num_heads_q != problem.num_heads_kv
    q = 4 * problem.batch_size * problem.num_heads_q * problem.seqlen_q * problem.head_dim
    k = 4 * problem.batch_size * problem.num_heads_q * problem.seqlen_k * problem.head_dim
    v = 4 * problem.batch_size * problem.num_heads_q * problem.seqlen_k * problem.head_dim_v
    group = problem.num_heads_q // problem.num_heads_kv
    copies = (q + (k + v) // group if half else 0) + (k + v if grouped else 0)
    matrix, finite = 4 * problem.all_pairs, problem.all_pairs
    mask = problem.element_bytes * _mask_elements(problem)
    if mask_way(problem) == "is_causal":
        mask = 4 * problem.seqlen_q * problem.seqlen_k
    gradient = max(2 * matrix + v, v + 2 * k)
    if problem.direction == "bwd":
        return gradient
    forward = copies + mask + q + max(k + matrix, 2 * matrix + finite)
    if problem.direction == "fwd":
        return forward
    return max(forward + k, q + k + problem.output_bytes + matrix + gradient)


for _member in (
    Sdpa(
        "sdpa_math",
        "PyTorch's attention out of matmul and softmax; computes half precision in float32.",
        "MATH",
        ("cpu", "cuda"),
        # Its backward pass is that of its parts, and only this one of them is like no other kernel's.
        ("_scaled_dot_product_attention_math", "_softmax_backward_data"),
    ),
    Sdpa(
        "sdpa_flash",
        "PyTorch's flash kernel: tiles of scores in cache or on chip.",
        "FLASH_ATTENTION",
        ("cpu", "cuda"),
        ("_scaled_dot_product_flash_attention",),
    ),
    Sdpa(
        "sdpa_efficient",
        "PyTorch's memory-efficient kernel, from xFormers.",
        "EFFICIENT_ATTENTION",
        ("cuda",),
        ("_scaled_dot_product_efficient_attention",),
    ),
    Sdpa(
        "sdpa_cudnn",
        "PyTorch's call into cuDNN's attention.",
        "CUDNN_ATTENTION",
        ("cuda",),
        ("_scaled_dot_product_cudnn_attention",),
    ),
):
    implementations.add(_member.name, _member)
