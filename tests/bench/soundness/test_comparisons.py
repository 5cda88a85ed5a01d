"""Judges of the experiments on comparisons: each can say met and missed, from planted observations."""

from __future__ import annotations

import json
import math
import random

import pytest

from bench.implementation import implementations, untimed
from bench.soundness import Context, experiments
from bench.soundness._batches import PROBLEMS, gate_cells, observe_pairs
from bench.soundness._rivals import RIVALS, judged
from bench.soundness.e01_identical_code import BATCHES, IdenticalCode
from bench.soundness.e02_whole_suite import WholeSuite
from bench.soundness.e03_power import EVERY, Power
from bench.soundness.e04_sensitivity import Sensitivity
from bench.soundness.e10_order import Order
from bench.soundness.e14_allocator import Allocator


def test_batches_compare_only_what_is_timed():
    cells = [cell for problem in range(PROBLEMS) for cell in gate_cells(problem)]
    assert {"naive", "sdpa_flash"} <= {name for _, name in cells}
    assert not any(untimed(implementations.get(name), problem, "cpu") for problem, name in cells)


def kept(percent=0.0, spread=0.2, processes=6, confirmation=None, seed=0):
    rng = random.Random(seed)

    def draw(count):
        return [math.log1p((percent + rng.uniform(-spread, spread)) / 100) for _ in range(count)]

    blocks = [1000.0 + rng.uniform(-5, 5) for _ in range(30)]
    slower = [x * (1 + percent / 100) for x in blocks]
    arms = {
        "a": {"mean_ns": 1000.0, "min_ns": 995.0, "blocks_ns": blocks},
        "b": {"mean_ns": 1000.0 * (1 + percent / 100), "min_ns": 995.0 * (1 + percent / 100), "blocks_ns": slower},
    }
    again = [] if confirmation is None else [math.log1p(confirmation / 100)] * 6
    return {"error": None, "estimates": draw(processes), "confirmation": again, "arms": [arms, arms]}


def observation(pairs, loaded=False, margin=0.03, looks=(6, 12)):
    return {"loaded": loaded, "margin": margin, "looks": list(looks), "pairs": pairs}


def batches(flagged=0, confirmed_too=False):
    """Thirty batches of five problems of four cells; ``flagged`` of them came out 9 % slower."""
    seen = {}
    left = flagged
    for batch in range(BATCHES):
        for problem in range(PROBLEMS):
            pairs = {}
            for cell in range(4):
                alarm, left = left > 0, left - 1
                again = (9 if confirmed_too else 0) if alarm else None
                pairs[f"cell-{cell}"] = kept(9 if alarm else 0, seed=batch, confirmation=again)
            seen[f"batch-{batch:02d}/problem-{problem}"] = observation(pairs, loaded=batch % 2 == 1)
    return seen


@pytest.mark.parametrize(
    ("flagged", "confirmed_too", "met"), [(0, False, True), (1, False, True), (1, True, False), (2, False, False)]
)
def test_e01_counts_false_alarms_before_and_after_confirmation(flagged, confirmed_too, met):
    finding = IdenticalCode().judge(batches(flagged, confirmed_too))
    assert finding.met is met
    assert f"{flagged} of 600" in finding.found
    by_rule = {row["rule"]: row for row in finding.rows}
    assert by_rule["this harness, before confirmation"]["flagged"] == flagged
    assert by_rule["this harness, confirmed by fresh processes"]["flagged"] == (flagged if confirmed_too else 0)
    assert by_rule["this harness, idle"]["verdicts"] == by_rule["this harness, under load"]["verdicts"] == 300
    assert set(RIVALS) <= set(by_rule)


def test_e01_bound_is_exact_and_too_few_verdicts_decide_nothing_good():
    few = {"batch-00/problem-0": observation({"a": kept()})}
    finding = IdenticalCode().judge(few)
    assert finding.met is None
    assert finding.rows[0]["upper_bound_percent"] == pytest.approx(95.0)
    assert IdenticalCode().judge({}).met is None
    alarms = {"batch-00/problem-0": observation({"a": kept(9, confirmation=9)})}
    assert IdenticalCode().judge(alarms).met is False
    none_of_600 = IdenticalCode().judge(batches()).rows[0]["upper_bound_percent"]
    assert none_of_600 == pytest.approx(100 * (1 - 0.05 ** (1 / 600)), abs=0.01)


def test_e01_leaves_pairs_that_failed_out_of_the_count():
    seen = {"batch-00/problem-0": observation({"a": kept(), "b": {"error": "died"}})}
    assert "0 of 1 verdicts" in IdenticalCode().judge(seen).found


@pytest.mark.parametrize(("flagged", "confirmed_too", "met"), [(0, False, True), (3, False, True), (1, True, False)])
def test_e02_fails_a_suite_only_for_a_confirmed_alarm(flagged, confirmed_too, met):
    finding = WholeSuite().judge(batches(flagged, confirmed_too))
    assert finding.met is met
    assert "of 30 suites" in finding.found


