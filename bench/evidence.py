"""A line of a results file that is no cell: a paired comparison, or what a demonstration showed."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, FiniteFloat, JsonValue, model_validator

from bench.model import Model


class Evidence(Model):
    """What one inquiry gave."""

    type: Literal["evidence"] = "evidence"
    """Kind of line."""
    kind: Literal["pair", "demonstration"]
    """A pair of arms measured in several processes, or an entry of ``bench.demonstrations``."""
    name: str
    """Name of the pair or of the demonstration."""
    rows: tuple[dict[str, JsonValue], ...] | None
    """What was found: for a pair one row per process with ``log_ratio`` (the natural logarithm of B over A) and
    ``a_ms``; for a demonstration whatever its docstring says. Null if it failed."""
    reason: str | None = None
    """Why there are no rows."""
    quick: bool = False
    """Whether only a part of a demonstration's rows was asked for."""
    seconds: FiniteFloat = Field(ge=0)
    """What it took."""

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        if bool(self.rows) == bool(self.reason):
            raise ValueError(f"rows must be there or a reason, got {self.rows!r} and {self.reason!r}")
        return self
