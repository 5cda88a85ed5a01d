"""What arithmetic and traffic the shapes of an operator imply: each operand is read once, each result written once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from math import prod

from bench.problem import Problem
from bench.profiling._names import FUSED, OVERHEAD, is_fused, is_product, root
from bench.profiling._operators import Operand, Operator

Work = tuple[int | None, int | None]
"""FLOP and bytes; None where nobody knows."""

SOFTMAX_FLOP, SOFTMAX_GRADIENT_FLOP = 5, 4
"""Of one score: largest, difference, exponential, sum, quotient; product, sum, difference, product."""
_SUMMED = ("addmm", "baddbmm", "addbmm")
"""Products that are added to what stands in front of their factors."""
_SETS = {
    "tests": "le ge lt gt eq ne logical_not logical_and isneginf isinf isnan isfinite",
    "unary": "exp exp2 log log2 neg reciprocal logical_not bitwise_not isneginf isinf isnan isfinite abs sqrt rsqrt "
    "tanh sigmoid nan_to_num clamp clamp_min clamp_max pow tril triu",
    "binary": "mul div add sub maximum minimum le ge lt gt eq ne logical_and bitwise_and",
    "reduced": "amax amin max min sum logsumexp all any",
    "calling": "clone _to_copy stack repeat repeat_interleave constant_pad_nd empty empty_like empty_strided new_empty "
    "new_empty_strided resize zeros zeros_like new_zeros ones ones_like full full_like scalar_tensor arange",
}
_TESTS, _UNARY, _BINARY, _REDUCED, _CALLING = (frozenset(names.split()) for names in _SETS.values())
"""Results of tests are bools, a byte each; what those that call write is counted where they call ``copy`` or ``fill``.
"""
_WRITTEN = ("fill", "zero")


def tensors(one: Operator) -> list[Operand]:
    """Operands that are no plain number."""
    return [operand for operand in one.operands if operand.sizes]


def factors(one: Operator) -> tuple[Operand | None, Operand | None]:
    """The two matrices that a product multiplies; those with a summand have it in front of them."""
    matrices = [operand for operand in one.operands if len(operand.sizes) >= 2]
    skip = 1 if root(one.name) in _SUMMED and len(matrices) > 2 else 0
    pair = matrices[skip : skip + 2]
    return (pair[0], pair[1]) if len(pair) == 2 else (None, None)


def work(one: Operator, stage: str, problem: Problem) -> Work:
    """FLOP and bytes of an operator by itself, whatever others it calls."""
    if stage == OVERHEAD:
        return 0, 0
    if stage == FUSED:
        return _fused(one, problem)
    name, given = root(one.name), tensors(one)
    if name in _CALLING:
        return 0, 0
    if is_product(one.name):
        return _product(one)
    if not given:
        return (0, 0) if name in (*_UNARY, *_BINARY, *_REDUCED, *_WRITTEN) else (None, None)
    read, first = sum(operand.distinct_bytes for operand in given), given[0]
    if name in ("copy", *_WRITTEN):
        return 0, read  # the one that is written stands among them
    if name == "cat":
        return 0, 2 * read
    size = prod(first.sizes)
    if name in ("_softmax", "_masked_softmax"):
        return SOFTMAX_FLOP * size, read + size * first.element_bytes
    if name == "_softmax_backward_data":
        return SOFTMAX_GRADIENT_FLOP * size, read + size * first.element_bytes
    if name in _REDUCED:
        return size, read  # what a reduction writes is small, and is an operand where it is given
    return _by_element(one, name, given, read)


def _by_element(one: Operator, name: str, given: list[Operand], read: int) -> Work:
    """One operation for each element of the result."""
    size = _broadcast(operand.sizes for operand in given)
    if name in ("masked_fill", "where"):
        width = given[0 if name == "masked_fill" else -1].element_bytes
        inputs = 3
    elif name in _UNARY or name in _BINARY:
        width = 1 if name in _TESTS else given[0].element_bytes
        inputs = 1 if name in _UNARY else 2
    else:
        return None, None
    # One more than it needs is the tensor that it writes into, which stands among those that are counted.
    return size, read if len(one.operands) > inputs else read + size * width


def _broadcast(shapes: Iterable[tuple[int, ...]]) -> int:
    """Elements of what shapes are broadcast to."""
    reversed_shapes = (reversed(shape) for shape in shapes)
    return prod(max(sizes) for sizes in zip_longest(*reversed_shapes, fillvalue=1))


def _product(one: Operator) -> Work:
    first, second = factors(one)
    if first is None or second is None:
        return None, None
    batch = prod(first.sizes[:-2])
    rows, inner, width = first.sizes[-2], first.sizes[-1], second.sizes[-1]
    result = batch * rows * width * first.element_bytes
    summand = one.operands[0].distinct_bytes if root(one.name) in _SUMMED else 0
    return 2 * batch * rows * inner * width, first.distinct_bytes + second.distinct_bytes + result + summand


def _fused(one: Operator, problem: Problem) -> Work:
    """That of the theory at the outermost of nested operators; one that is given a part of the queries has a part."""
    if any(is_fused(name) for name in one.within):
        return 0, 0
    half = problem.model_copy(update={"direction": "bwd" if one.backward else "fwd"})
    rows = problem.batch_size * problem.num_heads_q * problem.seqlen_q
    flop, moved = half.flop, half.least_bytes + 4 * rows
    # It is given queries first, or the gradient of the output.
    given = prod(one.operands[0].sizes) if one.operands else 0
    whole = rows * min(problem.head_dim, problem.head_dim_v)
    return (flop, moved) if not 0 < given < whole else (round(flop * given / whole), round(moved * given / whole))
