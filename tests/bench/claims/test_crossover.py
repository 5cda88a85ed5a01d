"""Claim 9: planted crossings, one that comes back, ones too noisy or too few, and laws of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import planted
import pytest

from bench.claims import Answer, Hearing, Scope, Verdict
from bench.claims._versus import Point, crossing_text
from bench.claims.crossover import Crossover
from bench.plots import Reading
from bench.record import Memory, Record

LENGTHS = (128, 256, 512, 1024, 1456, 2048, 2896)
Number = Callable[[int], float]


def naive_ms(t: int) -> float:
    return 0.05 + 1e-5 * t**2


def memory(peak: float) -> Memory:
    return Memory(
        peak_bytes=round(peak), output_bytes=0, workspace_bytes=round(peak), mask_bytes=0, method="allocator_events"
    )


def ladder(name: str, law: Number, peak: Number, lengths: Iterable[int] = LENGTHS, **more: Any) -> list[Record]:
    options = {"processes": 5, "num_heads": 1} | more
    return [planted.record(name, t, law(t), peak=memory(peak(t)), **options) for t in lengths]


def naive_bytes(t: int) -> float:
    return 8 * t**2 + 256 * t


def flash_bytes(t: int) -> float:
    return 260 * t + (1_183_744 if t >= 1024 else 20_000)


def judge(records: Iterable[Record]) -> list[Answer]:
    return Crossover().judge(Hearing(Reading([planted.run(records)])))


def against(ratio: Number, peak: Number = flash_bytes, **more: Any) -> dict[str, Answer]:
    """What is said of time and of memory, where online_softmax takes ``ratio`` of naive's time."""
    records = ladder("naive", naive_ms, naive_bytes, **more)
    records += ladder("online_softmax", lambda t: ratio(t) * naive_ms(t), peak, **more)
    answers = {answer.subject.split(",")[0]: answer for answer in judge(records)}
    assert list(answers) == ["time", "memory"]
    return answers


def test_one_crossing_is_confirmed_and_bracketed() -> None:
    answer = against(lambda t: 1.5 if t < 600 else 0.7)["time"]
    assert answer.verdict == "CONFIRMED"
    assert answer.found.startswith("ahead from T=1,024 on, crossing between 512 and 1,024; at T=2,896 it takes 0.7")
    assert answer.subject == "time, online_softmax against naive, full, fwd, float32, B=1, H=1, d=64"
    assert len(answer.rows) == 2 * len(LENGTHS)


def test_ahead_everywhere_is_confirmed_from_the_shortest_length_on() -> None:
    answer = against(lambda t: 0.6)["time"]
    assert answer.verdict == "CONFIRMED"
    assert answer.found.startswith("ahead from the shortest length on, T=128")


def test_a_lead_that_is_lost_again_is_refuted_with_both_ratios() -> None:
    answer = against(lambda t: 0.7 if t in (256, 512) else 1.3)["time"]
    assert answer.verdict == "REFUTED"
    assert "ahead at T=256 (" in answer.reason
    assert "behind at T=2,896 (1.3" in answer.reason


def test_a_dip_in_the_middle_of_a_lead_is_refuted_too() -> None:
    answer = against(lambda t: 1.2 if t == 1024 else 0.7)["time"]
    assert answer.verdict == "REFUTED"
    assert "behind at T=1,024" in answer.reason


def test_a_near_tie_after_a_lead_is_not_behind() -> None:
    assert against(lambda t: 0.98 if t == 512 else 0.7)["time"].verdict == "CONFIRMED"


def test_never_ahead_is_inconclusive_and_says_up_to_where() -> None:
    answer = against(lambda t: 1.4)["time"]
    assert answer.verdict == "INCONCLUSIVE"
    assert answer.found.startswith("not ahead up to T=2,896")
    assert "longer ones may tell" in answer.reason


