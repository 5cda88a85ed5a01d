"""The other end of :mod:`bench.ab_arm`: starts the process of one side and asks it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from bench.clocks import Block
from bench.environment import ALLOCATORS, worker_variables
from bench.errors import BenchError

ARM = Path(__file__).with_name("ab_arm.py")
ANSWER_S = 120.0
"""A side that does not answer for so long is ended, and the cell counts as crashed."""
START_S = 600.0
"""Importing torch on a busy machine may take longer than any cell."""
LOG_CHARS = 500
"""So much of the end of what a side printed is part of a message."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side."""

    title: str
    tree: Path
    """Root of a checkout."""
    python: str = sys.executable
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that it has and the other one may lack."""
    implementation: str | None = None
    """Stands in for the implementation of every cell; None leaves each its own."""
    load: tuple[Path, ...] = ()


class Worker:
    """The process of one side: it imports the side's code, and forks one that computes for each pair."""

    def __init__(self, side: Side, device: str, allocator: str) -> None:
        self.side, self.device = side, device
        # The sides take turns: threads of the one that waits must not spin while the other one is timed.
        settings = {"OMP_WAIT_POLICY": "PASSIVE"} | worker_variables(allocator) | dict(side.settings)
        plain = {name: value for name, value in os.environ.items() if name not in ALLOCATORS["warm"]}
        self.environment = plain | settings | {"PYTHONPATH": str(side.tree)}
        self.start()

    def start(self) -> None:
        """Begin, without waiting until it is ready."""
        self.connection, theirs = Pipe()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  # ends with the process that writes to it
        command = [self.side.python, "-P", str(ARM), str(theirs.fileno())]
        self.process = subprocess.Popen(
            command,
            env=self.environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,  # so that it ends together with what it forked
        )
        theirs.close()
        self.imported = False
        self.overhead_ns: int | None = None
        """What an empty block takes; None while no process computes."""

    def ready(self) -> None:
        """Wait until a process is there to compute, and see that it runs the code that it should.

        Raises:
            BenchError: if it does not.
        """
        if self.overhead_ns is not None:
            return
        try:
            if not self.imported:
                tree = self.answer(START_S)
                if Path(tree) != self.side.tree.resolve():
                    raise BenchError(
                        f"side {self.side.title} must run the code of {self.side.tree}, got {tree}. "
                        "Name another Python."
                    )
                self.imported = True
            self.connection.send("fork")
            # As texts: a Python of another version may not know what this one makes of a path.
            self.connection.send(("start", self.device, [str(path) for path in self.side.load]))
            kind, answer = self.answer(START_S)
        except (EOFError, OSError) as error:
            raise BenchError(
                f"side {self.side.title} must start, got {str(error) or 'its end'}. It said: {self.said()}"
            ) from error
        if kind == "failed":
            raise BenchError(f"side {self.side.title} must start, got {answer}. Is its code older than this verb?")
        self.overhead_ns = int(answer)

    def said(self) -> str:
        """The end of what it printed."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace").strip()[-LOG_CHARS:] or "nothing"

    def ask(self, *words: Any) -> Any:
        """The answer to one request.

        Raises:
            BenchError: with what the other side raised.
        """
        self.connection.send(words)
        kind, answer = self.answer()
        if kind == "ended":
            raise EOFError(f"the process ended with exit code {answer}")
        if kind == "failed":
            raise BenchError(f"side {self.side.title} must answer, got {answer}")
        return answer

    def answer(self, seconds: float = ANSWER_S) -> Any:
        """What it sends next; EOFError if it died, TimeoutError if it hangs."""
        if not self.connection.poll(seconds):
            self.kill()
            raise TimeoutError(f"no answer for {seconds:g} s; the process was ended")
        return self.connection.recv()

    def time_block(self, calls: int) -> Block:
        """One block."""
        return Block(*self.ask("block", calls))

    def kill(self) -> None:
        """End it with all that it forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """A process that nobody used before computes within."""
        try:
            yield
        finally:
            if self.overhead_ns is not None:
                self.overhead_ns = None
                self.connection.send(("end",))
                self.answer()

    def end(self) -> None:
        """Hang up and wait."""
        self.connection.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
        self.log.close()


@contextmanager
def working(side: Side, device: str, allocator: str) -> Iterator[Worker]:
    """A worker that is ended afterwards."""
    worker = Worker(side, device, allocator)
    try:
        yield worker
    finally:
        worker.end()
