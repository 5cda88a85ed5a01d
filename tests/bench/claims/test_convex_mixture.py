from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import planted
import pytest

from bench.claims import Hearing, Scope, claims, hear
from bench.claims.convex_mixture import LEAST_CALLS, OTHERS, ConvexMixture
from bench.demonstrations import demonstrations
from bench.evidence import Evidence
from bench.figure_style import figure_style
from bench.plots import Reading, save

CLAIM = ConvexMixture()
MIXTURES, EMPTY = CLAIM.needs(Scope()).demonstrations
CASES = json.loads((Path(__file__).parents[2] / "chapter" / "golden.json").read_text("utf-8"))["cases"]
WORKED = {case["name"]: case for case in CASES}
LIMITS = {"float32": 3e-6, "bfloat16": 8e-3}


def mixture(who: str = "naive", mask: str = "full", dtype: str = "float32", **fields: object) -> dict:
    limit = LIMITS[dtype]
    return {
        "who": who,
        "dtype": dtype,
        "mask": mask,
        "seqlen": 500,
        "limit": limit,
        "largest_v": 4.0,
        "reason": None,
        "nonfinite": 0,
        "least_weight": 0.0,
        "hidden_weight": 0.0,
        "row_sum_error": limit / 4,
        "hull_excess": limit / 2,
    } | fields


def mixtures(who: str = "naive") -> list[dict]:
    return [mixture(who, mask, dtype) for mask in ("full", "causal") for dtype in LIMITS]


def empty(who: str = "naive", registered: bool = True, weight_sum: str | None = "0", **fields: object) -> dict:
    row = {"who": who, "registered": registered, "dtype": "float32", "seen": "nothing", "reason": None}
    return row | {"weight_sum": weight_sum} | ({"lse": "not returned"} if registered else {}) | fields


def others(*answers: str) -> list[dict]:
    return [empty(f"call {number}", False, answer) for number, answer in enumerate(answers)]


USUAL = others("NaN", "NaN", "0", "NaN", "0")


def hearing(mixed: Iterable[Mapping[str, object]] = (), bare: Iterable[Mapping[str, object]] = ()) -> Hearing:
    given = {MIXTURES: tuple(mixed), EMPTY: tuple(bare)}
    evidence = [Evidence(kind="demonstration", name=n, rows=rows, seconds=1.0) for n, rows in given.items() if rows]
    return Hearing(Reading([replace(planted.run([]), evidence=evidence)]))


def answers(mixed: Iterable[Mapping[str, object]] = (), bare: Iterable[Mapping[str, object]] = ()) -> dict:
    return {answer.subject: answer for answer in CLAIM.judge(hearing(mixed, bare))}


def test_it_is_claim_eleven_and_asks_for_demonstrations_that_there_are():
    assert claims.get("convex_mixture") is ConvexMixture
    assert CLAIM.order == 11
    assert {MIXTURES, EMPTY} <= set(demonstrations.names())


def test_mixtures_within_rounding_and_declared_answers_are_confirmed():
    found = answers(mixtures() + mixtures("fast"), [empty(), empty("fast", lse="-inf"), *USUAL])
    assert list(found) == ["naive, weights", "fast, weights", "naive, empty row", "fast, empty row", OTHERS]
    assert {answer.verdict for answer in found.values()} == {"CONFIRMED"}
    assert "sums within 0.0020 of 1" in found["naive, weights"].found
    assert "weights sum to NaN: call 0, call 1, call 3" in found[OTHERS].found


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"least_weight": -1e-30}, "a weight is -1.00e-30"),
        ({"hidden_weight": 1e-30}, "hidden key has the weight 1.00e-30"),
        ({"row_sum_error": 3.1e-6}, "sums of weights are off by 1.03 times"),
        ({"hull_excess": 4 * 3.1e-6}, "outputs beyond their values are off by 1.03 times"),
        (
            {"nonfinite": 3, "least_weight": None, "hidden_weight": None, "row_sum_error": None, "hull_excess": None},
            "3 entries are infinite or NaN (float32, causal)",
        ),
    ],
)
def test_each_way_not_to_be_a_mixture_refutes_that_implementation_alone(fields, said):
    found = answers([*mixtures(), mixture("naive", "causal", **fields), *mixtures("fast")])
    assert (found["naive, weights"].verdict, found["fast, weights"].verdict) == ("REFUTED", "CONFIRMED")
    assert said in found["naive, weights"].reason


def test_one_mask_decides_nothing_and_a_refusal_neither():
    assert answers([mixture(), mixture(dtype="bfloat16")])["naive, weights"].verdict == "INCONCLUSIVE"
    assert answers([mixture(mask="causal"), mixture(mask="padding(0.5)")])["naive, weights"].verdict == "INCONCLUSIVE"
    refused = mixture(reason="needs a GPU", nonfinite=None, row_sum_error=None, hull_excess=None)
    refused |= {"least_weight": None, "hidden_weight": None}
    answer = answers([refused])["naive, weights"]
    assert (answer.verdict, answer.reason) == ("INCONCLUSIVE", "needs a GPU")
    assert answers([refused, *mixtures()])["naive, weights"].verdict == "CONFIRMED"


