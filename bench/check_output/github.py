"""Annotations of GitHub Actions: workflow commands, one a line.

Message and properties are escaped as the runner's toolkit does it: ``%``, carriage return and line feed everywhere,
``:`` and ``,`` in properties. A step shows ten annotations of a kind; the last of ours counts what did not fit.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.outcome import Outcome
from bench.policy import Severity
from bench.regression import Check

MOST = 10
"""Annotations of one kind that a step shows."""
LEVELS: dict[Severity, str] = {"fail": "error", "doubt": "warning", "note": "notice"}


def workflow_commands(check: Check) -> Iterator[str]:
    """Lines for standard output, the gravest first."""
    for severity, level in LEVELS.items():
        found = check.severe(severity)
        shown = found if len(found) <= MOST else found[: MOST - 1]
        for one in shown:
            yield command(level, _title(one), f"{one.subject}: {one.text}")
        if len(found) > len(shown):
            yield command(level, "attention-bench", f"and {len(found) - len(shown)} more; see the summary of this job")


def command(level: str, title: str, message: str) -> str:
    """One workflow command."""
    return f"::{level} title={_escape(title).replace(':', '%3A').replace(',', '%2C')}::{_escape(message)}"


def _title(one: Outcome) -> str:
    return f"{one.metric} {one.name}".strip()


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
