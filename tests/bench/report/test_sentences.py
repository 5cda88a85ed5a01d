from __future__ import annotations

import planted
import pytest

from bench.plots import Reading
from bench.record import Record
from bench.report.sentences import CHARTS, for_chart

LONG = 1024


def said(chart: str, *records: Record, paired: bool = True, **options: object) -> str:
    reading = Reading([planted.run(records, **options)])  # type: ignore[arg-type]  # records
    return for_chart(chart, reading.rows, reading if paired else None)


def cells(lengths: tuple[int, ...] = (128, 256, 512), **times: tuple[float, ...]) -> list[Record]:
    """For each implementation a latency at each length, without scatter."""
    return [
        planted.record(name, length, ms, noise=0)
        for name, values in times.items()
        for length, ms in zip(lengths, values, strict=True)
    ]


@pytest.mark.parametrize("chart", CHARTS)
def test_every_chart_says_something_of_the_smallest_and_of_the_emptiest_run(chart: str) -> None:
    assert said(chart, planted.record("naive", 128)).endswith(".")
    assert said(chart, planted.record("naive", 128, status="crashed", reason="x")).endswith("1 crashed.")
    assert for_chart(chart, []) == "There are no such cells in these runs."


def test_a_chart_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ValueError, match="chart must be one of latency, tflops"):
        for_chart("speed", [])


@pytest.mark.parametrize("chart", ["latency", "heat_map", "tflops", "stability"])
def test_nothing_measured_is_said_with_what_became_of_the_cells(chart: str) -> None:
    text = said(
        chart,
        planted.record("a", 128, status="unsupported", reason="too wide"),
        planted.record("a", 256, status="unsupported", reason="too wide"),
        planted.record("b", 128, status="out_of_memory", reason="9 GB"),
    )
    assert text == "No cell here has a time: 2 unsupported, 1 out of memory."


@pytest.mark.parametrize("paired", [True, False])
def test_who_is_clearly_fastest_is_counted_over_problems(paired: bool) -> None:
    text = said("latency", *cells(a=(1, 1, 1), b=(2, 2, 2), c=(3, 3, 3)), paired=paired)
    assert text == "Clearly fastest of 3 problems that several were timed on: a on 3."


@pytest.mark.parametrize("chart", ["latency", "heat_map"])
@pytest.mark.parametrize("paired", [True, False])
def test_a_tie_has_no_winner(chart: str, paired: bool) -> None:
    tied = said(chart, *cells(a=(1, 1, 1), b=(1, 1, 1)), paired=paired)
    assert tied == "Nobody is clearly fastest on any of the 3 problems that several were timed on."
    one = said(chart, *cells((128,), a=(1,), b=(1,)), paired=paired)
    assert one == "Nobody is clearly fastest on the one problem that several were timed on."
    mixed = said(chart, *cells(a=(1, 1, 1), b=(1, 1, 2)), paired=paired)
    assert "a on 1; nobody on 2." in mixed


def test_overlapping_scatter_has_no_winner() -> None:
    pair = [planted.record(name, LONG, ms, noise=0.2) for name, ms in (("a", 10.0), ("b", 10.01))]
    assert "Nobody is clearly fastest" in said("latency", *pair)
    assert "Nobody is clearly fastest" in said("latency", *pair, paired=False)


def test_rounds_decide_where_medians_mislead() -> None:
    a = planted.record("a", LONG, measured={"samples_ns": (10,) * 5 + (100,) * 4, "processes": (0,) * 9})
    b = planted.record("b", LONG, measured={"samples_ns": (9,) * 5 + (90,) * 4, "processes": (0,) * 9})
    assert said("latency", a, b) == "b is clearly fastest on the one problem that several were timed on."
    assert "Nobody" in said("latency", a, b, paired=False)


def test_curves_that_cross_are_told_with_their_lengths() -> None:
    text = said("latency", *cells((64, 128, 256, 512), a=(1, 2, 9, 30), b=(2, 3, 8, 20)))
    assert text == (
        "Clearly fastest of 4 problems that several were timed on: a on 2, b on 2. "
        "Who is fastest changes with the length: a at 2 lengths from T=64 to T=128, "
        "then b at 2 lengths from T=256 to T=512."
    )


