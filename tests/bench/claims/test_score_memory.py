"""Claim 2: planted bytes that follow the laws, miss them by a byte, or are too few."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import planted
import pytest

from bench.claims import Answer, Hearing, Scope
from bench.claims.score_memory import ScoreMemory
from bench.memory_law import naive_law_bytes
from bench.plots import Reading
from bench.problem import Problem
from bench.record import Memory, Record

WHOLE = (1024, 1152, 1280, 1536)
LONG = (256, 512, *WHOLE, 2048)
Bytes = Callable[[int], int]

LAWS: dict[str, Bytes] = {
    "naive": lambda t: 8 * t * t + 256 * t,
    "sdpa_math": lambda t: 9 * t * t + 257 * t + 4,
    "online_softmax": lambda t: 268 * t + (2_637_824 if t >= 1024 else 4 * t * t),
    "sdpa_flash": lambda t: 260 * t + (1_183_744 if t >= 1024 else 300_000),
}
"""Peaks that the allocator's events gave for B=1 H=1 d=64 float32."""


def cell(
    name: str,
    length: int,
    peak: int,
    *,
    saved: int | None = None,
    rise: int | None = None,
    mask_bytes: int = 0,
    **fields: Any,
) -> Record:
    fields = {"num_heads": 1} | fields
    output = Problem(seqlen=length, **fields).output_bytes
    memory = Memory(
        peak_bytes=peak,
        output_bytes=output,
        workspace_bytes=peak - output,
        mask_bytes=mask_bytes,
        predicted_peak_bytes=peak,
        method="allocator_events",
        saved_bytes=saved,
        backward_peak_bytes=rise,
    )
    return planted.record(name, length, 1.0, peak=memory, **fields)


def ladder(name: str, law: Bytes | None = None, lengths: Iterable[int] = LONG, **more: Any) -> list[Record]:
    return [cell(name, length, (law or LAWS[name])(length), **more) for length in lengths]


def judge(records: Iterable[Record]) -> list[Answer]:
    return ScoreMemory().judge(Hearing(Reading([planted.run(records)])))


def of(answers: Iterable[Answer], name: str) -> Answer:
    (found,) = [
        answer for answer in answers if answer.subject.startswith(f"{name}, ") and "every" not in answer.subject
    ]
    return found


def test_bytes_of_the_laws_are_confirmed_with_their_coefficients() -> None:
    answers = judge([record for name in LAWS for record in ladder(name)])
    assert [answer.verdict for answer in answers] == ["CONFIRMED"] * 5
    assert "peak 8·T² + 256·T bytes, residual 0; 7 lengths, 256 to 2,048" in of(answers, "naive").found
    assert "peak 260·T + 1,183,744 bytes, residual 0; 5 lengths, 1,024 to 2,048" in of(answers, "sdpa_flash").found
    assert "less" in of(answers, "sdpa_flash").found
    assert "9·T²" in of(answers, "sdpa_math").found
    assert len(of(answers, "naive").rows) == len(LONG)


@pytest.mark.parametrize("off", [1, -1, 4096])
def test_one_byte_in_one_cell_of_naive_refutes(off: int) -> None:
    answers = judge(ladder("naive", lambda t: LAWS["naive"](t) + off * (t == 1152)))
    assert [answer.verdict for answer in answers] == ["REFUTED", "REFUTED"]
    assert f"{off:+,} bytes" in answers[0].found
    assert f"{off:+,} bytes" in of(answers, "naive").reason


def test_naive_with_another_law_that_is_a_polynomial_too_is_refuted() -> None:
    third = of(judge(ladder("naive", lambda t: 12 * t * t + 256 * t)), "naive")
    assert third.verdict == "REFUTED"
    assert "12 bytes per pair, expected 8" in third.reason
    copied = of(judge(ladder("naive", lambda t: 8 * t * t + 512 * t)), "naive")
    assert copied.verdict == "REFUTED"
    assert f"+{256 * 2048:,} bytes" in copied.reason


@pytest.mark.parametrize("name", ["online_softmax", "sdpa_flash"])
@pytest.mark.parametrize("per_pair", [4, 1 / 8, 1 / 1024])
def test_a_term_in_the_square_refutes_what_is_to_store_no_scores(name: str, per_pair: float) -> None:
    answer = of(judge(ladder(name, lambda t: LAWS[name](t) + int(per_pair * t * t))), name)
    assert answer.verdict == "REFUTED"
    assert f"{per_pair:,.6g} bytes per pair, expected 0" in answer.reason


