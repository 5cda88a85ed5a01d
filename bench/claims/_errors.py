"""Errors against float64 along ladders of lengths: how they grow, and how they compare with those of naive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log, sqrt
from statistics import fmean, linear_regression, stdev

from bench.claims._regions import Interval, t_quantile
from bench.metrics import Row
from bench.plots import LADDER, Reading, grouped

STORE_SCORES = ("naive", "naive_compiled", "sdpa_math")
"""Are what blockwise kernels are held against, or arithmetic like it."""
ROOT = 0.5
"""Largest exponent of T that independent rounding errors explain."""
FA3_RATIO = 1.9e-4 / 3.2e-4
"""RMS error of FlashAttention over that of standard attention in float16, on inputs with outliers, as published."""
LEVEL = 0.95
"""Coverage of every interval here."""
LEAST_LENGTHS, LEAST_SPAN = 4, 8
"""Fewer lengths, or closer ones, show no growth."""
CONSTANT = tuple(name for name in LADDER if name not in ("mask", "shape"))
"""Columns that are the same along a ladder of square problems without a mask."""


@dataclass(frozen=True)
class ErrorLadder:
    """Cells of one implementation that differ in T (and seed) alone, with errors against float64."""

    rows: Sequence[Row]
    """With ``rms`` and ``largest``: errors of out relative to the RMS of the exact one, both above 0."""

    @property
    def name(self) -> str:
        """Of the implementation."""
        return str(self.rows[0]["implementation"])

    @property
    def enough(self) -> bool:
        """Whether the lengths are many and wide enough apart for an exponent."""
        lengths = {row["length"] for row in self.rows}
        return len(lengths) >= LEAST_LENGTHS and max(lengths) >= LEAST_SPAN * min(lengths)

    def exponent(self, error: str) -> tuple[float, Interval]:
        """Of T in ``rms`` or ``largest``, with its 95 % interval (Student's t); needs three rows."""
        x, y = [log(row["length"]) for row in self.rows], [log(row[error]) for row in self.rows]
        line, degrees = linear_regression(x, y), len(x) - 2
        rest = sum((b - line.intercept - line.slope * a) ** 2 for a, b in zip(x, y, strict=True))
        spread = sum((a - fmean(x)) ** 2 for a in x)
        half = t_quantile(degrees, LEVEL) * sqrt(rest / degrees / spread)
        return line.slope, (line.slope - half, line.slope + half)

    @cached_property
    def ratio(self) -> tuple[float, Interval] | None:
        """RMS error over that of naive: geometric mean over T, and the 95 % interval of a further T; None if too few.

        The interval is that of a single value and not of the mean, so that one bad length is not averaged away.
        """
        known = [row for row in self.rows if row["out_rmse_over_naive"]]
        if not ErrorLadder(known).enough:
            return None
        logs = [log(row["out_rmse_over_naive"]) for row in known]
        half = t_quantile(len(logs) - 1, LEVEL) * stdev(logs) * sqrt(1 + 1 / len(logs))
        return exp(fmean(logs)), (exp(fmean(logs) - half), exp(fmean(logs) + half))


def error_ladders(reading: Reading) -> list[list[ErrorLadder]]:
    """Ladders of the implementations that computed the same problems, as many queries as keys, all pairs visible.

    Those that are long enough; if there are none, those of two lengths at least, on which nothing can be said.
    """
    rows = []
    for row in reading.rows:
        if row["shape"] != "square" or row["mask"] != "full" or row["direction"] != "fwd":
            continue
        agreement = reading.record(row).agreement
        out = None if agreement is None else agreement.tensors.get("out")
        if out is not None and out.max_abs and out.rmse and out.rel_rmse:
            rows.append({**row, "rms": out.rel_rmse, "largest": out.max_abs * out.rel_rmse / out.rmse})
    groups = [
        [ErrorLadder(own) for own in grouped(group, "implementation").values() if len({r["length"] for r in own}) > 1]
        for group in grouped(rows, *CONSTANT).values()
    ]
    enough = [[one for one in group if one.enough] for group in groups]
    return [group for group in enough if group] or [group for group in groups if group]
