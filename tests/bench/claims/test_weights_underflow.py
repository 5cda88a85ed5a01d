from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import log
from pathlib import Path

import planted
import pytest

from bench.claims import Hearing, Scope, claims, hear
from bench.claims.weights_underflow import REFERENCE, WeightsUnderflow
from bench.demonstrations import demonstrations
from bench.evidence import Evidence
from bench.figure_style import figure_style
from bench.plots import Reading, save

CLAIM = WeightsUnderflow()
(SOURCE,) = CLAIM.needs(Scope()).demonstrations
CASES = json.loads((Path(__file__).parents[2] / "chapter" / "golden.json").read_text("utf-8"))["cases"]
KNOWN = next(case for case in CASES if case["name"] == "underflow_of_a_positive_weight")["expected"]
EXPECTED = {
    "float64": KNOWN["float64"],
    "float32": KNOWN["float32"],
    "float16": KNOWN["float16_first_representable"],
    "bfloat16": KNOWN["bfloat16_first_representable"],
}
HALVINGS = {"float64": 1075, "float32": 150, "float16": 25, "bfloat16": 134}
NORMAL = {"float64": 1022, "float32": 126, "float16": 14, "bfloat16": 126}


def gap(who: str = REFERENCE, dtype: str = "float32", keys: int = 2, **fields: object) -> dict:
    return {
        "kind": "gap",
        "who": who,
        "dtype": dtype,
        "keys": keys,
        "derived": HALVINGS[dtype] * log(2),
        "expected": EXPECTED[dtype],
        "flushed": NORMAL[dtype] * log(2),
        "gap": EXPECTED[dtype],
        "refused": None,
    } | fields


def curve(dtype: str) -> dict:
    gaps = [EXPECTED[dtype] * step / 20 for step in range(22)]
    weights = [2.0 ** (-HALVINGS[dtype] * step / 20) if step < 20 else 0.0 for step in range(22)]
    return {"kind": "curve", "who": REFERENCE, "dtype": dtype, "gaps": gaps, "weights": weights}


def rows(who: str = REFERENCE, dtypes: Iterable[str] = HALVINGS) -> list[dict]:
    return [gap(who, dtype, keys) for dtype in dtypes for keys in (2, 64)]


def hearing(every: Iterable[Mapping[str, object]]) -> Hearing:
    evidence = Evidence(kind="demonstration", name=SOURCE, rows=tuple(every), seconds=1.0)
    return Hearing(Reading([replace(planted.run([]), evidence=[evidence])]))


def answers(every: Iterable[Mapping[str, object]]) -> dict:
    return {answer.subject: answer for answer in CLAIM.judge(hearing(every))}


def test_it_is_claim_twelve_and_asks_for_a_demonstration_that_there_is():
    assert claims.get("weights_underflow") is WeightsUnderflow
    assert CLAIM.order == 12
    assert SOURCE in demonstrations.names()


def test_gaps_of_the_chapter_are_confirmed_in_each_dtype():
    found = answers(rows() + rows("naive", ("float32",)))
    assert {answer.verdict for answer in found.values()} == {"CONFIRMED"}
    assert list(found)[:4] == [f"{REFERENCE}, {dtype}" for dtype in HALVINGS]
    assert found[f"{REFERENCE}, float32"].found == "0 from a gap of 103.97 on"
    assert found["naive"].reason == "at the derived gaps"


@pytest.mark.parametrize("dtype", HALVINGS)
def test_a_reference_that_is_further_off_than_a_thousandth_refutes_its_dtype_alone(dtype):
    """For example one that loses subnormal numbers: 87.34 instead of 103.97 in float32."""
    flushed = gap(dtype=dtype, keys=64, gap=NORMAL[dtype] * log(2))
    found = answers([*rows(), flushed])
    assert {subject for subject, answer in found.items() if answer.verdict == "REFUTED"} == {f"{REFERENCE}, {dtype}"}
    for share, verdict in ((1.0011, "REFUTED"), (0.9989, "REFUTED"), (1.0009, "CONFIRMED"), (0.9991, "CONFIRMED")):
        moved = answers([gap(dtype=dtype, gap=share * EXPECTED[dtype])])
        assert moved[f"{REFERENCE}, {dtype}"].verdict == verdict


def test_a_weight_that_never_is_zero_refutes_whoever_it_belongs_to():
    found = answers([*rows(), gap("naive"), gap("naive", keys=64, gap=None)])
    assert found["naive"].verdict == "REFUTED"
    assert "no weight is 0 in float32 with 64 keys" in found["naive"].reason
    assert answers([gap(gap=None)])[f"{REFERENCE}, float32"].verdict == "REFUTED"


def test_an_implementation_that_loses_weights_earlier_is_reported_and_not_refuted():
    found = answers([*rows(), gap("fast"), gap("fast", keys=64, gap=86.98997)])["fast"]
    assert found.verdict == "CONFIRMED"
    assert found.found == "float32: 103.97 (2 keys), 86.99 (64 keys)"
    assert found.reason == "earlier than derived: float32 with 64 keys (without subnormals 87.34)"


def test_without_the_reference_or_with_refusals_nothing_is_decided():
    assert answers(rows("naive"))[REFERENCE].verdict == "INCONCLUSIVE"
    refused = gap("fast", gap=None, refused="needs more keys")
    found = answers([*rows(), refused])["fast"]
    assert (found.verdict, found.reason) == ("INCONCLUSIVE", "needs more keys")
    judged = next(one for one in hear([planted.run([])]) if one.claim.name == CLAIM.name)
    assert judged.verdict == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("every", "title"),
    [
        ([*rows(), *rows("fast"), *map(curve, HALVINGS)], "Positive weights become exactly 0"),
        ([*rows(), gap(gap=50.0), *map(curve, HALVINGS)], "REFUTED"),
        ([gap("fast", gap=None), gap(gap=None), curve("float32")], "REFUTED"),
        ([*rows("fast"), curve("float16")], "too few rows"),
    ],
)
def test_the_figure_says_what_was_found(every, title, tmp_path):
    heard = hearing(every)
    with figure_style():
        (drawing,) = CLAIM.draw(heard, CLAIM.judge(heard))
    assert title in " ".join(drawing.figure.get_suptitle().split())
    assert save(drawing, tmp_path).stat().st_size > 10_000


def test_there_is_no_figure_without_gaps_and_curves():
    assert CLAIM.draw(hearing(rows()), ()) == []
    assert CLAIM.draw(hearing([curve("float32")]), ()) == []
    assert CLAIM.judge(hearing([curve("float32")])) == []


def test_real_rows_are_confirmed():
    found = answers(demonstrations.get(SOURCE)(True))
    assert {answer.verdict for answer in found.values()} == {"CONFIRMED"}
    assert f"{REFERENCE}, float64" in found
