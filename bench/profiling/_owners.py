"""Which tensor of attention an allocation is: scores, weights, out, their gradients, workspace of a kernel.

Nothing is told by the implementation. A result is known by its address; all else by the operator that asked for the
memory, or, for memory that was taken in advance, by the operator that first writes a product or a copy into it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.problem import Problem
from bench.profiling._names import (
    ALLOCATION,
    COMPILED,
    COPIES,
    FUSED,
    OTHER,
    OVERHEAD,
    SCALE,
    SCORES,
    SOFTMAX,
    VALUES,
)
from bench.profiling._operators import CALL, Operand
from bench.profiling._stages import Placed
from bench.profiling._work import factors

SAVED = ", saved for backward"
_OF_GRADIENTS = {
    SCORES: ("scores", "gradients of q and k"),
    VALUES: ("gradient of weights", "gradient of v"),
}
"""What a product of the gradients gives: an entry for each query and key, or for each feature."""
NUMBER_BYTES = 16
"""Memory of a number or two is no tensor of attention."""


@dataclass(eq=False)
class Allocation:
    """One block of memory."""

    address: int
    size_bytes: int
    start_ns: int
    within: tuple[str, ...]
    """Names of what was running when it was asked for, outermost first."""
    stop_ns: int | None = None
    """When it was released; None where it outlives the call."""
    at_peak: bool = False

    @property
    def operator(self) -> str:
        """Innermost name of what was running."""
        name = self.within[-1] if self.within else ""
        return "Python" if name in ("", CALL) else name.removeprefix("aten::")


class Naming:
    """Owners of the allocations of one call.

    Args:
        placed: its operators in order of time.
        problem: what it computes.
        results: names by address of what the call returned.
    """

    def __init__(self, placed: Sequence[Placed], problem: Problem, results: Mapping[int, str]) -> None:
        self._placed, self._problem, self._results = placed, problem, results
        self._uses: dict[int, list[tuple[int, Placed]]] = defaultdict(list)
        for one in placed:
            for position, operand in enumerate(one.operator.operands):
                if operand.address:
                    self._uses[operand.address].append((position, one))
        self._gradients_ns = min((one.operator.start_ns for one in placed if one.operator.backward), default=None)

    def owners(self, allocations: Iterable[Allocation]) -> list[str]:
        """Name of each allocation; they come in order of time."""
        return [self._owner(one, path) for one, path in self._with_paths(allocations)]

    def _with_paths(self, allocations: Iterable[Allocation]) -> Iterator[tuple[Allocation, list[Placed]]]:
        """Each allocation with the operators that were running, innermost first."""
        latest: dict[tuple[str, ...], Placed] = {}
        following = iter(self._placed)
        ahead = next(following, None)
        for one in allocations:
            while ahead is not None and ahead.operator.start_ns <= one.start_ns:
                latest[(*ahead.operator.within, ahead.operator.name)] = ahead
                ahead = next(following, None)
            prefixes = (one.within[:depth] for depth in range(len(one.within), 0, -1))
            yield one, [latest[prefix] for prefix in prefixes if prefix in latest]

    def _owner(self, one: Allocation, path: list[Placed]) -> str:
        if one.stop_ns is None and one.address in self._results:
            return self._results[one.address]
        if one.size_bytes <= NUMBER_BYTES:
            return "numbers"
        fused = [placed for placed in path if placed.stage == FUSED]
        if fused:
            return self._saved(one, self._of_kernel(one, fused[-1]))
        asked = next((placed for placed in path if placed.stage not in (OVERHEAD, ALLOCATION)), None)
        name = self._name(one, asked) if asked is not None else self._by_use(one)
        backward = any(placed.operator.backward for placed in path)
        return name if backward else self._saved(one, name)

    def _saved(self, one: Allocation, name: str) -> str:
        """The name, told apart where the forward call keeps it for the gradients."""
        start = self._gradients_ns
        if start is None or one.start_ns >= start or (one.stop_ns is not None and one.stop_ns < start):
            return name
        return name + SAVED

    def _of_kernel(self, one: Allocation, kernel: Placed) -> str:
        """Memory that a fused operator asked for: its workspace, unless it outlives it."""
        if one.stop_ns is not None and one.stop_ns <= kernel.operator.stop_ns:
            return "workspace of the fused kernel"
        problem = self._problem
        rows = problem.batch_size * problem.num_heads_q * problem.seqlen_q
        return "log-sum-exp" if one.size_bytes == 4 * rows else "results of the fused kernel"

    def _by_use(self, one: Allocation) -> str:
        """Memory taken in advance: what is written into it first, a product before a copy before a statistic."""
        uses = [
            (position, placed)
            for position, placed in self._uses.get(one.address, ())
            if placed.operator.start_ns >= one.start_ns
            and (one.stop_ns is None or placed.operator.start_ns < one.stop_ns)
        ]
        written = [placed for position, placed in uses if _writes(placed, position)]
        products = [placed for placed in written if placed.stage in (SCORES, VALUES)]
        copies = [placed for placed in written if placed.stage == COPIES]
        others = [placed for _, placed in uses if placed.stage not in (OVERHEAD, ALLOCATION)]
        found = next(iter((*products, *copies, *others)), None)
        return "scratch" if found is None else self._name(one, found)

    def _name(self, one: Allocation, placed: Placed) -> str:
        """What the result of an operator is."""
        backward, stage = placed.half == "backward", placed.stage
        if stage in (SCORES, VALUES):
            if not backward:
                return "scores" if stage == SCORES else "value sums"
            pairs, features = _OF_GRADIENTS[stage]
            first, second = factors(placed.operator)
            if first is None or second is None:
                return "other"
            of_pairs, of_features = (self._shaped(first, second, rows=rows) for rows in (True, False))
            if of_pairs and of_features:
                return f"{pairs} or {features}"  # as long as wide, they look the same
            return pairs if of_pairs else features
        large = one.size_bytes > 8 * self._problem.batch_size * self._problem.num_heads_q * self._problem.seqlen_q
        if stage == COPIES and not large:
            return "softmax statistics"  # one number for each query
        if stage == SOFTMAX:
            weights = "gradient of scores" if backward else "weights"
            return weights if large else "softmax statistics"
        if stage == SCALE:
            return ("gradient of scores" if backward else "mask or masked scores") if large else "mask"
        return {COPIES: "copies", COMPILED: "buffers of compiled code", OTHER: "other"}.get(stage, stage)

    def _shaped(self, first: Operand, second: Operand, *, rows: bool) -> bool:
        """Whether a product may give an entry for each query and key (``rows``), or one for each feature."""
        problem = self._problem
        widths = (problem.head_dim, problem.head_dim_v)
        inner, width = first.sizes[-1], second.sizes[-1]
        if rows:
            return inner in widths and width <= problem.seqlen_k and (width not in widths or width == problem.seqlen_k)
        return width in widths


def _writes(placed: Placed, position: int) -> bool:
    """Whether an operator writes into the operand at this position: in place, or into one that follows its factors."""
    name = placed.operator.name
    if name.endswith("_"):
        return position == 0
    return placed.stage in (SCORES, VALUES) and position == (3 if "add" in name else 2)
