"""From raw records to numbers: intervals, and the flat table that all reading of results starts from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, TypeVar

from bench.header import Ceilings
from bench.record import Measurement, Record, Sampled, by_process
from bench.results import Run
from bench.units import ns_to_ms, significant
from bench.verdicts import Verdict, paired_estimates, two_looks

if TYPE_CHECKING:
    import pandas as pd

K = TypeVar("K")

CONFIDENCE = 0.95
"""Least coverage that an interval shown anywhere has, where the number of samples allows it."""


@dataclass(frozen=True)
class LatencySummary:
    """Median latency with an order-statistic interval; all in milliseconds per call."""

    median_ms: float
    lo_ms: float
    hi_ms: float
    min_ms: float
    coverage: float
    """Probability that the interval holds the median: at least 0.95 from six samples on, less below."""
    scope: str
    """``within run`` (one process: says nothing of other processes) or ``across processes``."""


def latency_summary(measurement: Measurement | Sampled) -> LatencySummary:
    """Median and interval of one cell under one clock, which must have samples.

    With several processes, the unit of inference is the process (its own median); with one, the sample.
    """
    medians, calls = process_medians_ms(measurement), measurement.calls_per_sample
    several = len(medians) > 1
    units = sorted(medians.values()) if several else [ns_to_ms(ns) / calls for ns in sorted(measurement.samples_ns)]
    low, high, coverage = median_interval(len(units))
    return LatencySummary(
        median_ms=median(units),
        lo_ms=units[low],
        hi_ms=units[high],
        min_ms=ns_to_ms(min(measurement.samples_ns)) / calls,
        coverage=coverage,
        scope="across processes" if several else "within run",
    )


def process_medians_ms(measurement: Measurement | Sampled) -> dict[int, float]:
    """Median latency per call of each process, in milliseconds."""
    found = {}
    for process, samples in by_process(measurement).items():
        samples.sort()
        half = len(samples) // 2
        middle = samples[half - 1 + len(samples) % 2 : half + 1]
        found[process] = fmean(ns_to_ms(ns) / measurement.calls_per_sample for ns in middle)
    return found


@dataclass(frozen=True)
class PairedRatio:
    """Time per call of one implementation over that of another, from rounds that timed both."""

    ratio: float
    """Above 1, the first one takes longer. One process: median over its rounds. Several: median over processes."""
    lo: float
    hi: float
    coverage: float
    """Probability that the interval holds the median over rounds (one process) or over processes (several)."""
    processes: int
    """How many the ratio comes from: those of the look that decided."""
    verdict: Verdict | None
    """On the first one against the other; None with one process, which says nothing of the next."""

    @property
    def text(self) -> str:
        """``2.87x [2.80, 2.91]``."""
        return f"{significant(self.ratio)}x [{significant(self.lo)}, {significant(self.hi)}]"

    @property
    def scope(self) -> str:
        """What the interval speaks of."""
        return "within run" if self.processes == 1 else f"across {self.processes} processes"


def paired_ratio(first: Measurement, other: Measurement) -> PairedRatio | None:
    """Time per call of ``first`` over that of ``other``; None where no round timed both, or a clock read 0.

    Several processes are judged as :mod:`bench.verdicts` does. With one, the interval is that of the median over its
    rounds, and there is no verdict.
    """
    if first.clock != other.clock or min(*first.samples_ns, *other.samples_ns) == 0:
        return None
    if len(set(first.processes)) > 1:
        estimates = paired_estimates(other, first)
        if len(estimates) < 2:
            return None
        found = two_looks(estimates)
        return PairedRatio(found.ratio, found.lo, found.hi, found.coverage, found.processes, found.verdict)
    if first.processes != other.processes:
        return None
    scale = other.calls_per_sample / first.calls_per_sample
    ratios = sorted(a / b * scale for a, b in zip(first.samples_ns, other.samples_ns, strict=True))
    low, high, coverage = median_interval(len(ratios))
    return PairedRatio(median(ratios), ratios[low], ratios[high], coverage, 1, None)


def fastest(medians: Mapping[K, float], paired: Callable[[K, K], PairedRatio | None]) -> tuple[K, bool]:
    """Who is fastest, and whether it clearly is: the interval of every other one's paired ratio to it lies above 1.

    It is the one with the smallest median, unless others are clearly faster than that one in the rounds they share.

    Args:
        medians: of latency, by whatever tells the candidates apart; not empty.
        paired: time of the first over that of the second; None where no round timed both.
    """
    best = min(medians, key=medians.__getitem__)
    pairs = {key: pair for key in medians if key != best and (pair := paired(key, best)) is not None}
    quicker = {key: pair.ratio for key, pair in pairs.items() if pair.hi < 1}
    if quicker:
        best = min(quicker, key=quicker.__getitem__)
    others = [paired(key, best) for key in medians if key != best]
    return best, all(pair is not None and pair.lo > 1 for pair in others)


@cache
def median_interval(count: int) -> tuple[int, int, float]:
    """Ranks (from 0) of the narrowest symmetric order-statistic interval for the median, and its coverage.

    Distribution-free: ``P(x_(r) <= median <= x_(n-1-r)) = 1 - 2 * sum_{i<=r} C(n, i) / 2^n``. Six values: the
    whole range, 96.9 %; fewer cannot reach 95 % and give their whole range with what it has.

    Source: David and Nagaraja, Order Statistics (2003), section 7.1.
    """
    best = (0, count - 1, 1 - 2 * 0.5**count if count > 1 else 0.0)
    tail = 0
    for rank in range(count // 2):
        tail += comb(count, rank)
        coverage = 1 - 2 * tail / 2**count
        if coverage < CONFIDENCE:
            break
        best = (rank, count - 1 - rank, coverage)
    return best


OTHER_CLOCKS = ("host", "cuda_event_hot", "cuda_graph")
"""Clock protocols beside the one of ``latency_ms`` that have a column of their own. They never share a series."""

COLUMNS: dict[str, str] = {
    "run_id": "string",
    "cell_key": "string",
    "implementation": "string",
    "implementation_version": "string",
    "device": "string",
    "status": "string",
    "reason": "string",
    "flags": "string",
    "problem": "string",
    "batch_size": "int64",
    "num_heads_q": "int64",
    "num_heads_kv": "int64",
    "seqlen_q": "int64",
    "seqlen_k": "int64",
    "head_dim": "int64",
    "head_dim_v": "int64",
    "dtype": "string",
    "mask": "string",
    "scale": "Float64",
    "direction": "string",
    "distribution": "string",
    "seed": "int64",
    "attended_pairs": "int64",
    "all_pairs": "int64",
    "empty_rows": "int64",
    "flop": "int64",
    "least_bytes": "int64",
    "element_bytes": "int64",
    "latency_ms": "Float64",
    "latency_lo_ms": "Float64",
    "latency_hi_ms": "Float64",
    "latency_min_ms": "Float64",
    "samples": "Int64",
    "processes": "Int64",
    "calls_per_sample": "Int64",
    "clock": "string",
    "discarded_rounds": "Int64",
    "wall_over_cpu": "Float64",
    "isolated_over_interleaved": "Float64",
    **{f"latency_{clock}_ms": "Float64" for clock in OTHER_CLOCKS},
    "energy_per_call_j": "Float64",
    "energy_uncertainty_j": "Float64",
    "first_call_ms": "Float64",
    "prepare_ms": "Float64",
    "setup_ms": "Float64",
    "peak_bytes": "Int64",
    "output_bytes": "Int64",
    "workspace_bytes": "Int64",
    "mask_bytes": "Int64",
    "predicted_peak_bytes": "Int64",
    "saved_bytes": "Int64",
    "backward_peak_bytes": "Int64",
    "allocated_bytes": "Int64",
    "reserved_bytes": "Int64",
    "device_used_bytes": "Int64",
    "vm_hwm_bytes": "Int64",
    "memory_method": "string",
    "ceiling_flop_per_s": "Float64",
    "ceiling_bytes_per_s": "Float64",
    "out_max_abs": "Float64",
    "out_rmse": "Float64",
    "out_rmse_over_naive": "Float64",
    "out_nonfinite": "Int64",
    "out_limit": "Float64",
    "lse_max_abs": "Float64",
    "dq_max_abs": "Float64",
    "dk_max_abs": "Float64",
    "dv_max_abs": "Float64",
    "ran": "string",
    "verify_s": "Float64",
    "measure_s": "Float64",
}
"""Column name to pandas dtype; a missing number is ``<NA>``, never 0."""


def frame(runs: Iterable[Run]) -> pd.DataFrame:
    """Records of several runs as one pandas frame: one row per cell, typed as :data:`COLUMNS` says."""
    import pandas as pd

    return pd.DataFrame(plain_rows(runs), columns=list(COLUMNS)).astype(COLUMNS)


def plain_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """The rows of :func:`frame` as plain values, None where one is missing: without the seconds that pandas takes."""
    floats = {name for name, dtype in COLUMNS.items() if dtype == "Float64"}
    rows = []
    for flat in (_row(run, record) for run in runs for record in run.records):
        rows.append(
            {
                name: float(value) if name in floats and (value := flat[name]) is not None else flat[name]
                for name in COLUMNS
            }
        )
    return rows


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean of positive numbers.

    Raises:
        ValueError: if there are none, or one is not positive.
    """
    if not values or not min(values) > 0:
        raise ValueError(f"geometric mean must be taken of positive numbers, got {list(values)[:5]}.")
    return math.exp(fmean(math.log(value) for value in values))


