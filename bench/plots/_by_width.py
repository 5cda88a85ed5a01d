"""What the two figures by head width share: which cells they show, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.metrics import Row
from bench.plots import LADDER, Reading, grouped
from bench.plots._panels import Page, pages

CONSTANT = (
    *(name for name in LADDER if name not in ("head_dim", "head_dim_v", "mask")),
    "seqlen_q",
    "length",
)
"""Columns that are constant on a page."""
NEED = "at least two head widths at one sequence length"


def width_pages(reading: Reading, has_value: Callable[[Row], bool]) -> tuple[list[Page], str]:
    """Pages at the one length of each family that has the most widths, the longest of these."""
    kept: list[Row] = []
    rows = [row for row in reading.rows if has_value(row)]
    family = [name for name in CONSTANT if name not in ("seqlen_q", "length")]
    for group in grouped(rows, *family).values():
        at_length = grouped(group, "seqlen_q", "length").values()
        best = max(at_length, key=lambda cells: (len({row["width"] for row in cells}), cells[0]["length"]))
        lines = grouped(best, "mask", "implementation").values()
        kept += [row for line in lines if len({row["head_dim"] for row in line}) > 1 for row in line]
    return pages(kept, constant=CONSTANT, down=None) if kept else ([], "")


def growth_text(rows: Sequence[Row], column: str) -> str:
    """How much more the largest width costs than the smallest, per implementation, on the first mask of the
    page.
    """
    mask = "full" if any(row["mask"] == "full" for row in rows) else rows[0]["mask"]
    said = []
    for (name,), line in sorted(grouped([row for row in rows if row["mask"] == mask], "implementation").items()):
        line = sorted(line, key=lambda row: row["head_dim"])
        said.append((str(name), f"from {line[0]['width']} to {line[-1]['width']}", line[-1][column] / line[0][column]))
    if len({widths for _, widths, _ in said}) == 1:
        return f"{said[0][1]}, mask {mask}: " + ", ".join(f"{name} ×{ratio:.2f}" for name, _, ratio in said)
    return f"mask {mask}: " + ", ".join(f"{name} ×{ratio:.2f} {widths}" for name, widths, ratio in said)
