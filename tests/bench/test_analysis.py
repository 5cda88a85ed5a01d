from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis import COLUMNS, OTHER_CLOCKS, frame, geometric_mean, latency_summary, median_interval, paired_ratio
from bench.clocks import clocks_for
from bench.problem import Problem
from bench.record import Energy, Flag, Measurement, Record, Sampled
from bench.results import Run, RunWriter, read_run


@pytest.mark.parametrize(
    ("count", "low", "high", "coverage"),
    [
        (1, 0, 0, 0.0),
        (2, 0, 1, 0.5),
        (5, 0, 4, 0.9375),
        (6, 0, 5, 0.96875),
        (9, 1, 7, 0.9609375),
        (10, 1, 8, 0.978515625),
        (12, 2, 9, 0.96142578125),
        (20, 5, 14, 0.958610534667968),
    ],
)
def test_exact_coverage_of_the_median(count: int, low: int, high: int, coverage: float) -> None:
    assert median_interval(count) == (low, high, pytest.approx(coverage, abs=1e-12))


@given(st.integers(6, 400))
def test_an_interval_covers_and_the_next_narrower_one_does_not(count: int) -> None:
    low, high, coverage = median_interval(count)
    assert (low, high) == (low, count - 1 - low)
    assert coverage >= 0.95
    narrower = coverage - 2 * float(np.prod([(count - i) / (i + 1) for i in range(low + 1)])) / 2.0**count
    assert narrower < 0.95


@pytest.mark.parametrize("count", [6, 10, 15])
@pytest.mark.parametrize("draw", ["lognormal", "cauchy", "bimodal"])
def test_simulated_coverage_is_the_stated_one(count: int, draw: str) -> None:
    generator = np.random.default_rng(7)
    sizes = (40_000, count)
    if draw == "lognormal":
        samples, truth = generator.lognormal(0.0, 0.5, sizes), 1.0
    elif draw == "cauchy":
        samples, truth = generator.standard_cauchy(sizes), 0.0
    else:  # two modes, each half the mass; any point between them is a median, so take skewed shares
        samples = np.where(generator.random(sizes) < 0.6, generator.normal(1, 0.01, sizes), 5.0)
        truth = 1 + 0.01 * 0.967421566101701  # the 5/6 quantile of the lower mode
    low, high, coverage = median_interval(count)
    ordered = np.sort(samples, axis=1)
    held = np.mean((ordered[:, low] <= truth) & (truth <= ordered[:, high]))
    assert held == pytest.approx(coverage, abs=4 * (coverage * (1 - coverage) / sizes[0]) ** 0.5)


def measurement(samples_ns: list[int], processes: list[int], calls_per_sample: int = 1) -> Measurement:
    return Measurement(
        samples_ns=tuple(samples_ns),
        calls_per_sample=calls_per_sample,
        processes=tuple(processes),
        clock="perf_counter",
        first_call_ns=1,
        prepare_ns=1,
        memory=None,
    )


def test_one_process_is_summarised_by_its_samples() -> None:
    samples = [40_000_000, 10_000_000, 20_000_000, 30_000_000, 60_000_000, 50_000_000]
    summary = latency_summary(measurement(samples, [0] * 6, calls_per_sample=10))
    assert (summary.median_ms, summary.lo_ms, summary.hi_ms, summary.min_ms) == (3.5, 1.0, 6.0, 1.0)
    assert (summary.coverage, summary.scope) == (0.96875, "within run")


def test_several_processes_are_summarised_by_their_medians() -> None:
    # Process p has samples around p + 1 ms, one of them wild: the unit is the process, not the sample.
    samples = [round(1e6 * (p + 1) * f) for p in range(6) for f in (1.0, 0.9, 50.0, 1.1, 1.0)]
    summary = latency_summary(measurement(samples, [p for p in range(6) for _ in range(5)]))
    assert (summary.median_ms, summary.lo_ms, summary.hi_ms, summary.min_ms) == (3.5, 1.0, 6.0, 0.9)
    assert (summary.coverage, summary.scope) == (0.96875, "across processes")


def test_pairing_cancels_what_both_rounds_share() -> None:
    drift = (1, 3, 9, 2, 7, 1, 5)
    slow, fast = (measurement([ns * d for d in drift], [0] * 7) for ns in (2000, 1000))
    pair = paired_ratio(slow, fast)
    assert pair is not None and (pair.ratio, pair.lo, pair.hi, pair.processes, pair.verdict) == (2.0, 2.0, 2.0, 1, None)
    assert (pair.text, pair.scope) == ("2.00x [2.00, 2.00]", "within run")
    per_call = paired_ratio(slow, fast.model_copy(update={"calls_per_sample": 2}))
    assert per_call is not None and per_call.ratio == 4.0


