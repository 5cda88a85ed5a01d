"""One field of a table of the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """One field of the table: what is shown, what it sorts by, and for a dash the reason."""

    text: str
    sort: float | str = ""
    reason: str = ""
    number: bool = True


def words(text: str, reason: str) -> Field:
    """A text, or a dash with the reason."""
    return Field(text, text, number=False) if text else Field("-", "", reason, number=False)


def number(value: float | None, show: Callable[[float], str], reason: str) -> Field:
    """A number with its text, or a dash with the reason; a missing number is never 0."""
    return Field("-", "", reason) if value is None else Field(show(value), float(value))
