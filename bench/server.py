"""Where worker processes come from: a fork server that has imported torch and run nothing.

A fresh process costs 0.02 s instead of 2 s. The server, and with it every worker, starts with the environment
variables of the run, since glibc reads its allocator's settings once, at start.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

from bench.environment import worker_variables
from bench.fresh_process import variables

PRELOAD = ["torch", "torch._inductor", "bench.worker"]
"""Imported once, by the server."""


def worker_context(allocator: str) -> ForkServerContext:
    """Start the server unless it runs, and return the context that makes workers.

    A running server is left as it is: one program uses one allocator setting.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with variables(worker_variables(allocator)):
        forkserver.ensure_running()
    return context
