"""Which stage of the theory an operator belongs to.

Names tell most of it (:mod:`bench.profiling._names`); products are told apart by their shapes, and a step of the
gradients takes the stage of the forward operator that it belongs to.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from bench.problem import Problem
from bench.profiling._names import (
    ALLOCATION,
    ARITHMETIC,
    COPIES,
    FACTOR,
    OTHER,
    OVERHEAD,
    PRODUCT,
    PROJECTIONS,
    SCALE,
    SCORES,
    SOFTMAX,
    SUM,
    VALUES,
    is_compiled,
    is_nested,
    is_product,
    is_softmax_part,
    kernel_stage,
    named_stage,
    root,
    sums_repeated,
)
from bench.profiling._operators import CALL, GRADIENT, Operator
from bench.profiling._work import Work, factors, tensors, work

_RECOMPUTED = (SCORES, VALUES, VALUES, SCORES, SCORES)
"""Products of a tile of gradients by recomputation: S, dv, dP, dk, dq. Source: FlashAttention-2 (2023), alg. 2."""


@dataclass(frozen=True)
class Placed:
    """An operator with its stage."""

    operator: Operator
    stage: str
    flop: int | None
    """None where nobody knows; 0 where an operator that it calls does the work."""
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
    stages = _stages(operators, problem, forward)
    done = _counted_once(operators, stages, problem)
    return [Placed(one, stage, *by) for one, stage, by in zip(operators, stages, done, strict=True)]


def _stages(operators: Sequence[Operator], problem: Problem, forward: Sequence[Operator]) -> list[str]:
    known = _forward_stages([*forward, *operators], problem)
    cycles = _recomputing(operators, known)
    products = _Products(problem)
    counted: dict[int | None, int] = defaultdict(int)
    found: list[str] = []
    product = OTHER
    for one in operators:
        stage = _kind(one, problem)
        inherited = known.get(one.sequence) if one.backward else None
        if stage == PRODUCT and is_nested(one):
            stage = product  # of the one around it
        elif stage == PRODUCT:
            if one.backward and inherited is None:
                position = counted[one.sequence]
                counted[one.sequence] += 1
                stage = _RECOMPUTED[position % len(_RECOMPUTED)] if one.sequence in cycles else OTHER
            else:
                stage = inherited or products.stage(one)
            product = stage
        elif inherited is not None and stage in ARITHMETIC:
            stage = inherited
        elif one.backward and sums_repeated(one):
            stage = COPIES
        elif one.backward and root(one.name) == "add" and one.sequence not in cycles:
            stage = OTHER  # gradients of one tensor that was used twice
        elif stage == OVERHEAD and one.kernels:  # launched by no operator, as Triton's are
            stage = kernel_stage(one.kernels[0].name)
        found.append(stage)
    return found


def _counted_once(operators: Sequence[Operator], stages: Sequence[str], problem: Problem) -> list[Work]:
    """FLOP and bytes of each operator; none of one that calls others of its stage to do them."""
    found: list[Work] = []
    around: list[int] = []  # indices of the operators that the last one ran in, and its own
    for index, (one, stage) in enumerate(zip(operators, stages, strict=True)):
        while around and len(operators[around[-1]].within) >= len(one.within):
            around.pop()
        done = (0, 0) if is_product(one.name) and is_nested(one) else work(one, stage, problem)
        if done != (0, 0):
            for outer in around:
                if stages[outer] == stage:
                    found[outer] = 0, 0
        found.append(done)
        around.append(index)
    return found


class _Products:
    """Tells the products of a forward call apart."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._scores_wait = problem, False

    def stage(self, one: Operator) -> str:
        first, second = factors(one)
        if first is None or second is None:
            return OTHER
        problem, inner, width = self._problem, first.sizes[-1], second.sizes[-1]
        scores = inner == problem.head_dim and width <= problem.seqlen_k
        values = width == problem.head_dim_v and inner <= problem.seqlen_k
        if not scores and not values:
            return PROJECTIONS if len(first.sizes) == 2 else OTHER
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
        stage = _kind(one, problem)
        if stage == PRODUCT and is_nested(one):
            continue
        stage = products.stage(one) if stage == PRODUCT else stage
        if stage in ARITHMETIC:
            found[one.sequence].add(stage)
    return {number: next(iter(stages)) for number, stages in found.items() if len(stages) == 1}


def _recomputing(operators: Iterable[Operator], known: dict[int | None, str]) -> set[int | None]:
    """Steps of the gradients that recompute the scores: five products for each tile."""
    counts: dict[int | None, int] = defaultdict(int)
    for one in operators:
        if one.backward and one.sequence not in known and is_product(one.name) and not is_nested(one):
            counts[one.sequence] += 1
    return {number for number, count in counts.items() if count % len(_RECOMPUTED) == 0}


def _kind(one: Operator, problem: Problem) -> str:
    """The stage, or which kind of operator it is where neither its name nor what it is given says more."""
    stage = named_stage(one.name)
    if stage not in (ALLOCATION, OVERHEAD) and one.operands and all(prod(o.sizes) <= 1 for o in one.operands):
        return OVERHEAD  # a number on its way into an operator
    if stage == FACTOR:
        by_number = len(one.operands) == 1 or not all(operand.sizes for operand in one.operands[:2])
        stage = SCALE if by_number else SOFTMAX
    elif stage == SUM:
        rows = problem.batch_size * problem.num_heads_q * problem.seqlen_q
        stage = SCALE if len(tensors(one)) > 1 and prod(one.operands[0].sizes) > rows else SOFTMAX
    return SOFTMAX if stage == SCALE and is_softmax_part(one) else stage


def described(placed: Placed) -> str:
    """Name of an operator for people."""
    name = placed.operator.name
    if name == CALL:
        return "Python"
    if is_compiled(name):
        return re.sub(r"^#* ?(Call )?(CompiledFxGraph) \w+ ?#*$", r"\2", name)  # without its hash
    return "autograd" if name.startswith(GRADIENT) else name.removeprefix("aten::")