def test_an_unclear_length_between_two_belongs_to_nobody() -> None:
    text = said("latency", *cells(a=(1, 2, 9), b=(2, 2, 8)))
    assert text.endswith("Who is fastest changes with the length: a at T=128, then b at T=512.")
    assert "nobody on 1" in text


def test_absence_is_no_crossing() -> None:
    """c is fastest wherever it was timed; that a leads at 128 says nothing of a change."""
    records = [*cells(a=(1, 2, 3), b=(2, 3, 4)), planted.record("c", 512, 1.0, noise=0)]
    text = said("latency", *records)
    assert "a on 2, c on 1" in text and "changes" not in text


def test_the_ladder_of_a_crossing_is_named_by_what_varies() -> None:
    crossing = [r for width in (64, 128) for r in _wide(width, a=(1, 2, 9), b=(2, 3, 8))]
    assert "on 2 ladders (head_dim 64): a at 2 lengths from T=128 to T=256, then b at T=512." in said(
        "latency", *crossing
    )


def _wide(width: int, **times: tuple[float, ...]) -> list[Record]:
    return [
        planted.record(name, length, ms, noise=0, head_dim=width)
        for name, values in times.items()
        for length, ms in zip((128, 256, 512), values, strict=True)
    ]


def test_one_implementation_is_not_called_fastest() -> None:
    text = said("latency", *cells(naive=(1, 4, 16)))
    assert text == (
        "No problem was timed by two implementations, so nobody is fastest; times are "
        "1.00 ms (naive at T=128) to 16.0 ms (naive at T=512)."
    )
    assert said("latency", planted.record("naive", 128, 1.0, noise=0)) == "One time: 1.00 ms, naive at T=128."
    assert "so nobody is fastest" in said("heat_map", *cells(naive=(1, 4, 16)))


def test_impossible_unstable_and_zero_times_are_said_and_win_nothing() -> None:
    records = [
        *cells((LONG,), honest=(5.0,), slow=(9.0,)),
        planted.record("magic", LONG, 1e-3, flags=[("impossible", "above the peak")]),
        planted.record("still", LONG, 0.0, noise=0),
        planted.record("shaky", LONG, 20.0, flags=[("unstable", "spread; contended: no, a reason")]),
    ]
    for chart in ("latency", "heat_map"):
        text = said(chart, *records)
        assert "honest is clearly fastest" in text
        assert (
            "Of 5 measured: 1 impossible, left out; 1 0 ms, below what the clock can tell; 1 flagged unstable." in text
        )
    assert "impossible" in said("tflops", *records) and "magic" not in said("tflops", *records)
    only = said("latency", planted.record("magic", LONG, 1e-3, flags=[("impossible", "no")]))
    assert only.startswith("No cell here has a time: 1 impossible.")


def test_cells_without_a_time_are_counted_under_the_heat_map() -> None:
    text = said(
        "heat_map", *cells(a=(1, 1, 1), b=(2, 2, 2)), planted.record("c", 128, status="timeout", reason="120 s")
    )
    assert "1 cell of 7 without a time: 1 timeout." in text


def test_the_highest_rate_is_named_with_its_problem_and_ties() -> None:
    text = said("tflops", *cells((LONG,), a=(1.0,), b=(2.0,)))
    assert text == "The highest rate over exact pairs is 1.07 TFLOP/s, a at T=1024."
    tied = said("tflops", *cells((LONG,), a=(1.0,), b=(1.0,)))
    assert tied == "The highest rate over exact pairs is 1.07 TFLOP/s, a at T=1024; b shows as the same."
    several = said("tflops", *_wide(64, a=(1, 2, 9)), *_wide(128, a=(1, 2, 9)))
    assert "a at T=256, head_dim 128" in several or "a at T=512, head_dim 128" in several


