"""Which stored profiles speak of the cells of a report, and what to know before believing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.digest import DIGEST_FILE, Digest, load_digest
from bench.errors import OutputError
from bench.explanation import Cell, elsewhere
from bench.record import Record
from bench.results import Run

SHORT = 10
"""Digits of a commit that are shown."""


@dataclass(frozen=True)
class Profile:
    """A stored profile of one cell of the report."""

    digest: Digest
    folder: str
    """Where it and its native files lie."""
    doubts: tuple[str, ...] = ()
    """What makes it another state than the one that the run measured."""


@dataclass(frozen=True)
class Profiles:
    """The profiles that belong to a report, and those that do not although they are of its cells."""

    found: tuple[Profile, ...] = ()
    """The newest of each cell; of one problem side by side, short lengths first."""
    refused: tuple[str, ...] = ()
    """One sentence for each that was made elsewhere."""


NO_PROFILES = Profiles()


def find_profiles(runs: Sequence[Run], folder: Path) -> Profiles:
    """Profiles of the runs' cells that lie in ``folder`` at any depth, the newest of each cell.

    A profile is of a cell if it has the same problem and implementation, and was made on the same device and processor,
    with the same version of the implementation and as many threads. Files that are no digests are passed over.
    """
    cells: dict[tuple[str, str], list[tuple[Run, Record]]] = {}
    for run in reversed(runs):
        for record in run.records:
            cells.setdefault((record.implementation, record.problem.key), []).append((run, record))
    found: dict[tuple[str, str], Profile] = {}
    refused: dict[tuple[str, str], str] = {}
    for path in sorted(folder.rglob(DIGEST_FILE), key=lambda file: file.stat().st_mtime, reverse=True):
        try:
            digest = load_digest(path)
        except OutputError:
            continue
        cell = (digest.implementation, digest.problem.key)
        if cell in found or cell not in cells:
            continue
        reasons = [elsewhere(run, record, digest) for run, record in cells[cell]]
        if None in reasons:
            run, record = cells[cell][reasons.index(None)]
            found[cell] = Profile(digest, str(path.parent), _doubts(run, record, digest))
        else:
            refused.setdefault(cell, f"{cell[0]} on {cell[1]} in {path.parent}: {reasons[0]}.")
    ordered = sorted(found.values(), key=lambda one: (one.digest.problem.seqlen_k, one.digest.implementation))
    return Profiles(tuple(ordered), tuple(text for cell, text in refused.items() if cell not in found))


def _doubts(run: Run, record: Record, digest: Digest) -> tuple[str, ...]:
    environment = run.header.environment
    profiled = _state(digest.git_commit, digest.git_dirty)
    measured = _state(environment.git_commit, environment.git_dirty)
    doubts = [f"profiled at {profiled}, measured at {measured}"] if profiled != measured else []
    slower = Cell(run, record, digest).profile_doubt
    return (*doubts, *([slower] if slower else []))


def _state(commit: str | None, dirty: bool | None) -> str:
    if commit is None:
        return "a commit that is not known"
    return f"commit {commit[:SHORT]}{' with uncommitted changes' if dirty else ''}"
