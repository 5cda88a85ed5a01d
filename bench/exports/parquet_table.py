"""The table of all cells as Parquet, with the types of ``bench.analysis.COLUMNS``; needs pyarrow."""

from __future__ import annotations

import io
from collections.abc import Sequence

from bench.errors import UsageError
from bench.exports import Files, register_export
from bench.exports.csv_table import sound_frame
from bench.results import Run


@register_export("parquet", summary="The same table as Parquet; needs pyarrow, which the extra `parquet` installs.")
def parquet_table(runs: Sequence[Run]) -> Files:
    """One file for all runs.

    Raises:
        UsageError: if pyarrow is not there.
    """
    table, buffer = sound_frame(runs), io.BytesIO()
    try:
        table.to_parquet(buffer, engine="pyarrow", index=False)
    except ImportError as error:
        raise UsageError(
            f"Parquet must be written by pyarrow, got {type(error).__name__}: {str(error).splitlines()[0]} "
            "Install it with `pip install 'attention-bench[parquet]'`, or export csv."
        ) from error
    return {"cells.parquet": buffer.getvalue()}
