"""A few sentences under each chart: what it shows, from the rows that it is drawn from and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from bench.metrics import Row, metrics
from bench.plots import Reading, grouped
from bench.report.finding import counted, place
from bench.report.leading import crossings, standing, timed
from bench.units import format_bytes, format_ms, significant

__all__ = ["CHARTS", "for_chart"]

NAMED = 4
"""Implementations whose memory a sentence names, beside the last one."""
UNSTEADY = ("unstable", "throttled", "not_steady", "few_samples", "order_effect", "contended", "interference")
"""Flags that doubt how steady a time is."""

Chart = Callable[[Sequence[Row], Reading | None], list[str]]


def for_chart(name: str, rows: Iterable[Row], reading: Reading | None = None) -> str:
    """What the chart ``name`` shows, for people.

    Args:
        name: one of :data:`CHARTS`.
        rows: rows of :attr:`bench.plots.Reading.rows` that the chart is drawn from, those without a number included.
        reading: where the rows come from. With it, who is fastest is decided round by round, as everywhere in the
            report; without it, where the intervals of the medians do not overlap.

    Raises:
        ValueError: if no chart has this name.
    """
    if name not in CHARTS:
        raise ValueError(f"chart must be one of {', '.join(CHARTS)}, got {name!r}.")
    rows = list(rows)
    if not rows:
        return "There are no such cells in these runs."
    return " ".join(sentence for sentence in CHARTS[name](rows, reading) if sentence)


def _latency(rows: Sequence[Row], reading: Reading | None) -> list[str]:
    known = timed(rows)
    if not known:
        return [_nothing("time", rows), _doubts(rows)]
    ahead = standing(rows, reading)
    if ahead:
        return [ahead, crossings(rows, reading), _doubts(rows)]
    low, high = (pick(known, key=lambda row: float(row["latency_ms"])) for pick in (min, max))
    if low is high:
        return [f"One time: {format_ms(low['latency_ms'])}, {_who(low, rows)}.", _doubts(rows)]
    ends = " to ".join(f"{format_ms(row['latency_ms'])} ({_who(row, rows)})" for row in (low, high))
    return [f"No problem was timed by two implementations, so nobody is fastest; times are {ends}.", _doubts(rows)]


def _heat_map(rows: Sequence[Row], reading: Reading | None) -> list[str]:
    known = timed(rows)
    if not known:
        return [_nothing("time", rows), _doubts(rows)]
    ahead = standing(rows, reading) or "No problem was timed by two implementations, so nobody is fastest."
    untimed = Counter(_state(row) for row in rows if row["latency_ms"] is None)
    empty = f"{_cells(untimed.total())} of {len(rows)} without a time: {_counts(untimed)}." if untimed else ""
    return [ahead, empty, _doubts(rows)]


def _tflops(rows: Sequence[Row], reading: Reading | None) -> list[str]:
    words = "The highest rate over exact pairs is"
    rate = _highest(rows, "tflops", words, lambda rate: f"{significant(rate)} TFLOP/s", "No pair is visible here.")
    return [rate, _doubts(rows)]


def _ceiling_share(rows: Sequence[Row], reading: Reading | None) -> list[str]:
    words = "The highest share of the measured rate of matrix products is"
    return [_highest(rows, "peak_fraction", words, "{:.0%}".format), _doubts(rows)]


def _roofline(rows: Sequence[Row], reading: Reading | None) -> list[str]:
    known = [row for row in timed(rows) if metrics.get("roof_fraction").value(row) is not None]
    closest = _highest(rows, "roof_fraction", "Closest to the measured roof is", "{:.0%} of it".format)
    below = sum(_memory_s(row) > row["flop"] / row["ceiling_flop_per_s"] for row in known)
    roof = f"The roof is memory for {below} and matrix products for {len(known) - below} of {_cells(len(known))}."
    return [closest, roof if known else "", _doubts(rows)]


def _memory_s(row: Row) -> float:
    """Seconds that the least traffic takes at the measured bandwidth."""
    return float(row["least_bytes"] / row["ceiling_bytes_per_s"])


def _memory(rows: Sequence[Row], reading: Reading | None) -> list[str]:
    known = [row for row in rows if row["peak_bytes"] is not None]
    if not known:
        if any(row["latency_ms"] is not None for row in rows):
            return ["No peak was measured: this device offers no exact method."]
        return [_nothing("peak", rows)]
    problems = [cells for cells in grouped(known, "run_id", "problem").values() if len(cells) > 1]
    if not problems:
        most = max(known, key=lambda row: int(row["peak_bytes"]))
        largest = f"The largest peak is {format_bytes(most['peak_bytes'])}, {_who(most, rows)}"
        return [f"{largest}; no problem has peaks of two implementations."]
    least = Counter(_least(cells) for cells in problems)
    longest = max(problems, key=lambda cells: (cells[0]["length"], len(cells)))
    ranked = sorted(longest, key=lambda row: (row["peak_bytes"], row["implementation"]))
    said = [f"{row['implementation']} {format_bytes(row['peak_bytes'])}" for row in ranked]
    if len(said) > NAMED + 1:
        said = [*said[:NAMED], f"{len(said) - NAMED - 1} more in between", said[-1]]
    of = f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'}"
    won = ", ".join(f"{name} on {count}" for name, count in sorted(least.items(), key=lambda item: (-item[1], item[0])))
    return [f"Smallest peak of {of} with several: {won}.", f"At {place(ranked[0], rows)}: {', '.join(said)}."]


def _least(cells: Sequence[Row]) -> str:
    """Who needs the least; bytes are exact, so several may."""
    fewest = min(row["peak_bytes"] for row in cells)
    return " and ".join(sorted({str(row["implementation"]) for row in cells if row["peak_bytes"] == fewest}))


def _error(rows: Sequence[Row], reading: Reading | None) -> list[str]:
    known = [row for row in rows if row["out_max_abs"] is not None]
    broken = [row for row in rows if row["out_nonfinite"]]
    wrong = [row for row in rows if row["status"] == "incorrect"]
    parts = [
        f"{_cells(len(broken))} with values that are not finite: {counted(broken)}." if broken else "",
        f"{_cells(len(wrong))} judged incorrect: {counted(wrong)}." if wrong else "",
    ]
    if not known:
        return [_nothing("finite error", rows), *parts]
    exact = sum(row["out_max_abs"] == 0 for row in known)
    parts.append(f"{_cells(exact)} with error 0, which a logarithmic axis cannot hold." if exact else "")
    limited = [row for row in known if row["out_limit"]]
    if not limited:
        worst = max(known, key=lambda row: float(row["out_max_abs"]))
        return [f"The largest error is {worst['out_max_abs']:.2g}, {_who(worst, rows)}; none has a limit.", *parts]
    worst = max(limited, key=_share)
    unlimited = f"; {_cells(len(known) - len(limited))} without a limit" if len(limited) < len(known) else ""
    within = "" if wrong or broken or _share(worst) > 1 else ", so all stay within their limits"
    which = "furthest beyond" if _share(worst) > 1 else "nearest to"
    found = f"The error {which} its limit is {worst['out_max_abs']:.2g} where {worst['out_limit']:.2g} is allowed"
    return [f"{found}, {_who(worst, rows)}{within}{unlimited}.", *parts]


def _share(row: Row) -> float:
    return float(row["out_max_abs"] / row["out_limit"])


def _stability(rows: Sequence[Row], reading: Reading | None) -> list[str]:
    known = timed(rows)
    if not known:
        return [_nothing("time", rows), _doubts(rows)]
    widest = max(known, key=_spread)
    flags = Counter(name for row in known for name in row["flag_names"] if name in UNSTEADY)
    single = sum(row["processes"] == 1 for row in known)
    return [
        f"The widest interval is {_spread(widest):.1%} of its median, {_who(widest, rows)}.",
        f"Flagged of {_cells(len(known))}: {_counts(flags)}." if flags else "No time is flagged as unsteady.",
        f"{single} of {_cells(len(known))} from one process, which says nothing of the next." if single else "",
    ]


def _spread(row: Row) -> float:
    return float((row["latency_hi_ms"] - row["latency_lo_ms"]) / row["latency_ms"])


CHARTS: dict[str, Chart] = {
    "latency": _latency,
    "tflops": _tflops,
    "ceiling_share": _ceiling_share,
    "memory": _memory,
    "error": _error,
    "roofline": _roofline,
    "heat_map": _heat_map,
    "stability": _stability,
}
"""Charts by name."""


def _highest(
    rows: Sequence[Row],
    metric: str,
    words: str,
    show: Callable[[float], str],
    without: str = "No ceiling was measured for these cells.",
) -> str:
    """The largest value of a metric, with everyone else whose value shows the same."""
    known = [(value, row) for row in timed(rows) if (value := metrics.get(metric).value(row)) is not None]
    if not known:
        return without if timed(rows) else _nothing("time", rows)
    most, row = max(known, key=lambda one: one[0])
    same = {str(one["implementation"]) for value, one in known if show(value) == show(most)} - {row["implementation"]}
    also = f"; {', '.join(sorted(same))} shows as the same" if len(same) == 1 else ""
    also = f"; {', '.join(sorted(same))} show as the same" if len(same) > 1 else also
    return f"{words} {show(most)}, {_who(row, rows)}{also}."


def _who(row: Row, rows: Sequence[Row]) -> str:
    return f"{row['implementation']} at {place(row, rows)}"


def _doubts(rows: Sequence[Row]) -> str:
    """What to know of the times before trusting them."""
    measured = [row for row in rows if row["latency_ms"] is not None]
    doubts = {
        "impossible, left out": sum(not row["sound"] for row in measured),
        "0 ms, below what the clock can tell": sum(row["sound"] and row["latency_ms"] == 0 for row in measured),
        "flagged unstable": sum(row["sound"] and "unstable" in row["flag_names"] for row in measured),
    }
    said = "; ".join(f"{count} {words}" for words, count in doubts.items() if count)
    return f"Of {len(measured)} measured: {said}." if said else ""


def _nothing(what: str, rows: Sequence[Row]) -> str:
    """That there is nothing to draw, and what became of the cells instead."""
    return f"No cell here has a {what}: {_counts(Counter(_state(row) for row in rows))}."


def _state(row: Row) -> str:
    """Status in words; ``impossible`` where a time exists that cannot be believed."""
    return "impossible" if row["latency_ms"] is not None and not row["sound"] else str(row["status"]).replace("_", " ")


def _counts(counts: Counter[str]) -> str:
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name}" for name, count in ranked)


def _cells(count: int) -> str:
    return f"{count} {'cell' if count == 1 else 'cells'}"
