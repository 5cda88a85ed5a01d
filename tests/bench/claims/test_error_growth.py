from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from planted import record, run

from bench.claims import Answer, Hearing, Scope, claims
from bench.figure_style import figure_style
from bench.plots import Reading
from bench.record import Agreement, Record, TensorError

CLAIM = claims.get("error_growth")()
LENGTHS = (128, 256, 512, 1024, 2048)
OUT_RMS = 0.1
"""Root mean square of the planted exact output."""


def constant(length: int) -> float:
    return 3e-4


def cells(
    implementation: str = "naive",
    error: Callable[[int], float] = constant,
    *,
    ratio: Callable[[int], float] = lambda length: 1.0,
    lengths: Iterable[int] = LENGTHS,
    noise: float = 0.02,
    **fields: Any,
) -> list[Record]:
    """Cells that were verified alone, with these relative RMS errors and ratios to naive, both with scatter."""
    draw = random.Random(f"{implementation} {sorted(fields.items())}")
    found = []
    for length in lengths:
        relative = error(length) * (1 + draw.uniform(-noise, noise))
        out = TensorError(
            max_abs=8 * relative * OUT_RMS,
            rmse=relative * OUT_RMS,
            rel_rmse=relative,
            nonfinite=0,
            limit=1.0,
            rmse_over_naive=ratio(length) * (1 + draw.uniform(-noise, noise)),
        )
        judged = Agreement(passed=True, tensors={"out": out})
        fields = {"dtype": "float16", "num_heads": 1} | fields
        found.append(record(implementation, length, status="verified", judged=judged, **fields))
    return found


def judge(*groups: list[Record]) -> list[Answer]:
    return CLAIM.judge(hearing(*groups))


def hearing(*groups: list[Record]) -> Hearing:
    return Hearing(Reading([run([cell for group in groups for cell in group])]))


def growth(*groups: list[Record]) -> Answer:
    return next(answer for answer in judge(*groups) if answer.subject.startswith("growth"))


def beside(*groups: list[Record]) -> Answer:
    return next(answer for answer in judge(*groups) if answer.subject.startswith("RMS error over naive's"))


@pytest.mark.parametrize("exponent", [-0.5, 0.0, 0.2, 0.4])
def test_growth_slower_than_the_root_is_confirmed(exponent):
    found = growth(cells(error=lambda length: 1e-4 * length**exponent))
    assert found.verdict == "CONFIRMED"
    assert float(found.found.removeprefix("naive T^").split()[0]) == pytest.approx(exponent, abs=0.02)
    assert len(found.rows) == len(LENGTHS)


@pytest.mark.parametrize("exponent", [0.6, 1.0, 2.0])
def test_faster_growth_is_refuted_and_its_author_named(exponent):
    """A sum kept in the low precision itself loses in proportion to T."""
    found = growth(cells(), cells("sloppy", lambda length: 1e-6 * length**exponent))
    assert found.verdict == "REFUTED"
    assert found.reason == "grows faster than √T: sloppy"


@pytest.mark.parametrize("noise", [0.05, 0.9])
def test_growth_as_the_root_itself_is_neither_nor_is_noise(noise):
    exponent = 0.5 if noise < 0.5 else 0.2
    assert growth(cells(error=lambda length: 1e-4 * length**exponent, noise=noise)).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize("lengths", [(128, 2048), (128, 512, 2048), (128, 256, 384, 512)])
def test_few_or_close_lengths_confirm_nothing(lengths):
    assert {answer.verdict for answer in judge(cells(lengths=lengths), cells("flash", lengths=lengths))} == {
        "INCONCLUSIVE"
    }


def test_a_single_length_says_nothing():
    assert judge(cells(lengths=(128,))) == []


def test_a_result_that_is_wrong_is_no_rounding_error():
    """Its error does not grow, and is no rounding: blocks were dropped."""
    wrong = [
        cell.model_copy(update={"status": "incorrect", "reason": "out is off by 0.3"})
        for cell in cells("drops_blocks", lambda length: 0.3)
    ]
    found = growth(cells(), wrong)
    assert found.verdict == "REFUTED"
    assert "drops_blocks is wrong at T=" in found.reason
    assert "out is off by 0.3" in found.reason


