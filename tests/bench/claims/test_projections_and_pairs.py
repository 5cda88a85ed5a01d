from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import planted
import pytest

from bench.claims import Answer, Hearing, Scope, claims
from bench.claims._crossing import crossings, ladders
from bench.claims.projections_and_pairs import SOURCE, ProjectionsAndPairs
from bench.demonstrations import demonstrations
from bench.evidence import Evidence
from bench.figure_style import figure_style
from bench.plots import Reading

CLAIM = ProjectionsAndPairs()
LENGTHS = tuple(round(64 * 2 ** (step / 2)) for step in range(11))
Law = Callable[[float], float]
"""Milliseconds at a length."""


# 90 GFLOP/s for the products and 60 for the pairs, at width 256 with 4 heads of 64: equal at 384 / 1.5 = 256.
def products(length: float) -> float:
    return 0.01 + 6 * 256**2 * length / 90e6


def pairs_of(length: float) -> float:
    return 0.02 + 4 * 256 * length**2 / 60e6


def rows(
    pairs: Law = pairs_of,
    products: Law = products,
    *,
    lengths: Sequence[int] = LENGTHS,
    rounds: int = 12,
    noise: float = 0.03,
    **fixed: Any,
) -> list[dict[str, Any]]:
    """What the demonstration gives for one implementation."""
    draw = random.Random(1)
    plain = {
        "implementation": "projected_naive",
        "device": "cpu",
        "threads": 1,
        "dtype": "float32",
        "mask": "full",
        "batch_size": 1,
        "num_heads": 4,
        "head_dim": 64,
        "head_dim_v": 64,
        "width": 256,
        "source_width": 256,
    }
    found = []
    for t in lengths:
        flop = {"projections": 6 * 256**2 * t, "pairs": 4 * 256 * t**2}
        flop["whole"] = sum(flop.values())
        latency = {"projections": products(t), "pairs": pairs(t), "whole": products(t) + pairs(t)}
        for part, ms in latency.items():
            timed = [ms * (1 + noise * draw.gauss(0, 1)) for _ in range(rounds)]
            about = {"seqlen_q": t, "seqlen_k": t, "part": part, "flop": flop[part]}
            found.append(plain | fixed | about | {"latency_ms": timed, "reason": None})
    return found


def hearing(*found: list[dict[str, Any]]) -> Hearing:
    every = [row for some in found for row in some]
    evidence = Evidence(kind="demonstration", name=SOURCE, rows=tuple(every), seconds=1.0)
    return Hearing(Reading([replace(planted.run([]), evidence=[evidence])]))


def judged(found: list[dict[str, Any]]) -> Answer:
    (answer,) = CLAIM.judge(hearing(found))
    return answer


def test_it_is_registered_and_asks_for_the_demonstration_there_is() -> None:
    assert claims.get("projections_and_pairs") is ProjectionsAndPairs
    assert set(CLAIM.needs(Scope()).demonstrations) <= set(demonstrations.names())


def test_the_theorys_laws_are_confirmed_with_the_crossover() -> None:
    answer = judged(rows())
    assert answer.verdict == "CONFIRMED", answer.reason
    (ladder,) = ladders(rows())
    low, high = ladder.crossing_span
    assert low < 253 < high  # where the two laws are equal, overheads included
    assert high / low < 1.2
    assert ladder.by_flop == pytest.approx(384)
    assert ladder.by_rates[0] < 256 < ladder.by_rates[1]
    assert f"crossover at T = {ladder.crossing:.0f} [" in answer.found
    assert "predicted by FLOP 384" in answer.found
    assert answer.rows == (SOURCE,)


