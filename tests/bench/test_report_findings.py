from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import planted
import pytest

from bench.header import Diagnosis
from bench.plots import Reading
from bench.record import FlagName, Record
from bench.report import summary_text
from bench.report.finding import Finding
from bench.report.findings import MEANINGS, findings
from bench.report.soundness import COMMAND
from bench.results import Run

NO_NOTEBOOK = Path("there is no such notebook")


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
        "At T=1024, mask full, head_dim 64, fast is fastest: 4.00 ms [4.00, 4.00] ms within run, "
        "2.00x [2.00, 2.00] the speed of the next, middle, and 2.50x [2.50, 2.50] that of naive."
    )


def test_one_process_is_said_to_say_nothing_of_the_next() -> None:
    cells = [planted.record(name, 1024, ms) for name, ms in (("a", 1.0), ("b", 2.0))]
    assert "nothing of the next process" in sentence(said(*cells), "within run come from one process").text
    many = [planted.record(name, 1024, ms, processes=6) for name, ms in (("a", 1.0), ("b", 2.0))]
    assert not any("one process" in finding.text for finding in said(*many))


def test_two_that_overlap_are_not_ranked() -> None:
    found = said(planted.record("a", 1024, 10.0, noise=0.2), planted.record("b", 1024, 10.01, noise=0.2))
    assert "a and b cannot be told apart" in sentence(found, "T=1024").text.replace("b and a", "a and b")


@pytest.mark.parametrize(
    ("ratio", "noise", "words"),
    [
        (1.20, 0.001, "a is fastest: 1.00 ms [1.00, 1.00] ms across 6 processes, 1.20x [1.20, 1.20] (6 processes, 96."),
        (1.01, 0.001, "a and b are the SAME within 3% (a 1.00 ms"),
        (1.03, 0.01, "which of a and b is faster by more than 3% is UNCLEAR (a "),
    ],
)
def test_several_processes_give_the_verdict_of_the_decision_rule(ratio: float, noise: float, words: str) -> None:
    cells = [planted.record(name, 1024, ms, processes=6, noise=noise) for name, ms in (("a", 1.0), ("b", ratio))]
    assert words in sentence(said(*cells), "At T=1024").text


def test_who_is_faster_round_by_round_wins_over_a_smaller_median() -> None:
    """A neighbour that comes for some rounds moves medians and leaves the order within rounds as it is."""
    a = planted.record("a", 1024, measured={"samples_ns": (10,) * 5 + (100,) * 4, "processes": (0,) * 9})
    b = planted.record("b", 1024, measured={"samples_ns": (9,) * 4 + (11,) + (90,) * 4, "processes": (0,) * 9})
    text = sentence(said(a, b), "At T=1024").text
    assert "b is fastest" in text and "1.11x [" in text


def test_impossible_cells_win_nothing() -> None:
    found = said(
        planted.record("naive", 1024, 10.0),
        planted.record("honest", 1024, 5.0),
        planted.record("magic", 1024, 1e-3, flags=[("impossible", "above the peak")]),
    )
    assert "honest is fastest" in sentence(found, "is fastest").text
    flagged = sentence(found, "flagged impossible")
    assert flagged.tone == "bad" and "magic (1)" in flagged.text


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


def test_implementations_without_enough_lengths_share_one_sentence() -> None:
    cells = [cell for name in ("a", "b") for cell in planted.ladder(lambda t: 1.0, name, lengths=(128, 256))]
    assert sentence(said(*cells), "INCONCLUSIVE").text.startswith("Whether a, b have quadratic growth")


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
    assert sentence(found, "flagged unstable").text == (
        "1 of 1 measured cells is flagged unstable (the middle half of its samples spreads widely): naive (1). "
        "First: naive on B1-H4-T1024-d64-float32-fwd-full, spread 9 %; see samples."
    )


@pytest.mark.parametrize("name", get_args(FlagName))
def test_every_flag_has_one_sentence_with_its_reason_and_keeps_its_row_unless_impossible(name: FlagName) -> None:
    cells = [
        planted.record("a", n, ms, flags=[(name, f"reason {n}")]) for n, ms in ((128, 1.0), (256, 1.0), (1024, 1.0))
    ]
    found = said(*cells, planted.record("b", 1024, 2.0), planted.record("c", 1024, 3.0))
    text = sentence(found, f"flagged {name} (").text
    assert MEANINGS[name] in text and "3 of 5 measured cells" in text and "reason 128" in text
    assert "reason 256" not in text
    fastest = sentence(found, "is fastest").text
    assert ("a is fastest" in fastest) == (name != "impossible")
    assert ("kept out of every comparison" in text) == (name == "impossible")


