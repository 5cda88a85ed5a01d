"""Looking into one call: the contract of the profiling tools, one file per tool.

A tool looks at one :class:`Subject` in a process of its own, puts its native files into the folder, and hands back
parts of a :class:`~bench.digest.Digest`. The call is always the step that a run times, inside a range of the same name
(:data:`~bench.profiling._operators.CALL`) in every tool. A profiler slows what it looks at, so no tool touches stored
results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from bench.calls import Step, differentiable, make_step
from bench.implementation import AttentionInputs, Implementation, implementations, untimed
from bench.inputs import make_inputs
from bench.problem import Problem
from bench.registry import Registry

if TYPE_CHECKING:
    import torch

tools: Registry[type[Tool]] = Registry("profilers", "profiling tool", "bench.profiling")


@dataclass(frozen=True)
class Subject:
    """The one cell that is looked at. Sent by pickle."""

    problem: Problem
    implementation: str
    device: Literal["cpu", "cuda"]
    load: tuple[Path, ...] = ()
    """Files of unpackaged implementations."""

    @property
    def member(self) -> Implementation:
        """The implementation."""
        return implementations.get(self.implementation)

    def inputs(self) -> AttentionInputs:
        """Tensors of the problem, as every run draws them."""
        return differentiable(self.problem, make_inputs(self.problem, self.member.layout, self.device))

    def step(self, inputs: AttentionInputs) -> Step:
        """What is called; for ``bwd`` this runs the forward call."""
        member = self.member
        return make_step(member.prepare(self.problem, inputs), self.problem, inputs, member.layout)

    @property
    def finish(self) -> Callable[[], object]:
        """Waits until all queued work is done."""
        if self.device == "cpu":
            return lambda: None
        import torch

        return torch.cuda.synchronize


@dataclass(frozen=True)
class Absence:
    """Why a tool cannot be used, and how to get it."""

    reason: str
    fix: str | None = None
    applicable: bool = True
    """False where the tool is no use for this cell, wherever it is."""


@dataclass(frozen=True)
class Found:
    """What a tool brought back."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Native files by name within the folder, with how to open each."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the digest."""


class Tool(Protocol):
    """One profiling tool, built once per process."""

    name: ClassVar[str]
    """As ``--tool`` takes it."""
    summary: ClassVar[str]
    """What it gives, in a sentence."""
    default: ClassVar[bool]
    """Whether it is used where no tool is named."""

    def absence(self, subject: Subject) -> Absence | None:
        """Why it cannot be used here; None if it can. Starts nothing and imports no torch.

        What stands in for an implementation on a device, where it is verified and never timed, is not looked at.
        """
        reason = untimed(subject.member, subject.problem, subject.device)
        return None if reason is None else Absence(reason, applicable=False)

    def look(self, subject: Subject, folder: Path) -> Found:
        """Look at the call. Runs in a fresh process, whose output goes to a log.

        Raises:
            Unavailable: if it turns out that the tool does not work here.
        """
        ...


def register_tool(cls: type[Tool]) -> type[Tool]:
    """Class decorator: add the tool under its ``name``."""
    tools.add(cls.name, cls)
    return cls


def warmed(step: Step, subject: Subject, calls: int = 2) -> None:
    """Call a few times, so that nothing lazy is left to be seen."""
    for _ in range(calls):
        step.run()
    subject.finish()


def outputs(result: Any) -> dict[str, torch.Tensor]:
    """The tensors of a step's result by name, in their own layout."""
    named = {name: getattr(result, name) for name in ("out", "lse", "dq", "dk", "dv")}
    return {name: tensor for name, tensor in named.items() if tensor is not None}
