"""Compiled kernels as a check compares them: as ``attention-bench kernels`` writes them, and as the lock holds them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bench.errors import NothingSelectedError, OutputError
from bench.kernel_lock import read_lock
from bench.state import Subject

KERNEL_VALUES = ("registers", "spill_bytes", "shared_bytes")
WRITE_IT = " Write it with `attention-bench kernels --format json`."


def kernel_subjects(text: str, source: str) -> list[Subject]:
    """Kernels of a JSON array of objects with ``kernel``, registers, spill_bytes and shared_bytes.

    ``implementation`` and ``configuration`` are part of a kernel's name where they are there.

    Args:
        text: as ``attention-bench kernels --format json`` writes it.
        source: what messages call it.

    Raises:
        OutputError: if it is none of this kind, or two kernels have one name.
    """
    try:
        rows: list[dict[str, Any]] = json.loads(text)
        found = [
            Subject("kernel", _kernel_name(row), values={name: row[name] for name in KERNEL_VALUES}) for row in rows
        ]
        wrong = [value for one in found for value in one.values.values() if type(value) is not int or value < 0]
        if wrong:
            raise ValueError(f"{wrong[0]!r} where a count is needed")
    except KeyError as error:
        raise OutputError(
            f"{source} must give each kernel its {', '.join(('kernel', *KERNEL_VALUES))}, got no {error}.{WRITE_IT}"
        ) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise OutputError(
            f"{source} must be a JSON array of kernels, got {str(error).splitlines()[0]}.{WRITE_IT}"
        ) from error
    twice = [name for name, count in Counter(one.name for one in found).items() if count > 1]
    if twice or not found:
        what = f"{twice[0]!r} twice" if twice else "none"
        raise OutputError(f"{source} must hold kernels of different names, got {what}.{WRITE_IT}")
    return found


def _kernel_name(row: dict[str, Any]) -> str:
    names = (row.get("implementation"), row.get("configuration"), row["kernel"])
    return "/".join(str(name) for name in names if name is not None)


def locked_kernels(lock: Path, release: object) -> list[Subject]:
    """The kernels that the lock holds of one version of triton: what others are held against.

    Raises:
        OutputError: if it cannot be read.
        NothingSelectedError: if it holds none of that version.
    """
    held = read_lock(lock)
    if release not in held:
        raise NothingSelectedError(
            f"lock must hold the triton of the baseline, got {' and '.join(sorted(held))} in {str(lock)!r} and "
            f"{release}: not comparable. Add it with `attention-bench kernels --update`."
        )
    return [
        Subject(
            "kernel",
            one.key,
            values=dict(zip(KERNEL_VALUES, (one.registers, one.stack_bytes, one.shared_bytes), strict=True)),
        )
        for one in held[str(release)].values()
    ]
