"""What a check says of one number of one subject, and in which words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from bench.metrics import Metric
from bench.policy import Severity
from bench.units import significant
from bench.verdicts import Comparison

Name = Literal[
    "SAME",
    "UNCHANGED",
    "TOLERATED",
    "WAIVED",
    "IMPROVED",
    "REGRESSED",
    "UNCLEAR",
    "NOT CONFIRMED",
    "CHANGED",
    "NEW",
    "MISSING",
    "NEW METRIC",
    "NULL BEFORE",
    "NULL NOW",
    "NOT A NUMBER",
    "ROSE FROM ZERO",
    "FELL TO ZERO",
    "NO CONTROL",
    "TOO FEW PROCESSES",
    "NOT COMPARABLE",
    "IDLE OVERRIDE",
]

SEVERITIES: dict[str, Severity | None] = {
    "SAME": None,
    "UNCHANGED": None,
    "TOLERATED": None,
    "WAIVED": "note",
    "IMPROVED": "note",
    "NEW": "note",
    "NEW METRIC": "note",
    "UNCLEAR": "doubt",
    "NOT CONFIRMED": "doubt",
    "MISSING": "doubt",
    "NO CONTROL": "doubt",
    "TOO FEW PROCESSES": "doubt",
    "NOT COMPARABLE": "doubt",
    "IDLE OVERRIDE": "doubt",
    "CHANGED": "fail",
    "REGRESSED": "fail",
    "NULL BEFORE": "fail",
    "NULL NOW": "fail",
    "NOT A NUMBER": "fail",
    "ROSE FROM ZERO": "fail",
    "FELL TO ZERO": "fail",
}
"""How grave each is, unless the policy says otherwise; None: all is well."""
NOT_COMPARED = (
    *("NEW", "MISSING", "NEW METRIC", "NO CONTROL", "TOO FEW PROCESSES", "NOT COMPARABLE", "IDLE OVERRIDE"),
    "WAIVED",  # whatever it says: a check of which all is waived must not pass for one that compared something
)
"""Outcomes that compare nothing."""
GRAVITY: tuple[Severity | None, ...] = ("fail", "doubt", "note", None)
"""The gravest first."""


@dataclass(frozen=True)
class Outcome:
    """One comparison."""

    subject: str
    """Key of the subject, or how many of them."""
    metric: str
    """Name of a metric, ``time``, ``status``, ``ran``; empty where the whole subject is new or missing."""
    name: Name
    text: str
    """In words."""
    severity: Severity | None = None
    """None: all is well."""
    before: float | str | None = None
    after: float | str | None = None
    change_percent: float | None = None
    """Relative change; of a time that of the ratio to its control."""
    lo_percent: float | None = None
    hi_percent: float | None = None
    noise_percent: float | None = None
    """What processes of the same code differ by (of a time alone; exact numbers have no noise)."""
    significance: float | None = None
    """Size of the change over what is tolerated; above 1 it matters."""
    p_value: float | None = None
    """Of a time: rank-sum test, adjusted after Holm for all cells of the check."""
    count: int = 1
    """Numbers that it stands for."""


def outcome(subject: str, metric: str, name: Name, text: str, **more: Any) -> Outcome:
    """An outcome with the severity that its name has."""
    return Outcome(subject, metric, name, text, **({"severity": SEVERITIES[name]} | more))


def order(outcome: Outcome) -> tuple[int, float, str, str]:
    """Sorting key: the gravest first, then the most significant."""
    return GRAVITY.index(outcome.severity), -(outcome.significance or 0.0), outcome.subject, outcome.metric


def time_text(found: Comparison) -> str:
    """``slower by 12 % (9 to 15)``, ``faster by 8 % (5 to 11)``, ``unclear: 2 % slower (1 faster to 5 slower)``."""
    change, lo, hi = (100 * (value - 1) for value in (found.ratio, found.lo, found.hi))
    slower = change >= 0
    low, high = (lo, hi) if slower else (-hi, -lo)
    size = _percent(abs(change))
    word, other = ("slower", "faster") if slower else ("faster", "slower")
    interval = f"({_percent(low)} to {_percent(high)})"
    if low < 0 < high:
        interval = f"({_percent(-low)} {other} to {_percent(high)} {word})"
    if found.verdict in ("REGRESSED", "IMPROVED"):
        return f"{word} by {size} % {interval}"
    return f"{found.verdict.lower()}: {size} % {word} {interval}"


def number_text(metric: Metric, before: float, after: float) -> str:
    """``1 B more: 4,194,305 B, was 4,194,304 B``, ``1.30 times: 3.9e-07, was 3e-07``."""
    unit = f" {metric.unit}" if metric.unit else ""
    now_and_then = f"{_number(after)}{unit}, was {_number(before)}{unit}"
    if isinstance(before, int) and isinstance(after, int):
        change = after - before
        share = f" ({_percent(abs(100 * change / before))} %)" if before and abs(change) >= abs(before) / 1000 else ""
        return f"{_number(abs(change))}{unit} {'more' if change > 0 else 'less'}{share}: {now_and_then}"
    return f"{significant(after / before)} times: {now_and_then}" if before else now_and_then


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _percent(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}".replace("-0.0", "0.0")
