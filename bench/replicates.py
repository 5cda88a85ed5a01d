"""One problem in several fresh processes: the first verifies and times, the others only time, two looks.

The processes of one problem run one after the other, so a kill at any moment costs one problem, not a whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from bench.case import Case
from bench.cell import make_record, merged_record
from bench.record import Measurement, Record
from bench.verdicts import decide, paired_estimates

OneProcess = Callable[[Sequence[Case], Mapping[str, int] | None, int], Iterable[Record]]
"""Runs cases of one problem in a fresh process of the given number; with calls per block by implementation, it times
without verifying."""


def replicate(
    cases: Sequence[Case], one_process: OneProcess, looks: Sequence[int], stopped: Callable[[], bool]
) -> Iterator[Record]:
    """Yield one record per case, each exactly once, unless a stop came before the first process was done.

    Args:
        cases: all of one problem.
        one_process: runs some of them in a fresh process.
        looks: processes at each look; a later look is taken only if some order of two implementations is UNCLEAR.
        stopped: whether the user or a time budget wants the run to end.
    """
    timed: dict[str, list[Record]] = {}
    for record in one_process(cases, None, 0):
        if record.measurement is None:
            yield record
        else:
            timed[record.implementation] = [record]
    by_name = {case.implementation: case for case in cases}
    count = 1
    for look in looks:
        while timed and count < look and not stopped():
            calls = {name: _measurement(records[0]).calls_per_sample for name, records in timed.items()}
            for record in one_process([by_name[name] for name in timed], calls, count):
                if record.measurement is not None:
                    timed[record.implementation].append(record)
                    continue
                first = timed.pop(record.implementation)[0]
                agreement = None if record.status in ("unsupported", "unavailable") else first.agreement
                if agreement is not None and record.status == "incorrect":
                    agreement = agreement.model_copy(update={"passed": False})
                yield make_record(
                    by_name[record.implementation],
                    record.device,
                    record.implementation_version,
                    record.status,
                    f"{record.reason} (in process {count + 1}; {count} before it measured)",
                    agreement=agreement,
                    notes=first.notes,
                )
            count += 1
        if not undecided({name: merged_record(records, looks[0]) for name, records in timed.items()}):
            break
    for records in timed.values():
        yield merged_record(records, looks[0])


def undecided(records: Mapping[str, Record]) -> bool:
    """Whether the order of some two neighbours on the leader board of this problem is UNCLEAR."""
    measured = [_measurement(record) for record in records.values()]
    measured.sort(key=lambda m: median(m.samples_ns) / m.calls_per_sample)
    return any(decide(paired_estimates(a, b)).verdict == "UNCLEAR" for a, b in pairwise(measured))


def _measurement(record: Record) -> Measurement:
    assert record.measurement is not None, "only timed records get here"
    return record.measurement
