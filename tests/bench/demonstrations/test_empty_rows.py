from __future__ import annotations

from importlib import import_module

import pytest
import torch
from members import QUICK

from bench.demonstrations import demonstrations
from bench.errors import Unsupported

module = import_module("bench.demonstrations.empty_rows")


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return demonstrations.get("empty_rows")(True)


def test_registered_implementations_answer_zero_and_minus_infinity_in_every_dtype(rows):
    own = [row for row in rows if row["registered"]]
    assert [(row["who"], row["dtype"]) for row in own] == [(name, dtype) for name in QUICK for dtype in module.DTYPES]
    assert {row["weight_sum"] for row in own} == {"0"}
    assert {row["lse"] for row in own if row["who"] == "online_softmax"} == {"-inf"}
    assert {row["lse"] for row in own} <= {"-inf", "not returned"}


def test_what_others_answer_today(rows):
    """Softmax over nothing is NaN; attention functions give 0, a layer one or the other by an unrelated flag."""
    answers = {row["who"]: (row["seen"], row["weight_sum"]) for row in rows if not row["registered"]}
    assert answers == {
        "exp(s) over its sum (torch)": ("nothing", "NaN"),
        "exp(s - max) over its sum (numpy)": ("nothing", "NaN"),
        "torch.softmax": ("nothing", "NaN"),
        "torch.masked.softmax": ("nothing", "NaN"),
        "scipy.special.softmax": ("nothing", "NaN"),
        "SDPA math (boolean mask)": ("nothing", "0"),
        "SDPA math (mask of -inf)": ("nothing", "0"),
        "SDPA math (mask of the smallest float32)": ("all keys", "1"),
        "SDPA flash (boolean mask)": ("nothing", "0"),
        "SDPA flash (mask of -inf)": ("nothing", "0"),
        "SDPA flash (mask of the smallest float32)": ("all keys", "1"),
        "SDPA as it chooses (boolean mask)": ("nothing", "0"),
        "nn.MultiheadAttention (need_weights=True)": ("nothing", "NaN"),
        "nn.MultiheadAttention (need_weights=False)": ("nothing", "0"),
    }


@pytest.mark.slow
def test_flex_attention_is_asked_in_the_full_run_only():
    row = module._asked("FlexAttention (not compiled)", module.NOTHING, module._flex)
    assert row["weight_sum"] == "0"


@pytest.mark.parametrize(("fill", "said"), [(0.0, "0"), (-0.0, "0"), (torch.nan, "NaN"), (1.0, "1"), (0.25, "0.25")])
def test_sums_are_said_as_text(fill, said):
    row = module._registered("tried", lambda p, i: {"out": torch.full_like(i.q, fill)}, "float32")
    assert row["weight_sum"] == said
    assert row["lse"] == "not returned"


def test_lse_is_told_where_it_is_returned_and_a_refusal_in_its_own_words():
    def attend(problem, inputs):
        return {"out": torch.zeros_like(inputs.q), "lse": torch.full((1, 1, 3), -87.5)}

    def refuse(problem, inputs):
        raise Unsupported("needs a key")

    assert module._registered("tried", attend, "float32")["lse"] == "-87.5"
    row = module._registered("tried", refuse, "float32")
    assert (row["weight_sum"], row["lse"], row["reason"]) == (None, None, "needs a key")
