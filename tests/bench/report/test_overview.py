from __future__ import annotations

from pathlib import Path

import planted
import pytest

from bench.plots import Reading
from bench.record import Record
from bench.report.leaderboard import boards, section
from bench.report.material import Material
from bench.report.overview import doubts, headlines, regimes
from bench.report.overview import section as overview
from bench.results import Run

NO_NOTEBOOK = Path("there is no such notebook")


def cells(lengths: tuple[int, ...] = (128, 4096), processes: int = 1, **times: tuple[float, ...]) -> list[Record]:
    return [
        planted.record(name, length, ms, noise=0, processes=processes)
        for name, values in times.items()
        for length, ms in zip(lengths, values, strict=True)
    ]


def told(*records: Record) -> list[str]:
    return [finding.text for finding in regimes(Reading([planted.run(records)]))]


def test_short_and_long_sequences_have_a_verdict_each() -> None:
    texts = told(*cells((128, 256, 2048, 4096), a=(1, 2, 90, 300), b=(2, 3, 60, 100)))
    assert texts == [
        "fwd, T=128 to 256 (2 problems): a is fastest, clearly so on 2 of 2; the next, b takes 1.73x its time "
        "(geometric mean; paired intervals within [1.50, 2.00]).",
        "fwd, T=2048 to 4096 (2 problems): b is fastest, clearly so on 2 of 2; the next, a takes 2.12x its time "
        "(geometric mean; paired intervals within [1.50, 3.00]).",
    ]


def test_a_tie_has_no_fastest() -> None:
    (text,) = told(*cells((128,), a=(1,), b=(1,)))
    assert "nobody is clearly fastest on most; on none is anyone clearly ahead" in text
    assert "is fastest, clearly" not in text


def test_wins_on_half_of_the_problems_are_not_most() -> None:
    (text,) = told(*cells((128, 130), a=(1, 9), b=(2, 8)))
    assert "nobody is clearly fastest on most; clearly fastest are" in text and "a on 1" in text and "b on 1" in text


def test_who_wins_most_problems_is_named_even_where_another_leads_the_mean() -> None:
    (text,) = told(*cells((128, 129, 130, 131), a=(1.1, 1.1, 1.1, 1), b=(1, 1, 1, 9)))
    assert "clearly fastest are b on 3, a on 1 of 4. Least time in the geometric mean: a; b takes 1.6" in text
    assert "nobody" not in text


def test_problems_that_were_not_paired_are_counted() -> None:
    unpaired = [planted.record("a", 130, 1.0, noise=0), planted.record("b", 130, 2.0, noise=0, rounds=8)]
    (text,) = told(*cells((128, 129), a=(1, 1), b=(2, 2)), *unpaired)
    assert "paired intervals within [2.00, 2.00]; 1 not paired)" in text and "clearly so on 2 of 3" in text


def test_one_that_was_timed_on_few_problems_is_named_and_not_ranked() -> None:
    records = cells((128, 136, 144, 152), a=(2, 2, 2, 2), b=(3, 3, 3, 3))
    (text,) = told(*records, planted.record("rare", 128, 0.1, noise=0))
    assert "a is fastest, clearly so on 4 of 4" in text and text.endswith("Left out, timed on too few: rare (1).")


def test_directions_are_regimes_of_their_own_and_decoding_has_its_own_length() -> None:
    both = [*cells((128,), a=(1,), b=(2,))]
    both += [planted.record(name, 128, ms, noise=0, direction="bwd") for name, ms in (("a", 3.0), ("b", 2.0))]
    both += [planted.record(n, 8, ms, noise=0, seqlen_q=1, seqlen_k=4096) for n, ms in (("a", 1.0), ("b", 2.0))]
    texts = told(*both)
    assert any(text.startswith("bwd, T=128 (1 problem): b is fastest") for text in texts)
    assert any(text.startswith("fwd, Tq=1, Tk=4096 (1 problem): a is fastest") for text in texts)


def test_machines_that_are_not_comparable_never_share_a_regime_or_a_board() -> None:
    runs = [
        planted.run(cells((128,), a=(1,), b=(2,)), run_id="1"),
        planted.run(cells((128,), a=(9,), b=(5,)), run_id="2", cores=64),
    ]
    texts = [finding.text for finding in regimes(Reading(runs))]
    assert len(texts) == 2
    assert "cores 2, T=128 (1 problem): a is fastest" in texts[0] and "cores 64, T=128 (1 problem): b is" in texts[1]
    assert [board.standings[0].implementation for board in boards(Reading(runs))] == ["a", "b"]


