from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import planted
import pytest

from bench.case import Case
from bench.claims import Answer, Hearing, Judged, Scope
from bench.claims._ladders import LENGTHS
from bench.claims.pair_cost import PairCost
from bench.evidence import Evidence
from bench.figure_style import figure_style
from bench.header import Ceilings
from bench.plots import Reading
from bench.problem import Problem
from bench.record import Record
from bench.results import Run

CPU = Scope("cpu")
SHORT = (8, 12, 16, 24, 32, 48, 64, 96, 128)

Law = Callable[[Problem], float]
"""Milliseconds of a problem."""


def pairs_law(problem: Problem) -> float:
    return 0.03 + 2e-8 * problem.all_pairs * (problem.head_dim + problem.head_dim_v)


def quadratic(length: int) -> float:
    return 0.05 + 2e-6 * length**2


def power_of(size: Callable[[Problem], float], exponent: float) -> Law:
    """The law of pairs, bent so that it grows with this exponent along ``size``."""
    return lambda problem: 0.03 + (pairs_law(problem) - 0.03) * size(problem) ** (exponent - 1) / 100


def measured(law: Law, names: Iterable[str] = ("naive",), scope: Scope = CPU) -> list[Record]:
    """All that the claim asks for."""
    cases = [case for case in PairCost().needs(scope).cases if case.implementation in names]
    return [record_of(case, law) for case in cases]


def record_of(case: Case, law: Law) -> Record:
    return planted.record(case.implementation, latency_ms=law(case.problem), **case.problem.model_dump())


def square(
    law: Callable[[int], float], name: str = "naive", lengths: Iterable[int] = LENGTHS, **more: object
) -> list[Record]:
    return planted.ladder(law, name, lengths, num_heads=1, **more)


def judge(records: Iterable[Record], **environment: object) -> list[Answer]:
    return PairCost().judge(Hearing(Reading([planted.run(records, **environment)])))


def by_axis(answers: Iterable[Answer]) -> dict[str, Answer]:
    return {answer.subject.split(" in ")[1].split(" ")[0]: answer for answer in answers}


def test_time_that_follows_the_pairs_is_confirmed_along_every_axis() -> None:
    answers = judge(measured(pairs_law, ("naive", "online_softmax", "sdpa_flash")))
    assert {answer.verdict for answer in answers} == {"CONFIRMED"}
    subjects = sorted(answer.subject.split(" (")[0] for answer in answers)
    pairs, widths = ("T", "T_k", "T_q", "B·H"), ("d_k", "d_v")
    axes = {"naive": pairs + widths, "online_softmax": pairs + widths, "sdpa_flash": pairs}
    assert subjects == sorted(f"{name} in {axis}" for name, own in axes.items() for axis in own)
    length = answers[0]
    assert length.found.startswith("T^2.0")
    assert "[1.9" in length.found
    assert len(length.rows) == len(LENGTHS)


@pytest.mark.parametrize(
    ("axis", "size"),
    [
        ("T_k", lambda p: p.seqlen_k),
        ("T_q", lambda p: p.seqlen_q),
        ("d_k", lambda p: p.head_dim),
        ("d_v", lambda p: p.head_dim_v),
        ("B·H", lambda p: 30 * p.batch_size * p.num_heads_q),
    ],
)
def test_time_that_is_quadratic_in_a_linear_axis_is_refuted_there(axis: str, size: Callable[[Problem], float]) -> None:
    answers = by_axis(judge(measured(power_of(size, 2))))
    assert answers[axis].verdict == "REFUTED"
    others = {"d_k", "d_v", "B·H", "T_k", "T_q"} - {axis}
    assert {answers[other].verdict for other in others} == {"CONFIRMED"}


@pytest.mark.parametrize(
    ("law", "exponent"), [(lambda t: 0.02 + 5e-5 * t, "T^1.0"), (lambda t: 0.02 + 1e-9 * t**3, "T^3.0")]
)
def test_linear_and_cubic_time_are_refuted(law: Callable[[int], float], exponent: str) -> None:
    (answer,) = judge(square(law))
    assert (answer.verdict, answer.found[:5]) == ("REFUTED", exponent)


