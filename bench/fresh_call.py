"""A function called in a fresh worker process, the unit of inference of everything that is timed here."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.server import worker_context
from bench.worker import detach


def in_fresh_process(function: Callable[..., Any], *arguments: Any, log: Path, allocator: str = "warm") -> Any:
    """Call ``function(*arguments)`` in a worker process and give its result.

    Args:
        function: found by name in its module; its arguments and its result are pickled.
        arguments: handed on.
        log: where the worker's own output goes.
        allocator: setting of the worker; see :mod:`bench.environment`.

    Raises:
        BenchError: if the process ends without a result; quotes the last line of its output.
    """
    context = worker_context(allocator)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(function, arguments, log, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        raise BenchError(
            f"{function.__name__} must give a result, got exit code {process.exitcode}. "
            f"The last its process said: {said[-1] if said else 'nothing'}"
        ) from None
    except BaseException:
        process.terminate()
        raise
    finally:
        process.join()


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], log: Path, connection: Connection) -> None:
    """Entry point of the worker."""
    detach(log)
    connection.send(function(*arguments))
