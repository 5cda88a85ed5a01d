"""The call that computes a problem with one implementation, to paste into a program."""

from __future__ import annotations

from bench.masks import Structure
from bench.problem import Problem

SDPA = {
    "sdpa_math": "MATH",
    "sdpa_flash": "FLASH_ATTENTION",
    "sdpa_efficient": "EFFICIENT_ATTENTION",
    "sdpa_cudnn": "CUDNN_ATTENTION",
}
"""Kernels of PyTorch's attention by implementation."""


def snippet(implementation: str, problem: Problem) -> str | None:
    """Python that does what ``implementation`` does on ``problem``; None where it is no library's call.

    q, k and v are ``(batch, heads, length, head_dim)``. ``is_causal=True`` appears only where PyTorch's top-left
    mask is the one that was measured.
    """
    if implementation in SDPA:
        return _sdpa(SDPA[implementation], problem)
    if implementation == "flex":
        return _flex(problem)
    return None


def _sdpa(backend: str, problem: Problem) -> str:
    options, note = _options(problem), ""
    if problem.attended_pairs < problem.all_pairs:
        top_left = problem.mask.structure(problem.mask_shape) == Structure(right=0)
        if top_left and problem.softmax_scale > 0:
            options.insert(0, "is_causal=True")
        else:
            options.insert(0, "attn_mask=keep")
            note = (
                f"# keep: bool, broadcasts to (batch, heads, Tq, Tk), True where a query sees a key: {_said(problem)}\n"
            )
    return (
        "import torch.nn.functional as F\n"
        "from torch.nn.attention import SDPBackend, sdpa_kernel\n\n"
        f"{note}with sdpa_kernel(SDPBackend.{backend}):\n"
        f"    out = F.scaled_dot_product_attention({', '.join(['q', 'k', 'v', *options])})\n"
    )


def _flex(problem: Problem) -> str:
    options = ["block_mask=blocks", *_options(problem)]
    return (
        "import torch\n"
        "from torch.nn.attention.flex_attention import create_block_mask, flex_attention\n\n"
        f"# keep(b, h, q_idx, kv_idx): True where a query sees a key: {_said(problem)}\n"
        "blocks = create_block_mask(keep, B=None, H=None, Q_LEN=q.size(-2), KV_LEN=k.size(-2), device=q.device)\n"
        f"out = torch.compile(flex_attention, dynamic=True)({', '.join(['q', 'k', 'v', *options])})\n"
    )


def _options(problem: Problem) -> list[str]:
    scale = [] if problem.scale is None else [f"scale={problem.scale!r}"]
    return [*scale, *(["enable_gqa=True"] if problem.num_heads_q != problem.num_heads_kv else [])]


def _said(problem: Problem) -> str:
    return f"mask {problem.mask.spec}"
