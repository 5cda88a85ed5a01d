"""What the cell holds at its peak, against its law, in score matrices, and how that grows."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from bench.explanation._cell import Cell, Refusal, Sentence, Support, length_text
from bench.memory_law import NAIVE, NAIVE_LAW, bytes_polynomial, naive_law_bytes
from bench.problem import Problem
from bench.record import Memory, Record
from bench.units import format_bytes, significant

TOPIC = "memory"


def memory(cell: Cell) -> Iterator[Sentence | Refusal]:
    """Peak, law and growth."""
    found = _memory(cell.record)
    if found is None:
        reason = "the cell was not measured" if cell.record.measurement is None else "no exact method on this device"
        yield Refusal(TOPIC, f"its peak is not known: {reason} (measurement.memory is null)")
        return
    yield _peak(cell.record.problem, found)
    yield from _law(cell, found)
    yield from _square(cell, found)


def _peak(problem: Problem, found: Memory) -> Sentence:
    """Whether all scores could be there at once is told by the workspace."""
    matrix = problem.all_pairs * problem.element_bytes
    share = found.workspace_bytes / matrix
    at_once = ", so it never holds all scores" if share < 1 and problem.direction == "fwd" else ""
    return Sentence(
        TOPIC,
        f"Its peak is {format_bytes(found.peak_bytes)}, {format_bytes(found.workspace_bytes)} of it workspace: "
        f"{significant(share)} score matrices of {format_bytes(matrix)}{at_once}.",
        (
            Support("record", "measurement.memory.peak_bytes", found.peak_bytes),
            Support("record", "measurement.memory.workspace_bytes", found.workspace_bytes),
            Support("record", "problem.all_pairs * element_bytes", matrix),
        ),
    )


def _law(cell: Cell, found: Memory) -> Iterator[Sentence | Refusal]:
    theory = cell.name == NAIVE and cell.record.problem.direction == "fwd"
    law = naive_law_bytes(cell.record.problem) if theory else found.predicted_peak_bytes
    if law is None:
        yield Refusal(TOPIC, f"{cell.name} states no law of its memory (memory.predicted_peak_bytes is null)")
        return
    words = f"the law of the theory, {NAIVE_LAW}" if theory else "its own law"
    apart = found.peak_bytes - law
    said = "equals" if not apart else f"is {format_bytes(abs(apart))} {'above' if apart > 0 else 'below'}"
    yield Sentence(
        TOPIC,
        f"The peak {said} {words}{' to the byte' if not apart else f' of {format_bytes(law)}'}.",
        (
            Support("record", "measurement.memory.peak_bytes", found.peak_bytes),
            Support("law" if theory else "record", NAIVE_LAW if theory else "memory.predicted_peak_bytes", law),
        ),
    )


def _square(cell: Cell, found: Memory) -> Iterator[Sentence | Refusal]:
    """Whether the peak grows with the square of the length; only where a polynomial passes through it to the byte."""
    problem = cell.record.problem
    if problem.seqlen_q != problem.seqlen_k:
        return
    peaks = {problem.seqlen_q: found.peak_bytes}
    peaks |= {other.problem.seqlen_q: m.peak_bytes for other in cell.lengths if (m := _memory(other)) is not None}
    law = bytes_polynomial(peaks)
    if law is None or not law.exact:
        why = "it does not lie on one polynomial" if len(peaks) > 3 else "it was measured at fewer than four lengths"
        yield Refusal(TOPIC, f"how its peak grows is not known: {why}")
        return
    matrices = law.quadratic / (problem.batch_size * problem.num_heads_q * problem.element_bytes)
    support = tuple(
        Support(f"record at {length_text(one)}", "measurement.memory.peak_bytes", m.peak_bytes)
        for one in sorted((*cell.lengths, cell.record), key=lambda record: record.flop)
        if (m := _memory(one)) is not None
    )
    said = f"with T²: {_number(matrices)} score matrices" if law.quadratic else "linearly: no score matrix in it"
    yield Sentence(TOPIC, f"Over {len(peaks)} lengths the peak grows {said}, to the byte.", support)


def _memory(record: Record) -> Memory | None:
    return None if record.measurement is None else record.measurement.memory


def _number(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else significant(float(value))