def test_a_byte_off_the_line_refutes_it() -> None:
    answer = of(judge(ladder("sdpa_flash", lambda t: LAWS["sdpa_flash"](t) + (t == 1152))), "sdpa_flash")
    assert answer.verdict == "REFUTED"
    assert "1 bytes beside it" in answer.reason


def test_what_stores_scores_is_refuted_if_it_stores_none() -> None:
    answer = of(judge(ladder("sdpa_math", LAWS["sdpa_flash"], WHOLE)), "sdpa_math")
    assert answer.verdict == "REFUTED"
    assert "0 bytes per pair, expected 4" in answer.reason


def masked(name: str, copies: float, mask: bool = True) -> Answer:
    """A ladder with padding whose call holds ``copies`` bytes per pair beside the line, given a boolean mask or not."""
    records = [
        cell(name, t, LAWS[name](t) + int(copies * t * t), mask_bytes=mask * t * t, mask="padding(0.5)") for t in WHOLE
    ]
    return of(judge(records), name)


def test_a_boolean_mask_costs_sdpa_four_bytes_per_pair_and_no_more() -> None:
    assert masked("sdpa_flash", 4).verdict == "CONFIRMED"
    assert "mask" in masked("sdpa_flash", 4).reason
    assert masked("sdpa_flash", 8).verdict == "REFUTED"
    assert masked("sdpa_flash", 0).verdict == "REFUTED"
    assert masked("sdpa_flash", 4, mask=False).verdict == "REFUTED"


def test_mask_tiles_allow_online_softmax_nothing() -> None:
    assert masked("online_softmax", 0).verdict == "CONFIRMED"
    assert masked("online_softmax", 4).verdict == "REFUTED"


def backward(name: str, peak: Bytes, saved: Bytes, rise: Bytes, direction: str = "fwd_bwd") -> Answer:
    records = [cell(name, t, peak(t), saved=saved(t), rise=rise(t), direction=direction) for t in WHOLE]
    return of(judge(records), name)


@pytest.mark.parametrize(
    ("peak", "saved", "rise", "verdict"),
    [
        (12, 4, 12, "CONFIRMED"),
        (16, 4, 12, "REFUTED"),
        (12, 8, 12, "REFUTED"),  # scores kept beside the weights
        (12, 4, 16, "REFUTED"),
    ],
)
def test_backward_of_naive_has_three_matrices_and_saves_one(peak: int, saved: int, rise: int, verdict: str) -> None:
    answer = backward(
        "naive", lambda t: peak * t * t + 512 * t + 8, lambda t: saved * t * t + 8, lambda t: rise * t * t + 512 * t
    )
    assert answer.verdict == verdict
    assert f"saved for backward {saved}·T² + 8 bytes" in answer.found
    assert f"backward peak {rise}·T² + 512·T bytes" in answer.found


def test_backward_alone_of_naive_has_two_matrices_beside_what_was_saved() -> None:
    laws: tuple[Bytes, ...] = (lambda t: 8 * t * t + 4, lambda t: 4 * t * t, lambda t: 12 * t * t)
    assert backward("naive", *laws, direction="bwd").verdict == "CONFIRMED"


@pytest.mark.parametrize(("per_pair", "verdict"), [(0, "CONFIRMED"), (4, "REFUTED")])
def test_what_flash_saves_for_the_backward_pass_has_no_square(per_pair: int, verdict: str) -> None:
    answer = backward("sdpa_flash", lambda t: 1028 * t, lambda t: 4 * t + per_pair * t * t, lambda t: 1028 * t)
    assert answer.verdict == verdict
    assert ("saved for backward has 4 bytes per pair" in answer.reason) == (verdict == "REFUTED")


def test_bytes_that_some_lengths_lack_are_not_passed_over() -> None:
    records = [
        cell(name="naive", length=t, peak=12 * t * t + 512 * t, saved=4 * t * t, rise=rise, direction="fwd_bwd")
        for t in WHOLE
        for rise in [None if t == 1280 else 12 * t * t + 512 * t]
    ]
    answer = of(judge(records), "naive")
    assert (answer.verdict, answer.reason) == ("INCONCLUSIVE", "measured: backward peak at 3 of 4 lengths alone")


def test_too_few_lengths_are_inconclusive() -> None:
    few = of(judge(ladder("naive", lengths=(512, 1024, 2048))), "naive")
    assert few.verdict == "INCONCLUSIVE"
    assert "needs at least 4 lengths, got 3" in few.reason
    assert judge(ladder("naive", lengths=(512, 1024, 2048)))[0].verdict == "INCONCLUSIVE"


