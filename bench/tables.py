"""Data on stdout: one frame in the format that was asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    import pandas as pd

Format = Literal["table", "json", "jsonl", "csv", "markdown", "github"]

SHORT_COLUMNS = ("problem", "implementation", "status", "latency_ms", "peak_bytes", "out_max_abs", "reason")
"""Columns of the formats that people read; the others hold all columns."""


def write_rows(rows: Sequence[dict[str, Any]], style: Format, stream: TextIO) -> None:
    """Write flat rows, all with the same keys, to ``stream``.

    ``json`` is one array, ``jsonl`` one object per line, ``csv`` has a header, ``markdown`` and ``github`` a pipe table
    (``github`` adds an ``::error`` line for each row whose status is a failure), ``table`` is for terminals.
    """
    columns = list(rows[0]) if rows else []
    if style == "json":
        json.dump(list(rows), stream, indent=1, ensure_ascii=False, allow_nan=False)
        stream.write("\n")
    elif style == "jsonl":
        stream.writelines(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    elif style == "csv":
        import csv

        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    elif style == "table":
        _rich_table(rows, columns, stream)
    else:
        _pipe_table(rows, columns, stream, annotate=style == "github")


def frame_rows(frame: pd.DataFrame, style: Format) -> list[dict[str, Any]]:
    """Rows of a results frame for :func:`write_rows`: missing values are None; people get the columns that matter."""
    chosen = frame[list(SHORT_COLUMNS)] if style in ("table", "markdown", "github") else frame
    plain = chosen.astype(object)  # pandas' own JSON would round floats to 15 decimals
    rows: list[dict[str, Any]] = plain.where(plain.notna(), None).to_dict(orient="records")
    return rows


def _rich_table(rows: Sequence[dict[str, Any]], columns: Sequence[str], stream: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        numeric = any(isinstance(row[column], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_text(row[column])) for column in columns))  # Text: names are data, not markup
    console = Console(file=stream, width=None if stream.isatty() else 200)
    console.print(table)


def _pipe_table(rows: Sequence[dict[str, Any]], columns: Sequence[str], stream: TextIO, *, annotate: bool) -> None:
    stream.write(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    for row in rows:
        cells = (_text(row[column]).replace("|", "\\|").replace("\n", " ") for column in columns)
        stream.write(f"| {' | '.join(cells)} |\n")
    for row in rows if annotate else ():
        if row.get("status") in ("incorrect", "crashed", "error", "timeout", "out_of_memory"):
            text = f"{row.get('implementation')} {row.get('problem')}: {row.get('status')}: {row.get('reason')}"
            stream.write(f"::error::{text.replace('%', '%25').replace(chr(10), '%0A')}\n")


def _text(value: Any) -> str:
    """A missing value is a dash, a float has four significant digits."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
