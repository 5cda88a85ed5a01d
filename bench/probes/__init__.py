"""Reading peak memory off a running call: the contract of the probe family, one file per way of reading.

A probe runs a step once, in a run of its own that is never timed, and says how many bytes the step held at most beyond
what was there before, how many it left behind as its result, and which operators ran.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from bench.registry import Registry

probes: Registry[type[Probe]] = Registry("probes", "probe", "bench.probes")


@dataclass(frozen=True)
class Reading:
    """What a probe saw during one call."""

    peak_bytes: int
    """Largest sum of live allocations made since the call began."""
    output_bytes: int
    """Bytes still alive when the call returned: its results."""
    operators: tuple[str, ...]
    """Names of the operators that did the work, sorted."""


class Probe(Protocol):
    """One way to read peak memory, built once per worker process."""

    name: ClassVar[str]
    """Stored as ``method``."""
    device: ClassVar[str]
    """Device type it reads: ``cpu`` or ``cuda``."""
    summary: ClassVar[str]
    """One sentence for ``attention-bench list probes``."""

    def read(self, run: Callable[[], object]) -> Reading:
        """Run once and read. The result of ``run`` is kept alive until the reading is complete."""
        ...

    def self_test(self) -> str | None:
        """Read a known allocation; None if the answer is exact, else what went wrong."""
        ...


def probe_for(device: str) -> tuple[Probe | None, str | None]:
    """The first probe of ``device`` that passes its self-test, or None and the reason why there is none."""
    reasons = []
    for name, member in probes.items():
        if member.device == device:
            probe = member()
            wrong = probe.self_test()
            if wrong is None:
                return probe, None
            reasons.append(f"{name}: {wrong}")
    return None, "; ".join(reasons) or f"no probe reads memory on {device}"


WORK_WORDS = ("attention", "flash", "flex", "softmax", "mm", "matmul", "exp", "fused", "triton", "fxgraph")
"""An operator whose name holds one of these did arithmetic of attention; the others are views and allocations."""


def working_operators(names: set[str]) -> tuple[str, ...]:
    """The operators among ``names`` that did arithmetic; if some are attention operators, those alone."""
    plain = {"CompiledFxGraph" if "CompiledFxGraph" in name else name for name in names}  # drops its hash
    work = {name for name in plain if any(word in name.lower() for word in WORK_WORDS)}
    fused = {name for name in work if "attention" in name.lower() or "flash" in name.lower()}
    return tuple(sorted(fused or work))
