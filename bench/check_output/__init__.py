"""What a check says, in the forms that people and machines read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.outcome import Outcome
from bench.regression import Check

__all__ = ["counts_text", "headline", "rows"]


def headline(check: Check) -> str:
    """The finding in one sentence."""
    worse, doubtful = (sum(one.count for one in check.severe(severity)) for severity in ("fail", "doubt"))
    doubts = f", {doubtful:,} in doubt" if doubtful else ""
    if worse:
        return f"{worse:,} worse, changed or gone; {check.compared:,} numbers were compared{doubts}"
    if not check.compared:
        return f"nothing was compared{doubts}"
    return f"nothing is worse: {check.compared:,} numbers were compared{doubts}"


def counts_text(check: Check) -> str:
    """How often each outcome occurred: ``SAME 812, UNCHANGED 20, REGRESSED 1``."""
    return ", ".join(f"{name} {count:,}" for name, count in check.counts.most_common()) or "no outcome"


def rows(outcomes: Sequence[Outcome], style: str) -> list[dict[str, Any]]:
    """Rows for :func:`bench.tables.write_rows`; people get rounded numbers, programs all that there is."""
    if style in ("json", "jsonl", "csv"):
        return [{name: _plain(value) for name, value in vars(one).items()} for one in outcomes]
    return [
        {
            "severity": one.severity or "fine",
            "subject": one.subject,
            "metric": one.metric or "-",
            "outcome": one.name,
            "found": one.text,
            "noise": noise(one),
            "significance": significance(one),
            "p": None if one.p_value is None else f"{one.p_value:.2g}",
        }
        for one in outcomes
    ]


def noise(one: Outcome) -> str:
    """What processes of the same code differ by."""
    return "exact" if one.noise_percent is None else f"±{one.noise_percent:.1f} %"


def significance(one: Outcome) -> str | None:
    """Size of the change over what is tolerated."""
    if one.significance is None:
        return None
    return "none tolerated" if one.significance == float("inf") else f"{one.significance:.1f}x the margin"


def _plain(value: Any) -> Any:
    """JSON has neither NaN nor infinity."""
    return str(value) if isinstance(value, float) and value - value != 0 else value
