from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import planted
import pytest

from bench.metrics import Metric, Needs, metrics
from bench.plots import Reading

PAIRS = 128 * (4096 - 128 + 1 + 4096) // 2
"""Visible pairs of 128 queries aligned to the end of 4096 keys."""


NOT_OF_CELLS = (
    *("registers", "spill_bytes", "shared_bytes", "mutants_missed", "mutants_caught"),
    *("saved_bytes", "backward_peak_bytes", "lse_max_abs", "dq_max_abs", "dk_max_abs", "dv_max_abs"),
)
"""Metrics of kernels and of the gate, and those that a planted forward cell lacks."""

RATE, BANDWIDTH = 9.91e10, 7.12e10
"""Ceilings of a planted run: float32 products, and bytes."""


def value(name: str, latency_ms: float = 1.0, **problem: Any) -> float | None:
    seqlen = problem.pop("seqlen", 1024)
    (row,) = Reading([planted.run([planted.record("x", seqlen, latency_ms, noise=0, **problem)])]).rows
    return metrics.get(name).value(row)


@pytest.mark.parametrize("name", metrics.names())
def test_every_metric_is_missing_where_nothing_was_measured(name: str) -> None:
    (row,) = Reading([planted.run([planted.record("x", 128, status="unsupported")])]).rows
    if name in ("flop", "attended_pairs"):
        assert metrics.get(name).value(row) == row[name], "these follow from the problem"
    else:
        assert metrics.get(name).value(row) is None


@pytest.mark.parametrize("name", metrics.names())
def test_every_metric_states_title_unit_and_direction(name: str) -> None:
    metric = metrics.get(name)
    assert isinstance(metric, Metric)
    assert metric.name == name
    assert metric.title and metric.better in ("higher", "lower", "same")
    assert metric.gate is None or metric.gate.needs in get_args(Needs)
    assert (value(name, 2.0) is None) == (name in NOT_OF_CELLS)


@pytest.mark.parametrize("name", metrics.names())
def test_direction_agrees_with_a_faster_cell(name: str) -> None:
    slow, fast = value(name, 2.0), value(name, 1.0)
    if name in NOT_OF_CELLS:
        return
    assert slow is not None and fast is not None
    if name in ("peak_score_matrices", "flop_per_byte") or metrics.get(name).gate is not None:
        assert slow == fast, "says nothing of time"
    else:
        assert (fast > slow) == (metrics.get(name).better == "higher")


def test_tflops_of_a_known_case() -> None:
    # B=4 H=32 T=4096 d=128, causal, 1.234 ms: 549,890,031,616 FLOP over exact pairs, 549,755,813,888 halved.
    shape = {"batch_size": 4, "num_heads": 32, "seqlen": 4096, "head_dim": 128, "mask": "causal"}
    assert value("tflops", 1.234, **shape) == pytest.approx(445.616, abs=5e-4)
    assert value("tflops_halved", 1.234, **shape) == pytest.approx(445.507, abs=5e-4)
    assert value("tflops_dense", 1.234, **shape) == pytest.approx(2 * 445.507, abs=1e-3)


def test_softmax_convention_adds_two_flop_per_pair() -> None:
    plain, more = value("tflops"), value("tflops_with_softmax")
    assert plain is not None and more is not None
    assert more / plain == pytest.approx(1 + 2 / 256)  # 0.8 % at head_dim 64
    assert value("tflops_with_softmax", direction="bwd") is None


@pytest.mark.parametrize(
    ("problem", "dense", "halved"),
    [
        ({"seqlen": 16, "mask": "causal"}, 1.882, 0.941),
        ({"seqlen": 512, "mask": "causal"}, 1.996, 0.998),
        ({"seqlen_q": 128, "seqlen_k": 4096, "mask": "causal"}, 1.016, 0.508),
        ({"seqlen_q": 1, "seqlen_k": 4096, "mask": "causal"}, 1.0, 0.5),
        ({"seqlen_q": 128, "seqlen_k": 4096, "mask": "causal_top_left"}, 63.5, 31.75),
        ({"seqlen": 8192, "mask": "sliding_window(128)"}, 64.5, 64.5),
        ({"seqlen": 64, "mask": "full"}, 1.0, 1.0),
        ({"seqlen": 64, "mask": "causal & padding(0.5)"}, 2.64, 1.32),
    ],
)
def test_published_conventions_against_exact_pairs(problem: dict[str, Any], dense: float, halved: float) -> None:
    exact = value("tflops", **problem)
    assert exact is not None
    assert value("tflops_dense", **problem) == pytest.approx(exact * dense, rel=2e-3)
    assert value("tflops_halved", **problem) == pytest.approx(exact * halved, rel=2e-3)


def test_backward_counts_five_products() -> None:
    forward, backward = value("tflops", direction="fwd"), value("tflops", direction="bwd")
    assert forward is not None and backward is not None
    assert backward / forward == pytest.approx(2.5)


def test_time_per_pair() -> None:
    found = value("time_per_pair_ns", 3.0, seqlen_q=128, seqlen_k=4096, mask="causal", num_heads=1)
    assert found == pytest.approx(3e6 / PAIRS)


def test_peak_in_score_matrices() -> None:
    (row,) = Reading([planted.run([planted.record("naive", 4096)])]).rows
    assert metrics.get("peak_score_matrices").value(row) == pytest.approx(2 + 64 / 4096)


def test_share_of_the_measured_rate_of_products() -> None:
    found = value("peak_fraction", 100.0, seqlen=4096, num_heads=1)
    assert found == pytest.approx(4 * 64 * 4096**2 / 0.1 / RATE)
    assert value("peak_fraction", dtype="float16") is None, "this machine's rate in that dtype was not measured"


def test_bandwidth_and_intensity_count_inputs_and_results_once() -> None:
    moved = 4 * 4096 * 64 * 4
    assert value("bandwidth_gb_per_s", 2.0, seqlen=4096, num_heads=1) == pytest.approx(moved / 2e-3 / 1e9)
    assert value("flop_per_byte", seqlen=4096, num_heads=1) == pytest.approx(4096 / 4)
    assert value("flop_per_byte", seqlen_q=1, seqlen_k=4096, num_heads=1) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("problem", "least_s"),
    [
        ({"seqlen": 4096, "num_heads": 1}, 4 * 64 * 4096**2 / RATE),  # products bind
        ({"seqlen_q": 1, "seqlen_k": 65536, "num_heads": 1}, (2 * 65536 + 2) * 64 * 4 / BANDWIDTH),  # memory binds
    ],
)
def test_the_roof_is_the_slower_of_products_and_memory(problem: dict[str, Any], least_s: float) -> None:
    assert value("roof_fraction", 1000 * least_s, **problem) == pytest.approx(1.0)
    assert value("roof_fraction", 4000 * least_s, **problem) == pytest.approx(0.25)


def test_no_share_without_measured_ceilings() -> None:
    run = planted.run([planted.record("naive", 1024, 1.0)])
    bare = replace(run, header=run.header.model_copy(update={"ceilings": None}))
    (row,) = Reading([bare]).rows
    assert metrics.get("peak_fraction").value(row) is None
    assert metrics.get("roof_fraction").value(row) is None
    assert metrics.get("bandwidth_gb_per_s").value(row) is not None