def bandwidth_roof(ceilings: Ceilings, moved_bytes: int) -> float:
    """Best measured bandwidth, in bytes per second, of any working set at least as large as ``moved_bytes``.

    What fits into a cache is compared with the cache. Beyond the largest working set it is that of memory, and the
    best of all where a quick measurement has no curve.
    """
    reached = [found.bytes_per_s for found in ceilings.bandwidth if found.working_set_bytes >= moved_bytes]
    return max(reached, default=ceilings.memory_bytes_per_s or ceilings.bytes_per_s)


def _row(run: Run, record: Record) -> dict[str, Any]:
    """One record as a flat row; derived latencies come from the raw samples."""
    problem, measurement, agreement = record.problem, record.measurement, record.agreement
    flat: dict[str, Any] = dict.fromkeys(COLUMNS)
    flat |= problem.model_dump(mode="json")
    flat |= {
        "run_id": run.run_id,
        "cell_key": record.cell_key,
        "problem": problem.key,
        "all_pairs": problem.all_pairs,
        "element_bytes": problem.element_bytes,
        "least_bytes": problem.least_bytes,
        "flags": "; ".join(f"{flag.name}: {flag.reason}" for flag in record.flags) or None,  # CSV has no empty text
    }
    for name in ("implementation", "implementation_version", "device", "status", "reason", "attended_pairs"):
        flat[name] = getattr(record, name)
    for name in ("empty_rows", "flop", "verify_s", "measure_s"):
        flat[name] = getattr(record, name)
    if run.header.ceilings is not None:
        flat["ceiling_flop_per_s"] = run.header.ceilings.flop_per_s.get(problem.dtype)
        flat["ceiling_bytes_per_s"] = bandwidth_roof(run.header.ceilings, problem.least_bytes)
    if agreement is not None:
        flat["ran"] = ", ".join(agreement.ran) or None
        for name, error in agreement.tensors.items():
            flat[f"{name}_max_abs"] = error.max_abs
        out = agreement.tensors.get("out")
        if out is not None:
            flat |= {
                "out_rmse": out.rmse,
                "out_rmse_over_naive": out.rmse_over_naive,
                "out_nonfinite": out.nonfinite,
                "out_limit": out.limit,
            }
    if measurement is not None:
        flat |= _measured(measurement)
    return flat


