"""A summary of the job and a comment for a pull request, in GitHub's Markdown."""

from __future__ import annotations

import html
from collections.abc import Sequence

from bench.check_output import counts_text, headline, noise, significance
from bench.outcome import Outcome
from bench.regression import Check
from bench.state import State

SUMMARY_BYTES = 900_000
"""GitHub refuses a summary above 1 MiB as a whole, and at times shows none just below it."""
COMMENT_ROWS = 10
MARK = "<!-- attention-bench check -->"
"""First line of a comment, by which the one of an earlier push is found and replaced."""
SIGNS = {"fail": "❌", "doubt": "❔", "note": "ℹ️", None: "✅"}


def summary(check: Check, baseline: State, candidate: State) -> str:
    """Everything but what is fine, the gravest first, cut where GitHub would refuse it."""
    lines = [f"## {_sign(check)} {headline(check)}", "", f"{counts_text(check)}.", "", _sides(baseline, candidate), ""]
    for severity, title in (("fail", "Worse, changed or gone"), ("doubt", "In doubt"), ("note", "To know")):
        found = check.severe(severity)  # type: ignore[arg-type]  # one of the severities
        if found:
            lines += [f"### {title}: {len(found):,}", "", *_table(found), ""]
    return _cut(lines)


def comment(check: Check, baseline: State, candidate: State) -> str:
    """The few cells that matter."""
    grave = check.severe("fail") or check.severe("doubt")
    lines = [MARK, f"**{_sign(check)} attention-bench: {headline(check)}**", ""]
    if grave:
        lines += _table(grave[:COMMENT_ROWS])
        if len(grave) > COMMENT_ROWS:
            lines += ["", f"and {len(grave) - COMMENT_ROWS:,} more in the summary of the job"]
        lines.append("")
    better = [one for one in check.severe("note") if one.name == "IMPROVED"]
    if better:
        lines += [f"Better: {', '.join(_code(f'{one.subject} {one.metric}') for one in better[:3])}"]
        lines[-1] += f" and {len(better) - 3} more\n" if len(better) > 3 else "\n"
    return "\n".join([*lines, _sides(baseline, candidate), ""])


def _sign(check: Check) -> str:
    grave = "fail" if check.severe("fail") else "doubt" if check.severe("doubt") or not check.compared else None
    return SIGNS[grave]


def _sides(baseline: State, candidate: State) -> str:
    times = f"margin of times {100 * baseline.margin:.1f} %" if baseline.timed else "no times"
    return (
        f"Baseline: commit {_code((baseline.commit or 'unknown')[:12])}, sweep {_code(baseline.sweep)}, {times}. "
        f"Candidate: commit {_code((candidate.commit or 'unknown')[:12])}, {_code(candidate.command or 'no command')}."
    )


def _table(outcomes: Sequence[Outcome]) -> list[str]:
    lines = ["| | cell | metric | outcome | found | noise | significance |", "|---|---|---|---|---|---|---|"]
    for one in outcomes:
        cells = (
            SIGNS[one.severity],
            _code(one.subject),
            _safe(one.metric or "-"),
            one.name,
            _safe(one.text),
            noise(one),
            significance(one) or "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cut(lines: Sequence[str]) -> str:
    """As many lines as fit."""
    kept: list[str] = []
    room = SUMMARY_BYTES
    for index, line in enumerate(lines):
        room -= len(line.encode()) + 1
        if room < 0:
            return "\n".join([*kept, "", f"cut here: the log has {len(lines) - index:,} more lines", ""])
        kept.append(line)
    return "\n".join(kept)


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def _safe(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|").replace("\r", " ").replace("\n", " ")
