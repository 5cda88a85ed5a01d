"""The command line that measures one cell again."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise

from bench.header import RunHeader
from bench.problem import Problem
from bench.record import Record

# Options that choose cells or concern the original run alone, with the number of values each takes.
_DROPPED = {
    "-i": 1,
    "--implementation": 1,
    "-I": 1,
    "--not-implementation": 1,
    "-p": 1,
    "--problem": 1,
    "-P": 1,
    "--not-problem": 1,
    "--resume": 1,
    "--time-budget": 1,
    "--format": 1,
    "--dry-run": 0,
}


FILTERED = ("run", "measure", "verify")
"""Verbs that measure what ``-i`` and ``-p`` choose of a sweep."""
ELSE = ("attention-bench", "measure", "--sweep", "smoke")
"""Measures one problem that ``--set`` describes, where the run's own verb takes no choice of cells."""


def repeat_command(record: Record, header: RunHeader) -> str:
    """The command line that measures this one cell again, quoted for a shell.

    It is the run's own command, so that sweep, axes, device and allocator stay, with its choice of cells
    replaced. Where that command takes no choice, it is one that measures the same problem on the same kind of device.
    """
    chosen = f"-p {exactly(record.problem.key)}" if selects(header) else described(record.problem)
    return f"{unselected(header)} -i {exactly(record.implementation)} {chosen}"


def selects(header: RunHeader) -> bool:
    """Whether the run's own command takes ``-i`` and ``-p``."""
    return _words(header)[1:2] in [[verb] for verb in FILTERED]


def described(problem: Problem) -> str:
    """Options that make any sweep consist of this problem, quoted for a shell."""
    fields = {name: value for name, value in problem.model_dump(mode="json").items() if value is not None}
    return " ".join(f"--set {shlex.quote(f'{name}={value}')}" for name, value in fields.items())


def _words(header: RunHeader) -> list[str]:
    """The words of the run's command; none where it is no command line."""
    try:
        return shlex.split(header.command)
    except ValueError:
        return []


def unselected(header: RunHeader) -> str:
    """The run's own command without its choice of cells, quoted for a shell; another where it takes no choice."""
    words = _words(header)
    if not selects(header):
        environment = header.environment
        device = "cpu" if environment.device == "cpu" else "cuda"
        files = [path for option, path in pairwise(words) if option == "--load"]
        files += [word.partition("=")[2] for word in words if word.startswith("--load=")]
        loaded = [part for path in files for part in ("--load", path)]
        return shlex.join([*ELSE, "--device", device, "--allocator", environment.allocator, *loaded])
    kept, skip = [], 0
    for word in words:
        if skip:
            skip -= 1
        elif word.split("=", 1)[0] in _DROPPED:
            skip = 0 if "=" in word else _DROPPED[word.split("=", 1)[0]]
        else:
            kept.append(word)
    return shlex.join(kept)


def exactly(text: str) -> str:
    """A regular expression that matches ``text`` and nothing else, quoted for a shell.

    ``re.escape`` would also escape dashes.
    """
    escaped = re.sub(r"([\\.^$*+?{}()|[\]])", r"\\\1", text)
    return shlex.quote(f"^{escaped}$")