def _measured(measurement: Measurement) -> dict[str, Any]:
    """The columns of a measured cell."""
    summary = latency_summary(measurement)
    flat: dict[str, Any] = {
        "latency_ms": summary.median_ms,
        "latency_lo_ms": summary.lo_ms,
        "latency_hi_ms": summary.hi_ms,
        "latency_min_ms": summary.min_ms,
        "samples": len(measurement.samples_ns),
        "processes": len(set(measurement.processes)),
        "calls_per_sample": measurement.calls_per_sample,
        "clock": measurement.clock,
        "discarded_rounds": measurement.discarded_rounds,
        "wall_over_cpu": _wall_over_cpu(measurement),
        "isolated_over_interleaved": _isolated_over_interleaved(measurement),
        "first_call_ms": ns_to_ms(measurement.first_call_ns),
        "prepare_ms": ns_to_ms(measurement.prepare_ns),
        "setup_ms": None if measurement.setup_ns is None else ns_to_ms(measurement.setup_ns),
    }
    for other in measurement.others:
        if other.clock in OTHER_CLOCKS and other.samples_ns:
            flat[f"latency_{other.clock}_ms"] = latency_summary(other).median_ms
    if measurement.energy is not None:
        flat["energy_per_call_j"] = measurement.energy.joules_per_call
        flat["energy_uncertainty_j"] = measurement.energy.uncertainty_j
    if measurement.memory is not None:
        memory = measurement.memory.model_dump(exclude={"excluded_bytes"})
        flat["memory_method"] = memory.pop("method")
        flat |= memory
    return flat


def _wall_over_cpu(measurement: Measurement) -> float | None:
    """Median over blocks of wall time over CPU time of the calling thread: well above 1 where others held the cores."""
    shares = [wall / cpu for wall, cpu in zip(measurement.samples_ns, measurement.cpu_ns or (), strict=False) if cpu]
    return median(shares) if shares else None


def _isolated_over_interleaved(measurement: Measurement) -> float | None:
    """Median of blocks on their own over that of blocks between others'; None where either is missing."""
    between = median(measurement.samples_ns)
    if not measurement.isolated_ns or not between:
        return None
    return median(measurement.isolated_ns) / between
