"""Implementations in tests: which there are, and one call of one of them on given tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import torch

from bench.calls import differentiable, make_step
from bench.errors import Unavailable, Unsupported
from bench.implementation import AttentionInputs, implementations, refusal
from bench.inputs import to_layout
from bench.masks import Mask, MaskShape
from bench.numerics import agree
from bench.problem import Problem
from bench.record import Agreement
from bench.reference import naive_yardstick, reference

COMPILED = ("flex", "naive_compiled")
"""They take seconds per kind of problem to compile, so few tests ask them."""
DTYPES = ("float32", "float16", "bfloat16")


class RefusedError(Exception):
    """The implementation says that it cannot compute the problem; the text is its reason."""


def available(name: str, device: str = "cpu") -> bool:
    """Whether the implementation runs on this machine's ``device``."""
    try:
        implementations.get(name).version()
    except Unavailable:
        return False
    return device in implementations.get(name).devices


RUNNABLE = [name for name in implementations.names() if available(name)]
QUICK = [name for name in RUNNABLE if name not in COMPILED]
EVERY = [pytest.param(name, marks=pytest.mark.slow) if name in COMPILED else name for name in RUNNABLE]


def attend(
    name: str,
    problem: Problem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor | None = None,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """One step on tensors in the logical order, brought to the problem's dtype; results on the CPU.

    Raises:
        RefusedError: if the implementation says that it cannot compute the problem.
    """
    member = implementations.get(name)
    refused = refusal(member, problem, device)
    if refused is not None:
        raise RefusedError(refused[1])
    dtype = getattr(torch, problem.dtype)
    placed = [None if t is None else to_layout(t.to(dtype), member.layout).to(device) for t in (q, k, v, dout)]
    inputs = differentiable(problem, AttentionInputs(*placed))
    try:
        result = make_step(member.prepare(problem, inputs), problem, inputs, member.layout).run()
    except Unsupported as error:
        raise RefusedError(str(error)) from error
    return {key: tensor.cpu() for key, tensor in result.tensors().items()}


def attend_padded(
    name: str,
    problem: Problem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor | None = None,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """As :func:`attend`; where the widths are refused, with zeros appended to q, k and v, and cut off again.

    The scale is said explicitly, since the default would follow the padded width.
    """
    widths = (problem.head_dim, problem.head_dim_v)
    for padded in _paddings(*widths):
        changes = dict(zip(("head_dim", "head_dim_v"), padded, strict=True)) | {"scale": problem.softmax_scale}
        wider = problem if padded == widths else Problem(**(problem.model_dump() | changes))
        tensors = [_widen(q, padded[0]), _widen(k, padded[0]), _widen(v, padded[1])]
        try:
            got = attend(name, wider, *tensors, None if dout is None else _widen(dout, padded[1]), device)
        except RefusedError as error:
            refused = error
            continue
        cut = {"out": widths[1], "dq": widths[0], "dk": widths[0], "dv": widths[1]}
        return {key: tensor[..., : cut[key]] if key in cut else tensor for key, tensor in got.items()}
    raise refused


def _paddings(head_dim: int, head_dim_v: int) -> Iterator[tuple[int, int]]:
    """Widths to try: as asked, the wider for both, then what kernels like."""
    yield head_dim, head_dim_v
    widest = max(head_dim, head_dim_v)
    for width in (widest, 16, 64):
        if width >= widest:
            yield width, width


def _widen(tensor: torch.Tensor, width: int) -> torch.Tensor:
    return torch.nn.functional.pad(tensor, (0, width - tensor.shape[-1]))


def one_head(rows: list, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Rows of one head of one batch item, ``(1, 1, seqlen, width)``."""
    return torch.tensor(rows, dtype=dtype)[None, None]


def problem_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **fields) -> Problem:
    """The problem that q, k and v in the logical order belong to."""
    return Problem(
        batch_size=q.shape[0],
        num_heads_q=q.shape[1],
        num_heads_kv=k.shape[1],
        seqlen_q=q.shape[2],
        seqlen_k=k.shape[2],
        head_dim=q.shape[3],
        head_dim_v=v.shape[3],
        **fields,
    )


class TableMask(Mask):
    """Visible where a table of rows says so; no structure, so that only ``keep`` is left. Answers in ``dtype``."""

    name = "table"

    def __init__(self, rows: list, dtype: torch.dtype = torch.bool) -> None:
        self.rows = torch.tensor(rows).to(dtype)

    def keep(self, batch, head, q_idx, k_idx, shape, tables):
        return self.rows.numpy()[q_idx, k_idx] if isinstance(q_idx, np.ndarray) else self.rows[q_idx, k_idx]

    def structure(self, shape):
        return None

    @property
    def spec(self) -> str:
        return "table"


def weights(name: str, mask: Mask | str, seqlen_q: int, seqlen_k: int, **fields) -> dict[str, torch.Tensor]:
    """One step with q = k = 0, v = identity and dout = 1, so that ``out`` is the weights."""
    q, k, v = torch.zeros(1, 1, seqlen_q, seqlen_k), torch.zeros(1, 1, seqlen_k, seqlen_k), torch.eye(seqlen_k)
    return attend(name, problem_of(q, k, v[None, None], mask=mask, **fields), q, k, v[None, None], torch.ones_like(q))


def weights_unless_structureless(
    name: str, mask: Mask, seqlen_q: int, seqlen_k: int, **fields
) -> dict[str, torch.Tensor] | None:
    """As :func:`weights`; None where a member refuses the mask for its lack of structure, and for nothing else.

    The refusal has to name the mask, and without the mask the same problem has to be computed.
    """
    try:
        return weights(name, mask, seqlen_q, seqlen_k, **fields)
    except RefusedError as refused:
        shape = MaskShape(batch_size=1, num_heads=1, seqlen_q=seqlen_q, seqlen_k=seqlen_k)
        assert mask.structure(shape) is None, f"{name} refuses a mask that has structure: {refused}"
        assert mask.spec in str(refused), f"{name} does not say that it is the mask: {refused}"
    assert_uniform(weights(name, "full", seqlen_q, seqlen_k, **fields)["out"])
    return None


def assert_uniform(out: torch.Tensor) -> None:
    """Each row of weights is one over its number."""
    torch.testing.assert_close(out, torch.full_like(out, 1 / out.shape[-1]))


def judge(problem: Problem, inputs: AttentionInputs, got: Mapping[str, torch.Tensor]) -> Agreement:
    """The gate's judgement of ``got`` for these inputs, which are brought to the problem's dtype."""
    dtype = getattr(torch, problem.dtype)
    tensors = (inputs.q, inputs.k, inputs.v, inputs.dout)
    rounded = AttentionInputs(*(None if tensor is None else tensor.to(dtype) for tensor in tensors))
    return agree(problem, reference(problem, rounded), naive_yardstick(problem, rounded), got)
