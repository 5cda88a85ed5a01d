"""What a set of runs shows, in sentences that follow from the data alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bench.claims import Judged
from bench.metrics import Row
from bench.notebook import Note
from bench.plots import Reading
from bench.record import FlagName
from bench.report.claims import verdicts
from bench.report.finding import Finding, cells_are, counted
from bench.report.soundness import false_alarms
from bench.report.speed import allocator_cost, fastest, pays_after
from bench.report.theory import exponents, laws, memory_saved, worst_error
from bench.results import Run
from bench.units import format_seconds

FAILED = ("incorrect", "crashed", "timeout", "error", "out_of_memory")
"""Statuses that mean that something went wrong, worst first."""

MEANINGS: Mapping[FlagName, str] = {
    "unstable": "the middle half of its samples spreads widely",
    "throttled": "the device slowed down, and many rounds were discarded",
    "impossible": "beats a measured ceiling of the machine",
    "not_steady": "still getting faster or slower when the warm-up had to end",
    "few_samples": "fewer processes than a verdict needs",
    "order_effect": "the place within the round changed the time",
    "contended": "others held the cores",
    "interference": "blocks between those of others took another time than blocks on their own",
    "clocks_disagree": "two clocks differ by more than their bound",
    "memory_disagrees": "the memory that the process took contradicts the peak",
}
"""What each flag doubts, in a few words."""


def findings(reading: Reading, notes: Sequence[Note] = (), judged: Sequence[Judged] = ()) -> list[Finding]:
    """All findings, failures first.

    Args:
        reading: the runs.
        notes: latest findings of the soundness notebook; empty if there is none.
        judged: the claims of the theory.
    """
    return [
        *(finding for run in reading.runs for finding in coverage(run)),
        *failures(reading.rows),
        *fastest(reading),
        *allocator_cost(reading.runs),
        false_alarms(notes, reading.runs),
        *_doubts(reading),
        *(finding for run in reading.runs for finding in warned(run)),
        *_gate(reading),
        *verdicts(judged),
        *memory_saved(reading),
        *exponents(reading),
        *laws(reading),
        *pays_after(reading.runs),
        *worst_error(reading),
        *(finding for run in reading.runs for finding in _measured_share(run)),
    ]


def coverage(run: Run) -> Iterator[Finding]:
    """How far a run got."""
    counts = Counter(record.status for record in run.records)
    said = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.most_common())
    planned = f"{len(run.records)} of {run.header.cells} planned cells"
    if run.end is None:
        yield Finding(f"Run {run.run_id} has no end: it was killed or is still going on, with {planned}.", "bad")
    elif run.end.outcome != "complete":
        why = {"interrupted": "was interrupted", "budget": "used up its time budget"}[run.end.outcome]
        yield Finding(f"Run {run.run_id} {why} after {planned}.", "bad")
    yield Finding(f"{planned[0].upper()}{planned[1:]} are recorded: {said or 'none'}.")


def failures(rows: Sequence[Row]) -> Iterator[Finding]:
    """What went wrong, one sentence for each status; or that nothing did."""
    for status in FAILED:
        failed = [row for row in rows if row["status"] == status]
        if failed:
            said = f"{len(failed)} {cells_are(failed)} {status.replace('_', ' ').upper()}: {counted(failed)}"
            first = f"{failed[0]['implementation']} on {failed[0]['problem']}, {failed[0]['reason']}"
            yield Finding(f"{said}. First: {first}.", "bad")
    if rows and not any(row["status"] in FAILED for row in rows):
        yield Finding("No cell was incorrect, crashed, timed out or ran out of memory.", "good")


def flagged(reading: Reading) -> dict[FlagName, list[tuple[Row, str]]]:
    """For each flag that occurs, the rows that bear it, with the reasons."""
    found: dict[FlagName, list[tuple[Row, str]]] = {}
    for row in reading.rows:
        for flag in reading.record(row).flags:
            found.setdefault(flag.name, []).append((row, flag.reason))
    return dict(sorted(found.items()))


def _doubts(reading: Reading) -> Iterator[Finding]:
    measured = sum(row["latency_ms"] is not None for row in reading.rows)
    for name, borne in flagged(reading).items():
        rows = [row for row, _ in borne]
        kept_out = "; kept out of every comparison" if name == "impossible" else ""
        example = f"{rows[0]['implementation']} on {rows[0]['problem']}, {borne[0][1]}"
        are = "is" if len(rows) == 1 else "are"
        yield Finding(
            f"{len(rows)} of {measured} measured cells {are} flagged {name} ({MEANINGS[name]}): "
            f"{counted(rows)}{kept_out}. First: {example}.",
            "bad",
        )


def warned(run: Run) -> Iterator[Finding]:
    """What doctor warned of before a run."""
    names = [diagnosis.name for diagnosis in run.header.diagnoses if diagnosis.level in ("warning", "fatal")]
    if names:
        yield Finding(f"Before run {run.run_id}, doctor warned of {', '.join(names)}: see Machine.", "bad")


def _gate(reading: Reading) -> Iterator[Finding]:
    """How many cells the structured checks vouch for, and whose bits are not the same each time."""
    right = [row for row in reading.rows if row["status"] in ("ok", "verified")]
    judged = [(row, agreement) for row in right if (agreement := reading.record(row).agreement) is not None]
    certified = sum(agreement.certificate is not None for _, agreement in judged)
    if not certified:
        return
    checked = sum(bool(agreement.checks) for _, agreement in judged)
    yield Finding(
        f"{certified} of {len(right)} cells judged correct were certified first: their implementation passed every "
        f"structured check on a small problem of the same kind. {checked} passed such checks at their own size too.",
        "good" if certified == len(right) else "plain",
    )
    varying = [row for row, agreement in judged if agreement.deterministic is False]
    if varying:
        yield Finding(f"{len(varying)} {cells_are(varying)} not the same bit by bit when repeated: {counted(varying)}.")
    else:
        yield Finding("No implementation gave other bits when its call was repeated.", "good")
    batched = [row for row, agreement in judged if agreement.batch_invariant is False]
    if batched:
        yield Finding(f"A batch item computed alone has other bits than in a batch: {counted(batched)}.")


def _measured_share(run: Run) -> Iterator[Finding]:
    if run.end is None or run.end.wall_s <= 0:
        return
    if run.header.resumed_from is not None:
        yield Finding(
            f"Run {run.run_id} took {format_seconds(run.end.wall_s)}; it took over cells of "
            f"{run.header.resumed_from}, so the share of time spent measuring is not stated."
        )
        return
    spent = sum(record.verify_s + record.measure_s for record in run.records)
    share = spent / run.end.wall_s
    yield Finding(
        f"{share:.0%} of {format_seconds(run.end.wall_s)} were spent inside measured or verified calls.",
        "good" if share >= 0.5 else "bad",
    )
