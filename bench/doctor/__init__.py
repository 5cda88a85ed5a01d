"""What would spoil a measurement on this machine, and what to do about it, before anything is measured.

Every check is a small function of a :class:`View` of the machine that yields what it saw: ``fine``, a ``note``
(worth knowing), a ``warning`` (numbers will be worse than they could be) or ``fatal``. Fatal is kept for what makes
numbers worthless, because they would describe something other than the implementations; each such check says why
in its docstring. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.doctor._gpu import GPU_CHECKS
from bench.doctor._machine import MACHINE_CHECKS
from bench.doctor._software import SOFTWARE_CHECKS
from bench.doctor._view import View
from bench.header import Diagnosis

__all__ = ["View", "diagnose", "fatal_reason"]


def diagnose(device: str | None, allocator: str, view: View | None = None) -> tuple[Diagnosis, ...]:
    """Everything that was looked at, in a fixed order.

    Args:
        device: ``cpu`` or ``cuda``; None stands for ``cuda`` where torch is built for it and there is a GPU.
        allocator: name of the allocator setting that workers will use (``bench.environment.ALLOCATORS``).
        view: the machine; None looks at this one.
    """
    seen = (view or View()).asked(device, allocator)
    checks = (*MACHINE_CHECKS, *SOFTWARE_CHECKS, *GPU_CHECKS)
    return tuple(diagnosis for check in checks for diagnosis in check(seen))


def fatal_reason(diagnoses: Sequence[Diagnosis]) -> str | None:
    """Why nothing must be measured here, with what to do about it; None if nothing speaks against it."""
    fatal = [f"{d.name}: {d.seen}. {d.fix}" for d in diagnoses if d.level == "fatal"]
    return " ".join(fatal) or None
