"""First and last line of a results file: the machine, what it can do at most, what was planned, how it ended."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, FiniteFloat

from bench.model import Model

ALLOWED_VARIABLES = (
    "CI",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "GOMP_SPINCOUNT",
    "KMP_AFFINITY",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_WAIT_POLICY",
    "OPENBLAS_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_CUDNN_V8_API_DISABLED",
    "TRITON_INTERPRET",
)
"""The only environment variables that a record may hold: those known to change a measurement."""


class Bandwidth(Model):
    """One measured bandwidth."""

    kind: Literal["copy", "triad", "read"]
    """Which operation: b = a (2 streams), c = a + s b (3), sum of a (1)."""
    working_set_bytes: int = Field(gt=0)
    """Bytes that the operation touches."""
    threads: int | None
    """Threads; null on a GPU."""
    bytes_per_s: FiniteFloat = Field(gt=0)
    """Read and written bytes over the best time."""


class Ceilings(Model):
    """What the machine can do at most, measured at the start of the run, best of several."""

    flop_per_s: dict[str, FiniteFloat]
    """Best rate of matrix products by dtype: with all threads, unless the machine was so busy that one did more."""
    bytes_per_s: FiniteFloat
    """Best bandwidth, read and written bytes together, in or out of cache: nothing moves bytes faster."""
    flop_per_s_one_thread: dict[str, FiniteFloat] = Field(default_factory=dict)
    """The same with one thread; empty on a GPU and in a quick measurement."""
    memory_bytes_per_s: FiniteFloat | None = None
    """Best bandwidth with a working set of at least four times the last cache; null in a quick measurement."""
    bandwidth: tuple[Bandwidth, ...] = ()
    """The curve behind the two figures; empty in a quick measurement."""
    cache_bytes: int | None = None
    """Size of the last cache (L2 on a GPU); null where nobody says."""
    float32_products: str | None = None
    """torch's setting during the measurement: ``highest`` is IEEE float32, the others allow TF32."""


class Gpu(Model):
    """One visible GPU, through NVML."""

    name: str
    """Product name."""
    uuid: str
    """Identifier that survives re-ordering."""


class Environment(Model):
    """The machine and the software that a run was made with."""

    hostname: str
    """Name of the machine."""
    os: str
    """Operating system and kernel."""
    cpu: str
    """Processor model."""
    cores: int
    """Cores this process may use."""
    memory_bytes: int | None
    """Physical memory."""
    python: str
    """Python version."""
    packages: dict[str, str | None]
    """Versions of the packages that matter; null where not installed."""
    torch_threads: int | None
    """Threads that torch uses within an operator."""
    torch_build: str | None
    """``cpu`` or the CUDA or ROCm version torch was built for."""
    float32_products: str | None = None
    """torch's setting for float32 matrix products: ``highest`` is IEEE float32, ``high`` and ``medium`` allow TF32."""
    gpus: tuple[Gpu, ...] | None
    """GPUs that NVML reports; null where it cannot be asked."""
    gpus_reason: str | None
    """Why ``gpus`` is null."""
    device: str
    """What the run measured on: ``cpu`` or a GPU's name."""
    allocator: str
    """``warm`` (memory is kept by the process) or ``default`` (glibc gives it back and faults it in anew)."""
    variables: dict[str, str]
    """Environment variables that change measurements; only names on the allow-list are ever read."""
    git_commit: str | None
    """Commit of the checkout the code was run from; null outside one."""
    git_dirty: bool | None
    """Whether that checkout had uncommitted changes."""


class Diagnosis(Model):
    """One thing that ``doctor`` looked at."""

    name: str
    """What was looked at."""
    level: Literal["fine", "note", "warning", "fatal"]
    """``fatal``: a measurement here would be worthless, so none is made."""
    seen: str
    """What was seen."""
    fix: str | None = None
    """What to do about it; null where all is well."""


class RunHeader(Model):
    """First line of a results file."""

    type: Literal["run"] = "run"
    """Kind of line."""
    schema_version: int
    """Version of this file's schema."""
    run_id: str
    """Name of the run and of its file."""
    started_at: str
    """ISO 8601, UTC."""
    command: str
    """The command line that repeats this run."""
    sweep: str
    """Name of the sweep."""
    sweep_title: str
    """One line on what the sweep is about."""
    sweep_prose: str
    """What the sweep is meant to show; printed in the report."""
    cells: int
    """Cells planned."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Implementations that were not planned, with the reason."""
    resumed_from: str | None = None
    """Run whose valid cells were taken over instead of being measured again."""
    environment: Environment
    """Where it was measured."""
    ceilings: Ceilings | None = None
    """What that machine can do at most; null if it was not measured."""
    diagnoses: tuple[Diagnosis, ...] = ()
    """What would spoil a measurement here, as seen before the run; without what was fine."""


class RunEnd(Model):
    """Last line of a results file; a file without one was interrupted."""

    type: Literal["end"] = "end"
    """Kind of line."""
    ended_at: str
    """ISO 8601, UTC."""
    outcome: Literal["complete", "interrupted", "budget"]
    """Whether all planned cells were done, the user stopped, or the time budget ran out."""
    wall_s: FiniteFloat = Field(ge=0)
    """Seconds from the start of measuring to its end."""
    statuses: dict[str, int]
    """Cells per status."""
