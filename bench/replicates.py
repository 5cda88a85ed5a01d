"""Cells in several fresh processes: the first verifies and times, the others only time, two looks.

The processes of one problem, or of one ladder where growth along it is in question, run one after the other: a kill at
any moment costs these, not a whole run. Over a ladder each process climbs all lengths, so that a while in which the
machine was slow is one process at some lengths, not all processes at one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from bench.case import Case
from bench.cell import make_record, merged_record
from bench.record import Measurement, Record
from bench.verdicts import decide, paired_estimates

Calls = Mapping[tuple[str, str], int]
"""Calls in a block by problem key and implementation, as the first process settled them."""
OneProcess = Callable[[Sequence[Case], Calls | None, int], Iterable[Record]]
"""Runs cases in a fresh process of the given number; with calls, it times without verifying."""


def replicate(
    cases: Sequence[Case], one_process: OneProcess, looks: Sequence[int], stopped: Callable[[], bool]
) -> Iterator[Record]:
    """Yield one record per case, each exactly once, unless a stop came before the first process was done.

    Args:
        cases: of one problem or one ladder.
        one_process: runs some of them in a fresh process.
        looks: processes at each look; a later look is taken only if some order of two implementations is UNCLEAR.
        stopped: whether the user or a time budget wants the run to end.
    """
    by_cell = {(case.problem.key, case.implementation): case for case in cases}
    timed: dict[tuple[str, str], list[Record]] = {}
    for record in one_process(cases, None, 0):
        if record.measurement is None:
            yield record
        else:
            timed[_cell(record)] = [record]
    count = 1
    for look in looks:
        while timed and count < look and not stopped():
            calls = {cell: _measurement(records[0]).calls_per_sample for cell, records in timed.items()}
            for record in one_process([by_cell[cell] for cell in timed], calls, count):
                if record.measurement is not None:
                    timed[_cell(record)].append(record)
                    continue
                first = timed.pop(_cell(record))[0]
                agreement = None if record.status in ("unsupported", "unavailable") else first.agreement
                if agreement is not None and record.status == "incorrect":
                    agreement = agreement.model_copy(update={"passed": False})
                yield make_record(
                    by_cell[_cell(record)],
                    record.device,
                    record.implementation_version,
                    record.status,
                    f"{record.reason} (in process {count + 1}; {count} before it measured)",
                    agreement=agreement,
                    notes=first.notes,
                )
            count += 1
        if not undecided([merged_record(records, looks[0]) for records in timed.values()]):
            break
    for records in timed.values():
        yield merged_record(records, looks[0])


def undecided(records: Iterable[Record]) -> bool:
    """Whether the order of some two neighbours on the leader board of one problem is UNCLEAR."""
    boards: dict[str, list[Measurement]] = {}
    for record in records:
        boards.setdefault(record.problem.key, []).append(_measurement(record))
    for board in boards.values():
        board.sort(key=lambda m: median(m.samples_ns) / m.calls_per_sample)
        if any(decide(paired_estimates(a, b)).verdict == "UNCLEAR" for a, b in pairwise(board)):
            return True
    return False


def _cell(record: Record) -> tuple[str, str]:
    return record.problem.key, record.implementation


def _measurement(record: Record) -> Measurement:
    assert record.measurement is not None, "only timed records get here"
    return record.measurement