def test_blocks_that_are_still_cut_to_the_length_decide_nothing() -> None:
    short = of(judge(ladder("online_softmax", lambda t: 4 * t * t, (128, 256, 512, 720, 1024))), "online_softmax")
    assert short.verdict == "INCONCLUSIVE"
    assert "4 lengths of 1,024 positions or more, got 1" in short.reason


def test_short_ladders_are_passed_over_beside_one_that_decides() -> None:
    answers = judge([*ladder("naive"), *ladder("naive", lengths=(1024,), head_dim=16)])
    assert [answer.subject.split(",")[1] for answer in answers] == [" every forward cell", " full"]


def test_on_a_gpu_only_lengths_that_blocks_divide_must_lie_on_the_line() -> None:
    rounded = ladder("sdpa_flash", lambda t: 260 * (-(-t // 128) * 128), (*WHOLE, 1456, 2896))
    assert of(judge(rounded), "sdpa_flash").verdict == "REFUTED"
    on_gpu = [record.model_copy(update={"device": "NVIDIA H200"}) for record in rounded]
    assert of(judge(on_gpu), "sdpa_flash").verdict == "CONFIRMED"


def test_cells_without_a_reading_say_nothing() -> None:
    without = {"memory": None}
    assert judge(planted.record("naive", t, 1.0, measured=without) for t in LONG) == []
    assert judge(planted.record("naive", t, status="verified") for t in LONG) == []


@pytest.mark.parametrize("heads", [1, 4])
def test_each_matrix_takes_4_mb_at_1000_and_16_mb_at_2000_positions(heads: int) -> None:
    def naive(t: int, extra: int = 0) -> Record:
        return cell("naive", t, naive_law_bytes(Problem(seqlen=t, num_heads=heads)) + extra, num_heads=heads)

    answer = judge([naive(1000), naive(2000)])[-1]
    assert answer.verdict == "CONFIRMED"
    assert answer.found == "each score matrix takes 4.00 MB and 16.0 MB"
    assert judge([naive(1000), naive(2000, extra=8)])[-1].verdict == "REFUTED"
    assert not any("1,000" in answer.subject for answer in judge([naive(1000)]))


def test_it_asks_for_every_form_and_for_half_precision_on_a_gpu() -> None:
    cases = ScoreMemory().needs(Scope("cpu")).cases
    assert {case.problem.mask.spec for case in cases} == {"full", "causal", "padding(0.5)"}
    assert {case.problem.direction for case in cases} == {"fwd", "fwd_bwd"}
    assert {1000, 2000} <= {case.problem.seqlen_q for case in cases if case.implementation == "naive"}
    on_gpu = ScoreMemory().needs(Scope("cuda")).cases
    assert {case.problem.dtype for case in on_gpu if case.implementation == "sdpa_flash"} == {"float16"}


@pytest.mark.parametrize("scope", [Scope("cpu"), Scope("cpu", quick=True), Scope("cuda")])
def test_what_it_asks_for_decides_every_ladder(scope: Scope) -> None:
    records = []
    for case in ScoreMemory().needs(scope).cases:
        fields = case.problem.model_dump()
        record = planted.record(case.implementation, case.problem.seqlen_q, 1.0, **fields)
        records.append(record.model_copy(update={"device": "NVIDIA H200"}) if scope.device == "cuda" else record)
    assert not [answer for answer in judge(records) if answer.verdict == "INCONCLUSIVE"]


def test_the_figure_shows_bytes_residuals_and_what_is_saved() -> None:
    records = [record for name in LAWS for record in ladder(name)]
    records += [cell("naive", t, 12 * t * t, saved=4 * t * t, rise=12 * t * t, direction="fwd_bwd") for t in WHOLE]
    hearing = Hearing(Reading([planted.run(records)]))
    claim = ScoreMemory()
    (drawing,) = claim.draw(hearing, claim.judge(hearing))
    titles = [axes.get_title() for axes in drawing.figure.axes]
    assert titles[:3] == ["peak: full, fwd", "peak: full, fwd_bwd", "saved for backward: full, fwd_bwd"]
    assert "6 CONFIRMED" in drawing.alt
    assert "T=2,048: naive 34.1 MB" in drawing.alt
    lines = drawing.figure.axes[3].get_lines()
    assert max(abs(y) for y in lines[0].get_ydata()) == 0  # naive's residuals
