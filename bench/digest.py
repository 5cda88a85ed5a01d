"""What a profile of one cell says, as it is stored: time by stage, memory by owner, and what each tool gave.

A profile is never a timing: a profiler slows what it looks at, so nothing here enters a run's results. Every missing
number is null and has its reason beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, FiniteFloat, NonNegativeInt, ValidationError, model_validator

from bench.errors import OutputError
from bench.header import Ceilings
from bench.model import Model
from bench.problem import Problem

DIGEST_VERSION = 1
"""Of the file format."""
DIGEST_FILE = "digest.json"
TIMELINE = "memory_timeline"
"""Stem of the figure beside it."""

Roof = Literal["bandwidth", "compute", "overhead"]
"""What bounds a stage: moving bytes, computing, or neither: the cost of calling so many operators."""
ToolStatus = Literal["done", "failed", "unavailable", "not_applicable", "not_asked"]


class Stage(Model):
    """One stage of the theory in one call; a stage of the gradients stands beside its forward one."""

    name: str
    """``projections``, ``score product``, ``scale and mask``, ``softmax``, ``value product``, ``fused attention``,
    ``compiled code``, ``layout copies``, ``allocation``, ``other`` or ``overhead``."""
    half: Literal["forward", "backward"] = "forward"
    """Whether it belongs to the call or to its gradients; ``overhead`` is of both together."""
    time_ms: FiniteFloat = Field(ge=0)
    """Time of its operators themselves, without those they called: of the calling thread, or of the GPU's kernels."""
    share: FiniteFloat = Field(ge=0)
    """Of the profiled total."""
    calls: int = Field(ge=0)
    """Operators (on a GPU kernels) of one call."""
    operators: tuple[str, ...]
    """Their names, the one that takes most time first."""
    flop: NonNegativeInt | None = None
    """Arithmetic, from the shapes that the operators saw."""
    moved_bytes: NonNegativeInt | None = None
    """Bytes that the operators read and write at least: each input and each result once."""
    roof: Roof | None = None
    """Which limit the stage is nearest to."""
    roof_fraction: FiniteFloat | None = Field(default=None, ge=0)
    """Least time that the roof allows over the time taken; 1 is the roof. Null for ``overhead``."""
    reason: str | None = None
    """Why figures are null."""

    @property
    def label(self) -> str:
        """The name, with the half where it is not the forward one."""
        return self.name if self.half == "forward" else f"{self.name}, backward"

    @property
    def intensity(self) -> float | None:
        """FLOP per byte moved."""
        return self.flop / self.moved_bytes if self.flop is not None and self.moved_bytes else None

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        if None in (self.flop, self.moved_bytes, self.roof) and not self.reason:
            raise ValueError(f"stage {self.name!r} must say why a figure is null")
        return self


class Tensor(Model):
    """What holds memory, by name: scores, weights, out, saved for backward, workspace of an operator."""

    name: str
    """What it is; several of one name are one owner."""
    peak_bytes: int = Field(ge=0)
    """Of it, alive when the call held most."""
    count: int = Field(ge=1)
    """Allocations behind it at that moment."""


class Lifetime(Model):
    """One allocation of the call."""

    owner: str
    """Name of its :class:`Tensor`."""
    operator: str
    """Operator that asked for it."""
    size_bytes: int = Field(gt=0)
    """Its size."""
    start_ms: FiniteFloat = Field(ge=0)
    """When it was made, from the begin of the call."""
    stop_ms: FiniteFloat | None = Field(default=None, ge=0)
    """When it was released; null where it outlives the call."""
    at_peak: bool
    """Whether it was alive when the call held most."""


class MemoryTimeline(Model):
    """Every allocation of one call, and who owns the peak."""

    method: str
    """Source of the events, for example ``allocator_events``."""
    peak_bytes: int = Field(ge=0)
    """Largest sum of live allocations; what the memory probe of a run reads."""
    peak_ms: FiniteFloat = Field(ge=0)
    """When, from the begin of the call. Profiled time."""
    end_ms: FiniteFloat = Field(ge=0)
    """When the call ended."""
    output_bytes: int = Field(ge=0)
    """Alive at the end."""
    owners: tuple[Tensor, ...]
    """Owners of the peak, largest first; their bytes add up to it."""
    lifetimes: tuple[Lifetime, ...]
    """Allocations in order of time, without those too small to see."""
    omitted: int = Field(default=0, ge=0)
    """Allocations that are not listed."""

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        owned = sum(owner.peak_bytes for owner in self.owners)
        if owned != self.peak_bytes:
            raise ValueError(f"owners must add up to the peak of {self.peak_bytes} bytes, got {owned}")
        return self