def test_what_no_round_timed_together_is_not_paired() -> None:
    slow = measurement([2, 2, 2], [0, 0, 0])
    assert paired_ratio(slow, measurement([1, 1], [0, 0])) is None
    assert paired_ratio(slow, measurement([1, 1, 1], [1, 1, 1])) is None
    assert paired_ratio(slow, measurement([1, 0, 1], [0, 0, 0])) is None  # the clock read 0
    assert paired_ratio(slow, measurement([1, 1, 1], [0, 0, 0]).model_copy(update={"clock": "cuda_graph"})) is None
    two = measurement([2, 2, 2, 2], [0, 0, 1, 1])
    assert paired_ratio(two, measurement([1, 1, 1], [0, 0, 1])) is None  # only one process paired


@pytest.mark.parametrize(
    ("processes", "factor", "verdict"),
    [(2, 2.0, "UNCLEAR"), (5, 2.0, "UNCLEAR"), (6, 2.0, "REGRESSED"), (6, 1.01, "UNCHANGED"), (6, 0.5, "IMPROVED")],
)
def test_with_several_processes_each_gives_one_estimate(processes: int, factor: float, verdict: str) -> None:
    """Round ratios spread wildly, their median within each process does not."""
    numbers = [p for p in range(processes) for _ in range(3)]
    other = measurement([1_000_000] * 3 * processes, numbers)
    mine = measurement([round(factor * 1e6 * f) for _ in range(processes) for f in (1.0, 0.2, 9.0)], numbers)
    pair = paired_ratio(mine, other)
    assert pair is not None and pair.verdict == verdict and pair.processes == processes
    assert (pair.ratio, pair.lo, pair.hi) == pytest.approx((factor, factor, factor))
    assert pair.coverage == 1 - 2 * 0.5**processes and pair.scope == f"across {processes} processes"


def test_a_first_look_that_decides_is_not_judged_again() -> None:
    """As the sweep does: later processes ran because some other pair was undecided."""
    numbers = list(range(12))
    mine = measurement([2_000] * 6 + [500] * 6, numbers)
    pair = paired_ratio(mine, measurement([1_000] * 12, numbers))
    assert pair is not None and (pair.verdict, pair.processes, pair.ratio) == ("REGRESSED", 6, pytest.approx(2.0))


@given(
    st.lists(st.integers(1, 10**10), min_size=1, max_size=60),
    st.integers(1, 50),
    st.randoms(use_true_random=False),
)
def test_the_order_of_samples_does_not_matter(samples: list[int], calls: int, order: random.Random) -> None:
    shuffled = list(samples)
    order.shuffle(shuffled)
    one = latency_summary(measurement(samples, [0] * len(samples), calls))
    assert one == latency_summary(measurement(shuffled, [0] * len(samples), calls))
    assert one.min_ms <= one.lo_ms <= one.median_ms <= one.hi_ms
    assert one.median_ms == pytest.approx(median(samples) / calls / 1e6)


def test_geometric_mean() -> None:
    assert geometric_mean([10.0, 20.0]) == pytest.approx(14.142135623730951)
    for values in ([], [1.0, 0.0], [1.0, -1.0], [float("nan")]):
        with pytest.raises(ValueError, match="geometric mean must be taken of positive numbers"):
            geometric_mean(values)


def test_the_table_holds_what_the_records_hold(
    make_record: Callable[..., Record], make_run: Callable[..., Run]
) -> None:
    problem = Problem(seqlen=256, mask="causal", scale=0.5)
    flags = (Flag(name="unstable", reason="spread 12 %"), Flag(name="few_samples", reason="4 rounds"))
    ok = make_record("ok", latency_ms=2.0, problem=problem, flags=flags)
    missing = make_record("unavailable", implementation="flash_attn", implementation_version=None)
    table = frame([make_run([ok, missing], run_id="20261130T094512Z-3fa9")])
    assert list(table.columns) == list(COLUMNS)
    first, second = table.iloc[0], table.iloc[1]
    assert first["run_id"] == "20261130T094512Z-3fa9"
    assert first["problem"] == problem.key
    assert (first["mask"], first["scale"], first["seqlen_q"]) == ("causal", 0.5, 256)
    assert first["latency_ms"] == 2.0
    assert (first["latency_lo_ms"], first["latency_hi_ms"]) == (1.96, 2.04)
    assert first["peak_bytes"] == 2 * 4 * 256 * 256 * 4 + first["output_bytes"]
    assert first["out_limit"] == pytest.approx(3e-6)
    assert first["flags"] == "unstable: spread 12 %; few_samples: 4 rounds"
    assert second["status"] == "unavailable"
    assert second["reason"] == "is unavailable"
    for name in (
        "implementation_version",
        "latency_ms",
        "peak_bytes",
        "samples",
        "out_max_abs",
        "scale",
        "clock",
    ):
        assert second[name] is pd.NA, name


