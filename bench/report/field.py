"""One field of a table of the page, and how each kind of number is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from bench.units import format_bytes, format_ms, significant

Kind = Literal["text", "ms", "bytes", "count", "number", "error", "percent", "joule"]
"""What a column holds. The page's script writes numbers of a kind exactly as :data:`SHOW` does."""

SHOW: Mapping[Kind, Callable[[float], str]] = {
    "ms": format_ms,
    "bytes": format_bytes,
    "count": str,
    "number": significant,
    "error": "{:.2g}".format,
    "percent": "{:.0%}".format,
    "joule": lambda value: f"{significant(value)} J",
}
"""How a number of each kind is written."""


@dataclass(frozen=True, slots=True)  # a large page has a million of them
class Field:
    """One field of the table: what is shown, what it sorts by, and for a dash the reason."""

    text: str
    sort: float | str = ""
    reason: str = ""
    number: bool = True


def words(text: str, reason: str) -> Field:
    """A text, or a dash with the reason."""
    return Field(text, text, number=False) if text else Field("-", "", reason, number=False)


def number(value: float | None, kind: Kind, reason: str) -> Field:
    """A number with its text, or a dash with the reason; a missing number is never 0."""
    return Field("-", "", reason) if value is None else Field(SHOW[kind](value), value)
