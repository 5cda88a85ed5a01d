"""The record that flows from the measuring half to the reading half, and the rules it must keep.

One line of a results file is one of four records: ``run`` (first), ``cell`` (one per problem and
implementation), ``evidence`` (for claims: what is no cell), ``end`` (last). Raw samples are kept; medians,
intervals, TFLOP/s and the like are computed on reading.

Status and contents are coupled, when a record is built and when it is read:

| status | agreement | measurement | reason |
|---|---|---|---|
| ``ok`` | required | required | - |
| ``verified`` (right, but not timed) | required | forbidden | required |
| ``incorrect`` | required | forbidden | required |
| ``unsupported``, ``unavailable`` | forbidden | forbidden | required |
| ``out_of_memory``, ``timeout``, ``crashed``, ``error`` | optional | forbidden | required |

schema_version history:
    1  first version.
    2  other clocks, thread time, isolated blocks, telemetry and energy beside the samples; more memory columns;
       ceilings by thread count and working set; what ``doctor`` found.
    3  lines of evidence beside the cells: paired comparisons and demonstrations.
"""

from __future__ import annotations

import hashlib
from itertools import groupby
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    FiniteFloat,
    JsonValue,
    NonNegativeInt,
    TypeAdapter,
    model_validator,
)

from bench.evidence import Evidence
from bench.header import RunEnd, RunHeader
from bench.model import Model
from bench.problem import Problem

SCHEMA_VERSION = 3

Status = Literal[
    "ok",
    "verified",
    "incorrect",
    "unsupported",
    "unavailable",
    "out_of_memory",
    "timeout",
    "crashed",
    "error",
]
FlagName = Literal[
    "unstable",
    "throttled",
    "impossible",
    "not_steady",
    "few_samples",
    "order_effect",
    "contended",
    "interference",
    "clocks_disagree",
    "memory_disagrees",
]

_REQUIRED, _FORBIDDEN, _OPTIONAL = "required", "forbidden", "optional"
_COUPLING: dict[str, tuple[str, str, str]] = {
    # status: agreement, measurement, reason
    "ok": (_REQUIRED, _REQUIRED, _FORBIDDEN),
    "verified": (_REQUIRED, _FORBIDDEN, _REQUIRED),
    "incorrect": (_REQUIRED, _FORBIDDEN, _REQUIRED),
    "unsupported": (_FORBIDDEN, _FORBIDDEN, _REQUIRED),
    "unavailable": (_FORBIDDEN, _FORBIDDEN, _REQUIRED),
    "out_of_memory": (_OPTIONAL, _FORBIDDEN, _REQUIRED),
    "timeout": (_OPTIONAL, _FORBIDDEN, _REQUIRED),
    "crashed": (_OPTIONAL, _FORBIDDEN, _REQUIRED),
    "error": (_OPTIONAL, _FORBIDDEN, _REQUIRED),
}


class TensorError(Model):
    """How far one tensor is from the float64 reference."""

    max_abs: FiniteFloat | None
    """Largest absolute difference over the finite entries; null if there is none."""
    rmse: FiniteFloat | None
    """Root mean square difference over the finite entries; null if there is none."""
    rel_rmse: FiniteFloat | None
    """``rmse`` over the root mean square of the reference; null if the reference is zero."""
    nonfinite: int = Field(ge=0)
    """Entries that are NaN or infinite where the reference is not."""
    nonzero: int = Field(default=0, ge=0)
    """Entries that are not zero where they must be: queries that see nothing, keys that nobody sees."""
    limit: FiniteFloat | None
    """Largest ``max_abs`` that passes; null where the tensor is not judged by a limit."""
    rmse_over_naive: FiniteFloat | None = None
    """``rmse`` over that of the naive arithmetic in the same dtype on the same inputs; null if unknown."""


