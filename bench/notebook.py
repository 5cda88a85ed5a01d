"""The notebook of the soundness experiments: one append-only JSON Lines file of observations and findings.

An observation is one unit of one experiment with the machine and the commit it was made with; a finding is what an
experiment concluded from all observations so far. The last finding of an experiment counts. Reading needs no torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from bench.errors import OutputError

LOCAL = Path("results/soundness.jsonl")
"""The notebook of this machine; not committed."""
PUBLISHED = Path("results/published/soundness.jsonl")
"""The committed notebook."""
GATE = "gate_mutants"
"""Experiment under which ``verify --mutants`` stores the score of the correctness gate."""


@dataclass(frozen=True)
class Note:
    """One line."""

    type: Literal["observation", "finding"]
    experiment: str
    """Name of the experiment."""
    unit: str
    """Key of the unit; empty for a finding."""
    at: str
    """ISO 8601, UTC."""
    machine: dict[str, Any]
    """Processor, cores, versions, commit."""
    seconds: float
    """What the unit took; 0 for a finding."""
    content: dict[str, Any]
    """The observation, or the fields of the finding with title, target and the number of units."""


def append(path: Path, note: Note) -> None:
    """Append one line, in one write, forced to disk.

    Raises:
        OutputError: if the file cannot be written.
    """
    data = json.dumps(asdict(note), allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _end_line(path)
        with path.open("ab", buffering=0) as file:
            if file.write(data) != len(data):
                raise OSError("the disk is full")
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(
            f"notebook must be writable, got {str(path)!r} ({error}). What is in it stays; run again to go on."
        ) from error


def read_notes(path: Path) -> Iterator[Note]:
    """Every whole line; a last line without its end was cut by a kill and is dropped.

    Raises:
        OutputError: if a whole line is no note.
    """
    if not path.exists():
        return
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    for number, line in enumerate(whole.split(b"\n") if whole else [], start=1):
        try:
            yield Note(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise OutputError(
                f"notebook must hold valid lines, got {path}:{number}: {error}. Remove that line or name another file."
            ) from error


def latest_findings(path: Path) -> list[Note]:
    """The last finding of each experiment, in the order of their names."""
    latest = {note.experiment: note for note in read_notes(path) if note.type == "finding"}
    return [latest[name] for name in sorted(latest)]


def present_notebook() -> Path | None:
    """This machine's notebook; else the committed one of the checkout that holds this package; None outside one."""
    if LOCAL.exists():
        return LOCAL
    path = Path(str(resources.files("bench"))).parent / PUBLISHED
    return path if path.exists() else None


def present_findings() -> list[Note]:
    """The latest findings of the committed notebook, each replaced by this machine's own where there is one.

    Raises:
        OutputError: if a whole line of either is no note.
    """
    committed = Path(str(resources.files("bench"))).parent / PUBLISHED
    latest = {note.experiment: note for path in (committed, LOCAL) for note in latest_findings(path)}
    return [latest[name] for name in sorted(latest)]


def _end_line(path: Path) -> None:
    """Cut an unterminated last line away, so that what is appended starts a line of its own."""
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)
