"""One state of the code as `attention-bench check` sees it: a run reduced to what is compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.between_runs import margin_from_halves
from bench.header import Environment
from bench.metrics import gated
from bench.policy import Policy
from bench.record import Measurement, Record
from bench.results import Run, uncollected
from bench.standings import sound_measurement
from bench.verdicts import decide, paired_estimates

SCHEMA = 1
"""Version of a baseline's file."""
SHAKY = ("not_steady", "few_samples", "contended", "throttled", "clocks_disagree", "impossible")
"""Flags that keep a row out of a baseline; the others are no fault of the machine, or say nothing of the ratio."""
STEADY = 0.10
"""A row is unstable here if the interval of its ratio to the control reaches further; what blocks alone scatter, which
the flag of that name tells, is shared by the control that ran beside them."""
THREADS = ("MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""Variables whose effect ``torch_threads`` tells: what differs is the number, not who said it."""
DIGITS = 5
"""Decimals of a stored logarithm: a thousandth of a percent."""


@dataclass(frozen=True)
class Subject:
    """What is compared with its like in another state: one line of the file."""

    kind: str
    """``cell``, ``claim``, ``kernel`` or ``mutants``."""
    name: str
    """Of a cell ``implementation problem``."""
    status: str | None = None
    """Status of a cell, verdict of a claim."""
    reason: str | None = field(default=None, compare=False)
    """Why the status is what it is. Not stored: it may name places in files."""
    ran: str | None = None
    """Operators that a cell really ran."""
    values: Mapping[str, float | None] = field(default_factory=dict)
    """Gated metrics by name; without those that are null."""
    control: str | None = None
    """Implementation whose time this one's is divided by."""
    log_ratios: tuple[float, ...] = ()
    """Logarithm of time over that of the control, one per process."""
    untimed: str | None = None
    """Why there are none, where there was a time."""

    @property
    def key(self) -> str:
        """Unique in a state."""
        return self.name if self.kind == "cell" else f"{self.kind} {self.name}".strip()


@dataclass(frozen=True)
class State:
    """Everything that is compared of one state of the code."""

    sweep: str
    commit: str | None
    timed: bool
    """Whether times are part of it."""
    margin: float
    """Changes of time within it do not matter here."""
    controls: tuple[str, ...]
    toolchain: Mapping[str, Any]
    """Fields that bytes and rounding depend on."""
    machine: Mapping[str, Any]
    """Fields that times and the last bit depend on besides."""
    metrics: tuple[str, ...]
    """Gated metrics that were known."""
    subjects: Mapping[str, Subject]
    command: str = ""
    device: str = "cpu"
    """Device type to measure on."""
    allocator: str = "warm"
    schema_version: int = SCHEMA
    shaky: Mapping[str, str] = field(default_factory=dict)
    """Flags that keep a cell out of a baseline, by key. Not stored."""


@uncollected()
def state_of(run: Run, policy: Policy, extra: Iterable[Subject] = (), *, timed: bool = True) -> State:
    """Reduce a run.

    Args:
        run: with the records of all processes.
        policy: names the controls and the claims.
        extra: kernels and mutants, which no run holds.
        timed: whether times are part of it.
    """
    names = tuple(sorted(gated()))
    boards: dict[str, dict[str, Record]] = {}
    for record in run.records:
        boards.setdefault(record.problem.key, {}).setdefault(record.implementation, record)
    cells = [
        _cell(record, board, policy.controls if timed else (), names)
        for board in boards.values()
        for record in board.values()
    ]
    subjects = {one.key: one for one in (*cells, *_verdicts(run, policy.exact_claims), *extra)}
    ratios = [one.log_ratios for one in cells if one.log_ratios]
    environment = run.header.environment
    return State(
        sweep=run.header.sweep,
        commit=environment.git_commit,
        timed=timed,
        margin=margin_from_halves(ratios, policy.margin),
        controls=policy.controls,
        toolchain=toolchain_of(environment),
        machine=machine_of(environment),
        metrics=names,
        subjects=subjects,
        command=run.header.command,
        device="cpu" if environment.device == "cpu" else "cuda",
        allocator=environment.allocator,
        shaky={
            f"{one.implementation} {one.problem.key}": why
            for one in run.records
            if (why := _shaky(one, subjects[f"{one.implementation} {one.problem.key}"]))
        },
    )


def _verdicts(run: Run, names: Sequence[str]) -> list[Subject]:
    """Verdicts of the claims that the run's rows bear on.

    Raises:
        UnknownNameError: if one of the names is no claim's.
    """
    if not names:
        return []
    from bench.claims import Hearing, Judged, claims  # with figures and fits behind them: a fifth of a second
    from bench.plots import Reading

    members = [claims.get(name)() for name in names]
    hearing = Hearing(Reading([run]))
    judged = [Judged(member, tuple(member.judge(hearing)), heard=True) for member in members]
    return [Subject("claim", one.claim.name, one.verdict) for one in judged if one.answers]


def toolchain_of(environment: Environment) -> dict[str, Any]:
    """What bytes and, but for the last bits, errors depend on."""
    packages = {name: environment.packages.get(name) for name in ("torch", "triton")}
    names = ("torch_build", "torch_threads", "float32_products")
    device = {"device": "cpu"} if environment.device == "cpu" else {"device": environment.device}
    return packages | {name: getattr(environment, name) for name in names} | device


def machine_of(environment: Environment) -> dict[str, Any]:
    """What times depend on besides. The name of the host is not part of it: machines of one kind share a baseline."""
    variables = {name: value for name, value in sorted(environment.variables.items()) if name not in THREADS}
    return {name: getattr(environment, name) for name in ("cpu", "cores", "allocator")} | {"variables": variables}


def machine_name(environment: Environment) -> str:
    """Stem of a baseline's file."""
    from bench.figure_style import slug

    device = "" if environment.device == "cpu" else environment.device
    return slug(environment.cpu.replace("@", ""), f"{environment.cores}cores", device)


def exact_row(record: Record) -> dict[str, Any]:
    """The columns of :data:`bench.analysis.COLUMNS` that gated metrics read, at a tenth of the cost of them all."""
    row: dict[str, Any] = {"flop": record.flop, "attended_pairs": record.attended_pairs}
    memory = record.measurement.memory if record.measurement is not None else None
    for name in ("peak_bytes", "output_bytes", "mask_bytes", "saved_bytes", "backward_peak_bytes"):
        row[name] = None if memory is None else getattr(memory, name)
    if record.agreement is not None:
        for name, error in record.agreement.tensors.items():
            row |= {f"{name}_max_abs": error.max_abs, f"{name}_rmse": error.rmse, f"{name}_limit": error.limit}
    return row


def _cell(record: Record, board: Mapping[str, Record], controls: Sequence[str], names: Sequence[str]) -> Subject:
    row, metrics = exact_row(record), gated()
    values = {name: value for name in names if (value := metrics[name].value(row)) is not None}
    control, ratios, untimed = _ratios(record, board, controls)
    ran = None if record.agreement is None else ", ".join(record.agreement.ran) or None
    return Subject(
        kind="cell",
        name=f"{record.implementation} {record.problem.key}",
        status=record.status,
        reason=record.reason,
        ran=ran,
        values=values,
        control=control,
        log_ratios=ratios,
        untimed=untimed,
    )


def _ratios(
    record: Record, board: Mapping[str, Record], controls: Sequence[str]
) -> tuple[str | None, tuple[float, ...], str | None]:
    """Control, logarithms of the ratio to it, and why there are none."""
    if record.measurement is None or not controls:
        return None, (), None
    if not _reads(record.measurement):
        return None, (), "a clock read 0"
    for name in controls:
        other = board.get(name)
        if name == record.implementation or other is None:
            continue
        measured = sound_measurement(other)
        if measured is not None and _reads(measured):
            estimates = paired_estimates(measured, record.measurement)
            if estimates:
                return name, tuple(round(value, DIGITS) for value in estimates), None
    return None, (), f"none of the controls {', '.join(controls)} was measured in the same rounds"


def _reads(measurement: Measurement) -> bool:
    return min(measurement.samples_ns) > 0


def _shaky(record: Record, cell: Subject) -> str:
    found: list[str] = [flag.name for flag in record.flags if flag.name in SHAKY]
    if cell.log_ratios:
        ratio = decide(cell.log_ratios)
        reach = max(ratio.hi / ratio.ratio, ratio.ratio / ratio.lo) - 1
        if reach > STEADY:
            found.append(f"unstable: its time over that of {cell.control} is known to {100 * reach:.0f} %")
    return ", ".join(found)