@pytest.mark.parametrize("law", [lambda t: 0.02 + 1e-6 * t**2, lambda t: 1e-5 * t**2, lambda t: 0.02 + 1e-4 * t])
def test_lengths_up_to_128_alone_decide_nothing(law: Callable[[int], float]) -> None:
    (answer,) = judge(square(law, lengths=SHORT))
    assert (answer.verdict, answer.reason) == ("INCONCLUSIVE", "up to T=128 overhead dominates")


@pytest.mark.parametrize("law", [lambda t: 80 + 1e-6 * t**2, lambda t: 20 + 1e-3 * t])
def test_overhead_of_more_than_half_neither_confirms_nor_refutes(law: Callable[[int], float]) -> None:
    (answer,) = judge(square(law, noise=0.0))
    assert answer.verdict == "INCONCLUSIVE"
    assert "overhead dominates" in answer.reason


def test_a_width_that_hardly_matters_beside_the_rest_is_inconclusive() -> None:
    def law(problem: Problem) -> float:
        return 1.0 + 1e-3 * problem.head_dim

    answer = by_axis(judge(measured(law)))["d_k"]
    assert answer.verdict == "INCONCLUSIVE"
    assert "overhead dominates" in answer.reason


def test_noise_is_inconclusive() -> None:
    jitter = {length: 1.6 if place % 2 else 1 / 1.6 for place, length in enumerate(LENGTHS)}
    (answer,) = judge(square(lambda t: jitter[t] * (0.05 + 2e-6 * t**2)))
    assert answer.verdict == "INCONCLUSIVE"
    assert "too noisy" in answer.reason


def test_too_few_lengths_are_inconclusive_and_none_are_no_answer() -> None:
    (answer,) = judge(square(lambda t: 2e-6 * t**2, lengths=LENGTHS[:4]))
    assert answer.verdict == "INCONCLUSIVE"
    assert "needs at least 8 lengths" in answer.reason
    assert judge([]) == []
    assert judge(square(lambda t: 2e-6 * t**2, lengths=LENGTHS[:1])) == []


def test_an_interrupted_ladder_of_a_named_implementation_is_not_passed_over() -> None:
    answers = judge(square(quadratic) + square(quadratic, "sdpa_flash", LENGTHS[:6]))
    assert {a.subject.split(" ")[0]: a.verdict for a in answers} == {"naive": "CONFIRMED", "sdpa_flash": "INCONCLUSIVE"}


def test_rows_measured_for_something_else_are_no_experiment() -> None:
    more = square(quadratic, lengths=(512, 1024), head_dim=128) + square(quadratic, "mine", LENGTHS[:3])
    more += square(lambda t: 1e-4 * t, mask="causal") + square(lambda t: 1e-4 * t, mask="sliding_window(64)")
    assert [answer.verdict for answer in judge(square(quadratic) + more)] == ["CONFIRMED"]


def test_lengths_that_naive_was_timed_at_alone_stay_out_of_its_law() -> None:
    climbed = square(quadratic) + square(quadratic, "sdpa_flash", noise=0.02)
    strays = square(lambda t: 0.7 * quadratic(t), lengths=(1000, 2000, 3000))
    (plain, _), (naive, flash) = judge(climbed), judge(climbed + strays)
    assert (naive.verdict, naive.found, naive.rows) == (plain.verdict, plain.found, plain.rows)
    assert len(flash.rows) == len(LENGTHS)


def test_lengths_at_an_end_that_only_some_reach_count() -> None:
    reached = {"naive": LENGTHS[:-1], "sdpa_flash": LENGTHS, "online_softmax": LENGTHS[1:]}
    answers = judge(record for name, lengths in reached.items() for record in square(quadratic, name, lengths))
    assert [len(answer.rows) for answer in answers] == [8, 9, 8]


def leaving_the_cache(dearer: float) -> Callable[[int], float]:
    """Pairs that are dearer, the more of the two matrices lies beyond a cache of 32 MiB."""
    return lambda t: 2e-6 * t**2 * (1 + dearer * max(0.0, 1 - 2**25 / (8 * t**2)))


