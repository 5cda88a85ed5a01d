"""What the cell spends before its first call, and after how many calls that pays."""

from __future__ import annotations

from collections.abc import Iterator

from bench.break_even import break_even
from bench.explanation._cell import Cell, Refusal, Sentence, Support, undecided
from bench.units import format_ms

TOPIC = "set-up"


def setup(cell: Cell) -> Iterator[Sentence | Refusal]:
    """Break-even with the fastest one that spends less up front; nothing where nobody does."""
    if cell.time is None:
        return
    if cell.doubted is not None:
        yield Refusal(TOPIC, f"its time is compared with no other one: it is flagged {cell.doubted}")
        return
    same = [record for record in cell.run.records if record.problem == cell.record.problem]
    for found in break_even(same):
        if found.implementation != cell.name:
            continue
        spent = f"Before its first call it spends {format_ms(found.extra_ms)} more than {found.versus}"
        support = (
            Support(
                "record", "measurement.setup_ns + prepare_ns over that of " + found.versus, format_ms(found.extra_ms)
            ),
            Support("run", f"time saved by each call against {found.versus}", format_ms(found.saved_ms)),
        )
        if found.calls is None or found.calls_least is None:
            yield Sentence(TOPIC, f"{spent}, and it is no faster: that never pays.", support)
        elif found.calls_most is None:
            text = f"{spent}; whether that pays is open, after {found.calls_least} calls at best."
            yield undecided(TOPIC, text, support)
        else:
            calls = f"{found.calls} [{found.calls_least}, {found.calls_most}]"
            yield Sentence(TOPIC, f"{spent}, which pays after {calls} calls.", support)
