from __future__ import annotations

import planted
import pytest

from bench.plots import Reading
from bench.record import Record
from bench.report import summary_text
from bench.report.findings import Finding, findings, paired_ratio
from bench.results import Run


def said(*records: Record, **options: object) -> list[Finding]:
    return findings(Reading([planted.run(records, **options)]))  # type: ignore[arg-type]  # records


def sentence(found: list[Finding], words: str) -> Finding:
    hits = [finding for finding in found if words in finding.text]
    assert len(hits) == 1, [finding.text for finding in found]
    return hits[0]


def test_fastest_is_named_with_interval_scope_and_paired_ratios() -> None:
    found = said(
        planted.record("naive", 1024, 10.0, noise=0),
        planted.record("fast", 1024, 4.0, noise=0),
        planted.record("middle", 1024, 8.0, noise=0),
        planted.record("fast", 512, 400.0, noise=0),  # a shorter problem does not count
        planted.record("naive", 512, 1.0, noise=0),
    )
    text = sentence(found, "is fastest").text
    assert text == (
        "At T=1024, mask full, head_dim 64, fast is fastest: 4.00 ms [4.00, 4.00] within run, "
        "2.00x [2.00, 2.00] the speed of the next, middle, and 2.50x [2.50, 2.50] that of naive."
    )


def test_two_that_overlap_are_not_ranked() -> None:
    found = said(planted.record("a", 1024, 10.0, noise=0.2), planted.record("b", 1024, 10.01, noise=0.2))
    assert "a and b cannot be told apart" in sentence(found, "T=1024").text.replace("b and a", "a and b")


def test_impossible_cells_win_nothing() -> None:
    found = said(
        planted.record("naive", 1024, 10.0),
        planted.record("honest", 1024, 5.0),
        planted.record("magic", 1024, 1e-3, flags=[("impossible", "above the peak")]),
    )
    assert "honest is fastest" in sentence(found, "is fastest").text
    flagged = sentence(found, "flagged impossible")
    assert flagged.tone == "bad" and "magic (1)" in flagged.text


def test_pairing_cancels_what_both_rounds_share() -> None:
    slow, fast = planted.record("a", 1024, 10.0).measurement, planted.record("b", 1024, 5.0).measurement
    assert slow is not None and fast is not None
    drift = (1, 3, 9, 2, 7, 1, 5)
    slow = slow.model_copy(update={"samples_ns": tuple(2000 * d for d in drift)})
    fast = fast.model_copy(update={"samples_ns": tuple(1000 * d for d in drift)})
    ratio = paired_ratio(slow, fast)
    assert ratio is not None and (ratio.ratio, ratio.low, ratio.high) == (2.0, 2.0, 2.0)
    other_rounds = fast.model_copy(update={"samples_ns": (1,), "processes": (0,)})
    assert paired_ratio(slow, other_rounds) is None
    twice = fast.model_copy(update={"calls_per_sample": 2})
    halved = paired_ratio(slow, twice)
    assert halved is not None and halved.ratio == 4.0


def test_memory_saved_is_stated_against_naive() -> None:
    text = sentence(said(planted.record("naive", 4096), planted.record("sdpa_flash", 4096)), "Peak memory").text
    assert text.startswith(
        "Peak memory at T=4096, mask full, head_dim 64: naive 541 MB, sdpa_flash 5.45 MB (99.2x less)"
    )


@pytest.mark.parametrize(
    ("power", "verdict", "tone"),
    [(2.0, "CONFIRMED", "good"), (1.0, "REFUTED", "plain"), (3.0, "REFUTED", "plain")],
)
def test_exponent_sentence_follows_the_planted_law(power: float, verdict: str, tone: str) -> None:
    found = said(*planted.ladder(lambda t: 0.01 + 1e-4 * t**power, noise=0.001))
    finding = sentence(found, "grows as")
    assert f"quadratic growth {verdict} on 1 of 1 ladder" in finding.text
    assert f"T^{power:.2f}" in finding.text and "within run" in finding.text
    assert finding.tone == tone


def test_exponent_sentence_names_the_reason_where_it_is_inconclusive() -> None:
    found = said(*planted.ladder(lambda t: 1e-5 * t**2, lengths=(128, 256)))
    assert "INCONCLUSIVE: needs at least 8 lengths, got 2" in sentence(found, "growth of time").text