def test_a_lead_that_has_gone_at_the_longest_length_is_inconclusive() -> None:
    answer = against(lambda t: 1.0 if t > 2000 else 0.7)["time"]
    assert answer.verdict == "INCONCLUSIVE"
    assert "not clearly at the longest" in answer.reason


def test_noise_over_processes_confirms_and_refutes_nothing() -> None:
    clear = ladder("naive", naive_ms, naive_bytes)
    other = ladder("online_softmax", lambda t: 0.7 * naive_ms(t), flash_bytes)
    noisy = []
    for record in other:
        samples = record.measurement.samples_ns
        if record.problem.seqlen_q == 1024:  # one process of five took three times as long
            samples = tuple(3 * ns if n < 7 else ns for n, ns in enumerate(samples))
        measurement = record.measurement.model_copy(update={"samples_ns": samples})
        noisy.append(record.model_copy(update={"measurement": measurement}))
    answer = judge([*clear, *noisy])[0]
    assert answer.verdict == "INCONCLUSIVE"
    assert "T=1,024 is too noisy" in answer.reason


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_few_processes_are_inconclusive_however_clear_the_ratios(processes: int) -> None:
    answer = against(lambda t: 0.5, processes=processes)["time"]
    assert answer.verdict == "INCONCLUSIVE"
    assert f"in up to {processes}" in answer.reason
    assert "ahead from the shortest" in answer.found


@pytest.mark.parametrize("lengths", [(256, 512, 1024), (1024, 1152, 1280, 1536)])
def test_few_lengths_or_a_short_span_are_inconclusive(lengths: tuple[int, ...]) -> None:
    assert against(lambda t: 0.5, lengths=lengths)["time"].verdict == "INCONCLUSIVE"


def test_rows_of_one_process_do_not_spoil_those_of_five() -> None:
    records = ladder("naive", naive_ms, naive_bytes) + ladder("naive", naive_ms, naive_bytes, (64, 4096), processes=1)
    for lengths, processes in ((LENGTHS, 5), ((64, 4096), 1)):
        records += ladder("sdpa_flash", lambda t: 0.7 * naive_ms(t), flash_bytes, lengths, processes=processes)
    assert judge(records)[0].verdict == "CONFIRMED"


def test_a_factor_of_bytes_that_grows_is_confirmed_with_what_2_gib_hold() -> None:
    answer = against(lambda t: 1.0)["memory"]
    assert answer.verdict == "CONFIRMED"
    assert "fewer bytes from T=128 on" in answer.found.replace("the shortest, ", "")
    # 8 T^2 + 256 T and 260 T + 1,183,744 bytes, with 768 T of inputs, within 2,147,483,648
    assert "2 GiB hold, inputs included, naive T=16,320, online_softmax T=2,087,840" in answer.found


def test_memory_that_is_lost_again_is_refuted() -> None:
    answer = against(lambda t: 1.0, lambda t: naive_bytes(t) * (0.5 if t == 512 else 1.1))["memory"]
    assert answer.verdict == "REFUTED"
    assert "fewer bytes at T=512, no fewer at T=2,896" in answer.reason


def test_a_factor_that_stays_the_same_is_refuted() -> None:
    answer = against(lambda t: 1.0, lambda t: naive_bytes(t) / 4)["memory"]
    assert answer.verdict == "REFUTED"
    assert "no larger at T=2,896" in answer.reason


def test_bytes_that_are_never_fewer_are_inconclusive() -> None:
    answer = against(lambda t: 1.0, lambda t: 2 * naive_bytes(t))["memory"]
    assert answer.verdict == "INCONCLUSIVE"
    assert "never fewer bytes than naive over T 128 to 2,896" in answer.found


def test_below_whole_blocks_the_factor_decides_nothing() -> None:
    answer = against(lambda t: 1.0, lengths=(64, 128, 256, 512, 720))["memory"]
    assert answer.verdict == "INCONCLUSIVE"
    assert "got 0" in answer.reason


