from __future__ import annotations

import json
import math
from importlib import import_module
from pathlib import Path

import pytest
import torch
from members import QUICK

from bench.demonstrations import demonstrations
from bench.demonstrations.underflow import derived_gap, smallest_gap
from bench.errors import Unsupported

module = import_module("bench.demonstrations.underflow")
CASES = json.loads((Path(__file__).parents[2] / "chapter" / "golden.json").read_text("utf-8"))["cases"]
KNOWN = next(case for case in CASES if case["name"] == "underflow_of_a_positive_weight")["expected"]
GOLDEN = {
    "float64": KNOWN["float64"],
    "float32": KNOWN["float32"],
    "float16": KNOWN["float16_first_representable"],
    "bfloat16": KNOWN["bfloat16_first_representable"],
}


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return demonstrations.get("underflow")(True)


def gaps(rows, who):
    return {(r["dtype"], r["keys"]): r["gap"] for r in rows if r["kind"] == "gap" and r["who"] == who}


@pytest.mark.parametrize("dtype", GOLDEN)
def test_torch_softmax_loses_the_weight_where_it_is_known_to(rows, dtype):
    assert gaps(rows, "torch.softmax")[dtype, 2] == pytest.approx(GOLDEN[dtype], rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "halvings"), [("float64", 1075), ("float32", 150), ("float16", 25), ("bfloat16", 134)]
)
def test_derived_gaps_follow_from_the_smallest_number(rows, dtype, halvings):
    """A weight of half the smallest number, 2 to the power of -halvings, is rounded to 0."""
    assert derived_gap(dtype) == pytest.approx(halvings * math.log(2), rel=1e-12)
    row = next(row for row in rows if row["kind"] == "gap" and row["dtype"] == dtype)
    kind = getattr(torch, dtype)
    expected = torch.tensor(row["expected"], dtype=kind)
    assert float(expected) == row["expected"] >= row["derived"]
    assert float(torch.nextafter(expected, torch.zeros_like(expected))) < row["derived"]
    assert row["flushed"] == pytest.approx(-math.log(torch.finfo(kind).tiny))


def test_every_implementation_is_asked_with_few_and_with_many_keys(rows):
    for name in QUICK:
        found = gaps(rows, name)
        assert set(found) == {(dtype, keys) for dtype in module.DTYPES[1:] for keys in module.KEYS}
        assert all(gap is not None and 5 < gap < 110 for gap in found.values())


def test_the_weight_just_before_the_gap_is_positive(rows):
    for (dtype, keys), gap in gaps(rows, "torch.softmax").items():
        at = torch.tensor([gap], dtype=getattr(torch, dtype))
        before = torch.nextafter(at, torch.zeros_like(at))
        weights = module._softmax(keys, torch.cat([before, at]))
        assert weights[0] > 0
        assert weights[1] == 0


def test_curves_start_at_one_half_and_end_at_zero(rows):
    curves = {row["dtype"]: row for row in rows if row["kind"] == "curve"}
    assert set(curves) == set(module.DTYPES)
    for row in curves.values():
        assert row["weights"][0] == 0.5
        assert row["weights"][-1] == 0
        assert row["gaps"] == sorted(row["gaps"])


@pytest.mark.parametrize("dtype", module.DTYPES)
@pytest.mark.parametrize("edge", [0.5, 17.25, 50.0, 1984.0])
def test_the_search_finds_the_first_number_whose_weight_is_zero(dtype, edge):
    assert smallest_gap(lambda gaps: (gaps < edge).to(gaps.dtype), dtype) == edge


def test_a_weight_that_never_is_zero_has_no_gap_and_one_that_always_is_has_gap_zero():
    assert smallest_gap(torch.ones_like, "float32") is None
    assert smallest_gap(torch.zeros_like, "float32") == 0.0


def test_a_refusal_is_told_in_its_own_words():
    def refuse(gaps):
        raise Unsupported("needs more keys")

    row = module._row("tried", "float32", 2, refuse)
    assert (row["gap"], row["refused"]) == (None, "needs more keys")
