"""The claims of the theory, as the report shows them: verdicts, what they rest on, figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.claims import Drawing, Hearing, Judged, Verdict
from bench.plots import Reading
from bench.report.finding import Finding, Tone

VERDICTS: tuple[Verdict, ...] = ("REFUTED", "CONFIRMED", "INCONCLUSIVE")
SHOWN = 8
"""Answers of a claim that are shown at once; more are folded."""
LISTED = 300
"""Answers of a claim that are on the page at all, refuted ones first."""
NAMED = 5
"""Refuted subjects that the finding names."""


@dataclass(frozen=True)
class Section:
    """One claim on the page."""

    title: str
    statement: str
    rule: str
    counts: str
    """``CONFIRMED 4, INCONCLUSIVE 1``."""
    verdict: str
    answers: list[list[str]]
    """Subject, verdict, found, reason, and how many rows it rests on."""
    folded: bool
    left_out: int
    """Answers beyond those."""


def sections(judged: Sequence[Judged]) -> list[Section]:
    """Every claim that some row bears on, in the order of the claims."""
    return [
        Section(
            title=f"{one.claim.order}. {one.claim.name.replace('_', ' ')}",
            statement=one.claim.statement,
            rule=one.claim.rule,
            counts=_counts(one),
            verdict=one.verdict,
            answers=[
                [answer.subject, answer.verdict, answer.found, answer.reason, str(len(answer.rows))]
                for answer in sorted(one.answers, key=lambda answer: answer.verdict != "REFUTED")[:LISTED]
            ],
            folded=len(one.answers) > SHOWN,
            left_out=max(0, len(one.answers) - LISTED),
        )
        for one in judged
        if one.heard
    ]


def unheard(judged: Sequence[Judged]) -> list[str]:
    """Statements that no row bears on."""
    return [f"{one.claim.order}. {one.claim.statement}" for one in judged if not one.heard]


def drawings(judged: Sequence[Judged], reading: Reading) -> Iterator[tuple[str, list[Drawing]]]:
    """The figures of each claim that some row bears on, under its section's title."""
    from bench.figure_style import figure_style

    for one in judged:
        if one.heard:
            with figure_style():
                drawn = one.claim.draw(Hearing(reading), one.answers)
            yield f"{one.claim.order}. {one.claim.name.replace('_', ' ')}", drawn


def verdicts(judged: Sequence[Judged]) -> Iterator[Finding]:
    """One sentence on all claims; those that are refuted are named."""
    heard = [one for one in judged if one.heard]
    if not heard:
        return
    counts = Counter(answer.verdict for one in heard for answer in one.answers)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    refuted = [
        f"{one.claim.name} for {answer.subject} ({answer.found})"
        for one in heard
        for answer in one.answers
        if answer.verdict == "REFUTED"
    ]
    tone: Tone = "bad" if refuted else "good" if counts["CONFIRMED"] else "plain"
    more = f"; and {len(refuted) - NAMED} more" if len(refuted) > NAMED else ""
    named = f" Refuted: {'; '.join(refuted[:NAMED])}{more}." if refuted else ""
    yield Finding(
        f"Theory: {len(heard)} of {len(judged)} claims could be judged on these rows, in {counts.total()} subjects: "
        f"{said}.{named}",
        tone,
    )


def _counts(one: Judged) -> str:
    counts = Counter(answer.verdict for answer in one.answers)
    return ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS if counts[verdict])
