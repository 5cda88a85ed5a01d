"""Processes that are started anew so that memory seen from outside equals memory that is alive.

A fresh interpreter is spawned, not forked, because glibc reads its allocator's settings once, at start. With these
settings every large block is a mapping of its own and freed memory goes back at once: otherwise freed arenas hide a
peak from the resident-set mark, and holes between blocks make a limit bite too early. They are the wrong settings for
timing.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bench.lifeline import end_with_parent

VARIABLES: dict[str, str | None] = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_MMAP_MAX_": None,
}
"""Environment variables that the process starts with; None takes one away."""


def start(
    target: Callable[..., None], *args: Any, settings: Mapping[str, str | None] = VARIABLES
) -> tuple[BaseProcess, Connection]:
    """Run ``target(*args, connection)`` in a fresh process that starts with ``settings``.

    Returns:
        The process, and this end of the connection; both ends can send.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_enter, args=(target, *args, theirs))
    with variables(settings):
        process.start()
    theirs.close()
    return process, ours


@contextmanager
def variables(changes: Mapping[str, str | None]) -> Iterator[None]:
    """The environment with ``changes``, for a process that is started meanwhile."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def own_bytes(field: str, path: Path = Path("/proc/self/status")) -> int | None:
    """A figure in kB of this process's status, for example ``VmHWM``, in bytes; None where the kernel lacks it."""
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _enter(target: Callable[..., None], *args: Any) -> None:
    """In the process: end with the parent, and keep what libraries print when memory ends from the user's terminal."""
    end_with_parent()
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    target(*args)
