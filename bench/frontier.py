"""The longest sequence that fits into a given memory, predicted from a law of bytes.

The law is that of stored peaks where they lie on a polynomial of the length, else the implementation's own. Whether a
call of that length fits indeed is tried by :mod:`bench.fitting_limit`, in processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.errors import MaskError
from bench.implementation import implementations
from bench.memory_law import bytes_polynomial
from bench.problem import LARGEST_SIZE, Problem
from bench.record import Record

SETTLED = 4
"""A law is fitted to lengths from a fourth of the longest on: below, block sizes still follow the length."""
LAW_TOLERANCE = 0.001
"""Share of the largest figure by which a stored peak may miss the polynomial."""


@dataclass(frozen=True)
class Prediction:
    """How long a sequence is expected to fit."""

    implementation: str
    """Name."""
    seqlen: int | None
    """Longest length that fits; None where no law is known, or nothing fits."""
    source: str
    """Which law said so, or why none did."""


def predict(
    implementation: str, problem: Problem, limit_bytes: int, records: Iterable[Record] = (), device: str = "cpu"
) -> Prediction:
    """The longest length of ``problem`` whose inputs, mask tensors and peak fit into ``limit_bytes``.

    An implementation's own law knows no mask tensors; a law fitted to stored peaks does.

    Args:
        implementation: name.
        problem: gives everything but the length.
        limit_bytes: memory for all of it.
        records: stored cells, from which a law may be fitted; other problems, implementations and devices are passed
            over.
        device: device type.
    """
    there = [record for record in records if (record.device == "cpu") == (device == "cpu")]
    stored = _stored_bytes(implementation, problem, there)
    law = bytes_polynomial(stored)
    if law is not None and law.tested and abs(law.residual_bytes) <= LAW_TOLERANCE * max(stored.values()):

        def fitted(length: int) -> float:
            return float(law.quadratic * length**2 + law.linear * length + law.constant)

        source = f"fitted to {len(stored)} stored lengths, {min(stored)} to {max(stored)}"
        return _prediction(implementation, fitted, limit_bytes, source)
    member = implementations.get(implementation)

    def own(length: int) -> float | None:
        try:
            longer = at_length(problem, length)
        except MaskError:  # the mask's own parameters need a longer sequence
            return 0.0
        peak = member.predicted_peak_bytes(longer, device)
        return None if peak is None else peak + longer.input_bytes

    return _prediction(implementation, own, limit_bytes, "its own law")


def at_length(problem: Problem, length: int) -> Problem:
    """The same problem at another length; a fixed number of queries stays."""
    fields = problem.model_dump() | {"seqlen_k": length}
    if problem.seqlen_q == problem.seqlen_k:
        fields["seqlen_q"] = length
    return Problem(**fields)


def _stored_bytes(implementation: str, problem: Problem, records: Iterable[Record]) -> dict[int, int]:
    """Inputs, mask tensors and measured peak by length, of the longer cells that differ from ``problem`` in length."""
    found: dict[int, int] = {}
    for record in records:
        memory = record.measurement.memory if record.measurement else None
        length = record.problem.seqlen_k
        if memory is None or record.implementation != implementation:
            continue
        try:
            if at_length(problem, length) != record.problem:
                continue
        except MaskError:
            continue
        found[length] = record.problem.input_bytes + memory.mask_bytes + memory.peak_bytes
    return {length: count for length, count in found.items() if length * SETTLED >= max(found)}


def _prediction(implementation: str, need: Callable[[int], float | None], limit_bytes: int, source: str) -> Prediction:
    """The longest length whose ``need`` is within the limit; needs grow with the length."""

    def fits(length: int) -> bool:
        count = need(length)
        return count is not None and count <= limit_bytes

    if need(1) is None:
        return Prediction(implementation, None, "no law of its memory is known")
    if not fits(1):
        return Prediction(implementation, None, f"{source}: not even one position fits")
    low, high = 1, 2
    while high <= LARGEST_SIZE and fits(high):  # upwards: a law may look at its mask, which takes time at great lengths
        low, high = high, min(2 * high, LARGEST_SIZE + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return Prediction(implementation, low, source)
