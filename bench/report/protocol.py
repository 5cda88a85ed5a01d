"""How each run measured: processes, rounds, blocks and clocks, and what the sensors said meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from bench.plots import Reading
from bench.record import Measurement, Telemetry
from bench.report.finding import counted
from bench.report.findings import MEANINGS, flagged
from bench.results import Run
from bench.units import format_ms, ns_to_ms, significant

Table = tuple[list[str], list[list[str]]]
"""Heads, and the texts of each row."""


def protocol_table(runs: Sequence[Run]) -> Table:
    """One row for each run that timed something."""
    heads = ["run", "cells timed", "processes each", "rounds", "calls a block", "median block"]
    heads += ["blocks alone", "discarded", "clock", "other clocks"]
    rows = []
    for run in runs:
        measured = [record.measurement for record in run.records if record.measurement is not None]
        if measured:
            rows.append([run.run_id, str(len(measured)), *_protocol(measured)])
    return heads, rows


def _protocol(measured: Sequence[Measurement]) -> list[str]:
    processes = Counter(len(set(one.processes)) for one in measured)
    counts = [f"{count} ({cells} cells)" if len(processes) > 1 else str(count) for count, cells in processes.items()]
    blocks = sorted(ns_to_ms(median(one.samples_ns)) for one in measured)
    return [
        ", ".join(counts),
        _span(len(one.samples_ns) for one in measured),
        _span(one.calls_per_sample for one in measured),
        " to ".join(dict.fromkeys((format_ms(blocks[0]), format_ms(blocks[-1])))),
        _span(len(one.isolated_ns) for one in measured),
        _span(one.discarded_rounds for one in measured),
        ", ".join(sorted({one.clock for one in measured})),
        ", ".join(sorted({other.clock for one in measured for other in one.others})) or "none",
    ]


def flag_table(reading: Reading) -> Table:
    """One row for each flag that occurs."""
    rows = [
        [name, MEANINGS[name], counted([row for row, _ in borne]), _example(borne)]
        for name, borne in flagged(reading).items()
    ]
    return ["flag", "what it doubts", "cells", "most often, or first"], rows


def _example(borne: Iterable[tuple[object, str]]) -> str:
    """The most frequent reason; of several alike the first."""
    return Counter(reason for _, reason in borne).most_common(1)[0][0]


def telemetry_tables(runs: Sequence[Run]) -> list[tuple[str, Table]]:
    """Title and table of the readings of each device in each run: over all windows, and why there are none."""
    tables = []
    for run in runs:
        windows: dict[str, list[Telemetry]] = {}
        for record in run.records:
            for window in record.measurement.telemetry if record.measurement else ():
                windows.setdefault(window.device, []).append(window)
        for device, seen in windows.items():
            title = f"{run.run_id}, {device}: {len(seen)} {'window' if len(seen) == 1 else 'windows'}"
            tables.append((title, _readings(seen)))
    return tables


def _readings(windows: Sequence[Telemetry]) -> Table:
    names = dict.fromkeys(name for window in windows for name in window.readings)
    rows = []
    for name in names:
        values = [window.readings[name] for window in windows if window.readings.get(name) is not None]
        missing = Counter(window.reasons[name] for window in windows if name in window.reasons)
        why = "; ".join(f"{reason} ({count} of {len(windows)})" for reason, count in missing.items())
        rows.append([name, *_three(values), why])
    return ["reading", "least", "median", "most", "why it is missing"], rows


def _three(values: Sequence[float | bool | str | None]) -> list[str]:
    """Least, median and most of numbers; how often each of anything else was read."""
    if not values:
        return ["-", "-", "-"]
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values):
        return [significant(min(numbers), 4), significant(median(numbers), 4), significant(max(numbers), 4)]
    counts = Counter(str(value) for value in values)
    return ["-", ", ".join(f"{value} ({count})" for value, count in counts.most_common()), "-"]


def _span(values: Iterable[int]) -> str:
    """``6 to 60``, or the one value."""
    found = sorted(values)
    return " to ".join(dict.fromkeys((str(found[0]), str(found[-1]))))
