"""Claim 10: planted ratios of pairs and planted peaks by key heads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import planted
import pytest

from bench.claims import Answer, Hearing, Scope
from bench.claims.shared_heads import SharedHeads, control_pair, following_share, shared_pair
from bench.evidence import Evidence
from bench.plots import Reading
from bench.record import Record

SPREAD = (0.99, 0.995, 1.0, 1.0, 1.005, 1.01)


def evidence(name: str, ratio: float, spread: Sequence[float] = SPREAD) -> Evidence:
    rows = tuple({"log_ratio": math.log(ratio * one), "a_ms": 1.0, "rounds": 20} for one in spread)
    return Evidence(kind="pair", name=name, rows=rows, seconds=1.0)


def hear(found: Iterable[Evidence] = (), records: Iterable[Record] = ()) -> Hearing:
    return Hearing(Reading([replace(planted.run(records), evidence=tuple(found))]))


def of_time(ratio: float, doubled: float | None = 1.9, spread: Sequence[float] = SPREAD, name: str = "naive") -> Answer:
    """One key head takes ``ratio`` of the time of eight, twice the pairs ``doubled`` times that of the half."""
    found = [evidence(shared_pair("cpu", name).name, ratio, spread)]
    if doubled is not None:
        found.append(evidence(control_pair("cpu", name).name, doubled, spread))
    (answer,) = SharedHeads().judge(hear(found))
    return answer


def cells(name: str, peaks: dict[int, int], **fields: Any) -> list[Record]:
    records = []
    for count, peak in peaks.items():
        sizes = {"num_heads_q": 8, "num_heads_kv": count} | fields
        plain = planted.record(name, 512, 1.0, **sizes)
        memory = plain.measurement.memory.model_copy(update={"peak_bytes": peak})
        records.append(planted.record(name, 512, 1.0, peak=memory, **sizes))
    return records


@pytest.mark.parametrize("ratio", [0.9, 1.0, 1.3])
def test_time_that_stays_is_confirmed(ratio: float) -> None:
    answer = of_time(ratio)
    assert answer.verdict == "CONFIRMED"
    assert f"takes {ratio:.2f}x [" in answer.found
    assert "twice the pairs take 1.90x" in answer.found
    assert answer.rows == (shared_pair("cpu", "naive").name, control_pair("cpu", "naive").name)


@pytest.mark.parametrize("ratio", [0.125, 0.2, 0.45])
def test_time_that_falls_with_the_key_heads_is_refuted(ratio: float) -> None:
    answer = of_time(ratio)
    assert answer.verdict == "REFUTED"
    assert "at least 50%" in answer.reason


def test_a_fall_between_is_inconclusive() -> None:
    assert of_time(0.7).verdict == "INCONCLUSIVE"


def test_an_interval_across_an_edge_is_inconclusive() -> None:
    wide = (0.8, 0.9, 1.0, 1.0, 1.1, 1.2)
    assert of_time(0.85, spread=wide).verdict == "INCONCLUSIVE"
    assert of_time(0.5, spread=wide).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize("ratio", [0.3, 1.0])
def test_where_time_does_not_follow_the_pairs_nothing_is_decided(ratio: float) -> None:
    answer = of_time(ratio, doubled=1.2)
    assert answer.verdict == "INCONCLUSIVE"
    assert "overhead may be more than half" in answer.reason


def test_without_a_control_or_with_few_processes_nothing_is_decided() -> None:
    assert of_time(1.0, doubled=None).verdict == "INCONCLUSIVE"
    few = of_time(1.0, spread=SPREAD[:3])
    assert few.verdict == "INCONCLUSIVE"
    assert "needs 6 processes, got 3" in few.reason


@pytest.mark.parametrize(("ratio", "share"), [(2.0, 1.0), (4 / 3, 0.5), (1.0, 0.0), (0.9, 0.0), (2.5, 1.0)])
def test_the_share_of_time_that_follows_the_pairs(ratio: float, share: float) -> None:
    assert following_share(ratio) == pytest.approx(share)


def test_bytes_that_fall_in_proportion_are_confirmed() -> None:
    (answer,) = SharedHeads().judge(hear(records=cells("naive", {8: 17_825_792, 4: 17_825_792, 1: 17_825_792})))
    assert answer.verdict == "CONFIRMED"
    assert "2.10 MB with 8, 1.05 MB with 4, 262 kB with 1 key heads" in answer.found
    assert "2,097,152 pairs throughout" in answer.found
    assert answer.subject == "storage, naive, full, fwd, float32, B=1, H=8, d=64, T=512"
    assert len(answer.rows) == 3


def test_a_call_that_holds_less_is_confirmed_too() -> None:
    (answer,) = SharedHeads().judge(hear(records=cells("online_softmax", {8: 9_000_000, 2: 8_000_000})))
    assert answer.verdict == "CONFIRMED"


def test_heads_that_are_repeated_during_the_call_refute() -> None:
    repeated = 2 * 8 * 512 * 64 * 4
    (answer,) = SharedHeads().judge(hear(records=cells("sdpa_flash", {8: 1_000_000, 2: 1_000_000 + repeated})))
    assert answer.verdict == "REFUTED"
    assert "2.10 MB more with sharing" in answer.found
    one_byte = cells("sdpa_flash", {8: 1_000_000, 1: 1_000_001})
    assert SharedHeads().judge(hear(records=one_byte))[0].verdict == "REFUTED"


def test_cells_that_differ_in_more_than_their_key_heads_or_share_nothing_are_no_subject() -> None:
    assert SharedHeads().judge(hear(records=cells("naive", {8: 1000}))) == []
    assert SharedHeads().judge(hear(records=cells("naive", {4: 1000, 2: 1000}))) == []
    mixed = cells("naive", {8: 1000}) + cells("naive", {2: 5000}, head_dim=128)
    assert SharedHeads().judge(hear(records=mixed)) == []


def test_what_repeats_heads_by_design_is_drawn_and_not_judged() -> None:
    records = cells("sdpa_math", {8: 1_000_000, 1: 3_000_000}) + cells("naive", {8: 1_000_000, 1: 1_000_000})
    found = [evidence(shared_pair("cpu", "naive").name, 0.98), evidence(control_pair("cpu", "naive").name, 1.9)]
    hearing = hear(found, records)
    answers = SharedHeads().judge(hearing)
    assert {answer.verdict for answer in answers} == {"CONFIRMED"}
    (drawing,) = SharedHeads().draw(hearing, answers)
    assert "sdpa_math repeats shared heads to full width: up to 2.00 MB more" in drawing.caption
    assert "k and v take 262 kB instead of 2.10 MB" in drawing.alt
    assert "naive 0.98x" in drawing.alt
    assert [axes.get_title().split(" ")[0].rstrip(":") for axes in drawing.figure.axes] == [
        "Storage",
        "Arithmetic",
        "Time",
    ]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_arm_of_a_pair_is_a_cell_too(device: str) -> None:
    for quick in (False, True):
        needs = SharedHeads().needs(Scope(device, quick))
        cells = {(case.problem, case.implementation) for case in needs.cases}
        arms = {(arm.problem, arm.implementation) for pair in needs.pairs for arm in (pair.a, pair.b)}
        assert arms <= cells


def test_a_pair_differs_in_what_it_is_about_alone() -> None:
    shared, control = shared_pair("cpu", "naive"), control_pair("cpu", "naive")
    assert shared.a.problem.attended_pairs == shared.b.problem.attended_pairs
    assert (shared.a.problem.num_heads_kv, shared.b.problem.num_heads_kv) == (8, 1)
    assert 2 * control.a.problem.attended_pairs == control.b.problem.attended_pairs
    assert control.a.problem.num_heads_kv == control.b.problem.num_heads_kv == 1
    assert control.b == shared.b