@pytest.mark.parametrize("wrong", [{"weight_sum": "NaN"}, {"weight_sum": "1"}, {"lse": "0"}, {"lse": "nan"}])
def test_a_registered_implementation_that_breaks_the_policy_in_one_dtype_refutes(wrong):
    found = answers(mixtures(), [empty(), empty(dtype="bfloat16", **wrong)])
    assert found["naive, empty row"].verdict == "REFUTED"
    assert "bfloat16 differs" in found["naive, empty row"].reason
    assert found["naive, weights"].verdict == "CONFIRMED"


def test_an_implementation_that_refuses_empty_rows_is_not_judged():
    refused = empty(weight_sum=None, lse=None, reason="wants a key for each query")
    answer = answers((), [refused])["naive, empty row"]
    assert (answer.verdict, answer.reason) == ("INCONCLUSIVE", "wants a key for each query")


def test_a_call_that_makes_weights_of_nothing_refutes_and_a_sentinel_does_not():
    sentinel = empty("sentinel", False, "1", seen="all keys")
    found = answers((), [*USUAL, sentinel])[OTHERS]
    assert found.verdict == "CONFIRMED"
    assert "sentinel" in found.reason
    assert "sentinel" not in found.found
    found = answers((), [*USUAL, empty("uniform", False, "1")])[OTHERS]
    assert found.verdict == "REFUTED"
    assert "uniform gives weights that sum to 1" in found.reason


def test_few_calls_decide_nothing():
    assert answers((), USUAL[: LEAST_CALLS - 1])[OTHERS].verdict == "INCONCLUSIVE"
    assert answers((), mixtures()[:0]) == {}


# The worked examples


def worked(name: str, weights_key: str = "weights") -> dict:
    """A row of the demonstration from a worked example's weights, values and outputs."""
    case = WORKED[name]
    weights, v = case["expected"][weights_key], case["inputs"]["v"]
    out = [[sum(w * x for w, x in zip(row, column, strict=True)) for column in zip(*v, strict=True)] for row in weights]
    outside = max(
        max(x - max(seen), min(seen) - x)
        for row, mixed in zip(weights, out, strict=True)
        for x, seen in zip(mixed, _visible(row, v), strict=True)
    )
    return mixture(
        mask=name,
        least_weight=min(w for row in weights for w in row),
        row_sum_error=max(abs(sum(row) - 1) for row in weights),
        hull_excess=max(0.0, outside),
    )


def _visible(row, v):
    """Values of the keys with a weight, coordinate by coordinate."""
    return zip(*(value for w, value in zip(row, v, strict=True) if w), strict=True)


def test_worked_examples_are_convex_mixtures_whose_coordinates_need_not_sum_to_one():
    names = ["two_key_row", "heatmap_three_tokens", "causal_three_tokens", "causal_three_tokens_changed_query"]
    found = answers([mixture(), *(worked(name) for name in names)])["naive, weights"]
    assert found.verdict == "CONFIRMED"
    third = WORKED["causal_three_tokens_changed_query"]["expected"]["out"][2]
    assert sum(third) == pytest.approx(1.422319, abs=1e-6)


def test_weights_that_are_kept_after_an_exclusion_sum_to_less_than_one_and_refute():
    kept = WORKED["no_renormalisation_after_exclusion"]["expected"]["kept_row_sums"]
    lost = mixture(mask="causal", row_sum_error=max(1 - total for total in kept))
    assert lost["row_sum_error"] == pytest.approx(0.616348, abs=1e-6)
    assert answers([*mixtures(), lost])["naive, weights"].verdict == "REFUTED"


def test_the_worked_empty_row_is_the_policy():
    expected = WORKED["fully_blocked_row"]["expected"]
    row = empty(weight_sum=f"{expected['policy_weights_sum']:g}", lse=expected["policy_lse"])
    direct = others(*["NaN" if value == "nan" else str(value) for value in expected["direct_softmax"]], "0", "0")
    found = answers((), [row, *direct])
    assert {answer.verdict for answer in found.values()} == {"CONFIRMED"}


def test_without_rows_it_is_inconclusive():
    judged = next(one for one in hear([planted.run([])]) if one.claim.name == CLAIM.name)
    assert judged.verdict == "INCONCLUSIVE"
    assert CLAIM.draw(hearing(), ()) == []
    assert CLAIM.draw(hearing(mixtures()), ()) == []


@pytest.mark.parametrize(
    ("mixed", "bare", "title"),
    [
        (mixtures(), [empty(), *USUAL, empty("sentinel", False, "1", seen="all keys")], "convex mixtures within"),
        ([*mixtures(), mixture(row_sum_error=0.5)], [empty(), *USUAL], "REFUTED"),
        (mixtures(), [empty(weight_sum="NaN"), *USUAL], "REFUTED"),
        ([mixture()], [empty()], "too few rows"),
    ],
)
def test_the_figure_says_what_was_found_and_holds_the_table(mixed, bare, title, tmp_path):
    heard = hearing(mixed, bare)
    with figure_style():
        (drawing,) = CLAIM.draw(heard, CLAIM.judge(heard))
    assert title in " ".join(drawing.figure.get_suptitle().split())
    (table,) = drawing.figure.axes[1].tables
    asked = [table[line + 1, 0].get_text().get_text().strip() for line in range(len(bare))]
    assert asked == [row["who"] for row in bare]
    assert save(drawing, tmp_path).stat().st_size > 10_000


def test_real_rows_are_confirmed():
    found = answers(demonstrations.get(MIXTURES)(True), demonstrations.get(EMPTY)(True))
    assert {answer.verdict for answer in found.values()} == {"CONFIRMED"}
    assert OTHERS in found
