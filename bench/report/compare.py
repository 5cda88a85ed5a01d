"""What changed between runs: significant changes first, the rest folded, and why some times are not compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.comparison import Change, compare, differences
from bench.errors import NothingSelectedError
from bench.results import Run
from bench.units import significant
from bench.verdicts import LOOKS, MARGIN

if TYPE_CHECKING:
    from bench.report.material import Material

MAX_PAIRS = 6
"""Pairs of runs that are compared on a page."""
MAX_FOLDED = 500
"""Rows without a notable change that are listed at all; ``attention-bench compare`` lists the rest."""
HEADS = ("implementation", "problem", "time", "interval", "threshold", "significance", "verdict", "peak", "error")


def section(material: Material) -> dict[str, Any] | None:
    """What the template ``compare.html`` shows; None for a single run."""
    runs = material.reading.runs
    if len(runs) < 2:
        return None
    pairs = list(combinations(runs, 2))
    return {
        "margin": f"{MARGIN:.0%}",
        "looks": LOOKS[0],
        "heads": list(HEADS),
        "refusals": refusals(runs),
        "pairs": [_pair(before, after) for before, after in pairs[:MAX_PAIRS]],
        "left_out": len(pairs) - MAX_PAIRS if len(pairs) > MAX_PAIRS else 0,
    }


def refusals(runs: Sequence[Run]) -> list[str]:
    """One sentence for each pair of runs whose times are never shown together, with the fields that differ."""
    told = []
    for before, after in combinations(runs, 2):
        fields = differing(before, after)
        if fields:
            told.append(f"Times of {before.run_id} and {after.run_id} are not compared and share no chart: {fields}.")
    return told


def differing(before: Run, after: Run) -> str:
    """``torch differs (2.13.0, 2.14.0), cores differs (2, 4)``; empty if the times are comparable."""
    return ", ".join(
        f"{name.replace('_', ' ')} differs ({_value(one)}, {_value(other)})"
        for name, (one, other) in differences(before, after).items()
    )


def _value(value: Any) -> str:
    return "unknown" if value is None else str(value)


def _pair(before: Run, after: Run) -> dict[str, Any]:
    title = f"{before.run_id} to {after.run_id}"
    try:
        changes = compare(before, after)
    except NothingSelectedError:
        return {"title": title, "said": "They share no cell.", "shown": [], "folded": [], "cut": 0}
    shared = [change for change in changes if None not in (change.before_status, change.after_status)]
    notable = [change for change in shared if change.notable]
    folded = [change for change in shared if not change.notable]
    return {
        "title": title,
        "said": said(before, after, changes),
        "shown": [_shown(change) for change in notable],
        "folded": [_shown(change) for change in folded[:MAX_FOLDED]],
        "cut": max(0, len(folded) - MAX_FOLDED),
    }


def said(before: Run, after: Run, changes: Sequence[Change]) -> str:
    """What the pair shows, in a few sentences."""
    shared = [change for change in changes if None not in (change.before_status, change.after_status)]
    alone = Counter("first" if change.after_status is None else "second" for change in changes if change not in shared)
    parts = [f"{len(shared)} cells in both" + "".join(f", {n} in the {run} alone" for run, n in alone.items()) + "."]
    timed = [change for change in shared if change.latency_ratio is not None]
    fields = differing(before, after)
    if fields:
        parts.append(f"Times are not compared: {fields}. Bytes, errors and statuses are.")
    elif timed:
        ratios = [change.latency_ratio for change in timed if change.latency_ratio is not None]
        slower = sum((change.significance or 0) >= 1 and (change.latency_ratio or 0) > 1 for change in timed)
        faster = sum((change.significance or 0) >= 1 and (change.latency_ratio or 0) < 1 for change in timed)
        parts.append(
            f"Of {len(timed)} times, {slower} are slower and {faster} faster by more than the threshold; the median of "
            f"all ratios is {significant(median(ratios))}x, which is what the machine alone may have done."
        )
        if any(change.verdict is None for change in timed):
            parts.append(
                f"Fewer than {LOOKS[0]} processes give no verdict: their intervals say nothing of the next one."
            )
    if before.header.environment.hostname != after.header.environment.hostname:
        parts.append("The hosts differ.")
    return " ".join(parts)


def _shown(change: Change) -> dict[str, Any]:
    """One line of the table: texts, and what each sorts by where that is a number."""
    time = interval = threshold = factor = "-"
    half = width = None
    if change.latency_ratio is not None and change.latency_ratio_lo and change.latency_ratio_hi:
        low, high = change.latency_ratio_lo, change.latency_ratio_hi
        time = f"{significant(change.latency_ratio)}x"
        interval = f"[{significant(low)}, {significant(high)}]"
        factor = significant(change.significance or 0.0, 2)
        # So much the ratio had to be off for all of its interval to lie beyond the margin.
        half, width = max(high / change.latency_ratio, change.latency_ratio / low), high - low
        threshold = f"{half * (1 + MARGIN) - 1:.1%}"
    status = f"{change.before_status} to {change.after_status}" if change.before_status != change.after_status else ""
    verdict = change.verdict or ("" if change.latency_ratio is None else "no verdict")
    peak = (
        "-"
        if change.peak_bytes_change is None
        else f"{change.peak_bytes_change:+,} B"
        if change.peak_bytes_change
        else "same"
    )
    error = "-" if change.out_max_abs_ratio is None else f"{significant(change.out_max_abs_ratio)}x"
    texts = [change.implementation, change.problem, time, interval, threshold, factor, status or verdict, peak, error]
    sorts = ["", "", change.latency_ratio, width, half - 1 if half else None, change.significance, ""]
    sorts += [change.peak_bytes_change, change.out_max_abs_ratio]
    moved = bool(change.peak_bytes_change) or bool(status)
    return {"texts": texts, "sorts": ["" if one is None else one for one in sorts], "moved": moved}