def test_e02_needs_whole_batches():
    part = {"batch-00/problem-0": observation({"a": kept()})}
    assert WholeSuite().judge(part).met is None
    assert WholeSuite().units(quick=False) == []


def power(found, kind="short"):
    """Sixty verdicts per size; ``found`` maps a size to the percentage that was measured."""
    return {
        f"{kind}-{repeat:02d}": observation(
            {f"+{size} % cell-{cell}": kept(found(size), seed=repeat) for size in EVERY for cell in range(4)},
            loaded=repeat % 2 == 1,
        )
        for repeat in range(15)
    }


def test_e03_is_met_where_the_injected_size_is_found():
    finding = Power().judge(power(lambda size: 100 / EVERY[size]))
    assert finding.met is True
    assert [row["verdicts"] for row in finding.rows] == [60] * 4
    assert all(abs(row["median_estimate_off_points"]) < 0.2 for row in finding.rows)
    assert all(set(RIVALS) <= set(row) for row in finding.rows)


@pytest.mark.parametrize(
    "found",
    [
        lambda size: 0.0,  # nothing is found
        lambda size: -100 / EVERY[size],  # the baseline and the candidate are swapped
        lambda size: 100 / EVERY[size] + 1.5,  # found, but the size is wrong
    ],
)
def test_e03_is_missed_where_it_is_not(found):
    assert Power().judge(power(found)).met is False


def test_e03_shows_long_blocks_and_holds_no_target_against_them():
    found, missed = power(lambda size: 100 / EVERY[size]), power(lambda size: 0.0, kind="repeat")
    finding = Power().judge(found | missed)
    assert finding.met is True
    assert [row["regressed_percent"] for row in finding.rows] == [0, 100, 100, 100, 0, 0, 0, 0]
    assert {row["blocks"] for row in finding.rows[4:]} == {"4 ms and more, no target"}
    assert Power().judge(missed).met is None
    assert {unit.split("-")[0] for unit in Power().units(quick=False)} == {"short", "repeat"}


def test_e03_needs_sixty_verdicts_of_each_size():
    few = dict(list(power(lambda size: 100 / EVERY[size]).items())[:14])
    assert Power().judge(few).met is None


@pytest.mark.parametrize(("more", "same_", "met"), [(3.0, 0.0, True), (3.0, 2.0, False), (0.0, 0.0, False)])
def test_e04_weighs_power_against_false_alarms(more, same_, met):
    seen = {
        f"repeat-{i}": observation(
            {"+3 % a": kept(more, processes=24, seed=i), "a": kept(same_, processes=24, seed=i)},
            margin=0.01,
            looks=(24,),
        )
        for i in range(6)
    }
    assert Sensitivity().judge(seen).met is met


@pytest.mark.parametrize(("bias", "met"), [(0.0, True), (0.006, False)])
def test_e10_sees_a_bias_of_the_order(bias, met):
    estimates = {"cell": [bias] * 6}
    seen = {
        f"problem-{i}": {
            "random": estimates,
            "fixed": {"cell": [0.02] * 6},
            "random_isolated": {"cell": [0.01] * 6},
            "fixed_isolated": {"cell": [0.01] * 6},
        }
        for i in range(4)
    }
    finding = Order().judge(seen)
    assert finding.met is met
    assert finding.rows[1]["median_bias_percent"] == 2.0


def test_e14_states_the_ratio_of_the_settings():
    seen = {"T4096/naive": {"estimates": [math.log(2.2)] * 6, "warm_ms": 170.0, "default_ms": 374.0}}
    assert "T4096/naive takes 2.20x" in Allocator().judge(seen).found


def test_rules_of_others_see_what_they_are_made_to_see():
    assert set(judged(kept(20)).values()) == {1}
    assert set(judged(kept(-20)).values()) == {-1}
    assert judged(kept(0))["pytest-benchmark mean:5%"] == 0
    assert judged({"arms": []}) == {}


def test_units_of_quick_are_units_of_the_full_run_and_are_named_once():
    for _, member in experiments.items():
        full = member().units(quick=False)
        assert len(full) == len(set(full))
        assert set(member().units(quick=True)) <= set(full)
        assert full or member.reads != member.name


def test_cells_are_those_of_the_sweep_and_few_enough():
    cells = [cell for problem in range(PROBLEMS) for cell in gate_cells(problem)]
    assert 16 <= len(cells) == len(set(cells)) <= 20


def test_an_observation_is_json_and_holds_what_the_rules_need(tmp_path):
    from bench.case import same
    from bench.problem import Problem
    from bench.timing import SamplingPlan

    plan = SamplingPlan(warmup_ns=0, budget_ns=0, min_rounds=12, max_rounds=12, isolated_blocks=2)
    seen = observe_pairs(
        [same(Problem(seqlen=32, num_heads=1), "naive")],
        Context(tmp_path, print),
        seed=1,
        loaded=False,
        plan=plan,
        looks=(2,),
    )
    (pair,) = json.loads(json.dumps(seen))["pairs"].values()
    assert len(pair["estimates"]) == len(pair["arms"]) == 2
    assert set(judged(pair)) == set(RIVALS)
