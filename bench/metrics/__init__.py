"""Numbers derived from one measured cell: the contract of the metric family.

A metric is a pure function of one row (see ``bench.analysis.COLUMNS``); it never reads a second row, a file
or a clock. Where a row lacks what the metric needs, the answer is None, never 0.

A metric with a :class:`Gate` does not depend on the clock; ``attention-bench check`` holds it against a baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bench.registry import Registry

__all__ = ["Better", "Gate", "Metric", "Needs", "Row", "gated", "metrics", "present", "register_metric"]

Row = Mapping[str, Any]
"""One cell: column name to plain Python value; None where the cell has no such number."""

Better = Literal["higher", "lower", "same"]
"""Direction in which a number is good; ``same``: any change is a change of meaning."""
Needs = Literal["nothing", "triton", "toolchain", "machine"]
"""What two states of the code must have in common for a number to be comparable."""

metrics: Registry[Metric] = Registry("metrics", "metric", "bench.metrics")


@dataclass(frozen=True)
class Gate:
    """How two values of a metric are compared."""

    needs: Needs
    """Whether it depends on triton alone, as compiled kernels do, on all libraries and the threads (``toolchain``), or
    on the processor too (``machine``)."""
    tolerance: float = 0.0
    """Relative change for the worse that is accepted; 0: exact."""
    zero: bool = False
    """Whether 0 is a value like any other. Where it is not, a fall to 0 means that something was not measured."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One derived number with its unit and the direction in which it is good."""

    name: str
    """Name of the column; it ends in the unit where there is one."""
    title: str
    """What is shown to people, convention included."""
    unit: str
    """Unit of the number; empty for a pure ratio."""
    better: Better
    """Which direction is better."""
    value: Callable[[Row], float | None]
    """The number for one row, or None."""
    gate: Gate | None = None
    """How it is gated; None where it depends on the clock, or follows from one that is gated."""

    @property
    def summary(self) -> str:
        """One sentence for ``attention-bench list metrics``."""
        wanted = "any change counts" if self.better == "same" else f"{self.better} is better"
        return f"{self.title}{f' in {self.unit}' if self.unit else ''}; {wanted}."


def register_metric(
    name: str, *, title: str, unit: str, better: Better, gate: Gate | None = None
) -> Callable[[Callable[[Row], float | None]], Callable[[Row], float | None]]:
    """Decorator that registers a function from row to number under ``name``."""

    def add(value: Callable[[Row], float | None]) -> Callable[[Row], float | None]:
        metrics.add(name, Metric(name=name, title=title, unit=unit, better=better, value=value, gate=gate))
        return value

    return add


def gated() -> dict[str, Metric]:
    """The metrics that have a gate, by name."""
    return {name: metric for name, metric in metrics.items() if metric.gate is not None}


def present(row: Row, *columns: str) -> bool:
    """Whether the row has a number above zero in each of ``columns``."""
    return all(row[column] is not None and row[column] > 0 for column in columns)
