"""The store: one append-only JSON Lines file per run, and reading it back.

Writing: the file is created exclusively (two runs in the same second get two files), each line is one
``write()``, flushed and fsynced, so a kill at any moment costs at most the line in flight. A file that is removed
meanwhile is put back. Reading: an unterminated last line is dropped and counted, never guessed at.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bench.errors import BenchError, OutputError
from bench.evidence import Evidence
from bench.header import RunEnd, RunHeader
from bench.record import SCHEMA_VERSION, Line, Record

_LINE: TypeAdapter[Line] = TypeAdapter(Line)

UPGRADES: dict[int, Callable[[Any], Any]] = {1: lambda line: line, 2: lambda line: line}
"""schema_version -> function that turns a line (a dict) of that version into one of the next. Version 2 only added
fields that may be absent, version 3 only a kind of line."""


def new_run_id(now: datetime | None = None) -> str:
    """A name that sorts by time and does not collide: ``20261130T094512Z-3fa9``."""
    return f"{(now or datetime.now(UTC)).strftime('%Y%m%dT%H%M%SZ')}-{secrets.token_hex(2)}"


def timestamp() -> str:
    """Now, ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunWriter:
    """Appends lines to one new file; opening it proves that the folder can be written."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.path = folder / f"{run_id}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._file = os.fdopen(os.open(self.path, flags, 0o644), "r+b", buffering=0)
        except OSError as error:
            raise OutputError(
                f"output folder must be writable, got {str(folder)!r} ({error.strerror}). Choose another with --output."
            ) from error

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def write(self, line: Line) -> None:
        """Append one line and force it to disk.

        Raises:
            OutputError: if it cannot be written, or the file was taken away; nothing written before is lost.
        """
        text = json.dumps(line.model_dump(mode="json"), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        data = text.encode() + b"\n"
        try:
            if self._file.write(data) != len(data):  # a full disk cuts a write short before it refuses one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OutputError(
                f"results file must be writable, got {str(self.path)!r} ({error.strerror}). "
                "What was written so far is whole; free some space and use --resume."
            ) from error
        if os.fstat(self._file.fileno()).st_nlink == 0:
            self._put_back()

    def _put_back(self) -> None:
        """The file was removed, perhaps with its folder: write all that it held to its path again, and stop the run."""
        self._file.seek(0)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(self._file.readall())
        except OSError as error:
            raise OutputError(
                f"results file must stay in place during a run, got {str(self.path)!r} removed, and it could not be "
                f"put back ({error.strerror}): its cells are lost. Run again with another --output."
            ) from error
        raise OutputError(
            f"results file must stay in place during a run, got {str(self.path)!r} removed. It was put back with every "
            "finished cell; use --resume to measure the rest."
        )

    def discard(self) -> None:
        """Close and remove the file; used when nothing came of the run."""
        self._file.close()
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Run:
    """One results file, read back."""

    path: Path
    header: RunHeader
    records: list[Record]
    end: RunEnd | None
    """None if the run was interrupted hard or is still going on."""
    dropped_lines: int = 0
    """Unterminated last lines that were dropped: 0 or 1."""
    evidence: Sequence[Evidence] = ()
    """Paired comparisons and demonstrations."""

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self.header.run_id


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the search for unreachable cycles, which walks through all records again and again while more are made.

    Records and rows hold no cycles. On 20,000 records it takes a fifth of the time of a report, and frees nothing.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@uncollected()
def read_run(path: Path) -> Run:
    """Read one results file.

    Raises:
        OutputError: if the file is missing, is no results file, or a whole line is not valid.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise OutputError(
            f"results file must be readable, got {str(path)!r} ({error.strerror}). Check the path."
        ) from error
    whole, _, tail = raw.rpartition(b"\n")
    lines: list[Line] = []
    version = SCHEMA_VERSION
    for number, text in enumerate(whole.split(b"\n") if whole else [], start=1):
        try:
            if number == 1:
                version = _schema_version(json.loads(text), path)
            lines.append(_line(text, version))
        except OutputError:
            raise
        except (ValueError, RecursionError, BenchError) as error:
            detail = str(error).splitlines()
            raise OutputError(
                f"results file must hold valid lines, got {path}:{number}: {' '.join(detail[:3])}. "
                "It may come from another version of attention-bench."
            ) from error
    if not lines:
        raise OutputError(
            f"results file must begin with a run line, got {str(path)!r} without a whole line. "
            "A run that is ended at its very start leaves such a file; choose another."
        )
    header, last = lines[0], lines[-1]
    end = last if isinstance(last, RunEnd) else None
    records = [line for line in lines if isinstance(line, Record)]
    evidence = [line for line in lines if isinstance(line, Evidence)]
    if not isinstance(header, RunHeader) or len(lines) != 1 + len(records) + len(evidence) + (end is not None):
        raise OutputError(
            f"results file must begin with a run line and hold one run, got {str(path)!r}. Is it a results file?"
        )
    return Run(path=path, header=header, records=records, end=end, dropped_lines=1 if tail else 0, evidence=evidence)


