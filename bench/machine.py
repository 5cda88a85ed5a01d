"""What only a process with torch can say of this machine, asked before anything is planned."""

from __future__ import annotations

from pathlib import Path

from bench.errors import BenchError, UsageError
from bench.server import worker_context
from bench.worker import Ceiling, Description, describe


def describe_machine(
    device: str | None, allocator: str, load: tuple[Path, ...] = (), ceilings: Ceiling = "none"
) -> Description:
    """Ask a fresh worker what torch, the device and the implementations are.

    Raises:
        UsageError: if the device that was asked for is not there.
        BenchError: if the worker dies.
    """
    context = worker_context(allocator)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=describe, args=(device, load, ceilings, sender), daemon=True)
    process.start()
    sender.close()
    try:
        description: Description = receiver.recv()
    except EOFError:
        process.join()
        raise BenchError(
            f"worker process must start, got exit code {process.exitcode}. Run `python -c 'import torch'` to see why."
        ) from None
    process.join()
    if description.problem is not None:
        raise UsageError(
            f"device must be one that torch can use, got {device!r} ({description.problem}). Use --device cpu."
        )
    return description
