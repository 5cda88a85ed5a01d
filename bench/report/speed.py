"""What the runs say about speed: who is fastest, what the allocator costs, when set-up pays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.analysis import PairedRatio
from bench.break_even import LEAST_MS, BreakEven, break_even
from bench.comparison import allocator_effects
from bench.memory_law import NAIVE
from bench.metrics import Row
from bench.plots import Reading, grouped
from bench.report.finding import Finding, length_of, main_family
from bench.results import Run
from bench.units import format_ms, significant
from bench.verdicts import MARGIN, Verdict

MAX_MASKS = 6
"""Masks that get a sentence on who is fastest."""

WORDS: dict[Verdict, str] = {
    "REGRESSED": "SLOWER",
    "IMPROVED": "FASTER",
    "UNCHANGED": f"SAME within {MARGIN:.0%}",
    "UNCLEAR": "UNCLEAR",
}
"""Verdicts of :mod:`bench.verdicts` on one implementation against another, where nothing changed."""


def fastest(reading: Reading) -> Iterator[Finding]:
    """Who is fastest at the longest problem of each mask of the main family."""
    single = False
    for (mask,), rows in list(grouped(main_family(reading), "mask").items())[:MAX_MASKS]:
        problems = [cells for cells in grouped(rows, "run_id", "problem").values() if len(cells) > 1]
        if problems:
            longest = max(problems, key=lambda cells: (cells[0]["length"], -cells[0]["head_dim"]))
            single |= any(row["processes"] == 1 for row in longest)
            yield Finding(f"At {length_of(longest[0])}, mask {mask}, {_fastest_of(reading, longest)}.")
    if single:
        yield Finding(
            "Times and ratios within run come from one process: their intervals say nothing of the next process, and "
            "there is no verdict. The sweep gate measures several."
        )


def _fastest_of(reading: Reading, cells: Sequence[Row]) -> str:
    """Who is fastest on one problem, by how much, or that it cannot be said."""
    best, _ = reading.fastest(cells)
    second = reading.rival(cells, best)
    assert second is not None, "a problem that one alone was timed on has no fastest"
    pair = reading.paired(second, best)
    doubt = ", flagged unstable" if "unstable" in best["flag_names"] else ""
    where, both = f"head_dim {best['width']}", f"{best['implementation']} and {second['implementation']}"
    interval = f"[{significant(best['latency_lo_ms'])}, {significant(best['latency_hi_ms'])}] ms"
    scope = "within run" if best["processes"] == 1 else f"across {best['processes']} processes"
    time = f"{format_ms(best['latency_ms'])} {interval} {scope}{doubt}"
    if pair is not None and (pair.lo <= 1 or pair.verdict in ("UNCHANGED", "UNCLEAR")):
        said = f"{both} cannot be told apart"
        if pair.verdict == "UNCHANGED":
            said = f"{both} are the SAME within {MARGIN:.0%}"
        elif pair.verdict == "UNCLEAR":
            said = f"which of {both} is faster by more than {MARGIN:.0%} is UNCLEAR"
        return f"{where}, {said} ({best['implementation']} {time}; ratio {_told(pair)})"
    versus = f"{_ratio(pair, second, best)} the speed of the next, {second['implementation']}"
    naive = next((row for row in cells if row["implementation"] == NAIVE), None)
    if naive is not None and naive not in (best, second):
        versus += f", and {_ratio(reading.paired(naive, best), naive, best)} that of {NAIVE}"
    leads = "is fastest" if pair is not None else "has the least time, and no round timed both"
    return f"{where}, {best['implementation']} {leads}: {time}, {versus}"


def _ratio(pair: PairedRatio | None, slow: Row, fast: Row) -> str:
    if pair is None:
        return f"{significant(slow['latency_ms'] / fast['latency_ms'])}x (not paired)"
    return _told(pair)


def _told(pair: PairedRatio) -> str:
    """The ratio, and with several processes how many stand behind it."""
    return pair.text if pair.verdict is None else f"{pair.text} ({pair.processes} processes, {pair.coverage:.1%})"


Against = tuple[PairedRatio | None, Row]
"""The paired ratio to a row, and that row."""


def against_fastest(reading: Reading) -> dict[tuple[str, str], Against]:
    """By run and cell: the paired ratio to the fastest of the same problem, and the row of that one.

    Soundly timed rows whose problem has another one.
    """
    found: dict[tuple[str, str], Against] = {}
    for rows in grouped([row for row in reading.rows if row["sound"]], "run_id", "problem").values():
        best, _ = reading.fastest(rows)
        for row in rows if len(rows) > 1 else ():
            found[row["run_id"], row["cell_key"]] = (reading.paired(row, best), best)
    return found


def allocator_cost(runs: Sequence[Run]) -> Iterator[Finding]:
    """What the default allocator costs, wherever two runs differ in nothing else."""
    for default in (run for run in runs if run.header.environment.allocator == "default"):
        for warm in (run for run in runs if run.header.environment.allocator == "warm"):
            effects = allocator_effects(default, warm)
            if effects:
                said = "; ".join(
                    f"{effect.implementation} {significant(effect.ratio)}x ({significant(effect.least)} to "
                    f"{significant(effect.most)} over {effect.cells} {'cell' if effect.cells == 1 else 'cells'})"
                    for effect in effects
                )
                doubted = sum(_disturbed(run) for run in (default, warm))
                busy = f" {doubted} of their cells are flagged contended or unstable." if doubted else ""
                yield Finding(
                    f"Time with the default allocator over time with the warm one, geometric mean: {said}. Runs "
                    f"{default.run_id} and {warm.run_id} were not interleaved: only large ratios on an idle machine "
                    f"mean anything.{busy}"
                )


def _disturbed(run: Run) -> int:
    """Cells that bear a flag which says that something else ran meanwhile, or may have."""
    return sum(any(flag.name in ("contended", "unstable") for flag in record.flags) for record in run.records)


def break_even_rows(runs: Sequence[Run]) -> list[BreakEven]:
    """All comparisons of set-up cost with time saved, by implementation and problem."""
    found = [one for run in runs for one in break_even(run.records)]
    return sorted(found, key=lambda one: one.implementation)


def break_even_table(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: what each spends up front, and after how many calls it has paid."""
    heads = ["implementation", "problem", "against", "more up front", "saved in a call", "pays after", "interval"]
    rows = []
    for one in break_even_rows(runs):
        pays = "never" if one.calls is None else f"{one.calls:,} calls"
        least, most = (f"{count:,}" if count is not None else "never" for count in (one.calls_least, one.calls_most))
        interval = "never" if one.calls_least is None else f"[{least}, {most}]"
        what = [format_ms(one.extra_ms), format_ms(one.saved_ms), pays, interval]
        rows.append([one.implementation, one.problem, one.versus, *what])
    return heads, rows