@pytest.mark.parametrize(
    ("cache", "law", "verdict", "said"),
    [
        (2**25, leaving_the_cache(0.1), "CONFIRMED", ""),
        (2**25, leaving_the_cache(0.3), "INCONCLUSIVE", "from T=2,048 on its bytes exceed the last cache (33.6 MB)"),
        (2**25, leaving_the_cache(0.8), "INCONCLUSIVE", "caches explain it better than a power does: from T=2,048 on"),
        (2**40, leaving_the_cache(0.3), "INCONCLUSIVE", ""),
        (None, leaving_the_cache(0.3), "INCONCLUSIVE", ""),
        (2**25, lambda t: 1e-6 * t**2 * (1.3 if 600 < t < 1500 else 1), "INCONCLUSIVE", ""),
        *((2**25, lambda t, p=p: 0.02 + 1e-3 * (t / 99) ** p, "REFUTED", "") for p in (1, 2.3, 2.5, 3)),
    ],
)
def test_what_caches_add_refutes_nothing_and_is_said(
    cache: int | None, law: Callable[[int], float], verdict: str, said: str
) -> None:
    ceilings = Ceilings(flop_per_s={"float32": 1e15}, bytes_per_s=1e15, cache_bytes=cache)
    for noise in (0.0, 0.02):
        run = planted.run(square(law, noise=noise), header={"ceilings": ceilings})
        (answer,) = PairCost().judge(Hearing(Reading([run])))
        assert answer.verdict == verdict, answer
        assert said in answer.reason
        assert bool(said) == ("last cache" in answer.reason)


def test_other_implementations_are_judged_where_their_rows_are_enough() -> None:
    answers = judge(square(lambda t: 0.05 + 2e-6 * t**2) + square(lambda t: 0.01 + 1e-4 * t, "sparse"))
    assert {a.subject.split(" ")[0]: a.verdict for a in answers} == {"naive": "CONFIRMED", "sparse": "REFUTED"}


def test_head_dims_dtypes_and_directions_are_subjects_of_their_own() -> None:
    groups = ({}, {"head_dim": 128}, {"dtype": "bfloat16"}, {"direction": "bwd"})
    answers = judge(record for fields in groups for record in square(quadratic, **fields))
    assert len({answer.subject for answer in answers}) == 4
    assert {answer.verdict for answer in answers} == {"CONFIRMED"}


@pytest.mark.parametrize(
    ("allocator", "exponent", "verdict", "reason"),
    [
        ("default", 2.5, "INCONCLUSIVE", "page faults"),
        ("default", 2.0, "CONFIRMED", "within"),
        ("default", 1.0, "REFUTED", "outside"),
        ("warm", 2.5, "REFUTED", "outside"),
    ],
)
def test_page_faults_explain_what_is_too_steep(allocator: str, exponent: float, verdict: str, reason: str) -> None:
    (answer,) = judge(square(lambda t: 0.02 + 1e-4 * t**exponent), allocator=allocator)
    assert answer.verdict == verdict
    assert reason in answer.reason


def both_allocators() -> list[Run]:
    warm = planted.run(square(lambda t: 0.05 + 2e-6 * t**2))
    default = planted.run(square(lambda t: 0.05 + 5e-8 * t**2.5), run_id="20261130T120000Z-0002", allocator="default")
    return [warm, default]


def test_the_default_allocator_does_not_refute_the_claim() -> None:
    claim = PairCost()
    answers = claim.judge(Hearing(Reading(both_allocators())))
    assert [answer.verdict for answer in answers] == ["CONFIRMED", "INCONCLUSIVE"]
    assert ["default allocator" in answer.subject for answer in answers] == [False, True]
    assert Judged(claim, tuple(answers), heard=True).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize(("disturbed", "verdict"), [(2, "REFUTED"), (3, "INCONCLUSIVE")])
def test_a_disturbed_ladder_refutes_nothing(disturbed: int, verdict: str) -> None:
    flags = [("contended", "wall time was 1.5x the calling thread's CPU time")]
    records = square(lambda t: 0.02 + 5e-5 * t, lengths=LENGTHS[:disturbed], flags=flags)
    records += square(lambda t: 0.02 + 5e-5 * t, lengths=LENGTHS[disturbed:])
    (answer,) = judge(records)
    assert answer.verdict == verdict
    assert verdict == "REFUTED" or "3 of 9 cells were disturbed" in answer.reason