def read_chain(path: Path) -> Run:
    """A run with what it took over, or would have: the records of the runs that it resumed follow its own.

    A resumed run that was ended at its start holds few of the cells that its predecessors measured.

    Raises:
        OutputError: if one of the files is no results file; one that is missing ends the chain.
    """
    run = read_run(path)
    records, evidence = list(run.records), list(run.evidence)
    seen, earlier = {run.run_id}, run.header.resumed_from
    while earlier is not None and earlier not in seen and (path.parent / f"{earlier}.jsonl").is_file():
        seen.add(earlier)
        older = read_run(path.parent / f"{earlier}.jsonl")
        records += older.records
        evidence += older.evidence
        earlier = older.header.resumed_from
    return replace(run, records=records, evidence=evidence)


def find_run(name: str, folder: Path) -> Path:
    """The results file for a path, a run id, a unique beginning of one, or ``latest``.

    ``latest`` passes over files without a whole line: their runs were ended before they began.

    Raises:
        OutputError: if there is none, or more than one.
    """
    if Path(name).is_file():
        return Path(name)
    files = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    if name in ("latest", "auto"):
        found = [path for path in files if _has_line(path)][-1:]
    else:
        found = [path for path in files if path.stem.startswith(name)]
    if len(found) != 1:
        known = ", ".join(path.stem for path in files[-3:]) or "none; `attention-bench run` makes one"
        raise OutputError(f"run must name one results file, got {name!r} ({len(found)} match). Latest runs: {known}.")
    return found[0]


def _has_line(path: Path) -> bool:
    """Whether the file holds a whole line, or cannot be read, which reading it will then say."""
    try:
        with path.open("rb") as file:
            return file.readline().endswith(b"\n")
    except OSError:
        return True


def _schema_version(header: Any, path: Path) -> int:
    """Schema version of a file by its first line, which says so before it is validated."""
    version = header.get("schema_version") if isinstance(header, dict) else None
    if type(version) is not int or version < 1:  # True is an int, too
        raise OutputError(f"results file must begin with a run line, got {str(path)!r}. Is it a results file?")
    if version > SCHEMA_VERSION:
        raise OutputError(
            f"results file must have a schema_version of at most {SCHEMA_VERSION}, got {version} in "
            f"{str(path)!r}. Update attention-bench."
        )
    return version


def _line(text: bytes, version: int) -> Line:
    """A line of schema ``version``; one of the present schema is read without a step between, in half the time."""
    if version == SCHEMA_VERSION and b"NaN" not in text and b"Infinity" not in text:
        return _LINE.validate_json(text)
    return _LINE.validate_python(_upgrade(json.loads(text, parse_constant=_refuse_constant), version))


def _upgrade(fields: Any, version: int) -> Any:
    """A line of schema ``version`` as a line of the present one."""
    for step in range(version, SCHEMA_VERSION):
        fields = UPGRADES[step](fields)
    return fields


def _refuse_constant(token: str) -> None:
    """NaN and Infinity are no JSON; a missing number is null with a reason."""
    raise ValueError(f"{token} is not JSON")


def ensure_folder(folder: Path) -> None:
    """Make ``folder`` and prove that a file can be written there, before anything is measured.

    Raises:
        OutputError: if it cannot.
    """
    probe = folder / f".{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OutputError(
            f"output folder must be writable, got {str(folder)!r} ({error.strerror}). Choose another one."
        ) from error
