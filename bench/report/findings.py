"""What a set of runs shows, in sentences that follow from the data alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from bench.analysis import median_interval
from bench.memory_law import NAIVE
from bench.metrics import Row
from bench.plots import LADDER, Reading, grouped
from bench.record import FlagName, Measurement
from bench.results import Run
from bench.scaling import TimeFit
from bench.units import format_bytes, format_ms, format_seconds, significant

Tone = Literal["good", "bad", "plain"]

FAMILY = tuple(name for name in LADDER if name not in ("mask", "head_dim", "head_dim_v"))
"""Columns that are constant in the family of problems that the findings speak of."""
MAX_MASKS = 6
"""Masks that get a sentence on who is fastest."""
FAILED = ("incorrect", "crashed", "timeout", "error", "out_of_memory")
"""Statuses that mean that something went wrong, worst first."""


@dataclass(frozen=True)
class Finding:
    """One sentence, and whether it is good news."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class PairedRatio:
    """Ratio of two latencies measured in the same rounds, with the interval of its median."""

    ratio: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """``2.87x [2.80, 2.91]``."""
        return f"{significant(self.ratio)}x [{significant(self.low)}, {significant(self.high)}]"


def findings(reading: Reading) -> list[Finding]:
    """All findings, failures first."""
    return [
        *(finding for run in reading.runs for finding in _coverage(run)),
        *_failures(reading),
        *_gate(reading),
        *_fastest(reading),
        *_memory_saved(reading),
        *_exponents(reading),
        *_laws(reading),
        *_worst_error(reading.rows),
        *(finding for run in reading.runs for finding in _measured_share(run)),
    ]


def paired_ratio(slow: Measurement, fast: Measurement) -> PairedRatio | None:
    """Time of ``slow`` over time of ``fast``, round by round; None where the two were not measured in the
    same rounds.
    """
    if slow.processes != fast.processes:
        return None
    scale = fast.calls_per_sample / slow.calls_per_sample
    ratios: dict[int, list[float]] = {}
    for process, a, b in zip(slow.processes, slow.samples_ns, fast.samples_ns, strict=True):
        if b > 0:
            ratios.setdefault(process, []).append(a / b * scale)
    several = len(ratios) > 1
    units = sorted(median(r) for r in ratios.values()) if several else sorted(r for rs in ratios.values() for r in rs)
    if not units:
        return None
    low, high, _ = median_interval(len(units))
    return PairedRatio(median(units), units[low], units[high])


def main_family(reading: Reading) -> list[Row]:
    """The rows of the family of problems with the most timed cells; empty if nothing was timed."""
    families = grouped([row for row in reading.rows if row["sound"]], *FAMILY).values()
    return max(families, key=len, default=[])


def _coverage(run: Run) -> Iterator[Finding]:
    counts = Counter(record.status for record in run.records)
    said = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.most_common())
    planned = f"{len(run.records)} of {run.header.cells} planned cells"
    if run.end is None:
        yield Finding(f"Run {run.run_id} has no end: it was killed or is still going on, with {planned}.", "bad")
    elif run.end.outcome != "complete":
        why = {"interrupted": "was interrupted", "budget": "used up its time budget"}[run.end.outcome]
        yield Finding(f"Run {run.run_id} {why} after {planned}.", "bad")
    yield Finding(f"{planned[0].upper()}{planned[1:]} are recorded: {said or 'none'}.")


def _failures(reading: Reading) -> Iterator[Finding]:
    rows = reading.rows
    for status in FAILED:
        failed = [row for row in rows if row["status"] == status]
        if failed:
            said = f"{len(failed)} {_cells(failed)} {status.replace('_', ' ').upper()}: {_counts(failed)}"
            first = f"{failed[0]['implementation']} on {failed[0]['problem']}, {failed[0]['reason']}"
            yield Finding(f"{said}. First: {first}.", "bad")
    if rows and not any(row["status"] in FAILED for row in rows):
        yield Finding("No cell was incorrect, crashed, timed out or ran out of memory.", "good")
    flags: dict[FlagName, list[Row]] = {}
    for row in rows:
        for flag in reading.record(row).flags:
            flags.setdefault(flag.name, []).append(row)
    for name, flagged in sorted(flags.items()):
        kept_out = "; kept out of every comparison" if name == "impossible" else ""
        said = f"{len(flagged)} measured {_cells(flagged)} flagged {name}: {_counts(flagged)}{kept_out}"
        yield Finding(f"{said}.", "bad")


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
        yield Finding(f"{len(varying)} {_cells(varying)} not the same bit by bit when repeated: {_counts(varying)}.")
    else:
        yield Finding("No implementation gave other bits when its call was repeated.", "good")
    batched = [row for row, agreement in judged if agreement.batch_invariant is False]
    if batched:
        yield Finding(f"A batch item computed alone has other bits than in a batch: {_counts(batched)}.")


