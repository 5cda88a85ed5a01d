"""What became of the cell: its time and its doubts, or why it has none."""

from __future__ import annotations

from collections.abc import Iterator

from bench.explanation._cell import Cell, Refusal, Sentence, Support, interval_text, time_support, timed
from bench.record import Agreement
from bench.units import significant

TOPIC = "outcome"
NO_TIME = {
    "verified": "It is right and has no time",
    "incorrect": "It is wrong, so it has no time",
    "unsupported": "It cannot compute this problem",
    "unavailable": "It cannot run on this machine",
    "out_of_memory": "It ran out of memory",
    "timeout": "It took too long",
    "crashed": "Its process died",
    "error": "It failed",
}
"""By status."""


def outcome(cell: Cell) -> Iterator[Sentence | Refusal]:
    """Latency and flags of a measured cell; the reason of any other."""
    record = cell.record
    if record.measurement is None:
        said = NO_TIME[record.status]
        if record.predicted:
            said = "It was predicted not to fit into memory and was not tried"
        yield Sentence(
            TOPIC,
            f"{said}: {record.reason}",
            (Support("record", "status", record.status), Support("record", "reason", record.reason)),
        )
        if record.agreement is not None:
            yield from _errors(record.agreement)
        return
    if timed(record).lo_ms > 0:
        summary = timed(record)
        count = len(record.measurement.samples_ns)
        yield Sentence(
            TOPIC,
            f"A call takes {interval_text(summary)}: median of {count} blocks, {summary.scope}.",
            (time_support(record), Support("record", "measurement.samples_ns (count)", count)),
        )
    for flag in record.flags:
        yield Sentence(TOPIC, f"Flagged {flag.name}: {flag.reason}.", (Support("record", "flags", flag.name),))


def _errors(agreement: Agreement) -> Iterator[Sentence]:
    """Errors of the tensors that are judged by a limit, and checks that failed."""
    for name, error in agreement.tensors.items():
        if error.max_abs is None or error.limit is None:
            continue
        right = error.max_abs <= error.limit and not error.nonfinite
        nonfinite = f" and has {error.nonfinite} entries that are not finite" if error.nonfinite else ""
        limit = f"{'within' if right else 'beyond'} what passes, {significant(error.limit)}"
        finite = " with every entry finite" if error.nonfinite else ""
        yield Sentence(
            TOPIC,
            f"{name} is off by up to {significant(error.max_abs)}{nonfinite}, {limit}{finite}.",
            (
                Support("record", f"agreement.tensors.{name}.max_abs", error.max_abs),
                Support("record", f"agreement.tensors.{name}.limit", error.limit),
                Support("record", f"agreement.tensors.{name}.nonfinite", error.nonfinite),
            ),
        )
    for name, check in agreement.checks.items():
        if not check.passed:
            yield Sentence(
                TOPIC,
                f"It fails the check {name}{f': {check.detail}' if check.detail else ''}.",
                (Support("record", f"agreement.checks.{name}.error", check.error),),
            )
