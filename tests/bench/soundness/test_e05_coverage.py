import numpy as np
import pytest

from bench.soundness.e05_coverage import CHUNKS, KINDS, Coverage, draw, simulate
from bench.verdicts import interval_ranks


def counts(**changes):
    nominal = {
        "comparisons": 20000,
        "ratio, 6 processes": 19375,
        "ratio, 12 processes": 19873,
        "latency, 6 processes": 19375,
        "latency, 12 processes": 19229,
        "REGRESSED": 340,
        "UNCHANGED": 340,
        "flagged": 0,
    }
    return nominal | changes


def judged(**changes):
    return Coverage().judge({f"{kind}/0": counts(**(changes if kind == "drift" else {})) for kind in KINDS})


def test_nominal_coverage_meets_the_target():
    finding = judged()
    assert finding.met is True
    assert [row["noise"] for row in finding.rows] == list(KINDS)


@pytest.mark.parametrize(
    "changes",
    [
        {"ratio, 6 processes": 18900},
        {"ratio, 12 processes": 19500},
        {"latency, 12 processes": 19700},
        {"REGRESSED": 600},
        {"UNCHANGED": 600},
    ],
)
def test_one_kind_of_noise_off_target_is_enough_to_miss_it(changes):
    assert judged(**changes).met is False


def test_too_little_says_nothing():
    assert Coverage().judge({}).met is None
    assert Coverage().judge({"drift/0": counts()}).met is None
    few = {f"{kind}/0": {name: value // 40 for name, value in counts().items()} for kind in KINDS}
    assert Coverage().judge(few).met is None


def test_chunks_of_a_kind_add_up():
    finding = Coverage().judge({f"{kind}/{chunk}": counts() for kind in KINDS for chunk in range(2)})
    assert {row["comparisons"] for row in finding.rows} == {40000}


def test_quick_units_are_units_of_the_whole():
    assert set(Coverage().units(True)) < set(Coverage().units(False))
    assert len(Coverage().units(False)) == len(KINDS) * CHUNKS


def test_a_unit_is_the_same_every_time_and_differs_from_the_next():
    assert simulate("cauchy/0", 50) == simulate("cauchy/0", 50)
    assert simulate("cauchy/0", 50) != simulate("cauchy/1", 50)


@pytest.mark.parametrize("kind", KINDS)
def test_both_arms_are_alike_but_for_the_margin(kind):
    a, b, latencies, median = draw(kind, np.random.default_rng(0), (200, 12))
    assert a.shape == b.shape == (200, 12, 60) and latencies.shape == (200, 12)
    assert np.median(np.log(b / a)) == pytest.approx(np.log(1.03), abs=0.004)
    assert np.median(latencies) == pytest.approx(median, rel=0.05)


def test_every_round_in_the_same_order_on_a_drifting_machine_would_be_found_out(monkeypatch):
    # A machine that only ever slows down: whoever comes second looks slower, unless the order is random.
    from bench.soundness import e05_coverage

    steps = np.exp(np.linspace(0, 6, 120))
    monkeypatch.setattr(
        e05_coverage,
        "_blocks",
        lambda kind, rng, shape: np.broadcast_to(steps, shape) * np.exp(0.01 * rng.standard_normal(shape)),
    )
    held = {shuffled: simulate("drift/0", 100, shuffled)["ratio, 12 processes"] for shuffled in (True, False)}
    assert held[True] >= 95 and held[False] < 50


def test_nominal_is_what_the_decision_rule_claims():
    assert [round(interval_ranks(count)[1], 4) for count in (6, 12)] == [0.9688, 0.9937]


def test_an_unknown_noise_is_refused():
    with pytest.raises(ValueError, match="kind must be one of"):
        simulate("pink/0", 10)