def _fastest(reading: Reading) -> Iterator[Finding]:
    for (mask,), rows in list(grouped(main_family(reading), "mask").items())[:MAX_MASKS]:
        problems = [cells for cells in grouped(rows, "problem").values() if len(cells) > 1]
        if problems:
            longest = max(problems, key=_longest_narrowest)
            yield Finding(f"At {_length(longest[0])}, mask {mask}, {_fastest_of(reading, longest)}.")


def _fastest_of(reading: Reading, cells: Sequence[Row]) -> str:
    """Who is fastest on one problem, by how much, or that it cannot be said."""
    ranked = sorted(cells, key=lambda row: float(row["latency_ms"]))
    best, second = ranked[0], ranked[1]
    scope = "across processes" if best["processes"] > 1 else "within run"
    doubt = ", flagged unstable" if "unstable" in (best["flags"] or "") else ""
    where = f"head_dim {best['width']}"
    time = f"{format_ms(best['latency_ms'])} {_interval(best)} {scope}{doubt}"
    runner_up = _paired(reading, second, best)
    if runner_up is not None and runner_up.low <= 1:
        pair = f"{best['implementation']} and {second['implementation']}"
        return f"{where}, {pair} cannot be told apart ({time}; ratio {runner_up.text})"
    versus = f"{_ratio_text(reading, second, best)} the speed of the next, {second['implementation']}"
    naive = next((row for row in ranked[2:] if row["implementation"] == NAIVE), None)
    if naive is not None:
        versus += f", and {_ratio_text(reading, naive, best)} that of {NAIVE}"
    return f"{where}, {best['implementation']} is fastest: {time}, {versus}"


def _longest_narrowest(cells: Sequence[Row]) -> tuple[int, int]:
    """Sort key of a problem by its cells: the longest, then the narrowest head."""
    return cells[0]["length"], -cells[0]["head_dim"]


def _memory_saved(reading: Reading) -> Iterator[Finding]:
    rows = [row for row in main_family(reading) if row["peak_bytes"]]
    groups = [cells for cells in grouped(rows, "problem").values() if {NAIVE} < {r["implementation"] for r in cells}]
    if not groups:
        return
    cells = max(groups, key=lambda c: (c[0]["length"], c[0]["mask"] == "full", -c[0]["head_dim"]))
    naive = next(row for row in cells if row["implementation"] == NAIVE)
    said = []
    for row in sorted((row for row in cells if row is not naive), key=lambda row: row["peak_bytes"]):
        ratio = naive["peak_bytes"] / row["peak_bytes"]
        how = f"{significant(ratio)}x less" if ratio > 1 else f"{significant(1 / ratio)}x as much"
        said.append(f"{row['implementation']} {format_bytes(row['peak_bytes'])} ({how})")
    yield Finding(
        f"Peak memory at {_length(naive)}, mask {naive['mask']}, head_dim {naive['width']}: {NAIVE} "
        f"{format_bytes(naive['peak_bytes'])}, {', '.join(said)}."
    )


