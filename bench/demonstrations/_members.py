"""Registered implementations as plain functions, for demonstrations that put each of them through small inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.certificate import attend_with
from bench.checks import Attend
from bench.errors import Unavailable
from bench.implementation import implementations

COMPILER = "CompiledFxGraph"
"""What compiled implementations promise to dispatch; they take seconds for each kind of problem."""


def members() -> dict[str, Attend]:
    """Implementations that run on this machine's CPU without being compiled first, by name."""
    found: dict[str, Attend] = {}
    for name, member in implementations.items():
        try:
            member.version()
        except Unavailable:
            continue
        if "cpu" in member.devices and COMPILER not in member.expects:
            found[name] = attend_with(member, "cpu")
    return found


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, also as a decorator: threads on tensors this small cost tens of times what they gain."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
