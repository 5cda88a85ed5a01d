from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from math import sqrt

import planted
import pytest
import torch

from bench.claims import Hearing, Scope, claims, hear
from bench.claims.online_equals_full import FAR, OnlineEqualsFull, limit
from bench.demonstrations import demonstrations
from bench.evidence import Evidence
from bench.figure_style import figure_style
from bench.plots import Reading, save

CLAIM = OnlineEqualsFull()
(SOURCE,) = CLAIM.needs(Scope()).demonstrations
ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
ORDERS = ("ascending", "reversed", "random", "rising")
SIZES = (1, 96, 512, 1000)


def row(size: int = 96, order: str = "random", dtype: str = "float32", **fields: object) -> dict:
    """Errors as they are: about one rounding, more of it in single keys; blocks alone are off by 1."""
    error = 2 * ROUNDOFF[dtype]
    return {
        "arithmetic": "plain",
        "inputs": "random",
        "dtype": dtype,
        "seqlen_k": 1000,
        "block_size": size,
        "blocks": -(-1000 // size),
        "order": order,
        "online_max_abs": 1.5 * error,
        "online_rms": 0.2 * error,
        "full_max_abs": error,
        "full_rms": 0.2 * error,
        "independent_max_abs": 1.0 if size < 1000 else 1e-16,
        "independent_rms": 0.3,
        "largest_v": 3.0,
        "roundoff": ROUNDOFF[dtype],
        "roundoff_sums": ROUNDOFF["float32"],
    } | fields


def rows(dtype: str = "float32", sizes: Iterable[int] = SIZES, orders: Iterable[str] = ORDERS, **fields: object):
    return [row(size, order, dtype, **fields) for size in sizes for order in orders]


def hearing(every: Iterable[Mapping[str, object]]) -> Hearing:
    evidence = Evidence(kind="demonstration", name=SOURCE, rows=tuple(every), seconds=1.0)
    return Hearing(Reading([replace(planted.run([]), evidence=[evidence])]))


def verdicts(every: Iterable[Mapping[str, object]]) -> dict[str, str]:
    return {answer.subject: answer.verdict for answer in CLAIM.judge(hearing(every))}


def test_it_is_claim_five_and_asks_for_a_demonstration_that_there_is():
    assert claims.get("online_equals_full") is OnlineEqualsFull
    assert CLAIM.order == 5
    assert SOURCE in demonstrations.names()


def test_the_limit_is_four_errors_of_full_softmax_one_rounding_and_the_sums_of_the_blocks():
    w = 2.0**-24
    assert limit(row(1, "random", full_max_abs=1e-6)) == pytest.approx(4e-6 + 3 * (w + 4 * w * sqrt(1000)))
    assert limit(row(1000, "ascending", "bfloat16", full_max_abs=0.0)) == pytest.approx(3 * (2.0**-8 + 4 * w))


def test_rounding_everywhere_and_blocks_alone_far_off_are_confirmed_for_each_dtype_and_arithmetic():
    every = rows() + rows("bfloat16") + rows(arithmetic="online_softmax")
    assert verdicts(every) == {
        "plain, float32": "CONFIRMED",
        "plain, bfloat16": "CONFIRMED",
        "online_softmax, float32": "CONFIRMED",
    }
    first = CLAIM.judge(hearing(every))[0]
    assert "blocks normalised alone by 1.0" in first.found
    assert first.rows == (SOURCE,)


@pytest.mark.parametrize("dtype", ROUNDOFF)
def test_one_row_beyond_the_limit_refutes_its_subject_alone_and_is_named(dtype):
    wrong = row(96, "reversed", dtype)
    wrong["online_max_abs"] = 1.01 * limit(wrong)
    answers = CLAIM.judge(hearing([*rows(dtype), wrong, *rows(dtype, arithmetic="online_softmax")]))
    assert [answer.verdict for answer in answers] == ["REFUTED", "CONFIRMED"]
    assert "random, blocks of 96 keys, reversed" in answers[0].reason
    wrong["online_max_abs"] = 0.99 * limit(wrong)
    assert set(verdicts([*rows(dtype), wrong]).values()) == {"CONFIRMED"}


def test_more_blocks_are_allowed_more_rounding_of_sums_but_not_of_the_result():
    error = 12 * 2.0**-24 * 3 * sqrt(1000) / 4  # three quarters of what single keys are allowed
    assert verdicts(rows(sizes=(1,), online_max_abs=error) + rows())["plain, float32"] == "CONFIRMED"
    assert verdicts(rows(sizes=(512,), online_max_abs=error) + rows())["plain, float32"] == "REFUTED"


def test_blocks_normalised_alone_that_are_hardly_off_refute_the_other_half():
    close = row()
    close["independent_max_abs"] = 0.9 * FAR * limit(close)
    (answer,) = CLAIM.judge(hearing([*rows(), close]))
    assert answer.verdict == "REFUTED"
    assert "normalised alone" in answer.reason


def test_results_that_are_not_finite_refute():
    (answer,) = CLAIM.judge(hearing([*rows(), row(online_max_abs=None, online_rms=None)]))
    assert (answer.verdict, answer.found) == ("REFUTED", "infinities or NaN")


@pytest.mark.parametrize(
    ("some", "lacking"),
    [
        ({"sizes": (96, 512)}, "single key"),
        ({"sizes": (1, 500)}, "does not divide"),
        ({"orders": ORDERS[:2]}, "orders"),
        ({"sizes": (1000,)}, "single key"),
    ],
)
def test_rows_that_try_too_little_decide_nothing(some, lacking):
    (answer,) = CLAIM.judge(hearing(rows(**some)))
    assert answer.verdict == "INCONCLUSIVE"
    assert lacking in answer.reason


def test_without_rows_it_is_inconclusive_and_says_what_would_measure_it():
    judged = next(one for one in hear([planted.run([])]) if one.claim.name == CLAIM.name)
    assert judged.verdict == "INCONCLUSIVE"
    assert "claims --only online_equals_full" in judged.answers[0].reason
    assert CLAIM.draw(Hearing(Reading([planted.run([])])), ()) == []


@pytest.mark.parametrize(
    ("every", "title"),
    [
        (rows() + rows("float16"), "up to rounding, at every block size"),
        (rows(online_max_abs=0.1), "REFUTED"),
        (rows(sizes=(96,)), "too few rows"),
        (rows(sizes=(1000,), orders=ORDERS[:1]), "too few rows"),
    ],
)
def test_the_figure_says_what_was_found(every, title, tmp_path):
    heard = hearing(every)
    with figure_style():
        (drawing,) = CLAIM.draw(heard, CLAIM.judge(heard))
    assert title in " ".join(drawing.figure.get_suptitle().split())
    assert len(drawing.figure.axes) == len({row["dtype"] for row in every})
    assert save(drawing, tmp_path).stat().st_size > 10_000


@pytest.mark.parametrize("quick", [True, False])
def test_real_rows_are_confirmed(quick):
    every = demonstrations.get(SOURCE)(quick)
    found = verdicts(every)
    assert set(found.values()) == {"CONFIRMED"}
    assert len(found) == 6


def test_sums_that_are_not_rescaled_are_refuted_wherever_a_later_block_raises_the_maximum(monkeypatch):
    def without_rescale(scores, v, blocks):
        total = u = 0.0
        m = scores[:, :1] - torch.inf
        for keys in blocks:
            m = torch.maximum(m, scores[:, keys].amax(dim=-1, keepdim=True))
            p = torch.exp(scores[:, keys] - m)
            total, u = total + p.sum(dim=-1, keepdim=True), u + p @ v[keys]
        return u / total

    monkeypatch.setattr(import_module("bench.demonstrations.blockwise_softmax"), "running", without_rescale)
    found = verdicts(demonstrations.get(SOURCE)(True))
    assert {subject for subject, verdict in found.items() if verdict == "REFUTED"} == {
        f"plain, {dtype}" for dtype in ROUNDOFF
    }
