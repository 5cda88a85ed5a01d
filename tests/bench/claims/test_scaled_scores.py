from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import Any

import pytest
from planted import run

from bench.claims import Answer, Hearing, Verdict, claims
from bench.claims.scaled_scores import MARGIN, SOURCE, interval
from bench.demonstrations import demonstrations
from bench.evidence import Evidence
from bench.figure_style import figure_style
from bench.plots import Reading

CLAIM = claims.get("scaled_scores")()
WIDTHS = (4, 16, 64, 256, 1024)
SUBJECTS = ("variance", "k = q", "entropy without", "entropy stays", "derivative")
"""Parts of the subjects, in their order."""


def row(width: int, relative_error: float = 0.002, **changes: float) -> dict[str, Any]:
    """What the theory says at this width, known with this relative standard error."""
    values = {
        "unscaled_variance": float(width),
        "scaled_variance": 1.0,
        "unscaled_entropy_nats": 6 / sqrt(width),
        "scaled_entropy_nats": 3.68,
        "unscaled_derivative": 0.19 if width < 16 else 1 / sqrt(width),
        "scaled_derivative": 0.09,
        "same_mean": sqrt(width),
        "same_variance": 2.0,
    } | changes
    errors = {f"{name}_se": relative_error * value for name, value in values.items()}
    return {"head_dim": width, "keys": 64, "blocks": 512} | values | errors


def hearing(rows: list[dict[str, Any]]) -> Hearing:
    evidence = Evidence(kind="demonstration", name=SOURCE, rows=tuple(rows), reason=None, seconds=1.0)
    return Hearing(Reading([replace(run([]), evidence=(evidence,))]))


def verdicts(rows: list[dict[str, Any]]) -> dict[str, Verdict]:
    """By part of the subject."""
    answers = CLAIM.judge(hearing(rows))
    assert all(part in answer.subject for part, answer in zip(SUBJECTS, answers, strict=True))
    return {part: answer.verdict for part, answer in zip(SUBJECTS, answers, strict=True)}


def answer(part: str, rows: list[dict[str, Any]]) -> Answer:
    return next(one for one in CLAIM.judge(hearing(rows)) if part in one.subject)


def others(verdict: dict[str, Verdict], *parts: str) -> set[Verdict]:
    return {found for part, found in verdict.items() if part not in parts}


def test_what_the_theory_says_is_confirmed():
    assert set(verdicts([row(width) for width in WIDTHS]).values()) == {"CONFIRMED"}


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("variance", lambda w: {"scaled_variance": 1 / w}),  # divided by d_k instead of its root
        ("variance", lambda w: {"scaled_variance": w**0.1}),
        ("variance", lambda w: {"unscaled_variance": 1.2 * w}),
        ("k = q", lambda w: {"same_mean": 0.0}),
        ("k = q", lambda w: {"same_variance": 1.0}),
        ("entropy without", lambda w: {"unscaled_entropy_nats": 2.8}),
        ("entropy without", lambda w: {"unscaled_entropy_nats": 0.1 * log(w)}),
        ("entropy stays", lambda w: {"scaled_entropy_nats": 3.7 - 0.2 * log(w)}),
        ("derivative", lambda w: {"unscaled_derivative": 0.02 * log(w)}),
        ("derivative", lambda w: {"unscaled_derivative": 0.09 + 1 / w}),  # falls, but not below that of scaled scores
    ],
)
def test_a_counter_example_is_not_confirmed_and_leaves_the_other_subjects_alone(part, wrong):
    found = verdicts([row(width, **wrong(width)) for width in WIDTHS])
    flat = part == "entropy without" and wrong(4) == wrong(1024)
    assert found[part] == ("INCONCLUSIVE" if flat else "REFUTED")
    assert others(found, part) == {"CONFIRMED"}


def test_one_width_that_is_off_refutes_and_is_named():
    rows = [row(width, scaled_variance=1.2 if width == 64 else 1.0) for width in WIDTHS]
    found = answer("variance", rows)
    assert found.verdict == "REFUTED"
    assert "d_k 64" in found.reason


def test_an_entropy_that_rises_again_refutes():
    rows = [row(width, unscaled_entropy_nats={256: 3.0}.get(width, 6 / sqrt(width))) for width in WIDTHS]
    found = answer("entropy without", rows)
    assert found.verdict == "REFUTED"
    assert "d_k 64 to 256" in found.reason


def test_noise_confirms_nothing_and_refutes_nothing():
    assert set(verdicts([row(width, relative_error=0.5) for width in WIDTHS]).values()) == {"INCONCLUSIVE"}


@pytest.mark.parametrize("widths", [WIDTHS[:4], (4, 8, 16, 32, 64)])
def test_few_or_close_widths_confirm_nothing(widths):
    assert "CONFIRMED" not in verdicts([row(width) for width in widths]).values()


def test_an_interval_must_lie_wholly_within_the_margin():
    """Its middle is within 5 %, its upper end is not."""
    rows = [row(width, scaled_variance=1 + 0.9 * MARGIN) for width in WIDTHS]
    assert interval(rows[0], "scaled_variance")[1] > 1 + MARGIN
    assert verdicts(rows)["variance"] == "INCONCLUSIVE"


def test_the_figure_says_what_was_found_and_does_not_claim_more():
    right = [row(width) for width in WIDTHS]
    wrong = [row(width, scaled_variance=2.0) for width in WIDTHS]
    titles = []
    for rows in (right, wrong):
        heard = hearing(rows)
        with figure_style():
            (drawing,) = CLAIM.draw(heard, CLAIM.judge(heard))
        titles.append(drawing.figure.get_suptitle())
        assert len(drawing.figure.axes) == 3
        assert "4 to 1024" in drawing.caption
    assert "keeps the variance of scores at 1" in titles[0]
    assert titles[1].startswith("REFUTED")


def test_the_demonstration_itself_is_confirmed():
    assert set(verdicts(demonstrations.get(SOURCE)(True)).values()) == {"CONFIRMED"}
