from __future__ import annotations

from typing import Any

import planted
import pytest

from bench.metrics import Metric, metrics
from bench.plots import Reading

PAIRS = 128 * (4096 - 128 + 1 + 4096) // 2
"""Visible pairs of 128 queries aligned to the end of 4096 keys."""


def value(name: str, latency_ms: float = 1.0, **problem: Any) -> float | None:
    seqlen = problem.pop("seqlen", 1024)
    (row,) = Reading([planted.run([planted.record("x", seqlen, latency_ms, noise=0, **problem)])]).rows
    return metrics.get(name).value(row)


@pytest.mark.parametrize("name", metrics.names())
def test_every_metric_is_missing_where_nothing_was_measured(name: str) -> None:
    (row,) = Reading([planted.run([planted.record("x", 128, status="unsupported")])]).rows
    assert metrics.get(name).value(row) is None


@pytest.mark.parametrize("name", metrics.names())
def test_every_metric_states_title_unit_and_direction(name: str) -> None:
    metric = metrics.get(name)
    assert isinstance(metric, Metric)
    assert metric.name == name
    assert metric.title and metric.better in ("higher", "lower")
    assert value(name, 2.0) is not None


@pytest.mark.parametrize("name", metrics.names())
def test_direction_agrees_with_a_faster_cell(name: str) -> None:
    slow, fast = value(name, 2.0), value(name, 1.0)
    assert slow is not None and fast is not None
    if name == "peak_score_matrices":
        assert slow == fast
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
