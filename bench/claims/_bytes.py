"""Ladders of exact bytes, and the polynomial in T that each quantity of memory must be."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from bench.claims._storage import STORES_NO_SCORES, WHOLE_BLOCKS, by_length, deciding, whole_blocks
from bench.memory_law import NAIVE, BytesPolynomial, bytes_polynomial, naive_law_bytes
from bench.metrics import Row
from bench.plots import Reading
from bench.units import format_bytes

STORES_SCORES = ("sdpa_math",)
"""Beside naive: one matrix of scores at least."""
COPY_THE_MASK = ("sdpa_flash", "sdpa_efficient", "sdpa_cudnn")
"""Turn a boolean mask tensor into the dtype of q at each call, and keep it for the gradients."""
QUANTITIES = {"peak_bytes": "peak", "saved_bytes": "saved for backward", "backward_peak_bytes": "backward peak"}
"""Columns of bytes and what they are called; the last two exist where there are gradients."""
NAIVE_MATRICES = {
    "peak_bytes": {"fwd": 2, "bwd": 2, "fwd_bwd": 3},  # scores and weights; two gradients of them beside the weights
    "saved_bytes": {"bwd": 1, "fwd_bwd": 1},  # the weights
    "backward_peak_bytes": {"bwd": 3, "fwd_bwd": 3},
}
"""Score-sized tensors that naive holds, by column and direction."""
LEAST_LENGTHS = 4
"""Three solve a polynomial of second degree; one more tests it."""


@dataclass(frozen=True)
class Law:
    """One quantity of memory along a ladder, and what the theory expects of it."""

    quantity: str
    """Name of the column."""
    found: BytesPolynomial
    """Through three of the lengths, tested at the others."""
    expected: float
    """Coefficient of T² in bytes."""
    matrices: int
    """Score matrices among it: of naive, or one for what is known to store scores."""
    at_least: bool
    """Whether more than ``expected`` is right as well."""

    @property
    def text(self) -> str:
        """``peak 8·T² + 256·T bytes, residual 0``."""
        return f"{QUANTITIES[self.quantity]} {formula(self.found)} bytes, residual {_number(self.found.residual_bytes)}"

    @property
    def objection(self) -> str:
        """What contradicts the theory; empty if nothing does."""
        name, square = QUANTITIES[self.quantity], float(self.found.quadratic)
        if not self.found.exact:
            return f"{name} is no polynomial of T: {_number(self.found.residual_bytes)} bytes beside it"
        if square < self.expected or (square > self.expected and not self.at_least):
            return f"{name} has {square:,.6g} bytes per pair, expected {self.expected:,.6g}"
        return ""


@dataclass(frozen=True)
class Ladder:
    """One implementation at several lengths, of which nothing else differs."""

    rows: tuple[Row, ...]
    """By ascending length, all with a peak."""
    law_residual_bytes: int = 0
    """Of naive's forward pass: measured minus law where the difference is largest."""

    @property
    def implementation(self) -> str:
        """Whose rows they are."""
        return str(self.rows[0]["implementation"])

    @cached_property
    def judged(self) -> tuple[Row, ...]:
        """Rows that have to lie on the polynomial: all of naive, else those where blocks have their full size."""
        return self.rows if self.implementation == NAIVE else tuple(whole_blocks(self.rows))

    @cached_property
    def laws(self) -> tuple[Law, ...]:
        """One for each quantity that was measured; none below four lengths."""
        if len({row["length"] for row in self.judged}) < LEAST_LENGTHS:
            return ()
        found = []
        for quantity in QUANTITIES:
            polynomial = self._polynomial(quantity)
            if polynomial is not None:
                found.append(Law(quantity, polynomial, *self._expected(quantity)))
        return tuple(found)

    @property
    def gaps(self) -> str:
        """Quantities that were measured at some of the lengths alone, so that a law would pass over the others."""
        counts = {what: sum(row[name] is not None for row in self.judged) for name, what in QUANTITIES.items()}
        partly = [f"{what} at {count}" for what, count in counts.items() if 0 < count < len(self.judged)]
        return f"{' and '.join(partly)} of {len(self.judged)} lengths alone" if partly else ""

    @property
    def shortage(self) -> str:
        """What is missing for a law."""
        whole = "" if self.implementation == NAIVE else f" of {WHOLE_BLOCKS:,} positions or more"
        return f"needs at least {LEAST_LENGTHS} lengths{whole}, got {len(self.judged)}"

    @property
    def shorter_text(self) -> str:
        """By how much shorter lengths lie off the line; empty where there are none."""
        off = sorted((count for row, count in self.residuals("peak_bytes") if row not in self.judged), key=abs)
        if not any(off):
            return ""
        side = "less" if max(off) <= 0 else "beside it"
        said = f"{format_bytes(abs(off[0]))} to {format_bytes(abs(off[-1]))} {side}"
        return f"; shorter ones, whose blocks are cut to the length, {said}"

    def residuals(self, quantity: str) -> list[tuple[Row, float]]:
        """Measured minus law, in bytes, at every length; empty without a law of that quantity."""
        law = next((law for law in self.laws if law.quantity == quantity), None)
        return [] if law is None else [(row, row[quantity] - evaluated(law.found, row["length"])) for row in self.rows]

    def _polynomial(self, quantity: str) -> BytesPolynomial | None:
        counts = {int(row["length"]): row[quantity] for row in self.judged}
        return None if None in counts.values() else bytes_polynomial(counts)

    def _expected(self, quantity: str) -> tuple[float, int, bool]:
        """Coefficient of T², score matrices, and whether more is right as well."""
        row = self.rows[-1]
        matrix = row["batch_size"] * row["num_heads_q"] * row["element_bytes"]
        if self.implementation == NAIVE:
            count = NAIVE_MATRICES[quantity][row["direction"]]
            return count * matrix, count, False
        if self.implementation in STORES_SCORES:
            return matrix, 1, True
        copied = row["element_bytes"] * row["mask_bytes"] if self.implementation in COPY_THE_MASK else 0
        return copied / row["length"] ** 2, 0, False


def byte_ladders(reading: Reading) -> list[Ladder]:
    """Ladders with lengths enough, and where an implementation of the theory has none, its longest one."""
    named = (NAIVE, *STORES_SCORES, *STORES_NO_SCORES)
    rows = [row for row in reading.rows if row["implementation"] in named and row["peak_bytes"] is not None]
    found = [Ladder(tuple(group), _law_residual(reading, group)) for group in by_length(rows)]
    return deciding(found, lambda one: bool(one.laws))


def formula(polynomial: BytesPolynomial) -> str:
    """``8·T² + 256·T + 4``."""
    terms = [(polynomial.quadratic, "·T²"), (polynomial.linear, "·T"), (polynomial.constant, "")]
    said = " + ".join(f"{_number(value)}{power}" for value, power in terms if value)
    return said.replace("+ -", "- ") or "0"


def evaluated(polynomial: BytesPolynomial, length: float) -> float:
    """Bytes at a length."""
    return float(polynomial.quadratic) * length**2 + float(polynomial.linear) * length + float(polynomial.constant)


def _law_residual(reading: Reading, rows: list[Row]) -> int:
    if rows[0]["implementation"] != NAIVE or rows[0]["direction"] != "fwd":
        return 0
    return max((int(row["peak_bytes"]) - naive_law_bytes(reading.record(row).problem) for row in rows), key=abs)


def _number(value: Fraction) -> str:
    number = float(value)
    return f"{number:,.0f}" if number.is_integer() else f"{number:,.6g}"
