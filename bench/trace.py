"""Every intermediate of a small attention problem, so that numbers can be read before anything is interpreted.

The arithmetic is that of :mod:`bench.implementation`, written once more with NumPy in float64, from inputs that
were rounded to the problem's dtype. Axes are in the logical order, ``B`` batch items, ``H`` query heads, ``G`` key
and value heads::

    q             (B, H, seqlen_q, head_dim)
    k             (B, G, seqlen_k, head_dim)
    v             (B, G, seqlen_k, head_dim_v)
    raw_scores    (B, H, seqlen_q, seqlen_k)              q @ k^T
    scores        (B, H, seqlen_q, seqlen_k)              scale * raw_scores, blocked pairs included
    mask          (B, H, seqlen_q, seqlen_k)              bool, True = attend
    m             (B, H, seqlen_q)                        largest visible score of a row; -inf for an empty row
    l             (B, H, seqlen_q)                        sum of exp(scores - m) over visible keys
    u             (B, H, seqlen_q, head_dim_v)            sum of exp(scores - m) * v over visible keys
    lse           (B, H, seqlen_q)                        m + log(l)
    weights       (B, H, seqlen_q, seqlen_k)              exp(scores - m) / l, the attention matrix A; 0 where blocked
    contributions (B, H, seqlen_q, seqlen_k, head_dim_v)  weights[i, j] * v[j], what key j adds to output i
    out           (B, H, seqlen_q, head_dim_v)            u / l
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import OutputError, TraceError
from bench.masks import dense_rows
from bench.problem import Problem
from bench.worked_examples import worked_example

if TYPE_CHECKING:
    import numpy as np

LARGEST_MATRIX = 1024
"""Score entries over batch and heads: 32 positions squared, the most whose values can still be written into a figure
and read there.
"""
LONGEST = 64
"""Queries or keys; more rows or columns fit on no page."""
LARGEST_TENSOR = 1 << 15
"""Numbers in any other tensor; the contributions of 32 x 32 pairs with values of width 32 are as many."""
MOST_HEADS = 16
"""Batch items times query heads: each gets figures of its own."""
EXAMPLE_FIELDS = ("mask", "scale")
"""Fields of a worked example that may be changed; the others follow from its numbers."""


@dataclass(frozen=True)
class Trace:
    """One problem with all its intermediates."""

    title: str
    """Name of the worked example, or the problem's key."""
    problem: Problem
    query_tokens: tuple[str, ...]
    """Names of the query positions."""
    key_tokens: tuple[str, ...]
    """Names of the key positions."""
    tensors: Mapping[str, np.ndarray]
    """The arrays of the module docstring: float64, ``mask`` bool."""

    def head(self, batch: int, head: int) -> dict[str, np.ndarray]:
        """The arrays of one query head, without the first two axes."""
        group = head // (self.problem.num_heads_q // self.problem.num_heads_kv)
        return {name: tensor[batch, group if name in ("k", "v") else head] for name, tensor in self.tensors.items()}


def trace_example(name: str, **changes: Any) -> Trace:
    """Trace a worked example, with another mask or scale where ``changes`` say so.

    Raises:
        UnknownNameError: if there is no such example.
        TraceError: if a change names a field that follows from the example's numbers.
    """
    import numpy as np

    example = worked_example(name)
    fixed = sorted(set(changes) - set(EXAMPLE_FIELDS))
    if fixed:
        raise TraceError(
            f"field of a worked example must be one of {', '.join(EXAMPLE_FIELDS)}, got {', '.join(fixed)}. "
            "Leave the example's name out to trace a drawn problem."
        )
    q, k, v = (np.array(matrix)[None, None] for matrix in (example.q, example.k, example.v))
    fields: dict[str, Any] = {"mask": example.mask, "scale": example.scale} | changes
    problem = Problem(
        seqlen_q=q.shape[2],
        seqlen_k=k.shape[2],
        num_heads=1,
        head_dim=q.shape[3],
        head_dim_v=v.shape[3],
        **fields,
    )
    return _trace(problem, q, k, v, name, (example.query_tokens, example.key_tokens))


def trace_problem(problem: Problem) -> Trace:
    """Trace a problem with the inputs that are drawn for it everywhere else.

    Raises:
        TraceError: if it is too large to be read.
    """
    from bench.inputs import make_inputs

    check_readable(problem)
    inputs = make_inputs(problem)
    q, k, v = (tensor.double().numpy() for tensor in (inputs.q, inputs.k, inputs.v))
    tokens = tuple(f"q{i}" for i in range(problem.seqlen_q)), tuple(f"k{j}" for j in range(problem.seqlen_k))
    return _trace(problem, q, k, v, problem.key, tokens)