class KernelRow(Model):
    """One kernel, as a tool saw it."""

    tool: str
    """``proton``, ``ncu``, ``static`` or ``callgrind``."""
    name: str
    """The kernel's."""
    figures: dict[str, FiniteFloat | str | None]
    """By name, ending in the unit: ``time_ms``, ``bandwidth_gb_per_s``, ``occupancy_share``, ``tensor_core_share``,
    ``stall_long_scoreboard_warps``, ``registers``; null where the tool did not say."""


class Tool(Model):
    """What became of one tool."""

    name: str
    """As ``--tool`` takes it."""
    status: ToolStatus
    """``done``; ``failed``: it was started and broke; ``unavailable``: not here; ``not_applicable``: no use for this
    cell; ``not_asked``."""
    reason: str | None = None
    """Why it is not ``done``."""
    fix: str | None = None
    """How to get it."""
    files: dict[str, str] = Field(default_factory=dict)
    """Files it wrote, relative to the digest, with how to open each."""

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        if self.status in ("failed", "unavailable", "not_applicable") and not self.reason:
            raise ValueError(f"tool {self.name!r} must say why it is {self.status}")
        return self


class Digest(Model):
    """One cell under the profilers."""

    type: Literal["profile"] = "profile"
    """Kind of file."""
    digest_version: int = DIGEST_VERSION
    """Of the format."""
    problem: Problem
    """What was computed."""
    implementation: str
    """Who computed it."""
    implementation_version: str | None
    """Version of the library that does the work."""
    device: Literal["cpu", "cuda"]
    """Where."""
    device_name: str
    """``cpu``, or the name of the GPU."""
    threads: int | None = None
    """Threads of torch within an operator."""
    versions: dict[str, str | None] = Field(default_factory=dict)
    """Of the packages that matter."""
    cpu: str | None = None
    """Processor model; null in digests that did not keep it."""
    git_commit: str | None = None
    """Commit of the checkout the code was run from; null outside one."""
    git_dirty: bool | None = None
    """Whether that checkout had uncommitted changes."""
    steps: int = Field(ge=0)
    """Calls that are averaged: the quicker half of those profiled; 0 where torch's profiler did not run."""
    total_ms: FiniteFloat | None
    """One call under the profiler, by its own clock; null where torch's profiler did not run (see ``tools``)."""
    unprofiled_ms: FiniteFloat | None
    """Median of a few calls without a profiler, for context; never a measurement."""
    stages: tuple[Stage, ...]
    """By time, overhead last. Their times add up to ``total_ms`` within 3 %."""
    operators: int | None
    """Operators of one call that are not called by another one; null where torch's profiler did not run."""
    launches: int | None
    """GPU kernels of one call; null on a CPU."""
    ceilings: Ceilings | None
    """What the stages are held against, measured in the same process."""
    memory: MemoryTimeline | None
    """Null where the tool ``memory`` did not run."""
    kernels: tuple[KernelRow, ...] = ()
    """What tools say of single kernels."""
    tools: tuple[Tool, ...]
    """Every tool there is, with what became of it."""
    notes: dict[str, str] = Field(default_factory=dict)
    """What else is to be known when this is read, by subject."""

    @property
    def overhead_share(self) -> float | None:
        """Share of the total in Python, in views and between operators."""
        found = [stage.share for stage in self.stages if stage.name == "overhead"]
        return sum(found) if found else None

    def stage(self, name: str, half: str = "forward") -> Stage | None:
        """The stage of that name, if it took place."""
        return next((stage for stage in self.stages if (stage.name, stage.half) == (name, half)), None)


def save_digest(digest: Digest, folder: Path) -> Path:
    """Write ``digest.json`` into the folder, and return its path."""
    path = folder / DIGEST_FILE
    path.write_text(digest.model_dump_json(indent=1) + "\n")
    return path


def load_digest(path: Path) -> Digest:
    """Read a digest, from its file or its folder.

    Raises:
        OutputError: if there is none, or it is no digest.
    """
    file = path / DIGEST_FILE if path.is_dir() else path
    try:
        return Digest.model_validate_json(file.read_text())
    except OSError as error:
        raise OutputError(
            f"digest must be a file that can be read, got {str(file)!r} ({error.strerror}). "
            "Write one with `attention-bench profile`."
        ) from None
    except (ValidationError, UnicodeDecodeError) as error:
        raise OutputError(
            f"digest must be what `attention-bench profile` wrote, got {str(file)!r} "
            f"({str(error).splitlines()[0]}). Profile the cell again."
        ) from None
