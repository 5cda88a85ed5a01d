"""Reading peak memory off a running call: the contract of the probe family, one file per way of reading.

A probe runs a step once, in a run of its own that is never timed, and says how many bytes the step held at most beyond
what was there before, how many it left behind as its result, and which operators ran. Whatever the harness itself holds
(inputs, flush buffers, graph pools) was there before and so is no part of any figure.

Where the step has gradients, :func:`read_step` looks at its two halves apart:

* ``saved_bytes`` is what the forward call keeps alive for the gradients beyond ``out``: the allocations that are
  still alive when it has returned and nothing but ``out`` is held, less the storage of ``out``. Counted is memory, not
  tensors: two saved views of one storage are one allocation, a saved input or a view of one is none, a copy of an
  input is one, and what a custom function keeps outside ``save_for_backward`` is in it as well.
* ``backward_peak_bytes`` is the most that is alive while the gradients are computed, ``out`` and what was saved for
  them included. What was saved is released as they go, unless the direction is ``bwd``, which keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from bench.calls import Step
from bench.implementation import AttentionInputs
from bench.problem import Problem
from bench.registry import Registry

if TYPE_CHECKING:
    import torch

probes: Registry[type[Probe]] = Registry("probes", "probe", "bench.probes")


@dataclass(frozen=True)
class Reading:
    """What a probe saw during one call."""

    peak_bytes: int
    """Largest sum of live allocations made since the call began."""
    output_bytes: int
    """Bytes still alive when the call returned: its results."""
    operators: tuple[str, ...]
    """Names of the operators that did the work, sorted; empty if they were not asked for."""
    saved_bytes: int | None = None
    """What the forward call keeps for the gradients beyond ``out``; None for ``fwd``."""
    backward_peak_bytes: int | None = None
    """Most that is alive while the gradients are computed; None for ``fwd``."""
    allocated_bytes: int | None = None
    """CUDA: as ``peak_bytes``, in blocks as the caching allocator hands them out (requests rounded up)."""
    reserved_bytes: int | None = None
    """CUDA: most that the caching allocator took from the device for the call, its unused memory given back before."""
    device_used_bytes: int | None = None
    """CUDA: memory in use on the whole device after the call, by anybody."""


class Probe(Protocol):
    """One way to read peak memory, built once per worker process."""

    name: ClassVar[str]
    """Stored as ``method``."""
    device: ClassVar[str]
    """Device type it reads: ``cpu`` or ``cuda``."""
    summary: ClassVar[str]
    """One sentence for ``attention-bench list probes``."""

    def read(self, run: Callable[[], object], *, receipt: bool = True, releases: bool = False) -> Reading:
        """Run once and read. The result of ``run`` is kept alive until the reading is complete.

        Args:
            run: what is read.
            receipt: also name the operators, for which ``run`` may be called a second time.
            releases: what the call releases of what the reading before it left alive lowers the sum.
        """
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


def read_step(probe: Probe, step: Step, problem: Problem, inputs: AttentionInputs) -> Reading:
    """Read a step, and the two halves of it where its direction has gradients (see the module's docstring).

    Args:
        probe: what reads.
        step: made of ``inputs``.
        problem: what it computes.
        inputs: what :func:`bench.calls.differentiable` gave.
    """
    reading = probe.read(step.run)
    if problem.direction == "fwd":
        return reading
    import torch

    leaves, kept = (inputs.q, inputs.k, inputs.v), list[torch.Tensor]()

    def forward() -> None:
        with torch.enable_grad():
            kept.append(step.call.run().out)

    def gradients() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(kept[0], leaves, inputs.dout)

    held = probe.read(forward, receipt=False).output_bytes
    # A step of direction `bwd` is the gradients alone, so its peak is known; no second graph grows beside its own.
    rise = (
        reading.peak_bytes
        if problem.direction == "bwd"
        else probe.read(gradients, receipt=False, releases=True).peak_bytes
    )
    saved = held - kept[0].untyped_storage().nbytes()
    return replace(reading, saved_bytes=saved, backward_peak_bytes=held + rise)


WORK_WORDS = ("attention", "flash", "flex", "softmax", "mm", "matmul", "exp", "fused", "triton", "fxgraph")
"""An operator whose name holds one of these did arithmetic of attention; the others are views and allocations."""


def working_operators(names: set[str]) -> tuple[str, ...]:
    """The operators among ``names`` that did arithmetic; if some are attention operators, those alone."""
    plain = {"CompiledFxGraph" if "CompiledFxGraph" in name else name for name in names}  # drops its hash
    work = {name for name in plain if any(word in name.lower() for word in WORK_WORDS)}
    fused = {name for name in work if "attention" in name.lower() or "flash" in name.lower()}
    return tuple(sorted(fused or work))
