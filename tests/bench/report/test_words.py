"""What is said of who is fastest, how much is saved and how wrong it is, where the wording could mislead."""

from __future__ import annotations

from pathlib import Path

import planted
import pytest
from pages import NO_NOTEBOOK, page, unpacked

from bench.claims import Answer, Judged, hear
from bench.plots import Reading
from bench.record import Record, TensorError
from bench.report.claims import sections, verdicts
from bench.report.dataset import dataset
from bench.report.material import Material
from bench.report.sentences import for_chart
from bench.report.speed import fastest
from bench.report.theory import memory_saved, worst_error


def of(*records: Record) -> Reading:
    return Reading([planted.run(records)])


def rivals(milliseconds: dict[str, float], **noise: float) -> list[Record]:
    return [
        planted.record(name, 128, ms, noise=noise.get(name, 0.0), processes=6, rounds=5)
        for name, ms in milliseconds.items()
    ]


def test_the_rival_is_who_may_be_as_fast_and_not_just_the_next() -> None:
    """b is next and clearly slower; c has the larger median and scatters so widely that it may be the fastest."""
    records = rivals({"a": 1.0, "b": 1.1, "c": 1.2}, c=0.9)
    reading = of(*records)
    best, clear = reading.fastest(reading.rows)
    rival = reading.rival(reading.rows, best)
    assert rival is not None
    assert (best["implementation"], clear, rival["implementation"]) == ("a", False, "c")
    found = dataset(Material.of(reading.runs, NO_NOTEBOOK))["fastest"]
    assert (unpacked(found["next"]), unpacked(found["clear"])) == ([2], [False])
    (said,) = (finding.text for finding in fastest(reading))
    assert "a and c is faster by more than 3% is UNCLEAR" in said and " is fastest" not in said


def test_the_next_is_the_rival_of_a_clear_winner() -> None:
    reading = of(*rivals({"c": 3.0, "a": 1.0, "b": 2.0}))
    best, clear = reading.fastest(reading.rows)
    rival = reading.rival(reading.rows, best)
    assert clear and rival is not None and rival["implementation"] == "b"
    assert reading.rival([best], best) is None


def test_times_that_no_round_pairs_have_a_least_one_and_no_fastest() -> None:
    reading = of(planted.record("a", 128, 1.0, noise=0), planted.record("b", 128, 2.0, noise=0, rounds=8))
    said = next(fastest(reading)).text
    assert "a has the least time, and no round timed both: 1.00 ms [1.00, 1.00] ms within run" in said
    assert "2.00x (not paired)" in said and "is fastest" not in said


def test_intervals_of_long_times_have_their_unit() -> None:
    said = next(fastest(of(*rivals({"a": 2000.0, "b": 4000.0})))).text
    assert "2.00 s [2000, 2000] ms across 6 processes" in said


def test_the_worst_error_may_be_that_of_a_gradient() -> None:
    judged = planted.agreement(1e-7, limit=1e-5)
    dq = TensorError(max_abs=9e-6, rmse=None, rel_rmse=None, nonfinite=0, limit=1e-5)
    gradient = judged.model_copy(update={"tensors": judged.tensors | {"dq": dq}})
    (said,) = worst_error(of(planted.record("a", 128), planted.record("b", 128, judged=gradient, direction="bwd")))
    assert "nearest to its limit is b in float32" in said.text and "largest error of dq 9e-06, 90% of" in said.text
    assert not list(worst_error(of(planted.record("a", 128, judged=planted.agreement(1e-6, limit=None)))))


def test_memory_that_is_the_same_is_not_called_less() -> None:
    naive = planted.record("naive", 128)
    peak = planted.memory("naive", naive.problem)
    near = peak.model_copy(update={"peak_bytes": peak.peak_bytes - 8})
    (said,) = memory_saved(of(naive, planted.record("same", 128, peak=peak), planted.record("near", 128, peak=near)))
    assert said.text.count("(1.00x as much)") == 2 and "less" not in said.text


def test_errors_without_a_limit_are_not_said_to_stay_within_it() -> None:
    unlimited = planted.record("b", 128, judged=planted.agreement(1.0, limit=None))
    said = for_chart("error", of(planted.record("a", 128), unlimited).rows)
    assert said.endswith("so all stay within their limits; 1 cell without a limit.")


@pytest.mark.parametrize(("found", "tone"), [("CONFIRMED", "good"), ("INCONCLUSIVE", "plain"), ("REFUTED", "bad")])
def test_claims_are_good_news_only_if_one_is_confirmed(found: str, tone: str) -> None:
    claim = next(one.claim for one in hear([planted.run([planted.record()])]))
    answer = Answer(subject="s", verdict=found, found="f", reason="r", rows=())  # type: ignore[arg-type]  # a verdict
    (said,) = verdicts([Judged(claim, (answer,), heard=True)])
    assert said.tone == tone and f"1 {found}" in said.text


def test_many_refuted_subjects_are_counted_and_those_left_out_are_said() -> None:
    claim = next(one.claim for one in hear([planted.run([planted.record()])]))
    kinds = ("CONFIRMED",) * 400 + ("REFUTED",) * 7
    answers = tuple(
        Answer(subject=f"s{n}", verdict=found, found="f", reason="r")  # type: ignore[arg-type]  # a verdict
        for n, found in enumerate(kinds)
    )
    judged = [Judged(claim, answers, heard=True)]
    (said,) = verdicts(judged)
    assert "7 REFUTED, 400 CONFIRMED" in said.text and said.text.endswith("; and 2 more.")
    (section,) = sections(judged)
    assert [answer[1] for answer in section.answers[:8]] == ["REFUTED"] * 7 + ["CONFIRMED"]
    assert len(section.answers) + section.left_out == 407 and section.left_out == 107


def test_cells_that_a_later_run_replaces_are_counted(tmp_path: Path) -> None:
    runs = [
        planted.run([planted.record("a", n) for n in lengths], run_id=str(n))
        for n, lengths in ((1, (64, 128)), (2, (64,)))
    ]
    said = "1 cell of an earlier run that a later one on such a machine holds again is not shown"
    assert said in page(runs, tmp_path / "two", figures=False).words
    assert "holds again" not in page(runs[:1], tmp_path / "one", figures=False).words
