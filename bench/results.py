"""The store: one append-only JSON Lines file per run, and reading it back.

Writing: the file is created exclusively (two runs in the same second get two files), each line is one
``write()``, flushed and fsynced, so a kill at any moment costs at most the line in flight. Reading: an
unterminated last line is dropped and counted, never guessed at.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bench.errors import BenchError, OutputError
from bench.record import SCHEMA_VERSION, Line, Record, RunEnd, RunHeader

_LINE: TypeAdapter[Line] = TypeAdapter(Line)

UPGRADES: dict[int, Callable[[Any], Any]] = {}
"""schema_version -> function that turns a line (a dict) of that version into one of the next."""


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
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._file = os.fdopen(os.open(self.path, flags, 0o644), "wb", buffering=0)
        except OSError as error:
            raise OutputError(
                f"output folder must be writable, got {str(folder)!r} ({error.strerror}). Choose another with --output."
            ) from error

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def write(self, line: Line) -> None:
        """Append one line and force it to disk."""
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

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self.header.run_id


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
            fields = json.loads(text, parse_constant=_refuse_constant)
            if number == 1:
                version = _schema_version(fields, path)
            lines.append(_LINE.validate_python(_upgrade(fields, version)))
        except OutputError:
            raise
        except (ValueError, BenchError) as error:
            detail = str(error).splitlines()
            raise OutputError(
                f"results file must hold valid lines, got {path}:{number}: {' '.join(detail[:3])}. "
                "It may come from another version of attention-bench."
            ) from error
    header = lines[0] if lines else None
    if not isinstance(header, RunHeader):
        raise OutputError(f"results file must begin with a run line, got {str(path)!r}. Is it a results file?")
    end = lines[-1] if isinstance(lines[-1], RunEnd) else None
    records = [line for line in lines if isinstance(line, Record)]
    return Run(path=path, header=header, records=records, end=end, dropped_lines=1 if tail else 0)


def find_run(name: str, folder: Path) -> Path:
    """The results file for a path, a run id, a unique beginning of one, or ``latest``.

    Raises:
        OutputError: if there is none, or more than one.
    """
    if Path(name).is_file():
        return Path(name)
    files = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    if name in ("latest", "auto") and files:
        return files[-1]
    found = [path for path in files if path.stem.startswith(name)]
    if len(found) != 1:
        known = ", ".join(path.stem for path in files[-3:]) or "none; `attention-bench run` makes one"
        raise OutputError(f"run must name one results file, got {name!r} ({len(found)} match). Latest runs: {known}.")
    return found[0]


def _schema_version(header: Any, path: Path) -> int:
    """Schema version of a file by its first line, which says so before it is validated."""
    version = header.get("schema_version") if isinstance(header, dict) else None
    if not isinstance(version, int):
        raise OutputError(f"results file must begin with a run line, got {str(path)!r}. Is it a results file?")
    if version > SCHEMA_VERSION:
        raise OutputError(
            f"results file must have a schema_version of at most {SCHEMA_VERSION}, got {version} in "
            f"{str(path)!r}. Update attention-bench."
        )
    return version


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
