"""The first screen: verdicts in a few sentences, and what they were measured with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from bench.metrics import Row
from bench.plots import Reading, grouped
from bench.report.claims import verdicts
from bench.report.finding import Finding, counted
from bench.report.findings import coverage, failures, findings, warned
from bench.report.leaderboard import KIND, ranked
from bench.report.leading import timed
from bench.report.soundness import false_alarms
from bench.report.theory import memory_saved, worst_error
from bench.results import Run
from bench.standings import Standing
from bench.units import format_bytes, format_seconds, significant

if TYPE_CHECKING:
    from bench.report.material import Material

MAX_REGIMES = 4
"""Regimes whose sentence is on the first screen, those of the kinds with the most cells; the others are folded."""
SPREAD = 4
"""Lengths that differ by less are one regime."""
VERSIONS = ("attention-bench", "torch", "triton")
"""Packages whose versions stand on the first screen."""


def headlines(material: Material) -> list[Finding]:
    """The sentences of the first screen: failures, who is fastest, memory, errors, claims, doubts, false alarms."""
    reading = material.reading
    return [
        *(finding for run in reading.runs for finding in coverage(run) if finding.tone == "bad"),
        *failures(reading.rows),
        *islice(regimes(reading), MAX_REGIMES),
        *memory_saved(reading),
        *worst_error(reading),
        *verdicts(material.judged),
        doubts(reading.rows),
        *(finding for run in reading.runs for finding in warned(run)),
        false_alarms(material.notes, reading.runs),
    ]


def section(material: Material) -> dict[str, Any]:
    """What the template ``overview.html`` shows."""
    first = headlines(material)
    said = {finding.text for finding in first}
    rest = [*regimes(material.reading), *findings(material.reading, material.notes, material.judged)]
    return {
        "headlines": first,
        "more": [finding for finding in rest if finding.text not in said],
        "facts": _facts(material.reading.runs),
        "commands": list(dict.fromkeys(run.header.command for run in material.reading.runs)),
    }


def regimes(reading: Reading) -> Iterator[Finding]:
    """Who is fastest for each machine, device, direction and dtype, at short and at long sequences apart.

    Short is below the geometric middle of the lengths that were measured; a regime is left out where no two
    implementations were timed.
    """
    several = {name for name in KIND if len({row[name] for row in reading.rows}) > 1}
    kinds = sorted(grouped(timed(reading.rows), *KIND, "shape").values(), key=len, reverse=True)
    told = (_regime(reading, part, several) for rows in kinds for part in _halves(rows))
    yield from (finding for finding in told if finding is not None)


def _halves(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows below the geometric middle of their lengths, and the others; all of them where the lengths hardly differ."""
    lengths = [row["length"] for row in rows]
    if max(lengths) < SPREAD * min(lengths):
        return [list(rows)]
    middle = (min(lengths) * max(lengths)) ** 0.5
    parts = [[row for row in rows if row["length"] <= middle], [row for row in rows if row["length"] > middle]]
    return [part for part in parts if part]


def _regime(reading: Reading, rows: Sequence[Row], several: set[str]) -> Finding | None:
    standings, cells = ranked(reading, rows)
    if not standings:
        return None
    best, second = standings[:2]
    lengths = sorted({row["length"] for cell in cells for row in cell.values()})
    symbol = "T" if rows[0]["shape"] == "square" else f"{rows[0]['shape']}, Tk"
    reach = f"{symbol}={lengths[0]}" + (f" to {lengths[-1]}" if len(lengths) > 1 else "")
    kind = ", ".join([str(rows[0]["direction"]), *(str(rows[0][n]) for n in KIND if n in several and n != "direction")])
    problems = f"{best.cells} {'problem' if best.cells == 1 else 'problems'}"
    where = f"{kind}, {reach} ({problems})"
    pairs = [reading.paired(cell[second.implementation], cell[best.implementation]) for cell in cells]
    known = [pair for pair in pairs if pair is not None]
    ahead = f"{second.implementation} takes {significant(second.ratio / best.ratio)}x its time"
    if known:
        span = f"[{significant(min(pair.lo for pair in known))}, {significant(max(pair.hi for pair in known))}]"
        unpaired = f"; {len(pairs) - len(known)} not paired" if len(known) < len(pairs) else ""
        ahead += f" (geometric mean; paired intervals within {span}{unpaired})"
    else:
        ahead += " (geometric mean; no round timed both)"
    few = [row for row in rows if row["implementation"] not in {one.implementation for one in standings}]
    without = f" Left out, timed on too few: {counted(few)}." if few else ""
    if 2 * best.wins <= best.cells:
        least = f"Least time in the geometric mean: {best.implementation}; {ahead}."
        return Finding(f"{where}: {_winners(standings)}. {least}{without}")
    won = f"clearly so on {best.wins} of {best.cells}"
    return Finding(f"{where}: {best.implementation} is fastest, {won}; the next, {ahead}.{without}")


def _winners(standings: Sequence[Standing]) -> str:
    """Who is clearly fastest on how many problems, where that is not the one with the least time on most of them."""
    winners = sorted((one for one in standings if one.wins), key=lambda one: -one.wins)
    often = ", ".join(f"{one.implementation} on {one.wins}" for one in winners)
    if not winners:
        return "nobody is clearly fastest on most; on none is anyone clearly ahead"
    if 2 * winners[0].wins > winners[0].cells:
        return f"clearly fastest are {often} of {winners[0].cells}"
    return f"nobody is clearly fastest on most; clearly fastest are {often}"


def doubts(rows: Sequence[Row]) -> Finding:
    """How many measured cells bear a flag, and which; one sentence."""
    measured = [row for row in rows if row["latency_ms"] is not None]
    borne = Counter(name for row in measured for name in row["flag_names"])
    if not measured:
        return Finding("Nothing was timed.")
    if not borne:
        return Finding(f"None of {len(measured)} times is flagged as doubtful.", "good")
    flagged = [row for row in measured if row["flag_names"]]
    most, count = Counter(row["implementation"] for row in flagged).most_common(1)[0]
    kinds = ", ".join(f"{number} {name}" for name, number in borne.most_common())
    out = " Impossible ones take part in no comparison." if borne["impossible"] else ""
    said = f"{len(flagged)} of {len(measured)} times are flagged as doubtful: {kinds}."
    return Finding(f"{said} Most of all: {most} ({count}).{out}", "bad")


def _facts(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the small table: one column per run."""
    tables = [_of(run) for run in runs]
    return ["", *(run.run_id for run in runs)], [[name, *(table[name] for table in tables)] for name in tables[0]]


def _of(run: Run) -> dict[str, str]:
    env, end = run.header.environment, run.end
    state = {True: ", with uncommitted changes", False: ", clean", None: ""}[env.git_dirty]
    versions = ", ".join(f"{name} {env.packages[name]}" for name in VERSIONS if env.packages.get(name))
    gpus = f", {len(env.gpus)} GPUs visible" if env.gpus and len(env.gpus) > 1 else ""
    return {
        "sweep": run.header.sweep_title,
        "machine": f"{env.hostname}: {env.cpu}, {env.cores} cores, {format_bytes(env.memory_bytes)}{gpus}",
        "measured on": f"{env.device}, {env.allocator} allocator",
        "versions": f"{versions or '-'}, Python {env.python}",
        "code": f"{env.git_commit[:10]}{state}" if env.git_commit else "not a git checkout",
        "when": f"{run.header.started_at}, {format_seconds(end.wall_s)}" if end else f"{run.header.started_at}, no end",
    }
