"""Cells that differ in the number of their key heads alone, and the bytes that these cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bench.claims._storage import constants
from bench.metrics import Row
from bench.plots import LADDER, Reading, grouped

IN_PLACE = ("naive", "online_softmax", "sdpa_flash")
"""Read shared heads where they lie."""
_SAME = (*(name for name in LADDER if name != "num_heads_kv"), "seqlen_q", "seqlen_k", "implementation")


@dataclass(frozen=True)
class Sharing:
    """One implementation with several numbers of key heads."""

    rows: tuple[Row, ...]
    """By descending number of key heads; the first shares nothing."""

    @property
    def implementation(self) -> str:
        """Whose rows they are."""
        return str(self.rows[0]["implementation"])

    @property
    def counts(self) -> list[int]:
        """Key heads, descending."""
        return [int(row["num_heads_kv"]) for row in self.rows]

    @property
    def keys(self) -> tuple[str, ...]:
        """Of the cells."""
        return tuple(str(row["cell_key"]) for row in self.rows)

    @property
    def pairs(self) -> int:
        """Visible pairs over all query heads; the same for every row."""
        return int(self.rows[0]["attended_pairs"])

    @cached_property
    def kv_bytes(self) -> dict[int, int]:
        """Bytes of k and v by key heads."""
        return {
            int(row["num_heads_kv"]): int(
                row["batch_size"] * row["num_heads_kv"] * row["seqlen_k"] * (row["head_dim"] + row["head_dim_v"])
            )
            * int(row["element_bytes"])
            for row in self.rows
        }

    @cached_property
    def peak_bytes(self) -> dict[int, int]:
        """What the call holds beyond its inputs, by key heads."""
        return {int(row["num_heads_kv"]): int(row["peak_bytes"]) for row in self.rows}

    @property
    def rise_bytes(self) -> dict[int, int]:
        """Peak beyond that of the row that shares nothing."""
        return {count: peak - self.peak_bytes[self.counts[0]] for count, peak in self.peak_bytes.items()}

    def constants(self, several_machines: bool) -> str:
        """What does not differ."""
        row = self.rows[0]
        length = f"T={row['length']:,}" if row["shape"] == "square" else f"{row['shape']}, Tk={row['length']:,}"
        return f"{constants(row, several_machines)}, {length}"


def sharings(reading: Reading) -> list[Sharing]:
    """Groups with a row that shares nothing and one that does, all with a peak."""
    measured = [row for row in reading.rows if row["peak_bytes"] is not None]
    found = []
    for group in grouped(measured, *_SAME).values():
        rows = {int(row["num_heads_kv"]): row for row in group}
        if len(rows) > 1 and group[0]["num_heads_q"] in rows:
            found.append(Sharing(tuple(rows[count] for count in sorted(rows, reverse=True))))
    return found
