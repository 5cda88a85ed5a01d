"""Why a measured cell is as fast as it is: sentences that follow from stored data, each with the numbers behind it.

A sentence whose data are missing is not said; a :class:`Refusal` names what is missing. Where intervals overlap, or
where no known limit takes half of the time, the sentence begins with INCONCLUSIVE. The definitions:

| regime | what takes at least half of the time |
|---|---|
| compute-bound | the FLOP at the best measured rate of products |
| bandwidth-bound | the least bytes at the best measured bandwidth, where the data do not fit into the last cache |
| cache-bound | the same, where they do |
| launch-bound | what does not grow with the FLOP, from this cell and a neighbour of another length |

A profile of the cell, where one is stored, tells for each stage which roof it is nearest to: one that most of the time
is nearest to, and reaches half of, bounds the cell. That verdict is held beside the one of the limits, and two that
contradict one another are INCONCLUSIVE.

Source for the roofline: S. Williams, A. Waterman, D. Patterson, Roofline (2009).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.digest import DIGEST_FILE, Digest, load_digest
from bench.errors import OutputError
from bench.explanation._best import best
from bench.explanation._cell import Cell, Refusal, Sentence, Support, Topic
from bench.explanation._dominates import dominates
from bench.explanation._growth import growth
from bench.explanation._memory import memory
from bench.explanation._outcome import outcome
from bench.explanation._regime import regime
from bench.explanation._roof import roof
from bench.explanation._setup import setup
from bench.explanation._written import markdown_lines, text_lines
from bench.record import Record
from bench.results import Run

__all__ = [
    "Cell",
    "Explanation",
    "Refusal",
    "Sentence",
    "Support",
    "elsewhere",
    "explain",
    "markdown_lines",
    "stored_digest",
    "text_lines",
]

TOPICS: tuple[Topic, ...] = (outcome, regime, roof, dominates, growth, memory, best, setup)
"""In the order in which they are said."""


@dataclass(frozen=True)
class Explanation:
    """What is known about the speed of one cell."""

    run_id: str
    problem: str
    """Key of the problem."""
    implementation: str
    device: str
    sentences: tuple[Sentence, ...]
    refusals: tuple[Refusal, ...]
    """What is not said, and why; each reason once, with all topics that it concerns."""


def explain(
    run: Run,
    record: Record,
    digest: Digest | None = None,
    digest_reason: str | None = None,
    others: Mapping[str, Digest] | None = None,
) -> Explanation:
    """Explain a cell of a run.

    Args:
        run: the run; its other cells are the neighbours and the rivals.
        record: the cell.
        digest: its profile, if there is one.
        digest_reason: why there is none.
        others: profiles of other implementations on the same problem, by name.
    """
    cell = Cell(run, record, digest, digest_reason, others or {})
    said = [one for topic in TOPICS for one in topic(cell)]
    refusals: dict[str, Refusal] = {}
    for one in said:
        if isinstance(one, Refusal):
            known = refusals.get(one.reason)
            topics = one.topic if known is None or one.topic == known.topic else f"{known.topic}, {one.topic}"
            refusals[one.reason] = Refusal(topics, one.reason)
    return Explanation(
        run_id=run.run_id,
        problem=record.problem.key,
        implementation=record.implementation,
        device=record.device,
        sentences=tuple(one for one in said if isinstance(one, Sentence)),
        refusals=tuple(refusals.values()),
    )


def stored_digest(run: Run, record: Record, folder: Path) -> tuple[Digest | None, str | None]:
    """The newest profile of the cell anywhere in ``folder`` that speaks of the run's machine; or why there is none."""
    how = f"`attention-bench profile -i {record.implementation} -p {record.problem.key}` makes one"
    reason = f"there is no profile of this cell in {folder}; {how}"
    for path in sorted(folder.rglob(DIGEST_FILE), key=lambda found: found.stat().st_mtime, reverse=True):
        try:
            digest = load_digest(path)
        except OutputError as error:
            reason = str(error)
            continue
        if (digest.problem, digest.implementation) != (record.problem, record.implementation):
            continue
        if other := elsewhere(run, record, digest):
            reason = f"the profile {path} is not of this run's machine: {other}; {how}"
            continue
        return digest, None
    return None, reason


def elsewhere(run: Run, record: Record, digest: Digest) -> str | None:
    """What differs between where the profile and the run were made; None if nothing does."""
    environment = run.header.environment
    pairs: dict[str, tuple[object, object]] = {
        "device": (digest.device_name, record.device),
        "threads": (digest.threads, environment.torch_threads),
        "version": (digest.implementation_version, record.implementation_version),
    }
    if record.device != "cpu":
        del pairs["threads"]
    if digest.cpu is not None:
        pairs["processor"] = (digest.cpu, environment.cpu)
    differing = [f"{name} {one}, not {other}" for name, (one, other) in pairs.items() if one != other]
    return ", ".join(differing) or None