def check_readable(problem: Problem) -> None:
    """Refuse a problem whose trace nobody could read.

    Raises:
        TraceError: naming the limit and what to change.
    """
    heads = problem.batch_size * problem.num_heads_q
    size = f"{problem.seqlen_q} x {problem.seqlen_k} for {heads} head{'s' * (heads > 1)}"
    widths = heads * max(problem.seqlen_q, problem.seqlen_k) * max(problem.head_dim, problem.head_dim_v)
    largest = max(widths, problem.all_pairs * problem.head_dim_v)
    if problem.direction != "fwd":
        raise TraceError(f"direction of a trace must be fwd, got {problem.direction}. Leave it out.")
    if heads > MOST_HEADS:
        raise TraceError(
            f"batch_size times num_heads_q of a trace must be at most {MOST_HEADS}, got {heads}. Set num_heads=1."
        )
    if max(problem.seqlen_q, problem.seqlen_k) > LONGEST:
        raise TraceError(
            f"seqlen_q and seqlen_k of a trace must be at most {LONGEST}, got {size}. Set a smaller seqlen."
        )
    if problem.all_pairs > LARGEST_MATRIX:
        raise TraceError(
            f"score matrix of a trace must have at most {LARGEST_MATRIX} entries (32 x 32 for one head), "
            f"got {problem.all_pairs} ({size}). Set a smaller seqlen or num_heads."
        )
    if largest > LARGEST_TENSOR:
        raise TraceError(
            f"tensor of a trace must have at most {LARGEST_TENSOR} entries, got {largest} ({size}, head_dim "
            f"{problem.head_dim}, head_dim_v {problem.head_dim_v}). Set a smaller head_dim."
        )


def save(trace: Trace, folder: Path) -> list[Path]:
    """Write ``trace.npz`` (every array) and ``trace.json`` (the same to be read, with problem and tokens).

    In the JSON a row of a matrix is one line, and ``"-inf"`` stands for minus infinity, which JSON lacks.

    Raises:
        OutputError: if the folder cannot be written.
    """
    import numpy as np

    binary, readable = folder / "trace.npz", folder / "trace.json"
    content = {
        "title": trace.title,
        "problem": trace.problem.model_dump(mode="json"),
        "softmax_scale": trace.problem.softmax_scale,
        "query_tokens": list(trace.query_tokens),
        "key_tokens": list(trace.key_tokens),
        "tensors": {name: tensor.tolist() for name, tensor in trace.tensors.items()},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(binary, allow_pickle=False, **trace.tensors)
        readable.write_text(_readable(content) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"trace must be written into a writable folder, got {str(folder)!r} ({error.strerror}). Choose another "
            "with --output."
        ) from error
    return [binary, readable]


def _trace(
    problem: Problem,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    title: str,
    tokens: tuple[tuple[str, ...], tuple[str, ...]],
) -> Trace:
    """Compute everything from float64 ``q``, ``k`` and ``v``."""
    import numpy as np

    check_readable(problem)
    shared = problem.num_heads_q // problem.num_heads_kv
    keys, values = k.repeat(shared, axis=1), v.repeat(shared, axis=1)
    raw_scores = q @ keys.swapaxes(-1, -2)
    scores = problem.softmax_scale * raw_scores
    rows = slice(0, problem.seqlen_q)
    mask = np.array(
        [
            [dense_rows(problem.mask, problem.mask_shape, b, h, rows) for h in range(problem.num_heads_q)]
            for b in range(problem.batch_size)
        ]
    )
    m = np.where(mask, scores, -np.inf).max(axis=-1)
    # An empty row has m = -inf: exp(-inf - -inf) would be NaN.
    exponent = np.where(mask, scores - np.where(np.isfinite(m), m, 0.0)[..., None], -np.inf)
    exponentials = np.exp(exponent)
    l = exponentials.sum(axis=-1)  # noqa: E741  # the field's name for it
    u = exponentials @ values
    seen = np.where(l > 0, l, 1.0)[..., None]
    weights = exponentials / seen
    tensors = {
        "q": q,
        "k": k,
        "v": v,
        "raw_scores": raw_scores,
        "scores": scores,
        "mask": mask,
        "m": m,
        "l": l,
        "u": u,
        "lse": np.where(l > 0, m + np.log(seen[..., 0]), -np.inf),
        "weights": weights,
        "contributions": weights[..., None] * values[:, :, None],
        "out": u / seen,
    }
    return Trace(title, problem, *tokens, tensors)


def _readable(value: Any, indent: str = "") -> str:
    """JSON in which a list without lists in it stays on one line."""
    inner = indent + " "
    if isinstance(value, dict):
        pairs = [f"{inner}{json.dumps(key)}: {_readable(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(pairs) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + ",\n".join(inner + _readable(item, inner) for item in value) + f"\n{indent}]"
    if isinstance(value, list):
        return f"[{', '.join(_readable(item) for item in value)}]"
    if isinstance(value, float) and value == float("-inf"):
        return '"-inf"'
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
