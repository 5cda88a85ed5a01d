from __future__ import annotations

from importlib import import_module

import pytest
import torch
from members import QUICK

from bench.demonstrations import demonstrations
from bench.demonstrations._members import one_thread
from bench.errors import Unsupported
from bench.implementation import dense_mask

module = import_module("bench.demonstrations.convexity")


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return demonstrations.get("convexity")(True)


def test_every_implementation_dtype_and_mask_has_a_row_within_rounding(rows):
    assert [row["who"] for row in rows[:: len(rows) // len(QUICK)]] == QUICK
    assert len(rows) == len(QUICK) * len(module.DTYPES) * len(module.QUICK_MASKS)
    for row in rows:
        assert row["reason"] is None
        assert row["nonfinite"] == 0
        assert row["least_weight"] >= 0
        assert row["hidden_weight"] == 0
        assert row["row_sum_error"] <= row["limit"]
        assert row["hull_excess"] <= row["limit"] * row["largest_v"]


def test_rounding_of_a_sum_is_that_of_the_dtype_and_of_float32_sums():
    assert module.rounding("bfloat16", 1) == 2 * (2**-8 + 2**-24)
    assert module.rounding("float32", 400) == pytest.approx(2 * 21 * 2**-24)


def plain(problem, inputs, change=lambda weights, keep: weights):
    """Attention in float64 whose weights are changed."""
    keep = dense_mask(problem, "cpu")
    scores = problem.softmax_scale * inputs.q.double() @ inputs.k.double().transpose(-1, -2)
    weights = torch.softmax(scores.masked_fill(~keep, -torch.inf), dim=-1)
    return {"out": (change(weights, keep) @ inputs.v.double()).to(inputs.v.dtype)}


@one_thread()
def row_of(attend, dtype="float32", mask="causal"):
    return module._row("tried", attend, module._case(dtype, mask))


def test_exact_weights_are_within_the_limits_and_lost_mass_is_seen_in_sums_and_hulls():
    exact = row_of(plain)
    assert exact["row_sum_error"] < exact["limit"]
    lost = row_of(lambda problem, inputs: plain(problem, inputs, lambda weights, keep: 0.99 * weights))
    assert lost["row_sum_error"] == pytest.approx(0.01, rel=1e-3)
    assert lost["hull_excess"] > 10 * lost["limit"] * lost["largest_v"]


def test_weights_of_hidden_keys_and_negative_ones_are_seen():
    def leaking(weights, keep):
        return torch.where(keep, weights, 1e-7)

    def swapped(weights, keep):  # sums stay 1
        return weights + 1e-6 * (torch.eye(weights.shape[-1]) - torch.eye(weights.shape[-1]).roll(1, 0)).double()

    assert row_of(lambda p, i: plain(p, i, leaking))["hidden_weight"] == pytest.approx(1e-7)
    assert row_of(lambda p, i: plain(p, i, swapped), mask="sliding_window(1)")["least_weight"] == pytest.approx(-1e-6)


def test_infinities_are_counted_and_leave_no_numbers():
    row = row_of(lambda problem, inputs: {"out": torch.full_like(inputs.v, torch.nan)})
    assert row["nonfinite"] == module.UNIT * (module.UNIT + module.KEYS)
    assert all(row[name] is None for name in module.NUMBERS)


def test_a_refusal_is_told_in_its_own_words():
    def refuse(problem, inputs):
        raise Unsupported("its kernel takes no mask")

    row = row_of(refuse)
    assert row["reason"] == "its kernel takes no mask"
    assert all(row[name] is None for name in ("nonfinite", *module.NUMBERS))
