"""Numbers derived from one measured cell: the contract of the metric family.

A metric is a pure function of one row (see ``bench.analysis.COLUMNS``); it never reads a second row, a file
or a clock. Where a row lacks what the metric needs, the answer is None, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bench.registry import Registry

__all__ = ["Metric", "Row", "metrics", "present", "register_metric"]

Row = Mapping[str, Any]
"""One cell: column name to plain Python value; None where the cell has no such number."""

metrics: Registry[Metric] = Registry("metrics", "metric", "bench.metrics")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One derived number with its unit and the direction in which it is good."""

    name: str
    """Name of the column; it ends in the unit where there is one."""
    title: str
    """What is shown to people, convention included."""
    unit: str
    """Unit of the number; empty for a pure ratio."""
    better: Literal["higher", "lower"]
    """Which direction is better."""
    value: Callable[[Row], float | None]
    """The number for one row, or None."""

    @property
    def summary(self) -> str:
        """One sentence for ``attention-bench list metrics``."""
        return f"{self.title}{f' in {self.unit}' if self.unit else ''}; {self.better} is better."


def register_metric(
    name: str, *, title: str, unit: str, better: Literal["higher", "lower"]
) -> Callable[[Callable[[Row], float | None]], Callable[[Row], float | None]]:
    """Decorator that registers a function from row to number under ``name``."""

    def add(value: Callable[[Row], float | None]) -> Callable[[Row], float | None]:
        metrics.add(name, Metric(name=name, title=title, unit=unit, better=better, value=value))
        return value

    return add


def present(row: Row, *columns: str) -> bool:
    """Whether the row has a number above zero in each of ``columns``."""
    return all(row[column] is not None and row[column] > 0 for column in columns)
