from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import planted
import pytest

from bench.claims import Answer, Hearing, Scope
from bench.claims._ladders import LENGTHS
from bench.claims.flash_keeps_pairs import FlashKeepsPairs
from bench.figure_style import figure_style
from bench.implementation import implementations
from bench.memory_law import bytes_polynomial
from bench.plots import Reading
from bench.problem import Problem
from bench.record import Record

SQUARE, LINEAR = (lambda t: 0.05 + 2e-6 * t**2), (lambda t: 0.02 + 5e-5 * t)

# Peaks in bytes of sdpa_flash that allocator events gave on a CPU, H=4 d=64 float32: blocks of queries grow with the
# length until 1,024. The last two follow from the line through the others.
MEASURED = {
    512: 828_416, 720: 1_044_736, 1024: 2_248_704, 1456: 2_697_984, 2048: 3_313_664,
    2896: 4_195_584, 4096: 5_443_584, 5792: 7_207_424, 8192: 9_703_424,
}  # fmt: skip


def ladder(
    name: str,
    time: Callable[[int], float] = SQUARE,
    peaks: Mapping[int, int] | None = None,
    lengths: Iterable[int] = LENGTHS,
    **fields: object,
) -> list[Record]:
    """One implementation; its peaks are those that ``planted`` knows unless they are given."""
    records = []
    for length in lengths:
        memory = planted.memory(name, Problem(seqlen=length, num_heads=1))
        if peaks is not None:
            memory = memory.model_copy(update={"peak_bytes": peaks[length]})
        records.append(planted.record(name, length, time(length), peak=memory, num_heads=1, **fields))
    return records


def without_memory(record: Record) -> Record:
    assert record.measurement is not None
    return record.model_copy(update={"measurement": record.measurement.model_copy(update={"memory": None})})


def judge(records: Iterable[Record]) -> dict[str, Answer]:
    answers = FlashKeepsPairs().judge(Hearing(Reading([planted.run(records)])))
    return {answer.subject.split(" ")[0]: answer for answer in answers}


def test_linear_memory_with_quadratic_time_is_confirmed_and_naive_is_the_contrast() -> None:
    found = judge([*ladder("naive"), *ladder("online_softmax"), *ladder("sdpa_flash", peaks=MEASURED)])
    assert {name: answer.verdict for name, answer in found.items()} == {
        "online_softmax": "CONFIRMED",
        "sdpa_flash": "CONFIRMED",
    }
    assert "time T^2.0" in found["sdpa_flash"].found
    assert "memory 1,040·T + 1,183,744 bytes exactly" in found["sdpa_flash"].found
    assert len(found["sdpa_flash"].rows) == len(LENGTHS)


@pytest.mark.parametrize("law", [LINEAR, lambda t: 0.02 + 1e-9 * t**3])
def test_time_of_another_exponent_is_refuted(law: Callable[[int], float]) -> None:
    found = judge([*ladder("online_softmax", law), *ladder("sdpa_flash")])
    assert found["online_softmax"].verdict == "REFUTED"
    assert found["sdpa_flash"].verdict == "CONFIRMED"


def test_a_flash_kernel_that_stores_scores_is_refuted() -> None:
    stored = {length: MEASURED[length] + 4 * length**2 for length in LENGTHS}
    answer = judge(ladder("sdpa_flash", peaks=stored))["sdpa_flash"]
    assert answer.verdict == "REFUTED"
    assert "T² coefficient of 4" in answer.reason


def test_whoever_else_has_linear_memory_is_judged_and_who_stores_scores_is_not() -> None:
    naive_like = {length: 8 * length**2 for length in LENGTHS}
    found = judge([*ladder("mine", LINEAR), *ladder("dense", peaks=naive_like)])
    assert {name: answer.verdict for name, answer in found.items()} == {"mine": "REFUTED"}


def off_the_polynomial(length: int) -> int:
    return MEASURED[length] + (1 if length == 2048 else 0)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([without_memory(r) for r in ladder("sdpa_flash")], "peak bytes at three settled lengths are needed"),
        (ladder("sdpa_flash", peaks={n: off_the_polynomial(n) for n in LENGTHS}), "on no polynomial of T"),
        (ladder("sdpa_flash", lambda t: SQUARE(t) * (1.6 if LENGTHS.index(t) % 2 else 0.6)), "too noisy"),
        (ladder("sdpa_flash", lambda t: 80 + 1e-6 * t**2), "overhead dominates"),
        (ladder("sdpa_flash", lengths=LENGTHS[-5:]), "needs at least 8 lengths"),
        (ladder("sdpa_flash", lengths=LENGTHS[:3]), "on no polynomial of T"),
    ],
    ids=["no memory", "one byte off", "noise", "overhead", "few lengths", "nothing to test the polynomial"],
)
def test_too_little_or_too_noisy_is_inconclusive(records: list[Record], reason: str) -> None:
    answer = judge(records)["sdpa_flash"]
    assert answer.verdict == "INCONCLUSIVE"
    assert reason in answer.reason


def test_masks_and_missing_rows_are_no_subject() -> None:
    assert judge([]) == {}
    assert judge(ladder("naive")) == {}
    assert judge(ladder("sdpa_flash", LINEAR, mask="causal")) == {}


@pytest.mark.parametrize("quick", [False, True])
def test_the_ladder_is_long_enough_for_blocks_to_settle(quick: bool) -> None:
    cases = FlashKeepsPairs().needs(Scope("cpu", quick)).cases
    for name in ("online_softmax", "sdpa_flash"):
        problems = [case.problem for case in cases if case.implementation == name]
        member = implementations.get(name)
        peaks = {p.seqlen_k: member.predicted_peak_bytes(p, "cpu") for p in problems}
        settled = {n: count for n, count in peaks.items() if 4 * n >= max(peaks) and count is not None}
        found = bytes_polynomial(settled)
        assert found is not None
        assert found.exact
        assert found.quadratic == 0


def test_figure_states_both_exponents() -> None:
    records = [*ladder("naive"), *ladder("sdpa_flash", peaks=MEASURED), *ladder("online_softmax", LINEAR)]
    claim, hearing = FlashKeepsPairs(), Hearing(Reading([planted.run(records)]))
    with figure_style():
        (drawing,) = claim.draw(hearing, claim.judge(hearing))
    assert drawing.stem == "flash_keeps_pairs-1"
    title = drawing.figure.get_suptitle().replace("\n", " ")
    assert "CONFIRMED for sdpa_flash; REFUTED for online_softmax" in title
    entries = [text.get_text() for text in drawing.figure.legends[0].texts]
    assert any(text.startswith("naive: time T^2.0") and text.endswith("memory T²") for text in entries)
    assert any(text.startswith("sdpa_flash: time T^2.0") and text.endswith("memory linear") for text in entries)
    assert "naive 8·T² + 256·T + 0 bytes exactly" in drawing.caption
    time, memory, time_slope, memory_slope = drawing.figure.axes
    assert time.get_ylabel() == "time, relative"
    assert memory.get_ylabel() == "peak memory, relative"
    assert (time_slope.get_ylabel(), memory_slope.get_ylabel()) == ("slope of time", "slope of peak memory")
    naive = next(line for line in memory_slope.lines if len(line.get_xdata()) == len(LENGTHS) - 1)
    assert 1.9 < naive.get_ydata()[-1] < 2.0


def test_nothing_is_drawn_of_implementations_that_all_store_scores() -> None:
    hearing = Hearing(Reading([planted.run(ladder("naive"))]))
    assert FlashKeepsPairs().draw(hearing, []) == []