class CheckResult(Model):
    """What one structured check saw."""

    passed: bool
    """Whether the error is within the limit and every entry is finite."""
    error: FiniteFloat | None
    """The error that is furthest over, or least under, its limit; null if it is not finite."""
    limit: FiniteFloat | None
    """Largest error that passes; null where the check asks for equality of bits."""
    nonfinite: int = Field(default=0, ge=0)
    """Entries that are NaN or infinite."""
    detail: str | None = None
    """What was wrong, where a number does not say it."""


class Agreement(Model):
    """Whether the implementation computes the right function, before any time may exist."""

    passed: bool
    """True if every judged tensor is within its limit and every entry is finite where it should be."""
    tensors: dict[str, TensorError]
    """Errors by tensor name: ``out``, ``lse``, ``dq``, ``dk``, ``dv``."""
    missing: dict[str, str] = Field(default_factory=dict)
    """Tensors that the implementation does not return, with the reason."""
    checks: dict[str, CheckResult] = Field(default_factory=dict)
    """Structured checks by name: needle, block mass, row sums and so on."""
    rows: dict[str, TensorError] = Field(default_factory=dict)
    """Errors of ``out`` over ``valid`` and ``padded`` queries apart, for self-attention with padding."""
    deterministic: bool | None = None
    """Whether a repeated call gave the same bits, on the certificate problem; null if it could not be tried."""
    batch_invariant: bool | None = None
    """Whether a batch item computed alone has the bits it has in a batch; null if it could not be tried."""
    certificate: str | None = None
    """Key of the small problem on which this implementation was put through every structured check."""
    ran: tuple[str, ...] = ()
    """Attention operators that were dispatched in the verified call: the receipt."""


class Memory(Model):
    """Peak memory of one call, from a run of its own; inputs and mask tensors are not part of it."""

    peak_bytes: int = Field(ge=0)
    """Largest sum of live allocations made by the call."""
    output_bytes: int = Field(ge=0)
    """Bytes that the call's results keep alive."""
    workspace_bytes: int = Field(ge=0)
    """``peak_bytes - output_bytes``: what the call needs for a while."""
    mask_bytes: int = Field(ge=0)
    """Bytes of mask tensors built before the call."""
    predicted_peak_bytes: int | None = None
    """What the implementation's own memory law says; null where it states none."""
    method: str
    """How the peak was read: ``allocator_events`` (exact) or ``cuda_requested`` (exact)."""
    saved_bytes: int | None = Field(default=None, ge=0)
    """What the forward call keeps for the backward one beyond ``out``; null for ``fwd``."""
    backward_peak_bytes: int | None = Field(default=None, ge=0)
    """Most that is alive while the gradients are computed, ``out`` and what was kept for them included; null for
    ``fwd``."""
    allocated_bytes: int | None = Field(default=None, ge=0)
    """CUDA: as ``peak_bytes``, as handed out by the caching allocator (requests rounded up)."""
    reserved_bytes: int | None = Field(default=None, ge=0)
    """CUDA: most that the caching allocator took from the device for the call."""
    device_used_bytes: int | None = Field(default=None, ge=0)
    """CUDA: memory in use on the whole device after the call, by anybody; never compared."""
    vm_hwm_bytes: int | None = Field(default=None, ge=0)
    """CPU: growth of the resident high-water mark in a fresh process, a cross-check of ``peak_bytes``."""
    vm_hwm_reason: str | None = None
    """CPU: why there is no ``vm_hwm_bytes``: too small a peak to tell, or what the fresh process ran into."""
    excluded_bytes: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """What the harness itself holds, by name: flush buffers, graph pools. Only ``device_used_bytes`` counts it."""


