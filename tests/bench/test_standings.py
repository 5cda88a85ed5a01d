from __future__ import annotations

import random

import planted
import pytest

from bench.analysis import latency_summary
from bench.errors import NothingSelectedError, UsageError
from bench.record import Record
from bench.standings import rank


def cells(length: int, **milliseconds: float) -> list[Record]:
    return [planted.record(name, length, ms, noise=0) for name, ms in milliseconds.items()]


def test_standings_are_geometric_means_over_the_fastest_of_each_cell() -> None:
    first, second = rank([planted.run([*cells(128, a=1.0, b=4.0), *cells(256, a=1.0, b=1.0)])])
    assert (first.implementation, first.ratio, first.cells, first.wins) == ("a", 1.0, 2, 1)
    assert (second.implementation, second.ratio, second.wins) == ("b", pytest.approx(2.0), 0)


def test_standings_are_paired_so_that_drift_the_rounds_share_cancels() -> None:
    """The machine slows down tenfold for most rounds of one and, by the order of blocks, for fewer of the other."""
    drift = random.Random(1)
    speeds = [drift.choice((1, 1, 10)) for _ in range(61)]
    a = planted.record("a", 128, measured={"samples_ns": [1000 * s for s in speeds], "processes": (0,) * 61})
    b = planted.record("b", 128, measured={"samples_ns": [1100 * s for s in speeds], "processes": (0,) * 61})
    b_first, a_second = rank([planted.run([b, a])])[::-1]
    assert (b_first.implementation, b_first.ratio) == ("b", pytest.approx(1.1))
    assert (a_second.ratio, a_second.wins) == (1.0, 1)


def test_the_order_within_rounds_decides_where_medians_say_otherwise() -> None:
    a = planted.record("a", 128, measured={"samples_ns": (10,) * 5 + (100,) * 4, "processes": (0,) * 9})
    b = planted.record("b", 128, measured={"samples_ns": (9,) * 4 + (11,) + (90,) * 4, "processes": (0,) * 9})
    assert a.measurement and b.measurement
    assert latency_summary(a.measurement).median_ms < latency_summary(b.measurement).median_ms
    first, second = rank([planted.run([a, b])])
    assert (first.implementation, first.ratio) == ("b", 1.0) and second.ratio == pytest.approx(10 / 9)
    assert (first.wins, second.wins) == (1, 0)


def test_nobody_wins_a_cell_that_is_not_clear_or_not_paired() -> None:
    noisy = [planted.record(name, 128, 10.0, noise=0.3) for name in "ab"]
    unpaired = [planted.record("a", 256, 1.0, rounds=7), planted.record("b", 256, 2.0, rounds=8, noise=0)]
    standings = rank([planted.run([*noisy, *unpaired])])
    assert [standing.wins for standing in standings] == [0, 0] and standings[0].cells == 2


@pytest.mark.parametrize("flag", ["unstable", "contended", "interference", "not_steady", "throttled", "order_effect"])
def test_only_impossible_cells_leave_the_ranking(flag: str) -> None:
    doubted = planted.record("a", 256, 0.5, noise=0, flags=[(flag, "planted")])
    magic = planted.record("a", 512, 1e-6, noise=0, flags=[("impossible", "planted")])
    rest = [*cells(128, a=1.0, b=2.0), *cells(256, b=1.0), *cells(512, b=1.0)]
    standings = rank([planted.run([doubted, magic, *rest])])
    assert [(standing.implementation, standing.cells) for standing in standings] == [("a", 2), ("b", 2)]
    assert standings[1].ratio == pytest.approx(2.0)
    with pytest.raises(NothingSelectedError, match="leader board must have cells"):
        rank([planted.run([magic])])


def test_runs_are_never_mixed_in_one_cell() -> None:
    runs = [planted.run(cells(128, a=1.0, b=2.0), run_id="x"), planted.run(cells(128, a=100.0, b=50.0), run_id="y")]
    assert [standing.ratio for standing in rank(runs)] == [pytest.approx(2**0.5)] * 2


def test_losses_are_clear_and_the_rest_is_undecided() -> None:
    noisy = [planted.record(name, 256, 10.0, noise=0.3) for name in "abc"]
    first, second, third = rank([planted.run([*cells(128, a=1.0, b=2.0, c=3.0), *noisy])])
    assert first.implementation == "a" and (first.wins, first.losses) == (1, 0)
    assert (second.wins, second.losses, third.wins, third.losses) == (0, 1, 0, 1)
    assert first.cells - first.wins - first.losses == 1


def test_speed_over_the_best_of_the_others_and_of_the_baselines() -> None:
    run = planted.run([*cells(128, new=1.0, math=2.0, naive=4.0), *cells(256, new=2.0, math=8.0, naive=4.0)])
    standings = {one.implementation: one for one in rank([run], baselines=("math", "naive"))}
    assert standings["new"].over_best_other == pytest.approx(2.0)  # 2 over math, then 2 over naive
    assert standings["new"].over_best_baseline == pytest.approx(2.0)
    assert standings["math"].over_best_other == pytest.approx((1 / 2 * 2 / 8) ** 0.5)
    assert standings["math"].over_best_baseline == pytest.approx((1 * 1 / 2) ** 0.5)
    assert standings["naive"].over_best_baseline == pytest.approx((1 / 2 * 1) ** 0.5)
    assert all(one.over_best_baseline is None for one in rank([run]))
    (alone,) = rank([planted.run(cells(128, a=1.0))])
    assert alone.over_best_other is None and alone.ratio == 1.0


def test_a_baseline_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(UsageError, match="baseline must be one of a, got 'z'"):
        rank([planted.run(cells(128, a=1.0))], baselines=("a", "z"))