def test_what_stands_beside_the_samples_has_columns(
    make_record: Callable[..., Record], make_run: Callable[..., Run]
) -> None:
    hot = Sampled(clock="cuda_event_hot", samples_ns=(2_000_000, 4_000_000), calls_per_sample=2, processes=(0, 0))
    graph = Sampled(clock="cuda_graph", reason="the call synchronises")
    beside = {
        "samples_ns": (100, 100, 100),
        "processes": (0, 0, 0),
        "cpu_ns": (50, 0, 25),
        "isolated_ns": (80, 80),
        "discarded_rounds": 3,
        "others": (hot, graph),
        "energy": Energy(joules_per_call=0.5, uncertainty_j=0.1, method="rapl"),
    }
    plain = make_record("ok")
    assert plain.measurement is not None
    full = plain.model_copy(update={"measurement": plain.measurement.model_copy(update=beside)})
    table = frame([make_run([full, plain])])
    row, other = table.iloc[0], table.iloc[1]
    assert row["discarded_rounds"] == 3 and other["discarded_rounds"] == 0
    assert row["wall_over_cpu"] == 3.0  # median of 2 and 4: a block in which the CPU clock did not move says nothing
    assert row["isolated_over_interleaved"] == 0.8
    assert row["latency_cuda_event_hot_ms"] == 1.5 and row["latency_cuda_graph_ms"] is pd.NA
    assert (row["energy_per_call_j"], row["energy_uncertainty_j"]) == (0.5, 0.1)
    for name in ("wall_over_cpu", "isolated_over_interleaved", "latency_cuda_event_hot_ms", "energy_per_call_j"):
        assert other[name] is pd.NA, name


def test_every_other_clock_of_a_gpu_has_a_column() -> None:
    main, others = clocks_for("cuda", object())
    assert {clock.name for clock in others} == set(OTHER_CLOCKS)
    assert main.name not in OTHER_CLOCKS


def test_types_are_the_declared_ones_whatever_the_rows_hold(
    make_record: Callable[..., Record], make_run: Callable[..., Run]
) -> None:
    nothing = make_run([make_record("unsupported")])
    whole_numbers = make_run([make_record("ok", latency_ms=1.0), make_record("ok", latency_ms=2.0)])
    for runs in ([], [nothing], [whole_numbers], [nothing, whole_numbers]):
        table = frame(runs)
        assert {name: str(kind) for name, kind in table.dtypes.items()} == COLUMNS
    both = frame([nothing, whole_numbers])
    assert both["latency_ms"].tolist() == [pd.NA, 1.0, 2.0]


def test_the_table_survives_csv_with_its_types(
    tmp_path: Path, make_record: Callable[..., Record], make_run: Callable[..., Run]
) -> None:
    awkward = 'window None, "quoted", causal=False\nα − β 🙂'
    records = [
        make_record("unsupported", reason=awkward),
        make_record("ok", latency_ms=1.0, problem=Problem(seqlen=64, scale=128**-0.5)),
        make_record("ok", latency_ms=2.0),
    ]
    table = frame([make_run(records)])
    path = tmp_path / "table.csv"
    table.to_csv(path, index=False)
    again = pd.read_csv(path, dtype=COLUMNS, keep_default_na=False, na_values=[""])
    empty_is_missing = table.replace({"flags": {"": pd.NA}, "ran": {"": pd.NA}}).astype(COLUMNS)
    pd.testing.assert_frame_equal(again, empty_is_missing)
    assert again["reason"].iloc[0] == awkward


def test_rows_of_two_files_join_on_the_cell(
    tmp_path: Path, make_record: Callable[..., Record], make_header: Callable[..., object]
) -> None:
    problems = [Problem(seqlen=64, scale=scale) for scale in (None, 1.0, 128**-0.5)]
    runs = []
    for run_id in ("20261130T094512Z-3fa9", "20261130T094512Z-77aa"):
        with RunWriter(tmp_path, run_id) as writer:
            writer.write(make_header(run_id))  # type: ignore[arg-type]  # a RunHeader
            for problem in problems:
                writer.write(make_record("ok", problem=problem))
        runs.append(read_run(writer.path))
    one, two = (frame([run]) for run in runs)
    joined = one.merge(two, on="cell_key", validate="one_to_one")
    assert len(joined) == len(problems)
    assert joined["problem_x"].tolist() == joined["problem_y"].tolist()
