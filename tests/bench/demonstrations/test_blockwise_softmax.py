from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

from bench.demonstrations import demonstrations
from bench.demonstrations.blockwise_softmax import independent, running
from bench.implementation import implementations

module = import_module("bench.demonstrations.blockwise_softmax")
CASES = json.loads((Path(__file__).parents[2] / "chapter" / "golden.json").read_text("utf-8"))["cases"]
WORKED = {case["name"]: case for case in CASES}
DIGITS = 1e-12


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return demonstrations.get("blockwise_softmax")(True)


def keys(*lengths: int) -> Iterator[slice]:
    first = 0
    for length in lengths:
        yield slice(first, first + length)
        first += length


@pytest.mark.parametrize("name", ["running_recurrence_low_first", "running_recurrence_high_first"])
def test_running_sums_of_single_keys_give_the_worked_example_in_either_order(name):
    inputs = WORKED[name]["inputs"]
    scores = torch.tensor([inputs["scores_in_order"]], dtype=torch.float64)
    v = torch.tensor(inputs["values_in_order"], dtype=torch.float64)
    wanted = torch.tensor([WORKED[name]["expected"]["out"]], dtype=torch.float64)
    torch.testing.assert_close(running(scores, v, list(keys(1, 1))), wanted, rtol=0, atol=DIGITS)


def test_single_keys_normalised_alone_lose_their_scores():
    """(5, 1) instead of (8.807971, 0.238406)."""
    example = WORKED["blocks_normalised_independently"]
    scores = torch.tensor([example["inputs"]["scores_in_order"]], dtype=torch.float64)
    v = torch.tensor(example["inputs"]["values_in_order"], dtype=torch.float64)
    out = independent(scores, v, list(keys(1, 1)))
    assert out.tolist() == [example["expected"]["wrong_out_mean"]] == [[5.0, 1.0]]


def test_the_worked_example_is_among_the_rows(rows):
    example = WORKED["blocks_normalised_independently"]["expected"]
    wanted = max(abs(a - b) for a, b in zip(example["wrong_out_mean"], example["right_out"], strict=True))
    found = [row for row in rows if row["inputs"] == "worked example"]
    assert {row["dtype"] for row in found} == {"float32", "float16", "bfloat16"}
    for row in found:
        expected = wanted if row["blocks"] == 2 else 0.0
        assert row["independent_max_abs"] == pytest.approx(expected, abs=DIGITS)
        assert row["largest_v"] == 10.0
        assert row["online_max_abs"] <= 10 * row["roundoff"] + 4e-6


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_float64_sums_agree_to_float64_rounding_whatever_the_blocks(order):
    generator = torch.Generator().manual_seed(1)
    scores = 30 * torch.randn(5, 100, generator=generator, dtype=torch.float64)
    v = torch.randn(100, 3, generator=generator, dtype=torch.float64)
    whole = torch.softmax(scores, dim=-1) @ v
    for lengths in ([1] * 100, [7] * 14 + [2], [100], [99, 1]):
        torch.testing.assert_close(running(scores, v, list(keys(*lengths))[order]), whole, rtol=0, atol=1e-14)


def test_every_dtype_and_arithmetic_has_single_keys_remainders_and_four_orders(rows):
    assert {row["arithmetic"] for row in rows} == {"plain", "online_softmax"}
    for arithmetic in ("plain", "online_softmax"):
        for dtype in module.DTYPES:
            some = [
                row for row in rows if (row["arithmetic"], row["dtype"], row["inputs"]) == (arithmetic, dtype, "random")
            ]
            assert {row["block_size"] for row in some} == set(module.QUICK_SIZES)
            assert {row["order"] for row in some} == {"ascending", "reversed", "random", "rising"}
            assert any(row["seqlen_k"] % row["block_size"] for row in some)
            assert all(row["blocks"] == -(-row["seqlen_k"] // row["block_size"]) for row in some)


def test_quick_rows_are_a_part_of_the_full_ones():
    assert set(module.QUICK_SIZES) < set(module.BLOCK_SIZES)


def test_orders_hold_each_key_once_and_rising_ends_with_the_largest_score():
    common = torch.tensor([0.0, 5.0, 1.0, 9.0, 2.0, 3.0, 4.0])
    orders = dict(module._orders(common, 3))
    assert [block.start for block in orders["rising"]] == [6, 0, 3]
    for blocks in orders.values():
        assert sorted(key for block in blocks for key in range(block.start, block.stop)) == list(range(7))


def test_a_result_that_is_not_finite_is_null(monkeypatch):
    monkeypatch.setattr(module, "running", lambda scores, v, blocks: torch.full((1, 2), torch.nan))
    row = next(iter(module._plain("worked example", *module._worked_example("float32"), (1,))))
    assert row["online_max_abs"] is row["online_rms"] is None
    assert row["full_max_abs"] is not None


def test_an_implementation_that_drops_its_last_block_is_far_off(monkeypatch, clean_registry):
    clean_registry(implementations)
    kind = type(implementations.get("online_softmax"))

    class Dropping(kind):
        def _plan(self, problem, device=None):
            plan = super()._plan(problem, device)
            for block in plan.blocks:
                object.__setattr__(block, "tiles", block.tiles[:-1] or block.tiles)
            return plan

    implementations._members["online_softmax"] = Dropping()
    found = list(module._registered("float32", (96,)))
    assert found
    assert all(row["online_max_abs"] > 1e4 * row["full_max_abs"] for row in found)
