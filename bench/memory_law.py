"""Laws of memory: do measured bytes equal the law, and which polynomial in T are they?

Measured bytes are exact, so they are compared to the byte, and coefficients are solved in rational numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from bench.problem import Problem
from bench.record import Record

NAIVE = "naive"
"""The implementation that the theory speaks of: all scores are stored."""
NAIVE_LAW = "2·B·H·Tq·Tk·bytes + output"
"""Scores and weights live together until the value product is done, mask or not."""
OWN_LAW = "the implementation's own prediction"
"""What the other cells are held against."""


def naive_law_bytes(problem: Problem) -> int:
    """Peak bytes of a naive forward pass beyond its inputs: two score-sized tensors and the output."""
    return 2 * problem.all_pairs * problem.element_bytes + problem.output_bytes


@dataclass(frozen=True)
class MemoryCheck:
    """Measured peaks of one implementation held against its law, to the byte."""

    implementation: str
    law: str
    """The law in words."""
    cells: int
    """Cells that were compared."""
    equal: int
    """Cells whose measured peak is the law exactly."""
    residual_bytes: int
    """Measured minus law, where its size is largest; 0 if all are equal."""
    worst: str
    """Key of the problem with that residual."""
    worst_share: float
    """That residual over the law."""

    @property
    def theory(self) -> bool:
        """True if the law is that of the theory, not the implementation's own."""
        return self.law == NAIVE_LAW

    @property
    def holds(self) -> bool:
        """True if every cell equals the law to the byte."""
        return self.equal == self.cells


def check_memory(records: Iterable[Record]) -> list[MemoryCheck]:
    """Hold a naive forward pass against the theory, and the others against their own predictions."""
    found: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    for record in records:
        memory = record.measurement.memory if record.measurement else None
        if memory is None:
            continue
        theory = record.implementation == NAIVE and record.problem.direction == "fwd"
        law = naive_law_bytes(record.problem) if theory else memory.predicted_peak_bytes
        if law is not None:
            cells = found.setdefault((record.implementation, NAIVE_LAW if theory else OWN_LAW), [])
            cells.append((memory.peak_bytes - law, law, record.problem.key))
    checks = []
    for (implementation, words), cells in sorted(found.items()):
        residual, law, key = max(cells, key=lambda cell: abs(cell[0]))
        equal = sum(cell[0] == 0 for cell in cells)
        share = residual / law if law else 0.0
        checks.append(MemoryCheck(implementation, words, len(cells), equal, residual, key, share))
    return checks


@dataclass(frozen=True)
class BytesPolynomial:
    """``quadratic * T^2 + linear * T + constant`` bytes, solved exactly from three lengths, tested on the
    others.
    """

    quadratic: Fraction
    linear: Fraction
    constant: Fraction
    residual_bytes: Fraction
    """Largest difference, in size, at the other lengths; 0 if they all lie on the polynomial."""
    tested: int
    """Lengths that were not used to solve."""

    @property
    def exact(self) -> bool:
        """True if at least one other length was tested and all of them fit to the byte."""
        return self.tested > 0 and self.residual_bytes == 0

    def longest(self, limit_bytes: int) -> int | None:
        """The longest length that needs at most ``limit_bytes``; None if none does, or if the law does not grow."""
        if self.quadratic < 0 or self.linear < 0 or (self.quadratic == 0 == self.linear):
            return None
        low, high = 0, 1
        while self._bytes(high) <= limit_bytes:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._bytes(middle) <= limit_bytes else (low, middle)
        return low or None

    def _bytes(self, length: int) -> Fraction:
        return self.quadratic * length**2 + self.linear * length + self.constant


def bytes_polynomial(bytes_by_length: Mapping[int, int]) -> BytesPolynomial | None:
    """The polynomial through the first, middle and last length; None below three lengths."""
    lengths = sorted(bytes_by_length)
    if len(lengths) < 3:
        return None
    chosen = [lengths[0], lengths[len(lengths) // 2], lengths[-1]]
    (x0, y0), (x1, y1), (x2, y2) = ((Fraction(n), Fraction(bytes_by_length[n])) for n in chosen)
    rise01, rise12 = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    quadratic = (rise12 - rise01) / (x2 - x0)
    linear = rise01 - quadratic * (x0 + x1)
    constant = y0 - linear * x0 - quadratic * x0**2
    others = [n for n in lengths if n not in chosen]
    residuals = [bytes_by_length[n] - (quadratic * n**2 + linear * n + constant) for n in others]
    worst = max(residuals, key=abs, default=Fraction(0))
    return BytesPolynomial(quadratic, linear, constant, worst, len(others))
