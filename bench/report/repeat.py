"""The command line that measures one cell again."""

from __future__ import annotations

import re
import shlex

from bench.header import RunHeader
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


def repeat_command(record: Record, header: RunHeader) -> str:
    """The command line that measures this one cell again, quoted for a shell.

    It is the run's own command, so that sweep, axes, device and allocator stay, with its choice of cells
    replaced.
    """
    return f"{unselected(header)} -i {exactly(record.implementation)} -p {exactly(record.problem.key)}"


def unselected(header: RunHeader) -> str:
    """The run's own command without its choice of cells, quoted for a shell."""
    words = shlex.split(header.command) or ["attention-bench", "run"]
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