def test_false_alarms_are_stated_with_the_machine_they_were_measured_on() -> None:
    reading = Reading([planted.run([planted.record()])])
    finding = sentence(findings(reading, planted.notes(flagged=1)), "identical code")
    assert finding.text == (
        "This harness called identical code changed in 1 of 600 comparisons (at most 0.79 % with 95 % confidence) and "
        "0 after confirmation; measured on a machine like this one, Planted CPU @ 2.00GHz, 2 cores, torch 2.13.0. "
        "Rules of other tools on the same samples: 20 to 40 %."
    )
    assert finding.tone == "good"
    elsewhere = sentence(findings(reading, planted.notes({"cores": 64})), "identical code")
    assert "another machine than this one, Planted CPU @ 2.00GHz, 64 cores" in elsewhere.text
    on_gpu = Reading([planted.run([planted.record()], device="NVIDIA H200")])
    assert "another machine than this one" in sentence(findings(on_gpu, planted.notes()), "identical code").text
    assert sentence(findings(reading, planted.notes(met=False)), "identical code").tone == "bad"


def test_without_a_notebook_the_command_that_measures_it_is_named() -> None:
    finding = sentence(said(planted.record()), "identical code")
    assert "was not measured on this machine" in finding.text and COMMAND in finding.text
    assert COMMAND in summary_text([planted.run([planted.record()])], NO_NOTEBOOK)


def test_doctors_warnings_are_on_the_first_screen_and_its_notes_are_not() -> None:
    seen = [Diagnosis(name=f"{level} thing", level=level, seen="s", fix="f") for level in ("note", "warning")]
    found = said(planted.record(), header={"diagnoses": tuple(seen)})
    finding = sentence(found, "doctor warned of")
    assert "warning thing" in finding.text and "note thing" not in finding.text and finding.tone == "bad"
    assert not any("doctor" in finding.text for finding in said(planted.record()))


def test_allocators_are_compared_where_two_runs_differ_in_nothing_else() -> None:
    def run(allocator: str, factor: float, **env: object) -> Run:
        cells = [
            planted.record(name, n, ms * factor**power, noise=0)
            for n, ms in ((128, 1.0), (256, 4.0))
            for name, power in (("naive", 1), ("flash", 0))
        ]
        return planted.run(cells, run_id=allocator, allocator=allocator, **env)

    runs = [run("default", 2.0), run("warm", 1.0)]
    for order in (runs, runs[::-1]):
        text = sentence(findings(Reading(order)), "default allocator").text
        assert "naive 2.00x (2.00 to 2.00 over 2 cells); flash 1.00x (1.00 to 1.00 over 2 cells)" in text
        assert "were not interleaved" in text
    other = [run("default", 2.0, cores=4), run("warm", 1.0)]
    assert not any("default allocator" in finding.text for finding in findings(Reading(other)))


def test_set_up_that_pays_is_stated_with_the_calls_and_that_never_pays_as_such() -> None:
    def costly(name: str, n: int, ms: float) -> Record:
        return planted.record(name, n, ms, noise=0, measured={"setup_ns": 900_000_000, "prepare_ns": 100_000_000})

    cheap = {"setup_ns": 0, "prepare_ns": 0}
    plain = [planted.record("plain", n, 10.0, noise=0, measured=cheap) for n in (128, 256)]
    found = said(*plain, costly("compiled", 128, 6.0), costly("compiled", 256, 12.0))
    assert sentence(found, "up front").text == (
        "compiled spends 1.00 s more up front than the fastest that spends at least 100 ms less (plain): "
        "it pays after 250 calls on 1 of 2 problems."
    )
    samples = tuple(round(1e6 * ms) for ms in (5, 5, 7, 7, 7, 7, 7))
    wide = planted.record("plain", 128, measured=cheap | {"samples_ns": samples, "processes": (0,) * 7})
    assert (
        "(the interval of the ratio excludes never on 0)"
        in sentence(said(wide, costly("compiled", 128, 6.0)), "up front").text
    )
    assert "on none of 1 problem does it pay" in sentence(said(plain[0], costly("slow", 128, 12.0)), "up front").text
    assert not any("up front" in finding.text for finding in said(*plain))


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
    killed = replace(run, end=None)
    assert "has no end" in summary_text([killed], NO_NOTEBOOK)
    assert run.end is not None
    for outcome, words in (
        ("interrupted", "was interrupted after 1 of 1"),
        ("budget", "used up its time budget"),
    ):
        end = run.end.model_copy(update={"outcome": outcome})
        assert words in summary_text([replace(run, end=end)], NO_NOTEBOOK)
    resumed = run.header.model_copy(update={"resumed_from": "earlier"})
    text = summary_text([replace(run, header=resumed)], NO_NOTEBOOK)
    assert "took over cells of earlier" in text and "% of" not in text.splitlines()[-1]


def test_growth_under_a_mask_whose_blocks_are_skipped_is_not_held_against_the_pairs() -> None:
    full = planted.ladder(lambda n: 0.02 + 1e-6 * n**2, "kernel")
    masked = planted.ladder(lambda n: 0.02 + 1e-4 * n, "kernel", mask="causal")
    assert "CONFIRMED on 1 of 1 ladder" in sentence(said(*full, *masked), "grows as").text
    assert "REFUTED on 1 of 1 ladder" in sentence(said(*masked), "grows as").text
