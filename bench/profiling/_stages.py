"""Which stage of the theory an operator belongs to, and what arithmetic and traffic its shapes imply.

The one table that maps operators to stages is :data:`STAGE_OF`; products are told apart by their shapes, a step of the
gradients takes the stage of the forward operator that it belongs to. What is not in the table is ``other``, by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from bench.problem import Problem
from bench.profiling._operators import CALL, GRADIENT, Operand, Operator

PROJECTIONS, SCORES, SCALE, SOFTMAX = "projections", "score product", "scale and mask", "softmax"
VALUES, FUSED, COMPILED, COPIES = "value product", "fused attention", "compiled code", "layout copies"
ALLOCATION, OTHER, OVERHEAD = "allocation", "other", "overhead"
STAGES = (PROJECTIONS, SCORES, SCALE, SOFTMAX, VALUES, FUSED, COMPILED, COPIES, ALLOCATION, OTHER, OVERHEAD)
"""In the order of the theory. ``allocation`` holds filling with a constant as well; ``overhead`` views and Python."""
ARITHMETIC = frozenset({PROJECTIONS, SCORES, SCALE, SOFTMAX, VALUES})

_PRODUCT, _FACTOR, _SUM = "product", "factor", "sum"
_NAMES: dict[str, str] = {
    _PRODUCT: "mm bmm addmm baddbmm addbmm",
    _FACTOR: "mul div",
    _SUM: "add",
    SCALE: "masked_fill where tril triu logical_and bitwise_and bitwise_not le ge lt gt",
    SOFTMAX: "_softmax _softmax_backward_data _masked_softmax exp exp2 amax max sum sub maximum log log2 logsumexp "
    "reciprocal neg eq ne all any logical_not",
    COPIES: "copy clone contiguous to _to_copy cat stack repeat repeat_interleave index_select index gather "
    "constant_pad_nd",
    ALLOCATION: "empty empty_like empty_strided new_empty new_empty_strided resize zeros zeros_like new_zeros zero "
    "ones ones_like fill full full_like scalar_tensor arange",
    OVERHEAD: "view _unsafe_view reshape _reshape_alias transpose t permute expand expand_as as_strided slice select "
    "narrow unflatten flatten unsqueeze squeeze detach alias resolve_conj resolve_neg lift_fresh is_same_size "
    "result_type matmul softmax linear unbind split chunk scaled_dot_product_attention _safe_softmax view_as "
    "_scaled_dot_product_attention_math _fused_sdp_choice item _local_scalar_dense is_nonzero numpy_T sum_to_size",
}
STAGE_OF: dict[str, str] = {name: stage for stage, names in _NAMES.items() for name in names.split()}
"""Stage by the name of an operator, without ``aten::`` and the underscore of those that work in place."""
_FUSED_WORDS = ("flash_attention", "efficient_attention", "cudnn_attention", "flex_attention", "triton_attention")
_COMPILED_WORDS = ("CompiledFxGraph", "Torch-Compiled Region", "cpp_fused", "triton_per_fused", "triton_poi_fused")
_KERNEL_WORDS = {
    FUSED: ("flash", "fmha", "attention", "forward_kernel", "backward_kernel", "_fwd_", "_bwd_"),
    SOFTMAX: ("softmax",),
    COMPILED: ("triton_",),
    COPIES: ("Memcpy", "copy"),
    ALLOCATION: ("Memset", "FillFunctor"),
}
"""For GPU kernels that no operator launched, such as Triton's: words in their names."""
_RECOMPUTED = (SCORES, VALUES, VALUES, SCORES, SCORES)
"""Products of a tile of gradients by recomputation: S, dv, dP, dk, dq. Source: FlashAttention-2 (2023), alg. 2."""
SOFTMAX_FLOP = 5
"""Of one score: largest, difference, exponential, sum, quotient."""


@dataclass(frozen=True)
class Placed:
    """An operator with its stage."""

    operator: Operator
    stage: str
    flop: int | None
    """None where nobody knows."""
    moved_bytes: int | None

    @property
    def half(self) -> str:
        """Of the call or of its gradients."""
        return "backward" if self.operator.backward and self.stage != OVERHEAD else "forward"


