"""A finding, and the words and rows that several kinds of findings share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.metrics import Row
from bench.plots import LADDER, Reading, grouped

Tone = Literal["good", "bad", "plain"]

FAMILY = tuple(name for name in LADDER if name not in ("mask", "head_dim", "head_dim_v"))
"""Columns that are constant in the family of problems that the findings speak of."""

PLACES = {
    "mask": "mask {}",
    "width": "head_dim {}",
    "dtype": "{}",
    "direction": "{}",
    "batch_size": "B={}",
    "num_heads_q": "H={}",
    "num_heads_kv": "H_kv={}",
    "distribution": "{} inputs",
    "scale": "scale {}",
    "machine": "on {}",
}
"""How a place names the columns that vary."""


@dataclass(frozen=True)
class Finding:
    """One sentence, and whether it is good news."""

    text: str
    tone: Tone = "plain"


def main_family(reading: Reading) -> list[Row]:
    """The rows of the family of problems with the most timed cells; empty if nothing was timed."""
    families = grouped([row for row in reading.rows if row["sound"]], *FAMILY).values()
    return max(families, key=len, default=[])


def counted(rows: Sequence[Row]) -> str:
    """``naive (3), flex (1)``: implementations with their number of rows."""
    counts = Counter(row["implementation"] for row in rows)
    return ", ".join(f"{name} ({count})" for name, count in counts.most_common())


def cells_are(rows: Sequence[Row]) -> str:
    """The noun and verb that fit the number of rows."""
    return "cell is" if len(rows) == 1 else "cells are"


def length_of(row: Row) -> str:
    """``T=1024``, or both lengths where they differ."""
    return f"T={row['length']}" if row["shape"] == "square" else f"Tq={row['seqlen_q']}, Tk={row['seqlen_k']}"


def place(row: Row, rows: Iterable[Row]) -> str:
    """Which problem: its length, and whatever else is not the same in all ``rows``."""
    rows = list(rows)
    varying = [text.format(row[name]) for name, text in PLACES.items() if any(row[name] != one[name] for one in rows)]
    return ", ".join([length_of(row), *varying])
