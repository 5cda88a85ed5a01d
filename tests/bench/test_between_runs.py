"""The rule for two states that were measured in different processes."""

from __future__ import annotations

import itertools
import math
import random
from statistics import median

import pytest
from scipy.stats import mannwhitneyu

from bench.between_runs import (
    decide_shift,
    margin_from_halves,
    rank_sum_counts,
    rank_sum_test,
    shift_ranks,
    two_look_shift,
)


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 3), (4, 4), (3, 6)])
def test_rank_sums_are_counted_as_by_listing_all_orders(first, second):
    counts = [0] * (first * second + 1)
    for chosen in itertools.combinations(range(first + second), first):
        others = [place for place in range(first + second) if place not in chosen]
        counts[sum(a > b for a in chosen for b in others)] += 1
    assert list(rank_sum_counts(first, second)) == counts


def test_the_interval_misses_on_one_side_in_at_most_one_of_a_hundred_cases():
    for first, second in ((6, 6), (12, 6), (12, 12), (24, 12)):
        left_out, coverage = shift_ranks(first, second)
        assert 0.98 <= coverage < 1
        counts, orders = rank_sum_counts(first, second), math.comb(first + second, first)
        assert sum(counts[: left_out + 2]) / orders > 0.01, "no wider interval than needed"


def test_few_processes_give_the_whole_range_and_no_verdict():
    found = decide_shift([0.0, 0.0], [0.5, 0.6, 0.7])
    assert (found.verdict, found.lo, found.hi) == (
        "UNCLEAR",
        pytest.approx(math.exp(0.5)),
        pytest.approx(math.exp(0.7)),
    )


def test_coverage_holds_for_skewed_noise():
    """A shift of 5 % in log-normal noise: the interval misses on each side in about one of a hundred draws."""
    rng = random.Random(0)
    low = high = 0
    for _ in range(2000):
        before = [rng.lognormvariate(0, 0.7) for _ in range(12)]
        after = [0.05 + rng.lognormvariate(0, 0.7) for _ in range(6)]
        found = decide_shift(before, after)
        low += math.log(found.lo) > 0.05
        high += math.log(found.hi) < 0.05
    assert low <= 35 and high <= 35  # 20 expected; 35 is beyond three standard deviations
    assert low + high >= 10


def test_the_p_value_is_the_exact_one_of_scipy():
    rng = random.Random(1)
    for _ in range(20):
        before, after = [rng.gauss(0, 1) for _ in range(7)], [rng.gauss(0.5, 1) for _ in range(5)]
        expected = mannwhitneyu(before, after, method="exact").pvalue
        assert rank_sum_test(before, after) == pytest.approx(expected)
    assert rank_sum_test([1.0] * 6, [1.0] * 6) == 1.0


def test_the_estimate_is_the_median_of_all_differences():
    before, after = [0.0, 0.01, 0.03], [0.10, 0.12]
    assert decide_shift(before, after).ratio == pytest.approx(math.exp(median(b - a for a in before for b in after)))


def test_a_second_look_is_taken_only_where_the_first_is_unclear():
    before = [0.001 * i for i in range(12)]
    clear = [0.2] * 6 + [-5.0] * 6
    assert two_look_shift(before, clear).processes == 6
    unclear = [-0.05, 0.0, 0.05, 0.1, 0.0, 0.02] + [0.0] * 6
    assert two_look_shift(before, unclear).processes == 12


def test_the_margin_is_that_of_a_quiet_machine_unless_halves_of_a_baseline_differ():
    quiet = [[0.001 * (i % 3) for i in range(12)]] * 20
    assert margin_from_halves(quiet) == 0.03
    shifted = [[0.05 * (i % 2) for i in range(12)]]
    assert margin_from_halves(quiet + shifted) == pytest.approx(math.expm1(0.10))
    assert margin_from_halves([]) == 0.03


def test_no_process_is_no_estimate():
    with pytest.raises(ValueError, match="at least one process each, got 0 and 1"):
        decide_shift([], [0.1])
