"""The table of all cells as CSV: every status with its reason.

To read it back with the types that were written, exactly::

    pandas.read_csv(path, dtype=bench.analysis.COLUMNS, keep_default_na=False, na_values=[""])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.analysis import COLUMNS, frame
from bench.errors import NothingSelectedError
from bench.exports import Files, register_export
from bench.results import Run

if TYPE_CHECKING:
    import pandas as pd

_NAMES = list(COLUMNS)
MEASURED = _NAMES[_NAMES.index("latency_ms") : _NAMES.index("memory_method") + 1]
"""Columns that come from a cell's measurement."""


@register_export(
    "csv", summary="All cells of all runs as one CSV table, with status and reason; a missing number is empty."
)
def csv_table(runs: Sequence[Run]) -> Files:
    """One file for all runs."""
    return {"cells.csv": sound_frame(runs).to_csv(index=False, lineterminator="\n").encode()}


def sound_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per cell, as :func:`bench.analysis.frame`; what was measured of an ``impossible`` cell is missing.

    Raises:
        NothingSelectedError: if there is no cell.
    """
    table = frame(runs)
    if table.empty:
        raise NothingSelectedError("export must have at least one cell, got none. Select others with -i or -p.")
    doubted = [any(flag.name == "impossible" for flag in record.flags) for run in runs for record in run.records]
    table.loc[doubted, MEASURED] = None
    return table