@pytest.mark.parametrize(
    ("pairs", "products", "reason"),
    [
        # An implementation that drops blocks: a tenth of the pairs is computed. FLOP are equal at 384, far within.
        (lambda t: pairs_of(t) / 10, products, "less is computed than was counted"),
        # Roles exchanged: what is called pairs grows as T and what is called projections as T squared.
        (products, pairs_of, "projections take longer at T=2048"),
        # Pairs that grow as T^1.3: equal at 80, and at the longest length they foretell 770.
        (lambda t: products(80) * (t / 80) ** 1.3, lambda t: products(80) * (t / 80), "beyond a factor of 3"),
    ],
)
def test_counter_examples_are_refuted(pairs: Law, products: Law, reason: str) -> None:
    answer = judged(rows(pairs, products))
    assert answer.verdict == "REFUTED", answer
    assert reason in answer.reason


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (rows(lengths=LENGTHS[:7]), "needs 8 lengths with 6 rounds, got 7 with 12"),
        (rows(rounds=5), "needs 8 lengths with 6 rounds, got 11 with 5"),
        (rows(noise=0.6), "which reaches beyond a factor of 1.5"),
        (rows(lengths=LENGTHS[4:]), "needs 8 lengths"),
        (rows(lengths=[t // 4 for t in LENGTHS]), "too near the longest length, 512"),
        (rows(lengths=[t // 8 for t in LENGTHS]), "not on the ladder: pairs do not clearly dominate by T=256"),
        (rows(lengths=[t * 8 for t in LENGTHS]), "not on the ladder: pairs dominate from T=512 on"),
        # Calls that cost more than what they compute, at short lengths.
        (rows(lambda t: pairs_of(t) + 0.4), "pairs dominate from T=64 on, by their arithmetic or by their overhead"),
        (rows(lambda t: pairs_of(t) * (6 if t == 91 else 1)), "changes more than once"),
        # Out of cache the pairs run at half their rate: the far end foretells a crossover at half the length.
        (rows(lambda t: pairs_of(t) * (2 if t > 700 else 1)), "which reaches beyond a factor of 1.5"),
    ],
)
def test_too_little_or_too_noisy_is_inconclusive(found: list[dict[str, Any]], reason: str) -> None:
    answer = judged(found)
    assert answer.verdict == "INCONCLUSIVE", answer
    assert reason in answer.reason


def test_a_crossover_as_predicted_does_not_outweigh_a_refuted_growth() -> None:
    # Both parts steeper by the same half power: their ratio grows as it should.
    steep = rows(lambda t: pairs_of(t) * t**0.5, lambda t: products(t) * t**0.5)
    answer = judged(steep)
    assert answer.verdict == "INCONCLUSIVE"
    assert "but projections grow as T^1.49" in answer.reason


@pytest.mark.parametrize("seed", range(5))
def test_pairs_that_grow_as_projections_do_never_confirm_anything(seed: int) -> None:
    draw = random.Random(seed)
    same = rows(lambda t: products(t) * draw.uniform(0.9, 1.1))
    assert judged(same).verdict != "CONFIRMED"


def test_what_was_not_timed_is_inconclusive_with_its_reason() -> None:
    refused = rows()[2] | {"latency_ms": None, "reason": "incorrect: out is off by 0.3, the limit is 1e-05"}
    for found in ([refused], [refused, *rows()]):
        answer = judged(found)
        assert (answer.verdict, answer.reason) == ("INCONCLUSIVE", refused["reason"])
    assert CLAIM.judge(Hearing(Reading([planted.run([])]))) == []


def test_implementations_and_widths_are_subjects_of_their_own() -> None:
    others = [rows(implementation="multihead"), rows(source_width=128), rows(mask="causal"), rows(device="cuda")]
    answers = CLAIM.judge(hearing(rows(), *others))
    assert len({answer.subject for answer in answers}) == 5
    assert all(answer.verdict == "CONFIRMED" for answer in answers)


def test_parts_that_do_not_add_up_to_the_whole_say_nothing_of_it() -> None:
    found = rows()
    for row in found:
        if row["part"] == "whole":
            row["latency_ms"] = [1.4 * ms for ms in row["latency_ms"]]
    answer = judged(found)
    assert answer.verdict == "INCONCLUSIVE"
    assert "both in one call take 1.39x the sum" in answer.reason


def test_crossings_lie_between_the_lengths_where_the_ratio_passes_one() -> None:
    assert crossings([100, 400], [0.5, 2.0]) == pytest.approx([200])
    assert crossings([100, 200, 400, 800], [0.5, 2.0, 0.5, 0.25]) == pytest.approx([141.42, 282.84], rel=1e-4)
    assert crossings([100, 200], [2.0, 3.0]) == []


def test_the_figure_tells_the_finding_without_the_text() -> None:
    heard = hearing(rows(), rows(lambda t: pairs_of(t) / 10, implementation="multihead"))
    answers = CLAIM.judge(heard)
    with figure_style():
        (drawing,) = CLAIM.draw(heard, answers)
    title = drawing.figure.get_suptitle()
    assert "1 CONFIRMED, 1 REFUTED" in title
    panels = [axes.get_title() for axes in drawing.figure.axes]
    assert [title.partition("\n")[2] for title in panels] == [
        "CONFIRMED: crossover T = 254",
        "REFUTED: crossover none on the ladder",
    ]
    assert "11 lengths from 64 to 2048" in drawing.caption
    assert "multihead, projected_naive" in drawing.alt
    assert CLAIM.draw(hearing([rows()[2] | {"latency_ms": None, "reason": "unsupported"}]), answers) == []