def pays_after(runs: Sequence[Run]) -> Iterator[Finding]:
    """One sentence for each implementation that spends time up front."""
    rows: dict[str, list[BreakEven]] = {}
    for one in break_even_rows(runs):
        rows.setdefault(one.implementation, []).append(one)
    for name, cases in rows.items():
        spent = _span([format_ms(one.extra_ms) for one in sorted(cases, key=lambda one: one.extra_ms)])
        calls = sorted(one.calls for one in cases if one.calls is not None)
        rivals = ", ".join(sorted({one.versus for one in cases}))
        often = f"{len(cases)} {'problem' if len(cases) == 1 else 'problems'}"
        if calls:
            reach = _span([f"{count:,}" for count in calls])
            pays = f"it pays after {reach} calls on {len(calls)} of {often}"
            surely = sum(one.calls_most is not None for one in cases)
            if surely < len(calls):
                pays += f" (the interval of the ratio excludes never on {surely})"
        else:
            pays = f"on none of {often} does it pay, being no faster"
        yield Finding(
            f"{name} spends {spent} more up front than the fastest that spends at least {LEAST_MS:.0f} ms less "
            f"({rivals}): {pays}."
        )


def _span(texts: Sequence[str]) -> str:
    """``3 to 9``, or the one value."""
    return " to ".join(dict.fromkeys((texts[0], texts[-1])))