@pytest.mark.parametrize(
    ("ratio", "inputs", "verdict"),
    [
        (0.5, "normal", "CONFIRMED"),
        (1.0, "normal", "CONFIRMED"),
        (1.05, "normal", "INCONCLUSIVE"),
        (1.3, "normal", "REFUTED"),
        (0.6, "outlier", "CONFIRMED"),
        (0.95, "outlier", "INCONCLUSIVE"),
        (1.02, "outlier", "REFUTED"),
        (1.7, "outlier", "REFUTED"),
    ],
)
def test_blockwise_beside_naive(ratio, inputs, verdict):
    """With outliers no difference is too little: the direction of the published table is claimed."""
    found = beside(cells(distribution=inputs), cells("flash", ratio=lambda length: ratio, distribution=inputs))
    assert found.verdict == verdict
    assert found.found.startswith("flash ")
    assert ("0.59 in float16" in found.reason) == (inputs == "outlier")


def test_one_bad_length_is_not_averaged_away():
    found = beside(cells("flash", ratio=lambda length: 3.0 if length == 1024 else 0.4))
    assert found.verdict == "INCONCLUSIVE"


def test_a_kernel_without_enough_ratios_keeps_the_others_from_confirming():
    bare = [
        cell.model_copy(
            update={
                "agreement": Agreement(
                    passed=True,
                    tensors={"out": cell.agreement.tensors["out"].model_copy(update={"rmse_over_naive": None})},
                )
            }
        )
        for cell in cells("bare")
    ]
    found = beside(cells("flash", ratio=lambda length: 0.5), bare)
    assert found.verdict == "INCONCLUSIVE"
    assert "bare" in found.reason


def test_naive_and_float32_are_not_held_against_naive():
    assert len(judge(cells(), cells("sdpa_math"))) == 1
    assert len(judge(cells("flash", dtype="float32"))) == 1


def test_what_differs_in_more_than_the_length_is_not_mixed():
    """Of each alone there is too little; together they would be a ladder."""
    few = [cells(dtype="float16", lengths=(128, 256)), cells(dtype="bfloat16", lengths=(512, 1024))]
    few += [cells(head_dim=128, lengths=(512, 1024)), cells(distribution="outlier", lengths=(512, 1024))]
    found = judge(*few)
    assert len(found) == 4
    assert {answer.verdict for answer in found} == {"INCONCLUSIVE"}


def test_masks_and_gradients_are_left_out():
    assert judge(cells(mask="causal"), cells(direction="bwd"), cells(seqlen_q=64)) == []


def test_seeds_of_one_length_are_repetitions():
    found = growth(*(cells(seed=seed) for seed in range(3)))
    assert found.verdict == "CONFIRMED"
    assert len(found.rows) == 3 * len(LENGTHS)


@pytest.mark.parametrize("quick", [False, True])
def test_it_asks_for_errors_alone_on_ladders_that_it_can_judge(quick):
    needs = CLAIM.needs(Scope(quick=quick))
    assert not any(case.timed for case in needs.cases)
    assert {"naive", "online_softmax", "sdpa_flash"} <= {case.implementation for case in needs.cases}
    assert {case.problem.dtype for case in needs.cases} == {"float32", "float16", "bfloat16"}
    records = [
        cell
        for case in needs.cases
        for cell in cells(
            case.implementation,
            ratio=lambda length: 0.4,
            lengths=(case.problem.seqlen_q,),
            dtype=case.problem.dtype,
            distribution=case.problem.distribution,
        )
    ]
    answers = judge(records)
    assert {answer.verdict for answer in answers} == {"CONFIRMED"}
    assert any("float16, outlier" in answer.subject and "over naive's" in answer.subject for answer in answers)


def test_the_figure_says_what_was_found():
    titles = []
    for ratio in (0.5, 2.0):
        flash = [cells("flash", ratio=lambda length, r=ratio: r, distribution=name) for name in ("normal", "outlier")]
        heard = hearing(cells(), cells(distribution="outlier"), cells(dtype="bfloat16"), *flash)
        with figure_style():
            (drawing,) = CLAIM.draw(heard, CLAIM.judge(heard))
        titles.append(" ".join(drawing.figure.get_suptitle().split()))
        assert [bool(axes.get_title()) for axes in drawing.figure.axes] == [True, True, True, False]
        assert "flash" in drawing.alt
    assert "less than naive" in titles[0]
    assert titles[1].startswith("REFUTED")
