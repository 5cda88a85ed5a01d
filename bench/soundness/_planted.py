"""Allocations whose peak is known by construction, planted for E8."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

SIZES = (1, 63, 64, 4095, 1 << 20, 256 << 20)
KIB = 1 << 10

Planted = tuple[Callable[[], object], int, Callable[[], object]]
"""What is read, its peak in bytes, and what has to be done before each reading."""


def nothing() -> None:
    """No preparation."""


def tensor_of(size: int) -> Any:
    """A tensor of so many bytes, not written to."""
    import torch

    return torch.empty(size, dtype=torch.uint8)


def _one(size: int) -> Planted:
    return lambda: tensor_of(size), size, nothing


def _nested() -> Planted:
    """Three levels, the innermost the largest: all are alive at once."""

    def run(sizes: tuple[int, ...] = (KIB, 10 * KIB, 100 * KIB)) -> Any:
        kept = tensor_of(sizes[0])
        if len(sizes) > 1:
            run(sizes[1:])
        return kept

    return run, 111 * KIB, nothing


def _views() -> Planted:
    """Views, slices and transposes of one storage allocate nothing."""

    def run() -> Any:
        base = tensor_of(64 * KIB)
        return base, base.view(256, 256), base.view(256, 256).t()[3:9], base[10:20], base.expand(4, 64 * KIB)

    return run, 64 * KIB, nothing


def _freed_between() -> Planted:
    """One after the other: the peak is the larger sum, not the total."""

    def run() -> Any:
        first = tensor_of(300 * KIB)
        del first
        second, third = tensor_of(100 * KIB), tensor_of(150 * KIB)
        del second
        return third

    return run, 300 * KIB, nothing


def _many() -> Planted:
    """A hundred short lives beside a long one."""

    def run() -> Any:
        kept = tensor_of(KIB)
        for _ in range(100):
            tensor_of(2 * KIB)
        return kept

    return run, 3 * KIB, nothing


def _freed_before() -> Planted:
    """What was freed before the reading leaves no trace in it."""

    def before() -> None:
        tensor_of(5 << 20)

    return lambda: tensor_of(KIB), KIB, before


def _older_freed() -> Planted:
    """Releasing, meanwhile, what an earlier reading did not see lowers nothing."""
    box: list[Any] = []

    def run() -> Any:
        first = tensor_of(KIB)
        box.clear()
        return first, tensor_of(2 * KIB)

    return run, 3 * KIB, lambda: box.append(tensor_of(64 * KIB))


def _grown() -> Planted:
    """A storage that is resized holds its old and its new bytes at once."""

    def run() -> Any:
        tensor = tensor_of(10 * KIB)
        return tensor.resize_(30 * KIB)

    return run, 40 * KIB, nothing


def _torch_threads() -> Planted:
    """Two tasks on torch's own threads, both results alive."""
    import torch

    scripted: Any = torch.jit
    task = scripted.CompilationUnit(
        """
def one(size: int):
    return torch.empty([size], dtype=torch.uint8)
def both(size: int):
    first = torch.jit.fork(one, size)
    second = torch.jit.fork(one, 2 * size)
    return torch.jit.wait(first), torch.jit.wait(second)
"""
    )
    task.both(1)
    return lambda: task.both(KIB), 3 * KIB, nothing


def _python_threads() -> Planted:
    """Two threads that Python started."""

    def run() -> Any:
        kept: list[Any] = []
        threads = [threading.Thread(target=lambda: kept.append(tensor_of(KIB))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return kept

    return run, 2 * KIB, nothing


PLANTED: dict[str, Callable[[], Planted]] = {
    **{f"{size} B": partial(_one, size) for size in SIZES},
    "nothing": lambda: (nothing, 0, nothing),
    "nested": _nested,
    "views": _views,
    "freed in between": _freed_between,
    "a hundred freed": _many,
    "freed before": _freed_before,
    "older freed meanwhile": _older_freed,
    "resized": _grown,
    "threads of torch": _torch_threads,
    "threads of Python": _python_threads,
}
"""How to make each planted case."""
BEYOND_REACH = ("threads of Python",)
