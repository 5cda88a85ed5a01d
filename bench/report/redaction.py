"""What leaves a machine with its report: no variable outside the allow-list, on demand no host, user, path or remote.

Runs are cleaned before anything is made of them, so page, figures, summary and the raw lines beside the page are clean
alike.
"""

from __future__ import annotations

import getpass
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.digest import Digest
from bench.evidence import Evidence
from bench.header import ALLOWED_VARIABLES, RunEnd, RunHeader
from bench.notebook import Note
from bench.record import Record
from bench.report.stored_profiles import Profiles
from bench.results import Run

HOST, USER, PATH, REMOTE, ADDRESS, GPU = "HOST", "USER", "PATH", "REMOTE", "ADDRESS", "GPU"
"""What stands in place of what was taken out; hosts and GPUs are numbered, so that they stay apart."""
GENERIC = frozenset({"root", "user", "users", "admin", "ubuntu", "debian", "runner", "shared", "public", "nobody"})
"""User names that name nobody."""
ENDINGS = (".py", ".toml", ".jsonl", ".json", ".csv", ".html")
"""A word of a command that ends so is a path."""
NUMBERS = {int, float, bool, type(None)}
"""Types that hold no string."""

_BREAK = r"\s'\"`:;,()\[\]{}<>|"
_HOMES = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)([^/\\" + _BREAK + "]+)")
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"`<>|]+"), REMOTE),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[\w.-]+:[\w./~-]+"), REMOTE),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[A-Za-z][\w.-]*"), ADDRESS),
    # A quoted path may hold blanks.
    (re.compile(r"(?<=')(?:~?/|\.{1,2}/|[A-Za-z]:[\\/]|\\\\)[^'\n]*(?=')"), PATH),
    (re.compile(r'(?<=")(?:~?/|\.{1,2}/|[A-Za-z]:[\\/]|\\\\)[^"\n]*(?=")'), PATH),
    (re.compile(rf"(?:\b[A-Za-z]:\\|\\\\)[^{_BREAK}]+"), PATH),
    (re.compile(rf"(?<![\w.)\]}}~/])(?:~[\w-]*|\.{{1,2}})?/[^{_BREAK}]+"), PATH),
    (re.compile(r"(?<![\w./-])[\w.-]+(?:/[\w.-]+)+\.[A-Za-z]\w{0,4}\b"), PATH),
)
"""What is replaced wherever it occurs. Units such as GB/s and fractions have a letter or digit before their slash."""


def presentable(run: Run) -> Run:
    """The run without environment variables outside the allow-list, which a file from elsewhere may hold."""
    environment = run.header.environment
    known = {name: value for name, value in environment.variables.items() if name in ALLOWED_VARIABLES}
    if known == environment.variables:
        return run
    cleaned = environment.model_copy(update={"variables": known})
    return replace(run, header=run.header.model_copy(update={"environment": cleaned}))


def redacted(runs: Sequence[Run], notes: Sequence[Note] = ()) -> tuple[list[Run], list[Note]]:
    """Runs and notes without host names, user names, paths, addresses, remotes and GPU identifiers in any string."""
    scrub = _scrubber(runs)
    return [_run(presentable(run), scrub) for run in runs], [_note(note, scrub) for note in notes]


def redacted_profiles(profiles: Profiles, runs: Sequence[Run]) -> Profiles:
    """Profiles of the runs as :func:`redacted` leaves the runs; where the files lie is left out."""
    scrub = _scrubber(runs, _within([one.digest.model_dump() for one in profiles.found]))
    found = [
        replace(
            one,
            digest=Digest.model_validate(_clean(one.digest.model_dump(), scrub)),
            folder=PATH,
            doubts=tuple(scrub(doubt) for doubt in one.doubts),
        )
        for one in profiles.found
    ]
    return Profiles(tuple(found), tuple(scrub(text) for text in profiles.refused))


def _run(run: Run, scrub: Callable[[str], str]) -> Run:
    header = _clean(run.header.model_dump(), scrub)
    header["command"] = _command(run.header.command, scrub)
    return replace(
        run,
        path=Path(f"{header['run_id']}.jsonl"),
        header=RunHeader.model_validate(header),
        records=[Record.model_validate(_clean(record.model_dump(), scrub)) for record in run.records],
        end=None if run.end is None else RunEnd.model_validate(_clean(run.end.model_dump(), scrub)),
        evidence=[Evidence.model_validate(_clean(one.model_dump(), scrub)) for one in run.evidence],
    )


def _note(note: Note, scrub: Callable[[str], str]) -> Note:
    return replace(note, machine=_clean(note.machine, scrub), content=_clean(note.content, scrub))


def _clean(value: Any, scrub: Callable[[str], str]) -> Any:
    """The value with every string in it scrubbed, keys included."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {scrub(name): _clean(one, scrub) for name, one in value.items()}
    if isinstance(value, list | tuple):
        if not {type(one) for one in value} - NUMBERS:  # samples: many, and no strings
            return value
        return [_clean(one, scrub) for one in value]
    return value


def _command(command: str, scrub: Callable[[str], str]) -> str:
    """The command line with every word that names a file replaced."""
    try:
        words = shlex.split(command)
    except ValueError:
        return scrub(command)
    cleaned = []
    for word in words:
        option, equals, value = word.rpartition("=")
        file = "/" in value or "\\" in value or value.endswith(ENDINGS)
        cleaned.append(f"{scrub(option)}{equals}{PATH}" if file else scrub(word))
    return shlex.join(cleaned)


@dataclass(frozen=True)
class _Scrub:
    """Replaces names that are known to be private, then whatever looks like a path or a remote."""

    names: tuple[tuple[re.Pattern[str], str], ...]

    def __call__(self, text: str) -> str:
        for pattern, word in (*self.names, *_RULES):
            text = pattern.sub(word, text)
        return text


def _scrubber(runs: Sequence[Run], more: Iterable[str] = ()) -> _Scrub:
    texts = [*(text for run in runs for text in _strings(run)), *more]
    hosts = dict.fromkeys(run.header.environment.hostname for run in runs)
    users = {match for text in texts for match in _HOMES.findall(text)} | {_login()}
    users -= GENERIC | {""}
    gpus = dict.fromkeys(gpu.uuid for run in runs for gpu in run.header.environment.gpus or ())
    known: dict[str, str] = {}
    for number, host in enumerate(hosts, start=1):
        known |= {name: f"{HOST}-{number}" for name in (host, host.partition(".")[0]) if name}
    known |= {uuid: f"{GPU}-{number}" for number, uuid in enumerate(gpus, start=1) if uuid}
    known |= {user: USER for user in users if user not in known}
    longest = sorted(known, key=len, reverse=True)
    return _Scrub(tuple((re.compile(rf"(?<![A-Za-z0-9_]){re.escape(n)}(?![A-Za-z0-9_])"), known[n]) for n in longest))


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        return ""


def _strings(run: Run) -> Iterator[str]:
    """Strings that may hold a home folder."""
    yield run.header.command
    yield from _within(run.header.model_dump())
    for record in run.records:
        yield from (text for text in (record.reason, *(flag.reason for flag in record.flags)) if text)
        yield from _within(record.notes)
        if record.agreement is not None:
            yield from _within([record.agreement.missing, [one.detail for one in record.agreement.checks.values()]])
    yield from (text for one in run.evidence for text in _within(one.model_dump()))


def _within(value: Any) -> Iterator[str]:
    """All strings in a value made of maps and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for one in value.values() for text in _within(one))
    elif isinstance(value, list | tuple):
        yield from (text for one in value for text in _within(one))