def test_a_reason_that_names_another_flag_is_not_that_flag() -> None:
    flags = [("unstable", "not contended, not throttled: the samples scatter")]
    (answer,) = judge(square(lambda t: 0.02 + 5e-5 * t, flags=flags))
    assert answer.verdict == "REFUTED"


def test_impossible_times_are_left_out() -> None:
    records = square(lambda t: 0.05 + 2e-6 * t**2) + square(
        lambda t: 1e-9 * t, lengths=(64, 128), flags=[("impossible", "beats a ceiling")]
    )
    (answer,) = judge(records)
    assert (answer.verdict, len(answer.rows)) == ("CONFIRMED", len(LENGTHS))


def test_a_clock_that_reads_zero_gives_no_answer() -> None:
    assert judge(square(lambda _: 0.0)) == []
    (answer,) = judge(square(lambda t: 0.0 if t == 512 else 0.05 + 2e-6 * t**2))
    assert len(answer.rows) == len(LENGTHS) - 1


def test_a_second_vote_that_disagrees_is_told() -> None:
    (answer,) = judge(square(lambda t: 1e-6 * t**2.3))
    assert answer.verdict == "REFUTED"
    assert answer.reason.endswith("AICc disagrees and votes for T^2")


def test_needs_are_less_in_a_quick_run_and_suit_a_gpu() -> None:
    full, quick, cuda = (PairCost().needs(s).cases for s in (CPU, Scope("cpu", quick=True), Scope("cuda")))
    assert len({case.problem for case in quick}) <= 17
    assert max(case.problem.seqlen_k for case in quick) == 1024
    assert len(set(full)) == len(full)
    assert {case.problem.dtype for case in cuda} == {"float16"}
    assert min(case.problem.num_heads_q for case in cuda) == 16
    answers = judge(measured(pairs_law, scope=Scope("cpu", quick=True)))
    assert {axis: answer.verdict for axis, answer in by_axis(answers).items()} == {"T": "CONFIRMED", "T_k": "CONFIRMED"}


def test_figures_state_finding_trap_and_allocator() -> None:
    rows = tuple(
        {
            "allocator": name,
            "seqlen": length,
            "latency_ms": 1e-5 * length**exponent,
            "page_faults": length**2 * share / 128,
            "score_pages": length**2 / 128,
        }
        for name, exponent, share in (("warm", 2.0, 0.0), ("default", 2.5, 1.0))
        for length in LENGTHS
    )
    evidence = Evidence(kind="demonstration", name="page_faults", rows=rows, seconds=1.0)
    run = replace(planted.run(measured(pairs_law)), evidence=[evidence])
    claim, hearing = PairCost(), Hearing(Reading([run, both_allocators()[1]]))
    with figure_style():
        drawings = {one.stem: one for one in claim.draw(hearing, claim.judge(hearing))}
    assert set(drawings) == {"pair_cost-scaling-1", "pair_cost-linear", "pair_cost-allocator"}
    scaling = drawings["pair_cost-scaling-1"]
    above = scaling.figure.axes[0]
    assert "naive: CONFIRMED" in above.get_title()
    assert any(text.get_text().startswith("straight line: T^1.9") for text in above.texts)
    assert "T^1.9" in scaling.caption
    title = scaling.figure.get_suptitle().replace("\n", " ")
    assert "mask full" in title
    assert "CONFIRMED for naive (planted-host, warm allocator)" in title
    assert "INCONCLUSIVE for naive (planted-host, default allocator)" in title
    assert "CONFIRMED for 5 of 5 ladders" in drawings["pair_cost-linear"].figure.get_suptitle()
    title = drawings["pair_cost-allocator"].figure.get_suptitle().replace("\n", " ")
    assert "default allocator 524,288 page faults a call and T^2.5" in title
    assert "warm allocator 0 page faults a call and T^2.0" in title


def test_nothing_is_drawn_without_rows() -> None:
    hearing = Hearing(Reading([planted.run([])]))
    assert PairCost().draw(hearing, []) == []
