"""Parent and worker outlive each other in no way: what either does when the other is gone.

A worker stands in a process group of its own, so that whatever it started itself ends with it. It watches for the end
of its parent from a thread: the fork server, not the parent, is its parent to the kernel, and each worker keeps that
server alive, so no signal of the kernel would come.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

LOG_CHARS = 300
"""How much of a dead worker's last output is quoted."""


def end_with_parent() -> None:
    """In a worker: from now on, end with everything started here as soon as the parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is None:  # called outside of a worker: there is nothing to end with
        return
    os.setpgid(0, 0)

    def watch() -> None:
        parent.join()  # returns when the pipe that the parent holds is closed: by its end, if by nothing else
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="ends with the parent", daemon=True).start()


def end_worker(process: BaseProcess) -> None:
    """In the parent: end a worker and all that it started, if it is still there, and wait until it is gone."""
    assert process.pid is not None, "a worker that is ended was started"
    with suppress(ProcessLookupError):  # it is gone, or not yet in a group of its own
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def has_message(receiver: Connection, process: BaseProcess, timeout_s: float) -> bool:
    """Whether a message of the worker can be read; waits up to ``timeout_s`` for one.

    Raises:
        EOFError: if the worker is gone and all that it sent was read. The pipe alone would not say so while a process
            that the worker forked holds the other end.
    """
    ready = wait([receiver, process.sentinel], timeout_s)
    if ready and receiver not in ready and not receiver.poll(0):  # it may have sent between the two looks
        raise EOFError
    return bool(ready)


def how_it_ended(exitcode: int | None, log: Path) -> str:
    """In words, how a worker ended that was not asked to, with the last that it said.

    Args:
        exitcode: negative for a signal.
        log: where its output went.
    """
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        how = f"the process was ended by {name}"
        if name == "SIGKILL":
            how += ", perhaps by the kernel for lack of memory"
    else:
        how = f"the process ended with exit code {exitcode}"
    try:
        # torch's profiler prints USDT lines of its own; they say nothing of the death
        lines = [line for line in log.read_text(errors="replace").splitlines() if not line.startswith("USDT:")]
    except OSError:
        lines = []
    tail = "\n".join(lines).strip()[-LOG_CHARS:]
    return f"{how}; its last output: {tail}" if tail else how