def test_nobody_alone_is_fastest() -> None:
    assert told(*cells(a=(1, 2))) == []
    assert told(planted.record("a", status="crashed")) == []


def test_boards_name_who_is_not_on_them_and_why() -> None:
    records = [
        *cells((128, 136, 144), a=(1, 1, 1), naive=(2, 2, 2)),
        planted.record("rare", 128, 0.1, noise=0),
        planted.record("wide", 128, status="unsupported"),
        planted.record("magic", 128, 1e-6, flags=[("impossible", "x")]),
    ]
    (board,) = boards(Reading([planted.run(records)]))
    assert [one.implementation for one in board.standings] == ["a", "naive"]
    assert (board.cells, board.problems) == (3, 3)
    assert board.unranked == {"magic": "1 impossible", "rare": "timed on 1 of 3 problems", "wide": "1 unsupported"}
    assert board.standings[0].over_best_baseline == pytest.approx(2.0)


def test_a_disjoint_implementation_does_not_empty_the_board() -> None:
    records = [*cells((128, 136), a=(1, 1), b=(2, 2)), *cells((144, 152), c=(1, 1))]
    (board,) = boards(Reading([planted.run(records)]))
    assert {one.implementation for one in board.standings} == {"a", "b"}
    assert board.unranked == {"c": "timed on 2 of 4 problems"}


def material(*runs: Run) -> Material:
    return Material.of(list(runs), NO_NOTEBOOK)


def test_the_board_is_left_out_where_nothing_was_compared() -> None:
    assert section(material(planted.run([planted.record("a")]))) is None
    shown = section(material(planted.run(cells(a=(1, 2), naive=(2, 4)))))
    assert shown is not None
    (board,) = shown["boards"]
    assert board["rows"][0][1:] == ["a", "1.00x", "2.00x", "2.00x", "2", "0", "0"]
    assert len(board["heads"]) == len(board["rows"][0])
    assert "hides" in shown["caution"]


def test_doubts_are_counted_once_per_cell() -> None:
    rows = Reading(
        [
            planted.run(
                [
                    planted.record("a", 128, flags=[("unstable", "x"), ("contended", "y")]),
                    planted.record("b", 128, flags=[("impossible", "z")]),
                    planted.record("c", 128),
                ]
            )
        ]
    ).rows
    finding = doubts(rows)
    assert finding.tone == "bad"
    assert finding.text.startswith("2 of 3 times are flagged as doubtful: 1 unstable, 1 contended, 1 impossible.")
    assert "take part in no comparison" in finding.text
    assert "Most of all: a (1)." in finding.text
    odd = planted.record("x, y", 128, flags=[("unstable", "spread; throttled: only a reason")])
    (row,) = Reading([planted.run([odd])]).rows
    assert doubts([row]).text.endswith("1 unstable. Most of all: x, y (1).")
    assert doubts(rows[2:]).tone == "good"
    assert doubts([]).text == "Nothing was timed."


def test_the_first_screen_answers_which_how_much_and_whether_to_trust() -> None:
    run = planted.default_run()
    first = headlines(material(run))
    texts = " ".join(finding.text for finding in first)
    for words in (
        "No cell was incorrect",
        "sdpa_flash is fastest",
        "Peak memory at T=4096",
        "nearest to its limit",
        "Theory:",
        "flagged as doubtful",
        "identical code",
    ):
        assert words in texts, words
    assert 6 <= len(first) <= 14
    shown = overview(material(run))
    assert not {finding.text for finding in shown["headlines"]} & {finding.text for finding in shown["more"]}
    facts = dict(map(tuple, shown["facts"][1]))
    assert "Planted CPU @ 2.00GHz, 2 cores" in facts["machine"]
    assert facts["code"] == "0123456789, clean" and "torch 2.13.0" in facts["versions"]
    assert shown["commands"] == [run.header.command]


def test_every_run_has_a_column_of_facts() -> None:
    runs = [
        planted.run([planted.record()], run_id=name, git_commit=commit) for name, commit in (("1", None), ("2", "abc"))
    ]
    heads, lines = overview(material(*runs))["facts"]
    assert heads == ["", "1", "2"]
    assert ["code", "not a git checkout", "abc, clean"] in lines