def place(operators: Sequence[Operator], problem: Problem, forward: Sequence[Operator] = ()) -> list[Placed]:
    """Stages of the operators of one call.

    Args:
        operators: in the order of time.
        problem: what the call computes.
        forward: operators of the forward call, where it is no part of the call (direction ``bwd``).
    """
    known = _forward_stages([*forward, *operators], problem)
    cycles = _recomputing(operators, known)
    products = _Products(problem)
    counted: dict[int | None, int] = defaultdict(int)
    placed: list[Placed] = []
    product = OTHER
    for one in operators:
        stage = _by_name(one, problem)
        if stage == _PRODUCT and _nested(one):
            placed.append(Placed(one, product, 0, 0))  # what it computes is counted with the product around it
            continue
        is_product = stage == _PRODUCT
        inherited = known.get(one.sequence) if one.backward else None
        if stage == _PRODUCT and one.backward and inherited is None:
            position = counted[one.sequence]
            counted[one.sequence] += 1
            stage = _RECOMPUTED[position % len(_RECOMPUTED)] if one.sequence in cycles else OTHER
        elif inherited is not None and (stage == _PRODUCT or stage in ARITHMETIC):
            stage = inherited
        elif stage == _PRODUCT:
            stage = products.stage(one)
        elif stage == OVERHEAD and one.kernels:  # launched by no operator, as Triton's are
            stage = kernel_stage(one.kernels[0].name)
        product = stage if is_product else product
        placed.append(Placed(one, stage, *_work(one, stage, problem)))
    return placed


def kernel_stage(name: str) -> str:
    """Stage of a GPU kernel that no operator launched."""
    return next((stage for stage, words in _KERNEL_WORDS.items() if any(word in name for word in words)), OTHER)