def test_law_sentence_states_equality_or_the_residual() -> None:
    good = said(planted.record("naive", 1024), planted.record("sdpa_flash", 1024))
    assert sentence(good, "2·B·H·Tq·Tk·bytes + output in all 1 cells (residual 0 bytes)").tone == "good"
    assert "equal the measured ones in all cells of sdpa_flash (1)" in sentence(good, "Predicted peak").text
    off = planted.memory("naive", planted.record("naive", 1024).problem)
    off = off.model_copy(update={"peak_bytes": off.peak_bytes + 512})
    bad = sentence(said(planted.record("naive", 1024, peak=off)), "differ from its law")
    assert bad.tone == "bad" and "+512 bytes" in bad.text


def test_failures_come_before_results_and_name_the_first() -> None:
    found = said(
        planted.record("naive", 128),
        planted.record("a", 128, status="incorrect", reason="out is off by 0.5", error=0.5),
        planted.record("b", 128, status="crashed", reason="signal 11"),
        planted.record("b", 256, status="timeout", reason="120 s"),
    )
    assert sentence(found, "INCORRECT").text == (
        "1 cell is INCORRECT: a (1). First: a on B1-H4-T128-d64-float32-fwd-full, out is off by 0.5."
    )
    assert {finding.tone for finding in found[1:4]} == {"bad"}
    assert not any("No cell was incorrect" in finding.text for finding in found)
    assert sentence(said(planted.record()), "No cell was incorrect").tone == "good"


def test_certified_cells_are_counted_and_varying_bits_named() -> None:
    found = said(planted.record("a"), planted.record("b", status="verified"), planted.record("c", status="incorrect"))
    finding = sentence(found, "certified first")
    assert finding.text.startswith("2 of 2 cells judged correct") and finding.tone == "good"
    assert "2 passed such checks at their own size too" in finding.text
    assert sentence(found, "No implementation gave other bits").tone == "good"
    assert not any("computed alone" in finding.text for finding in found)

    varying = planted.agreement(deterministic=False, batch_invariant=False, checks={})
    bare = planted.agreement(certificate=None, deterministic=None, batch_invariant=None)
    found = said(planted.record("a"), planted.record("b", judged=varying), planted.record("c", judged=bare))
    finding = sentence(found, "certified first")
    assert finding.text.startswith("2 of 3 cells judged correct") and finding.tone == "plain"
    assert sentence(found, "not the same bit by bit").text == "1 cell is not the same bit by bit when repeated: b (1)."
    assert sentence(found, "computed alone").text.endswith("than in a batch: b (1).")
    assert not any("certified" in finding.text for finding in said(planted.record("c", judged=bare)))


def test_unstable_cells_are_counted() -> None:
    found = said(planted.record(flags=[("unstable", "spread 9 %; see samples")]))
    assert sentence(found, "flagged unstable").text == "1 measured cell is flagged unstable: naive (1)."


def test_worst_error_is_relative_to_its_limit() -> None:
    found = said(
        planted.record("a", 128, status="verified", judged=planted.agreement(1e-3, limit=1e-1), dtype="float16"),
        planted.record("b", 128, judged=planted.agreement(8e-6, limit=1e-5)),
    )
    text = sentence(found, "nearest to its limit").text
    assert "Of 2 cells judged correct" in text and "is b in float32" in text and "80% of the limit" in text


@pytest.mark.parametrize(("wall_s", "share", "tone"), [(1.04, "50%", "good"), (5.2, "10%", "bad")])
def test_share_of_time_spent_measuring(wall_s: float, share: str, tone: str) -> None:
    finding = sentence(said(planted.record(), wall_s=wall_s), "measured or verified calls")  # 0.02 s + 0.5 s
    assert finding.text.startswith(share) and finding.tone == tone


def test_unfinished_runs_say_so() -> None:
    run = planted.run([planted.record()])
    killed = Run(path=run.path, header=run.header, records=run.records, end=None)
    assert "has no end" in summary_text([killed])
    assert run.end is not None
    for outcome, words in (
        ("interrupted", "was interrupted after 1 of 1"),
        ("budget", "used up its time budget"),
    ):
        end = run.end.model_copy(update={"outcome": outcome})
        assert words in summary_text([Run(path=run.path, header=run.header, records=run.records, end=end)])
    resumed = run.header.model_copy(update={"resumed_from": "earlier"})
    text = summary_text([Run(path=run.path, header=resumed, records=run.records, end=run.end)])
    assert "took over cells of earlier" in text and "% of" not in text.splitlines()[-1]
