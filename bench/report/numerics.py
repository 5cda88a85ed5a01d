"""How wrong the results are, worst first, and how well the gate that judged them finds broken attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.metrics import Row
from bench.notebook import GATE, Note
from bench.plots import Reading, grouped
from bench.record import Agreement
from bench.report.theory import largest_share
from bench.units import significant

if TYPE_CHECKING:
    from bench.report.material import Material

COMMAND = "attention-bench verify --mutants"
"""Scores the gate."""


@dataclass(frozen=True)
class Worst:
    """The worst that was seen of one implementation in one dtype and direction."""

    implementation: str
    dtype: str
    direction: str
    judged: int
    """Cells that were verified."""
    incorrect: int
    nonfinite: int
    """Cells with values that are not finite where they should be."""
    share: float | None
    """Largest error over its limit, of any tensor; None if nothing was judged by a limit."""
    broken: bool
    """Whether the cell below has values that are not finite."""
    tensor: str
    """Which tensor that was."""
    error: float | None
    limit: float | None
    over_naive: float | None
    """Largest root mean square error of out over that of naive arithmetic."""
    row: Row
    """The cell of the largest share; one with values that are not finite goes before all others."""


def worst_errors(reading: Reading) -> list[Worst]:
    """One line for each implementation, dtype and direction: what is wrong first, then the nearest to its limit."""
    judged = [row for row in reading.rows if reading.record(row).agreement is not None]
    found = [_worst(reading, rows) for rows in grouped(judged, "implementation", "dtype", "direction").values()]
    return sorted(found, key=lambda one: (-one.incorrect, -one.nonfinite, -(one.share or 0.0), one.implementation))


def _worst(reading: Reading, rows: Sequence[Row]) -> Worst:
    shares = [
        (_broken(agreement), *largest_share(agreement), row)
        for row in rows
        if (agreement := reading.record(row).agreement) is not None
    ]
    broken, share, tensor, row = max(shares, key=lambda one: (one[0], -1.0 if one[1] is None else one[1]))
    agreement = reading.record(row).agreement
    error = agreement.tensors.get(tensor) if agreement is not None else None
    naive = [one["out_rmse_over_naive"] for one in rows if one["out_rmse_over_naive"] is not None]
    return Worst(
        implementation=row["implementation"],
        dtype=row["dtype"],
        direction=row["direction"],
        judged=len(rows),
        incorrect=sum(one["status"] == "incorrect" for one in rows),
        nonfinite=sum(one[0] for one in shares),
        share=share,
        broken=broken,
        tensor=tensor,
        error=error.max_abs if error else None,
        limit=error.limit if error else None,
        over_naive=max(naive, default=None),
        row=row,
    )


def _broken(agreement: Agreement) -> bool:
    return any(error.nonfinite for error in agreement.tensors.values())


def section(material: Material) -> dict[str, Any] | None:
    """What the template ``numerics.html`` shows; None where nothing was verified and the gate was not scored."""
    errors, gate = worst_errors(material.reading), gate_score(material.notes)
    if not errors and gate is None:
        return None
    return {"errors": [_shown(one) for one in errors], "gate": gate, "command": COMMAND}


def _shown(one: Worst) -> dict[str, Any]:
    share = "not finite" if one.broken else "-"
    if one.share is not None:
        share = f"{one.share:.0%}" if one.share < 10 else f"{significant(one.share)}x"
    return {
        "implementation": one.implementation,
        "dtype": one.dtype,
        "direction": one.direction,
        "judged": one.judged,
        "incorrect": one.incorrect,
        "nonfinite": one.nonfinite,
        "share": share,
        "sort": one.share if one.share is not None else "1e300" if one.broken else "",
        "error": "-" if one.error is None else f"{one.tensor} {one.error:.2g}",
        "error_sort": "" if one.error is None else one.error,
        "limit": "-" if one.limit is None else f"{one.limit:.2g}",
        "over_naive": "-" if one.over_naive is None else significant(one.over_naive),
        "problem": one.row["problem"],
        "run_id": one.row["run_id"],
        "cell_key": one.row["cell_key"],
    }


def gate_score(notes: Sequence[Note]) -> dict[str, Any] | None:
    """The stored score of the gate: found, target, where, and a line per mutant, the narrowest first; None without."""
    note = next((note for note in notes if note.experiment == GATE), None)
    if note is None:
        return None
    rows = sorted(note.content.get("rows", ()), key=_narrowness)
    heads = ["mutant", "what is wrong with it", "caught", "of", "smallest separation", "by (settings)"]
    lines = [
        [
            str(row["mutant"]),
            str(row["summary"]),
            str(row["caught"]),
            str(row["total"]),
            _separation(row),
            str(row["checks"] or "-"),
        ]
        for row in rows
    ]
    machine = f"{note.machine.get('cpu', 'unknown')}, torch {note.machine.get('torch', '?')}, {note.at[:10]}"
    return {
        "found": str(note.content.get("found", "")),
        "target": str(note.content.get("target", "")),
        "met": note.content.get("met"),
        "machine": machine,
        "heads": heads,
        "rows": lines,
    }


def _separation(row: dict[str, Any]) -> str:
    """How far its errors stand above those of correct attention, where they are closest."""
    if row["smallest_separation"] is not None:
        return f"{significant(row['smallest_separation'])}x"
    return "without bound" if row["caught"] else "-"


def _narrowness(row: dict[str, Any]) -> tuple[float, float]:
    """Mutants that were missed somewhere first, then those that were told apart by least."""
    separation = row["smallest_separation"]
    return row["caught"] - row["total"], float("inf") if separation is None else separation