def _exponents(reading: Reading) -> Iterator[Finding]:
    keys = {tuple(row[name] for name in FAMILY) for row in main_family(reading)[:1]}
    ladders: dict[str, list[tuple[Row, TimeFit]]] = {}
    for rows in reading.timed_ladders.values():
        fit = reading.fit(rows[0])
        if fit is not None and tuple(rows[0][name] for name in FAMILY) in keys:
            ladders.setdefault(rows[0]["implementation"], []).append((rows[0], fit))
    for name, labelled in sorted(ladders.items()):
        first, fits = labelled[0], [fit for _, fit in labelled]
        counts = Counter(fit.verdict for fit in fits)
        said = ", ".join(f"{verdict} on {n}" for verdict, n in counts.most_common())
        longest = max(fits, key=lambda fit: (len(fit.lengths), fit.lengths))
        exponents = sorted(fit.exponent for fit in fits if fit.exponent is not None)
        if not exponents:
            yield Finding(f"Whether {name} has {fits[0].growth} growth of time is INCONCLUSIVE: {longest.reason}.")
            continue
        span = " to ".join(dict.fromkeys((f"T^{exponents[0]:.2f}", f"T^{exponents[-1]:.2f}")))
        why = "" if counts["INCONCLUSIVE"] == 0 else _most_common_reason(fits)
        votes = sum(fit.vote_disagrees for fit in fits)
        doubt = f" A second vote by AICc disagrees on {votes}." if votes else ""
        where = f"mask {first[0]['mask']}, head_dim {first[0]['width']}"
        tone: Tone = "good" if name == NAIVE and set(counts) == {"CONFIRMED"} else "plain"
        yield Finding(
            f"Time of {name} grows as {span} ({where}: {first[1].text} {first[1].scope}); {fits[0].growth} "
            f"growth {said} of {len(fits)} {'ladder' if len(fits) == 1 else 'ladders'}{why}.{doubt}",
            tone,
        )


def _laws(reading: Reading) -> Iterator[Finding]:
    others = [check for check in reading.memory_checks if not check.theory]
    for check in (check for check in reading.memory_checks if check.theory):
        if check.holds:
            text = f"equal its law {check.law} in all {check.cells} cells (residual 0 bytes)"
        else:
            residual = f"{check.residual_bytes:+,} bytes ({100 * check.worst_share:+.2g} %) at {check.worst}"
            share = f"{check.cells - check.equal} of {check.cells} cells"
            text = f"differ from its law {check.law} in {share}; the largest residual is {residual}"
        yield Finding(f"Measured peak bytes of {NAIVE} {text}.", "good" if check.holds else "bad")
    exact = [check for check in others if check.holds]
    if exact:
        names = ", ".join(f"{check.implementation} ({check.cells})" for check in exact)
        yield Finding(f"Predicted peak bytes equal the measured ones in all cells of {names}.", "good")
    rough = [check for check in others if not check.holds]
    if rough:
        names = ", ".join(
            f"{c.implementation} {c.residual_bytes:+,} bytes ({100 * c.worst_share:+.2g} %)" for c in rough
        )
        yield Finding(f"Predicted peak bytes differ from the measured ones, at worst by: {names}.")


def _worst_error(rows: Sequence[Row]) -> Iterator[Finding]:
    right = [row for row in rows if row["status"] in ("ok", "verified") and row["out_max_abs"] is not None]
    judged = [row for row in right if row["out_limit"]]
    if not judged:
        return
    worst = max(judged, key=lambda row: row["out_max_abs"] / row["out_limit"])
    share = worst["out_max_abs"] / worst["out_limit"]
    yield Finding(
        f"Of {len(judged)} cells judged correct, the one nearest to its limit is {worst['implementation']} "
        f"in {worst['dtype']} on {worst['problem']}: largest error {worst['out_max_abs']:.2g}, {share:.0%} "
        f"of the limit {worst['out_limit']:.2g}."
    )


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


def _counts(rows: Sequence[Row]) -> str:
    counts = Counter(row["implementation"] for row in rows)
    return ", ".join(f"{name} ({count})" for name, count in counts.most_common())


def _cells(rows: Sequence[Row]) -> str:
    return "cell is" if len(rows) == 1 else "cells are"


def _length(row: Row) -> str:
    return f"T={row['length']}" if row["shape"] == "square" else f"Tq={row['seqlen_q']}, Tk={row['seqlen_k']}"


def _interval(row: Row) -> str:
    return f"[{significant(row['latency_lo_ms'])}, {significant(row['latency_hi_ms'])}]"


def _paired(reading: Reading, slow: Row, fast: Row) -> PairedRatio | None:
    slow_measured, fast_measured = reading.record(slow).measurement, reading.record(fast).measurement
    if slow["run_id"] != fast["run_id"] or slow_measured is None or fast_measured is None:
        return None
    return paired_ratio(slow_measured, fast_measured)


def _ratio_text(reading: Reading, slow: Row, fast: Row) -> str:
    paired = _paired(reading, slow, fast)
    return paired.text if paired else f"{significant(slow['latency_ms'] / fast['latency_ms'])}x (not paired)"


def _most_common_reason(fits: Sequence[TimeFit]) -> str:
    reasons = Counter(fit.reason for fit in fits if fit.verdict == "INCONCLUSIVE")
    return f" ({reasons.most_common(1)[0][0]})"