class Sampled(Model):
    """Samples of the same calls under another clock protocol."""

    clock: str
    """Which protocol: for example ``cuda_event_hot`` or ``cuda_graph``."""
    samples_ns: tuple[NonNegativeInt, ...] = ()
    """Duration of each block; empty if the protocol could not be used."""
    calls_per_sample: int = Field(default=1, ge=1)
    """Calls in one block."""
    processes: tuple[int, ...] = ()
    """For each sample, the number of the process that took it."""
    reason: str | None = None
    """Why there are no samples."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if len(self.processes) != len(self.samples_ns):
            counts = f"{len(self.processes)} for {len(self.samples_ns)} samples"
            raise ValueError(f"processes must have one entry per sample, got {counts}")
        if bool(self.samples_ns) == bool(self.reason):
            raise ValueError(f"samples must be there or a reason, got {len(self.samples_ns)} and {self.reason!r}")
        return self


class Telemetry(Model):
    """What sensors said over a window. Each reading stands alone; one that is null has its reason."""

    device: str
    """``cpu``, or the UUID of a GPU."""
    window_s: FiniteFloat = Field(ge=0)
    """Length of the window."""
    readings: dict[str, FiniteFloat | bool | str | None]
    """By name, ending in the unit: ``sm_clock_mhz``, ``steal_share``, ``throttled_sw_power_cap`` and so on."""
    reasons: dict[str, str] = Field(default_factory=dict)
    """Why a reading is null, by name."""

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        missing = {name for name, value in self.readings.items() if value is None}
        if missing != set(self.reasons):
            raise ValueError(f"reasons must name exactly the null readings, got {sorted(missing ^ set(self.reasons))}")
        return self


class Energy(Model):
    """Energy of one call, from a window of its own that is long against the meter's updates."""

    joules_per_call: FiniteFloat | None
    """Above idle; null with a reason."""
    uncertainty_j: FiniteFloat | None = None
    """Half-width: one update of the meter at each end of the window, over the calls."""
    window_s: FiniteFloat = Field(default=0.0, ge=0)
    """Length of the window: at least 2 s."""
    calls: int = Field(default=0, ge=0)
    """Calls within it."""
    idle_w: FiniteFloat | None = None
    """Power without work, which was subtracted; null if it was not known."""
    method: str
    """``nvml_total_energy``, ``rapl`` or ``none``."""
    reason: str | None = None
    """Why there is no number."""

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        if (self.joules_per_call is None) != (self.reason is not None):
            raise ValueError(f"energy must be there or a reason, got {self.joules_per_call} and {self.reason!r}")
        return self


class Measurement(Model):
    """Raw samples of one cell. Latency of sample ``i`` is ``samples_ns[i] / calls_per_sample``."""

    samples_ns: tuple[NonNegativeInt, ...] = Field(min_length=1)
    """Duration of each block of calls, in nanoseconds, in the order of the rounds."""
    calls_per_sample: int = Field(ge=1)
    """Calls in one block."""
    processes: tuple[int, ...] = Field(min_length=1)
    """For each sample, the number of the process that took it."""
    clock: str
    """What measured: ``perf_counter``, or a CUDA protocol under its own name (``bench/clocks.py``)."""
    cpu_ns: tuple[NonNegativeInt, ...] | None = None
    """CPU time of the calling thread within each sample; well below the wall time where others held the cores."""
    isolated_ns: tuple[NonNegativeInt, ...] = ()
    """Blocks of the same length without other implementations in between; a warning compares them."""
    discarded_rounds: int = Field(default=0, ge=0)
    """Rounds left out because a throttle counter advanced or the clock fell; of all implementations alike."""
    others: tuple[Sampled, ...] = ()
    """The same calls under other clock protocols."""
    telemetry: tuple[Telemetry, ...] = ()
    """What sensors said while the samples were taken, one per device and process."""
    energy: Energy | None = None
    """Energy per call; null where it was not asked for."""
    first_call_ns: int = Field(ge=0)
    """The first call after ``prepare``, which pays for lazy initialisation; never part of the samples."""
    prepare_ns: int = Field(ge=0)
    """Building masks and scratch for this problem, and what compilation its sizes still need."""
    setup_ns: int | None = Field(default=None, ge=0)
    """Preparing and first calling the certificate problem: what a fresh process pays once for this kind of problem
    (compilation, above all); null where there was no certificate problem."""
    memory: Memory | None
    """Peak memory; null where the device offers no exact method."""

    @model_validator(mode="after")
    def _one_process_per_sample(self) -> Self:
        if len(self.processes) != len(self.samples_ns):
            counts = f"{len(self.processes)} for {len(self.samples_ns)} samples"
            raise ValueError(f"processes must have one entry per sample, got {counts}")
        if self.cpu_ns is not None and len(self.cpu_ns) != len(self.samples_ns):
            raise ValueError(f"cpu_ns must have one entry per sample, got {len(self.cpu_ns)}")
        return self