def test_without_naive_or_without_common_rounds_nothing_is_said_of_time() -> None:
    assert judge(ladder("sdpa_flash", naive_ms, flash_bytes)) == []
    two_runs = [
        planted.run(ladder("naive", naive_ms, naive_bytes), run_id="20261130T120000Z-0001"),
        planted.run(ladder("sdpa_flash", naive_ms, flash_bytes), run_id="20261130T130000Z-0002"),
    ]
    answers = Crossover().judge(Hearing(Reading(two_runs)))
    assert [answer.subject.split(",")[0] for answer in answers] == ["memory"]


def test_what_stores_scores_is_drawn_and_not_judged() -> None:
    records = ladder("naive", naive_ms, naive_bytes) + ladder("sdpa_math", lambda t: 0.5 * naive_ms(t), naive_bytes)
    assert judge(records) == []


@pytest.mark.parametrize(
    ("edges", "text"),
    [
        (((1.2, 1.3), (0.9, 1.1), (0.8, 0.9)), "ahead from T=3 on, crossing between 1 and 3"),
        (((0.9, 1.1), (0.8, 0.9)), "clearly ahead from T=2 on, nowhere clearly behind"),
        (((0.8, 0.9), (0.8, 0.9)), "ahead from the shortest length on, T=1"),
        (((0.8, 0.9), (0.9, 1.0)), "ahead at shorter lengths, not clearly at T=2"),
        (((1.2, 1.3), (0.9, 1.0)), "not ahead up to T=2"),
    ],
)
def test_crossings_in_words(edges: tuple[tuple[float, float], ...], text: str) -> None:
    points = [Point(n, (low + high) / 2, low, high, 5) for n, (low, high) in enumerate(edges, start=1)]
    assert crossing_text(points) == text


@pytest.mark.parametrize(("noise", "allowed"), [(0.01, {"CONFIRMED"}), (0.3, {"CONFIRMED", "INCONCLUSIVE"})])
def test_a_true_crossing_is_never_refuted(noise: float, allowed: set[Verdict]) -> None:
    assert against(lambda t: 1.5 if t < 600 else 0.7, noise=noise)["time"].verdict in allowed


def test_it_asks_for_the_shared_ladder_and_for_lengths_that_decide() -> None:
    for scope in (Scope("cpu"), Scope("cpu", quick=True)):
        cases = Crossover().needs(scope).cases
        plain = {case.problem.seqlen_q for case in cases if case.problem.mask.spec == "full"}
        assert len([length for length in plain if length >= 1024]) >= 4
        assert {case.implementation for case in cases} == {"naive", "online_softmax", "sdpa_flash", "sdpa_math"}


def test_the_figure_shows_ratios_of_time_and_bytes_with_a_line_at_one() -> None:
    records = ladder("naive", naive_ms, naive_bytes) + ladder("sdpa_math", lambda t: 1.2 * naive_ms(t), naive_bytes)
    records += ladder("sdpa_flash", lambda t: 0.7 * naive_ms(t), flash_bytes)
    hearing = Hearing(Reading([planted.run(records)]))
    (drawing,) = Crossover().draw(hearing, Crossover().judge(hearing))
    left, right = drawing.figure.axes
    assert left.get_ylabel() == "time over naive's"
    assert right.get_ylabel() == "peak bytes over naive's"
    for axes in (left, right):
        assert any(set(line.get_ydata()) == {1.0} for line in axes.get_lines())
    assert "sdpa_flash ahead from the shortest length on" in drawing.alt
    assert "sdpa_math" not in drawing.alt
    assert "time CONFIRMED on 1 of 1; memory CONFIRMED on 1 of 1" in drawing.figure.get_suptitle().replace("\n", " ")
    assert "sdpa_flash ahead from the shortest length" in left.get_title(loc="left")
    assert "% of the bytes at T=" in right.get_title(loc="left")