def test_shares_of_the_ceiling_need_a_ceiling() -> None:
    assert said("ceiling_share", *cells((LONG,), a=(100.0,), b=(200.0,))) == (
        "The highest share of the measured rate of matrix products is 11%, a at T=1024."
    )
    for chart in ("ceiling_share", "roofline"):
        without = said(chart, *cells((LONG,), a=(100.0,)), header={"ceilings": None})
        assert without == "No ceiling was measured for these cells."


def test_the_roofline_tells_what_the_roof_is() -> None:
    text = said(
        "roofline", *cells((LONG,), a=(100.0,)), planted.record("a", 8, 9.0, noise=0, seqlen_q=1, seqlen_k=4096)
    )
    assert text.startswith("Closest to the measured roof is 11% of it, a at T=1024")
    assert "The roof is memory for 1 and matrix products for 1 of 2 cells." in text


def test_memory_names_the_least_and_counts_ties_as_ties() -> None:
    text = said("memory", *(planted.record(name, 4096) for name in ("naive", "sdpa_flash")))
    assert text == (
        "Smallest peak of 1 problem with several: sdpa_flash on 1. At T=4096: sdpa_flash 5.45 MB, naive 541 MB."
    )
    tied = said("memory", *(planted.record(name, 4096) for name in ("other_b", "other_a")))
    assert "other_a and other_b on 1." in tied
    many = said("memory", *(planted.record(name, 4096) for name in ("naive", *"abcdefg")))
    assert "2 more in between" not in many and "3 more in between, naive 541 MB." in many


def test_memory_of_one_or_of_none() -> None:
    assert said("memory", planted.record("naive", 4096)) == (
        "The largest peak is 541 MB, naive at T=4096; no problem has peaks of two implementations."
    )
    unread = planted.record("naive", 4096, measured={"memory": None})
    assert said("memory", unread) == "No peak was measured: this device offers no exact method."


def test_errors_are_told_against_their_limits() -> None:
    text = said(
        "error",
        planted.record("a", 128, judged=planted.agreement(1e-6, limit=2e-5)),
        planted.record("b", 256, judged=planted.agreement(8e-6, limit=1e-5)),
    )
    assert text.endswith("its limit is 8e-06 where 1e-05 is allowed, b at T=256, so all stay within their limits.")
    assert text.startswith("The error nearest to")


def test_a_wrong_result_is_never_called_within_its_limit() -> None:
    wrong = planted.record("bad", 128, status="incorrect", judged=planted.agreement(1.0, limit=1e-5, passed=False))
    text = said("error", planted.record("a", 128), wrong)
    assert text == (
        "The error furthest beyond its limit is 1 where 1e-05 is allowed, bad at T=128. "
        "1 cell judged incorrect: bad (1)."
    )
    # wrong by another tensor: the error of the output is small
    other = planted.record("bad", 128, status="incorrect", judged=planted.agreement(1e-7, limit=1e-5, passed=False))
    assert "within" not in said("error", planted.record("a", 128), other)


def test_errors_that_are_zero_or_not_finite_are_said() -> None:
    zero = planted.record("a", 128, judged=planted.agreement(0.0))
    nan = planted.record("b", 128, status="incorrect", judged=planted.agreement(None, nonfinite=3, passed=False))
    text = said("error", zero, nan)
    assert "1 cell with values that are not finite: b (1)." in text
    assert "1 cell with error 0, which a logarithmic axis cannot hold." in text
    assert "within" not in text
    assert said("error", nan).startswith("No cell here has a finite error: 1 incorrect.")
    unlimited = planted.record("a", 128, judged=planted.agreement(1e-6, limit=None))
    assert said("error", unlimited) == "The largest error is 1e-06, a at T=128; none has a limit."


def test_stability_counts_flags_and_single_processes() -> None:
    steady = planted.record("a", 128, 1.0, noise=0, processes=6)
    text = said("stability", steady)
    assert text == "The widest interval is 0.0% of its median, a at T=128. No time is flagged as unsteady."
    shaky = planted.record("b", 128, 1.0, noise=0.3, flags=[("unstable", "wide"), ("contended", "busy")])
    text = said("stability", steady, shaky)
    assert (
        "% of its median, b at T=128. Flagged of 2 cells: 1 contended, 1 unstable. 1 of 2 cells from one process"
        in text
    )