def by_process(measurement: Measurement | Sampled) -> dict[int, list[int]]:
    """``samples_ns`` of each process, in the order of the rounds; processes in the order of their first sample."""
    found: dict[int, list[int]] = {}
    start = 0
    for process, stretch in groupby(measurement.processes):
        end = start + len(list(stretch))
        found.setdefault(process, []).extend(measurement.samples_ns[start:end])
        start = end
    return found


class Flag(Model):
    """A doubt about a measured cell; its status stays ``ok``."""

    name: FlagName
    """Which doubt."""
    reason: str
    """What was seen."""


class Record(Model):
    """One cell: a problem, an implementation, and what became of them."""

    type: Literal["cell"] = "cell"
    """Kind of line."""
    problem: Problem
    """What was computed."""
    implementation: str
    """Who computed it."""
    implementation_version: str | None
    """Version of the library that does the work; null where it is unavailable."""
    device: str
    """``cpu``, or the name of the GPU."""
    status: Status
    """What became of the cell."""
    reason: str | None = None
    """Why the status is not ``ok``."""
    predicted: bool = False
    """True for ``out_of_memory`` that was predicted and not tried."""
    flags: tuple[Flag, ...] = ()
    """Doubts about the measurement."""
    attended_pairs: int = Field(ge=0)
    """Exact visible (query, key) pairs over batch and query heads."""
    empty_rows: int = Field(ge=0)
    """Query rows that may see no key."""
    flop: int = Field(ge=0)
    """FLOP over the visible pairs (``2 * pairs * (d_k + d_v)`` forward)."""
    agreement: Agreement | None = None
    """Errors against the float64 reference."""
    measurement: Measurement | None = None
    """Times and memory; exists only if the agreement passed."""
    notes: dict[str, JsonValue] = Field(default_factory=dict)
    """What the implementation says of this call, for example its block size."""
    verify_s: FiniteFloat = Field(default=0.0, ge=0)
    """Seconds spent verifying this cell (its share of the reference included)."""
    measure_s: FiniteFloat = Field(default=0.0, ge=0)
    """Seconds spent inside measured calls of this cell: warm-up, timed blocks and the memory run."""

    @model_validator(mode="after")
    def _coupled(self) -> Self:
        rules = dict(zip(("agreement", "measurement", "reason"), _COUPLING[self.status], strict=True))
        for name, rule in rules.items():
            present = getattr(self, name) not in (None, "")
            if (rule == _REQUIRED and not present) or (rule == _FORBIDDEN and present):
                state = "present" if present else "absent"
                raise ValueError(f"{name} is {rule} where status is {self.status!r}, but it is {state}")
        if self.agreement is not None and self.status in ("ok", "verified") and not self.agreement.passed:
            raise ValueError(f"status must not be {self.status!r} where the agreement failed")
        if self.predicted and self.status != "out_of_memory":
            raise ValueError("predicted belongs to status 'out_of_memory' alone")
        return self

    @property
    def cell_key(self) -> str:
        """What ``--resume`` compares: a hash of problem, implementation, its version and device."""
        return cell_key(self.problem, self.implementation, self.implementation_version, self.device)


def cell_key(problem: Problem, implementation: str, version: str | None, device: str) -> str:
    """Hash that identifies a cell across runs."""
    text = "\n".join((problem.key, implementation, version or "", device))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


Line = Annotated[RunHeader | Record | Evidence | RunEnd, Field(discriminator="type")]


def json_schema() -> dict[str, Any]:
    """JSON Schema of the four kinds of line, as checked in under ``results/schema.json``."""
    return TypeAdapter(Line).json_schema(mode="serialization")
