"""What the runs say about the theory: memory beside naive, exponents of time, laws of memory, the largest error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bench.memory_law import NAIVE
from bench.metrics import Row
from bench.plots import Reading, grouped
from bench.record import Agreement
from bench.report.finding import FAMILY, Finding, Tone, length_of, main_family
from bench.scaling import TimeFit
from bench.units import format_bytes, significant


def memory_saved(reading: Reading) -> Iterator[Finding]:
    """Peak bytes of everyone on the longest problem of the main family, beside those of naive."""
    rows = [row for row in main_family(reading) if row["peak_bytes"]]
    groups = [cells for cells in grouped(rows, "problem").values() if {NAIVE} < {r["implementation"] for r in cells}]
    if not groups:
        return
    cells = max(groups, key=lambda c: (c[0]["length"], c[0]["mask"] == "full", -c[0]["head_dim"]))
    naive = next(row for row in cells if row["implementation"] == NAIVE)
    said = []
    for row in sorted((row for row in cells if row is not naive), key=lambda row: row["peak_bytes"]):
        ratio = naive["peak_bytes"] / row["peak_bytes"]
        less = ratio > 1 and significant(ratio) != "1.00"
        how = f"{significant(ratio)}x less" if less else f"{significant(1 / ratio)}x as much"
        said.append(f"{row['implementation']} {format_bytes(row['peak_bytes'])} ({how})")
    yield Finding(
        f"Peak memory at {length_of(naive)}, mask {naive['mask']}, head_dim {naive['width']}: {NAIVE} "
        f"{format_bytes(naive['peak_bytes'])}, {', '.join(said)}."
    )


def exponents(reading: Reading) -> Iterator[Finding]:
    """How the time of each implementation grows, from the ladders of the main family.

    Of those where every pair is visible, if there are any: kernels skip whole blocks of what a mask hides, which bends
    the growth at the lengths of the block without saying anything of the pairs; the claim on masks speaks of that.
    """
    keys = {tuple(row[name] for name in FAMILY) for row in main_family(reading)[:1]}
    family = [rows for rows in reading.timed_ladders.values() if tuple(rows[0][name] for name in FAMILY) in keys]
    ladders: dict[str, list[tuple[Row, TimeFit]]] = {}
    for rows in [rows for rows in family if rows[0]["mask"] == "full"] or family:
        fit = reading.fit(rows[0])
        if fit is not None:
            ladders.setdefault(rows[0]["implementation"], []).append((rows[0], fit))
    short: dict[tuple[str, str], list[str]] = {}
    for name, labelled in sorted(ladders.items()):
        first, fits = labelled[0], [fit for _, fit in labelled]
        counts = Counter(fit.verdict for fit in fits)
        said = ", ".join(f"{verdict} on {n}" for verdict, n in counts.most_common())
        longest = max(fits, key=lambda fit: (len(fit.lengths), fit.lengths))
        powers = sorted(fit.exponent for fit in fits if fit.exponent is not None)
        if not powers:
            short.setdefault((fits[0].growth, longest.reason), []).append(name)
            continue
        span = " to ".join(dict.fromkeys((f"T^{powers[0]:.2f}", f"T^{powers[-1]:.2f}")))
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
    for (growth, reason), names in short.items():
        have = "has" if len(names) == 1 else "have"
        yield Finding(f"Whether {', '.join(names)} {have} {growth} growth of time is INCONCLUSIVE: {reason}.")


def laws(reading: Reading) -> Iterator[Finding]:
    """Measured peaks against the laws that predict them."""
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


def worst_error(reading: Reading) -> Iterator[Finding]:
    """The cell judged correct whose error, of any tensor, is the largest share of its limit."""
    judged = []
    for row in reading.rows:
        agreement = reading.record(row).agreement
        if agreement is not None and row["status"] in ("ok", "verified"):
            share, tensor = largest_share(agreement)
            if share is not None:
                judged.append((share, tensor, agreement.tensors[tensor], row))
    if not judged:
        return
    share, tensor, error, worst = max(judged, key=lambda one: one[0])
    yield Finding(
        f"Of {len(judged)} cells judged correct, the one nearest to its limit is {worst['implementation']} "
        f"in {worst['dtype']} on {worst['problem']}: largest error of {tensor} {error.max_abs:.2g}, {share:.0%} "
        f"of the limit {error.limit:.2g}."
    )


def largest_share(agreement: Agreement) -> tuple[float | None, str]:
    """The largest error over its limit among the tensors, and the tensor; None if none has both."""
    shares = [
        (error.max_abs / error.limit, name)
        for name, error in agreement.tensors.items()
        if error.max_abs is not None and error.limit
    ]
    return max(shares, default=(None, "out"))


def _most_common_reason(fits: Sequence[TimeFit]) -> str:
    reasons = Counter(fit.reason for fit in fits if fit.verdict == "INCONCLUSIVE")
    return f" ({reasons.most_common(1)[0][0]})"
