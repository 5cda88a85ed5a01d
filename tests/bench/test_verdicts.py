"""The decision rule, on numbers whose answer is known."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.record import Measurement
from bench.verdicts import (
    calibrated_margin,
    confirmed,
    decide,
    holm,
    interval_ranks,
    paired_estimates,
    process_estimate,
    sign_test,
    two_looks,
)


def logs(*percent):
    return [math.log1p(p / 100) for p in percent]


@pytest.mark.parametrize(
    ("percent", "verdict"),
    [
        ((4, 5, 6, 5, 4, 5), "REGRESSED"),
        ((-6, -5, -6, -7, -5, -6), "IMPROVED"),
        ((-1, 0, 1, 2, -2, 0), "UNCHANGED"),
        ((2, 5, 6, 5, 4, 5), "UNCLEAR"),
        ((0, 0, 0, 0, 0, 4), "UNCLEAR"),
        ((-50, 60, 0, 1, 2, 3), "UNCLEAR"),
        ((90, 90, 90, 90, 90), "UNCLEAR"),  # fewer than the first look never decide
    ],
)
def test_verdicts_of_six_processes(percent, verdict):
    assert decide(logs(*percent)).verdict == verdict


def test_the_whole_interval_must_lie_beyond_the_margin_not_just_the_median():
    assert decide(logs(3.1, 20, 20, 20, 20, 20)).verdict == "REGRESSED"
    assert decide(logs(2.9, 20, 20, 20, 20, 20)).verdict == "UNCLEAR"


def test_twelve_processes_forgive_one_wild_one_on_each_side():
    estimates = logs(-60, *[5] * 10, 900)
    assert decide(estimates).verdict == "REGRESSED"
    assert decide(estimates[:6]).verdict == "UNCLEAR"
    assert two_looks(estimates).verdict == "REGRESSED"
    assert two_looks(estimates).processes == 12


def test_the_second_look_is_taken_only_where_the_first_is_unclear():
    estimates = logs(*[5] * 6, *[-90] * 6)
    assert two_looks(estimates).verdict == "REGRESSED"
    assert two_looks(estimates).processes == 6


@pytest.mark.parametrize("processes", [2, 5, 6, 7, 9, 12, 20, 24])
def test_coverage_is_that_of_counting_signs(processes):
    left_out, coverage = interval_ranks(processes)
    below = [sum(signs) for signs in product((0, 1), repeat=min(processes, 12))] if processes <= 12 else None
    if below is not None:
        inside = sum(left_out < count < processes - left_out for count in below) / 2**processes
        assert coverage == pytest.approx(inside)
    if processes > 6:
        assert (1 - coverage) / 2 <= 0.01
    assert coverage == pytest.approx({6: 1 - 2 / 64, 12: 1 - 26 / 4096}.get(processes, coverage))


@given(st.lists(st.floats(-0.5, 0.5), min_size=6, max_size=12))
def test_swapping_the_sides_swaps_the_verdict(estimates):
    there, back = decide(estimates), decide([-x for x in estimates])
    swapped = {"REGRESSED": "IMPROVED", "IMPROVED": "REGRESSED"}
    # exp and log1p round, so the edge of the margin itself may fall on either side
    edge = math.log1p(0.03)
    if all(abs(abs(x) - edge) > 1e-9 for x in estimates):
        assert back.verdict == swapped.get(there.verdict, there.verdict)
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert there.lo <= there.ratio <= there.hi


def test_the_process_estimate_is_the_median_of_the_ratios_not_the_ratio_of_the_medians():
    a, b = [1.0, 100.0, 10.0], [2.0, 101.0, 10.5]
    assert process_estimate(a, b) == pytest.approx(math.log(1.05))


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [-1.0])])
def test_rounds_that_are_no_pairs_of_durations_are_refused(a, b):
    with pytest.raises(ValueError, match="pairs of positive durations"):
        process_estimate(a, b)


def test_no_estimates_is_an_error_not_a_verdict():
    with pytest.raises(ValueError, match="at least one process"):
        decide([])


def measurement(calls, by_process):
    return Measurement(
        samples_ns=tuple(ns for values in by_process.values() for ns in values),
        processes=tuple(process for process, values in by_process.items() for _ in values),
        calls_per_sample=calls,
        clock="perf_counter",
        first_call_ns=1,
        prepare_ns=1,
        memory=None,
    )


def test_rows_are_paired_within_their_processes_per_call():
    a = measurement(2, {0: [200, 400], 1: [2000, 2000]})
    b = measurement(1, {0: [110, 220], 1: [1100, 1100]})
    assert paired_estimates(a, b) == pytest.approx([math.log(1.1)] * 2)


def test_rows_that_were_not_measured_together_are_not_paired():
    a = measurement(1, {0: [1, 2], 1: [3, 4]})
    assert paired_estimates(a, measurement(1, {2: [1, 2], 1: [3, 4, 5]})) == []


def test_sign_test_is_exact():
    assert sign_test([1] * 6) == pytest.approx(2 / 64)
    assert sign_test([1, 1, 1, 1, 1, -1]) == pytest.approx(14 / 64)
    assert sign_test([1, -1]) == 1.0
    assert sign_test([0, 0]) == 1.0


def test_holm_orders_multiplies_and_never_decreases():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}


def test_only_the_same_change_again_confirms():
    slow, fast, same = decide(logs(*[5] * 6)), decide(logs(*[-5] * 6)), decide(logs(*[0] * 6))
    assert confirmed(slow, slow)
    assert not confirmed(slow, fast)
    assert not confirmed(slow, same)
    assert not confirmed(same, same)


def test_the_margin_of_a_noisy_machine_is_wider():
    rng = random.Random(0)
    assert calibrated_margin([1.0] * 50) == 0.03
    assert calibrated_margin([]) == 0.03
    noisy = [math.exp(rng.gauss(0, 0.03)) for _ in range(500)]
    assert 0.12 < calibrated_margin(noisy) < 0.20


def test_the_chance_of_a_false_alarm_under_pure_noise_is_what_counting_says():
    """Estimates that are noise much wider than the margin: all twelve on one side, or all but one, is what it takes."""
    rng = random.Random(1)
    trials = 4000
    flagged = sum(
        two_looks([rng.gauss(0, 10) for _ in range(12)]).verdict in ("REGRESSED", "IMPROVED") for _ in range(trials)
    )
    assert flagged / trials < 2 * (1 / 64 + 13 / 4096)
    assert flagged / trials > 1 / 64