class _Products:
    """Tells the products of a forward call apart."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._scores_wait = problem, False

    def stage(self, one: Operator) -> str:
        first, second = factors(one)
        if first is None or second is None:
            return OTHER
        if len(first.sizes) == 2:
            return PROJECTIONS  # products of attention are batched over heads
        problem, inner, width = self._problem, first.sizes[-1], second.sizes[-1]
        scores = inner == problem.head_dim and width <= problem.seqlen_k
        values = width == problem.head_dim_v and inner <= problem.seqlen_k
        if not scores and not values:
            return OTHER
        # As wide as long, they look the same: then a value product follows each score product.
        found = VALUES if values and (not scores or self._scores_wait) else SCORES
        self._scores_wait = found == SCORES
        return found


def _forward_stages(operators: Iterable[Operator], problem: Problem) -> dict[int | None, str]:
    """The stage of each sequence number of forward operators whose arithmetic is all of one stage."""
    products, found = _Products(problem), defaultdict[int, set[str]](set)
    for one in operators:
        if one.backward or one.sequence is None:
            continue
        stage = _by_name(one, problem)
        if stage == _PRODUCT and _nested(one):
            continue
        stage = products.stage(one) if stage == _PRODUCT else stage
        if stage in ARITHMETIC:
            found[one.sequence].add(stage)
    return {number: next(iter(stages)) for number, stages in found.items() if len(stages) == 1}


def _recomputing(operators: Iterable[Operator], known: dict[int | None, str]) -> set[int | None]:
    """Steps of the gradients that recompute the scores: five products for each tile."""
    counts: dict[int | None, int] = defaultdict(int)
    for one in operators:
        if one.backward and one.sequence not in known and _is_product(one.name) and not _nested(one):
            counts[one.sequence] += 1
    return {number for number, count in counts.items() if count % len(_RECOMPUTED) == 0}


def _root(name: str) -> str:
    """Name as in the table."""
    root = name.removeprefix("aten::")
    return root[:-1] if root.endswith("_") and not root.endswith("__") else root


def _is_product(name: str) -> bool:
    return STAGE_OF.get(_root(name)) == _PRODUCT


def _nested(one: Operator) -> bool:
    """Whether a product is part of another one, which computes it head by head."""
    return any(_is_product(name) for name in one.within)


def _by_name(one: Operator, problem: Problem) -> str:
    """The stage, or which kind of operator it is where the name alone does not say."""
    if any(word in one.name for word in _FUSED_WORDS):
        return FUSED
    if any(word in one.name for word in _COMPILED_WORDS):
        return COMPILED
    if not one.name.startswith("aten::"):
        return OVERHEAD  # the autograd engine, ranges, Python functions
    stage = STAGE_OF.get(_root(one.name), OTHER)
    if stage not in (ALLOCATION, OVERHEAD) and one.operands and all(prod(o.sizes) <= 1 for o in one.operands):
        return OVERHEAD  # a number on its way into an operator
    if stage == _FACTOR:
        return SOFTMAX if len(_tensors(one)) > 1 else SCALE
    if stage == _SUM:
        scores = len(_tensors(one)) > 1 and prod(one.operands[0].sizes) > _rows(problem)
        return SCALE if scores else SOFTMAX
    return stage


def _rows(problem: Problem) -> int:
    return problem.batch_size * problem.num_heads_q * problem.seqlen_q


def _tensors(one: Operator) -> list[Operand]:
    """Operands that are no plain number."""
    return [operand for operand in one.operands if operand.sizes]


def factors(one: Operator) -> tuple[Operand | None, Operand | None]:
    """The two matrices that a product multiplies; those with a summand have it in front of them."""
    matrices = [operand for operand in one.operands if len(operand.sizes) >= 2]
    skip = 1 if _root(one.name) in ("addmm", "baddbmm", "addbmm") and len(matrices) > 2 else 0
    pair = matrices[skip : skip + 2]
    return (pair[0], pair[1]) if len(pair) == 2 else (None, None)


def _work(one: Operator, stage: str, problem: Problem) -> tuple[int | None, int | None]:
    """FLOP and bytes of an operator: each operand read once, each result written once."""
    if stage == OVERHEAD:
        return 0, 0
    if stage in (OTHER, COMPILED):
        return None, None
    if stage == FUSED:
        return _fused_work(one, problem)
    root, tensors = _root(one.name), _tensors(one)
    if not tensors:
        return 0, 0
    first = tensors[0]
    if _is_product(one.name):
        return _product_work(one)
    if root in ("copy", "fill", "zero"):
        return 0, first.distinct_bytes + sum(other.distinct_bytes for other in tensors[1:])
    if stage in (COPIES, ALLOCATION):
        return 0, 0  # what they write is counted where they call `copy` or `fill`
    read = sum(operand.distinct_bytes for operand in tensors)
    size = max(prod(operand.sizes) for operand in tensors)
    written = size * first.element_bytes
    if root in ("_softmax", "_masked_softmax"):
        return SOFTMAX_FLOP * size, read + written
    if root == "_softmax_backward_data":
        return 4 * size, read + written
    if root in ("amax", "max", "sum", "logsumexp", "all", "any"):
        return size, read  # what a reduction writes is small, and is an operand where it is given
    # In place, or into a tensor that is given as the last operand, which is written and not read.
    given = len(tensors) > 2 and root in ("maximum", "sub", "add", "mul")
    return size, read if given else read + written


def _product_work(one: Operator) -> tuple[int | None, int | None]:
    first, second = factors(one)
    if first is None or second is None:
        return None, None
    batch = prod(first.sizes[:-2])
    rows, inner, width = first.sizes[-2], first.sizes[-1], second.sizes[-1]
    result = batch * rows * width * first.element_bytes
    summand = one.operands[0].distinct_bytes if _root(one.name) in ("addmm", "baddbmm", "addbmm") else 0
    return 2 * batch * rows * inner * width, first.distinct_bytes + second.distinct_bytes + result + summand


def _fused_work(one: Operator, problem: Problem) -> tuple[int, int]:
    """That of the theory, at the outermost of nested operators."""
    if any(word in name for name in one.within for word in _FUSED_WORDS):
        return 0, 0
    half = problem.model_copy(update={"direction": "bwd" if one.backward else "fwd"})
    return half.flop, half.least_bytes + 4 * _rows(problem)


def described(placed: Placed) -> str:
    """Name of an operator for people."""
    name = placed.operator.name
    if name == CALL:
        return "Python"
    return "autograd" if name.startswith(GRADIENT) else name.removeprefix("aten::")
