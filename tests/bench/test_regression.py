"""The check on planted changes: what must be found, what must not, and what it is called."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import date
from pathlib import Path

import planted
import pytest
from planted_states import NOISE, POLICY, from_noise, records, state, with_subject, without_subject

from bench.errors import NothingSelectedError
from bench.exact_gate import judge_values
from bench.kernel_state import locked_kernels
from bench.metrics import gated, metrics
from bench.outcome import SEVERITIES
from bench.policy import Override, Policy
from bench.regression import check
from bench.state import Subject

CELL = "online_softmax B1-H4-T128-d64-float32-fwd-full"
CONTROL = "sdpa_math B1-H4-T128-d64-float32-fwd-full"
TRIALS = 30
ROOT = Path(__file__).resolve().parents[2]
BASE = state()


def judged(after, before=BASE, policy=POLICY, **options):
    looks = after if isinstance(after, list) else [after]
    return check(before, looks, policy, **options)


def found(done, subject, metric):
    (one,) = [one for one in done.outcomes if (one.subject, one.metric) == (subject, metric)]
    return one


def label(trace):
    return f"{trace['cell'].split()[0]}-{'loaded' if trace['loaded'] else 'idle'}"


def test_an_unchanged_state_passes_and_everything_was_compared():
    done = judged(BASE)
    assert done.exit_code(strict=True) == 0
    assert set(done.counts) == {"SAME", "UNCHANGED"}
    assert done.counts["UNCHANGED"] == len(BASE.subjects), "every cell's time, the control's as well"
    exact = sum(len(one.values) + 1 for one in BASE.subjects.values())
    assert done.counts["SAME"] == exact


@pytest.mark.parametrize("trace", NOISE, ids=label)
def test_identical_code_on_recorded_noise_never_fails(trace):
    """30 of 30 checks of an unchanged tree, beside busy processes too."""
    rng = random.Random(0)
    codes = [check(*from_noise(trace, rng), POLICY).exit_code(strict=False) for _ in range(TRIALS)]
    assert codes == [0] * TRIALS


@pytest.mark.parametrize("trace", NOISE, ids=label)
def test_ten_percent_more_time_on_recorded_noise_is_found_and_confirmed(trace):
    rng = random.Random(0)
    caught = 0
    for _ in range(TRIALS):
        before, looks = from_noise(trace, rng, slower=1.10)
        done = check(before, looks, POLICY)
        one = found(done, CELL, "time")
        caught += done.exit_code(strict=False) == 3 and one.name == "REGRESSED" and "fresh processes say so" in one.text
    assert caught == TRIALS


@pytest.mark.parametrize(
    ("metric", "change"),
    [
        ("peak_bytes", lambda value: value + 1),
        ("output_bytes", lambda value: value + 1),
        ("out_max_abs", lambda value: 1.3 * value),
        ("out_rmse", lambda value: 1.3 * value),
        ("out_limit", lambda value: 1.3 * value),
        ("flop", lambda value: value - 1),
        ("attended_pairs", lambda value: value + 1),
    ],
)
def test_planted_growth_of_an_exact_number_is_found_in_every_cell(metric, change):
    for key, subject in BASE.subjects.items():
        done = judged(with_subject(BASE, key, values={metric: change(subject.values[metric])}))
        assert done.exit_code(strict=False) == 3
        (worse,) = done.severe("fail")
        assert (worse.subject, worse.metric) == (key, metric)


@pytest.mark.parametrize("metric", ["registers", "spill_bytes", "shared_bytes"])
def test_one_spilled_register_is_found_in_30_of_30_kernels(metric):
    """Of the kernels that are shipped, as the lock holds them."""
    kernels = locked_kernels(ROOT / "kernels.lock.json", "3.7.1")
    assert len(kernels) >= TRIALS and len({one.key for one in kernels}) == len(kernels)
    before = state(extra=kernels)
    for one in kernels[:TRIALS]:
        more = 4 if metric == "spill_bytes" else 1
        after = with_subject(before, one.key, values={metric: one.values[metric] + more})
        done = judged(after, before)
        (worse,) = done.severe("fail")
        assert (worse.subject, worse.metric, done.exit_code(strict=False)) == (one.key, metric, 3)
    zero = one.values[metric] == 0
    assert found(judged(after, before), one.key, metric).name == ("ROSE FROM ZERO" if zero else "REGRESSED")


def test_kernels_are_compared_wherever_triton_is_the_same():
    kernel = Subject("kernel", "k", values={"registers": 160, "spill_bytes": 0, "shared_bytes": 0})
    before, more = state(extra=[kernel]), replace(kernel, values={**kernel.values, "registers": 161})
    done = judged(state(extra=[more], torch_threads=7, cpu="Another CPU"), before)
    assert [(one.subject, one.metric) for one in done.severe("fail")] == [("kernel k", "registers")]
    other = judged(state(extra=[more], packages={"torch": "2.13.0+cpu", "triton": "9.9"}), before)
    (named,) = [one for one in other.outcomes if one.metric == "triton"]
    assert named.name == "NOT COMPARABLE" and "triton differs (9.9" in named.text
    assert not other.severe("fail")


def test_an_error_that_moves_by_a_fifth_is_tolerated_and_a_smaller_one_is_an_improvement():
    error = BASE.subjects[CELL].values["out_rmse"]
    assert (
        found(judged(with_subject(BASE, CELL, values={"out_rmse": 1.2 * error})), CELL, "out_rmse").name == "TOLERATED"
    )
    better = judged(with_subject(BASE, CELL, values={"out_rmse": 0.5 * error}))
    assert found(better, CELL, "out_rmse").name == "IMPROVED"
    assert better.exit_code(strict=True) == 0


@pytest.mark.parametrize(
    ("kind", "before", "after", "name", "code"),
    [
        ("cell", "ok", "incorrect", "REGRESSED", 3),
        ("cell", "ok", "unsupported", "REGRESSED", 3),
        ("cell", "verified", "timeout", "REGRESSED", 3),
        ("cell", "unsupported", "ok", "IMPROVED", 0),
        ("cell", "unsupported", "crashed", "CHANGED", 3),
        ("cell", "unsupported", "unavailable", "CHANGED", 4),
        ("cell", "ok", "verified", "CHANGED", 4),
        ("claim", "CONFIRMED", "REFUTED", "REGRESSED", 3),
        ("claim", "CONFIRMED", "INCONCLUSIVE", "CHANGED", 4),
        ("claim", "INCONCLUSIVE", "REFUTED", "CHANGED", 3),
        ("claim", "REFUTED", "CONFIRMED", "IMPROVED", 0),
    ],
)
def test_the_support_table_and_the_claims_are_gated(kind, before, after, name, code):
    subject = Subject(kind, "flex B1" if kind == "cell" else "score_memory", before)
    old = state(extra=[subject])
    done = judged(with_subject(old, subject.key, status=after), old)
    assert found(done, subject.key, "status").name == name
    assert done.exit_code(strict=True) == code


@pytest.mark.parametrize("status", ["incorrect", "crashed", "error", "timeout"])
def test_what_is_wrong_is_a_failure_on_other_libraries_and_in_a_new_cell_too(status):
    wrong = with_subject(state(packages={"torch": "2.14.0"}), CELL, status=status, reason="off by one")
    one = found(judged(wrong), CELL, "status")
    assert (one.name, one.severity) == ("REGRESSED", "fail")
    new = state(extra=[Subject("cell", "mine B1", status, reason="off by one")])
    one = found(judged(new), "mine B1", "")
    assert (one.name, one.severity, "off by one" in one.text) == ("NEW", "fail", True)
    assert found(judged(state(extra=[Subject("cell", "mine B1", "unsupported")])), "mine B1", "").severity == "note"


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_time_that_is_no_number_never_passes(side, value):
    ratios = BASE.subjects[CELL].log_ratios
    odd = with_subject(BASE, CELL, log_ratios=(value, *ratios[1:]))
    done = judged(BASE, odd) if side == "before" else judged(odd)
    assert (found(done, CELL, "time").name, done.exit_code(strict=False)) == ("NOT A NUMBER", 3)


def test_a_mutant_that_is_no_longer_caught_is_a_regression():
    old = state(extra=[Subject("mutants", "quick", values={"mutants_caught": 40, "mutants_missed": 0})])
    after = with_subject(old, "mutants quick", values={"mutants_caught": 39, "mutants_missed": 1})
    names = {one.metric: one.name for one in judged(after, old).severe("fail")}
    assert names == {"mutants_caught": "REGRESSED", "mutants_missed": "ROSE FROM ZERO"}


def test_another_operator_behind_a_cell_is_a_doubt():
    done = judged(with_subject(BASE, CELL, ran="aten::something_else"))
    assert found(done, CELL, "ran").severity == "doubt"
    assert (done.exit_code(strict=False), done.exit_code(strict=True)) == (0, 4)


@pytest.mark.parametrize(
    ("changes", "metric", "left"),
    [
        ({"cpu": "Another CPU"}, "time", {"flop", "peak_bytes", "out_rmse", "status"}),
        ({"cores": 4}, "time", {"flop", "peak_bytes", "out_rmse", "status"}),
        ({"packages": {"torch": "2.14.0"}}, "toolchain", {"flop", "attended_pairs"}),
        ({"torch_threads": 1}, "toolchain", {"flop", "attended_pairs"}),
    ],
)
def test_what_differs_is_named_and_what_does_not_depend_on_it_is_still_compared(changes, metric, left):
    done = judged(state(**changes))
    (field,) = changes
    named = [one for one in done.outcomes if one.name == "NOT COMPARABLE" and one.metric == metric]
    assert len(named) == 1 and f"{field if field != 'packages' else 'torch'} differs" in named[0].text
    compared = {one.metric for one in done.outcomes if one.name == "SAME"}
    assert left <= compared
    assert "time" not in compared and not [one for one in done.outcomes if one.name == "UNCHANGED"]
    assert done.exit_code(strict=True) == 4


def test_hosts_of_one_kind_share_a_baseline():
    assert judged(state(hostname="elsewhere", os="Linux 6.9")).exit_code(strict=True) == 0


def test_it_is_the_number_of_threads_that_counts_and_not_who_set_it():
    threads = planted.environment().variables | {"OMP_NUM_THREADS": "2"}
    assert judged(state(variables=threads)).exit_code(strict=True) == 0
    assert judged(state(variables=threads, torch_threads=7)).exit_code(strict=True) == 4
    assert judged(state(variables={"OMP_PROC_BIND": "close"})).exit_code(strict=True) == 4


def test_a_slower_control_is_noticed_by_the_second_control():
    ratios = {key: one.log_ratios for key, one in BASE.subjects.items() if key.split()[1] == CELL.split()[1]}
    after = BASE
    for key, values in ratios.items():  # the control takes 20 % longer: all others seem faster, its own ratio grows
        shift = math.log(1.2) * (1 if key == CONTROL else -1)
        after = with_subject(after, key, log_ratios=tuple(value + shift for value in values))
    done = judged([after] * 2)
    assert found(done, CONTROL, "time").name == "REGRESSED"
    assert BASE.subjects[CONTROL].control == "naive"
    assert found(done, CELL, "time").name == "IMPROVED"


def test_a_change_that_fresh_processes_do_not_find_again_is_no_regression():
    slow = with_subject(BASE, CELL, log_ratios=tuple(v + 0.2 for v in BASE.subjects[CELL].log_ratios))
    done = judged([slow, BASE])
    one = found(done, CELL, "time")
    assert (one.name, done.exit_code(strict=False), done.exit_code(strict=True)) == ("NOT CONFIRMED", 0, 4)
    assert "fresh processes say unchanged" in one.text


def test_a_stored_run_alone_fails_unconfirmed_and_says_so():
    slow = with_subject(BASE, CELL, log_ratios=tuple(v + 0.2 for v in BASE.subjects[CELL].log_ratios))
    done = judged(slow)
    assert done.exit_code(strict=False) == 3
    assert "not confirmed by fresh processes yet" in found(done, CELL, "time").text
    assert done.unsettled == (CELL,)


def test_an_unclear_cell_gets_further_processes_and_then_an_answer():
    ratios = BASE.subjects[CELL].log_ratios
    wide = tuple(v + step for v, step in zip(ratios[:6], (-0.09, -0.06, 0.0, 0.0, 0.06, 0.09), strict=True))
    first = with_subject(BASE, CELL, log_ratios=wide)
    assert found(judged(first), CELL, "time").name == "UNCLEAR"
    assert judged(first).unsettled == (CELL,)
    again = with_subject(BASE, CELL, log_ratios=ratios[6:])
    assert found(judged([first, again]), CELL, "time").name in ("UNCHANGED", "UNCLEAR")
    assert judged([first, again]).unsettled == (), "twelve are all that one decision may have"


def test_few_processes_are_no_verdict_but_a_named_doubt():
    done = judged(state(records(processes=1)))
    few = found(done, f"{len(BASE.subjects)} cells", "time")
    assert (few.name, few.count, done.exit_code(strict=True)) == ("TOO FEW PROCESSES", len(BASE.subjects), 4)


def test_a_cell_without_a_control_says_so():
    done = judged(state(records(names=("online_softmax", "sdpa_flash"))))
    one = found(done, CELL, "time")
    assert one.name == "NO CONTROL" and "none of the controls sdpa_math, naive" in one.text
    assert found(done, CONTROL, "").name == "MISSING"


def test_a_baseline_without_times_says_so_unless_none_are_asked_for():
    old = state(timed=False)
    done = judged(BASE, old)
    assert found(done, "all cells", "time").name == "NOT COMPARABLE"
    assert done.exit_code(strict=True) == 4
    assert judged(state(timed=False), old, exact=True).exit_code(strict=True) == 0


def override(**fields):
    return Override(**({"reason": "a reason of some length", "expires": date(2099, 1, 1)} | fields))


def test_overrides_tolerate_raise_the_margin_waive_and_are_named_where_they_fit_nothing():
    peak = BASE.subjects[CELL].values["peak_bytes"]
    after = with_subject(BASE, CELL, values={"peak_bytes": peak + 100})
    for fields, name in (
        ({"tolerance": 0.5}, "TOLERATED"),
        ({"floor": 100}, "TOLERATED"),
        ({"floor": 99}, "REGRESSED"),
        ({"ignore": True}, "WAIVED"),
        ({"ignore": True, "cell": "^naive "}, "REGRESSED"),
    ):
        policy = Policy(override=(override(metric="peak_bytes", **fields),))
        assert found(judged(after, policy=policy), CELL, "peak_bytes").name == name, fields
    slow = with_subject(BASE, CELL, log_ratios=tuple(v + 0.2 for v in BASE.subjects[CELL].log_ratios))
    policy = Policy(override=(override(metric="time", tolerance=0.3),))
    assert found(judged(slow, policy=policy), CELL, "time").name == "UNCHANGED"
    assert found(judged(BASE, policy=Policy(override=(override(tolerance=0.0),))), CELL, "time").name == "UNCHANGED", (
        "no override takes a time's margin below that of the machine"
    )
    policy = Policy(override=(override(metric="peek_bytes", ignore=True),))
    (idle,) = [one for one in judged(BASE, policy=policy).outcomes if one.metric == "override"]
    assert idle.name == "IDLE OVERRIDE" and "a reason of some length" in idle.subject


def test_every_gated_metric_has_a_direction_and_every_outcome_a_severity():
    assert len(gated()) >= 15
    for name, metric in gated().items():
        assert metric.gate is not None and metric.better in ("higher", "lower", "same"), name
        worse = {"lower": (1, 2), "higher": (2, 1), "same": (1, 2)}[metric.better]
        assert judge_values(metric, *worse)[0] in ("REGRESSED", "CHANGED"), name
    assert {"fail", "doubt", "note", None} == set(SEVERITIES.values())


def test_rates_that_follow_the_clock_are_not_gated():
    assert metrics.get("tflops").gate is None


def test_an_empty_selection_is_an_error():
    with pytest.raises(NothingSelectedError, match="nothing in the baseline"):
        judged(BASE, takes=lambda key: False)
    with pytest.raises(NothingSelectedError, match="nothing in the candidate"):
        judged(replace(BASE, subjects={}))


def test_a_candidate_of_other_cells_compares_nothing_and_does_not_pass():
    done = judged(state(records(lengths=(512,))))
    assert done.compared == 0
    assert done.exit_code(strict=False) == 5


def test_a_check_of_which_everything_is_waived_has_compared_nothing():
    everything = Policy(override=(override(ignore=True),))
    done = judged(state(records(lengths=(512,))), policy=everything)
    assert done.counts["WAIVED"] == done.counts.total() > 0
    assert (done.compared, done.exit_code(strict=False)) == (0, 5)


def test_missing_and_new_subjects_are_as_grave_as_the_policy_says():
    less = without_subject(BASE, CELL)
    for severity, code in (("fail", 3), ("doubt", 0), ("note", 0)):
        assert judged(less, policy=Policy(missing=severity)).exit_code(strict=False) == code
    for severity, code in (("fail", 3), ("note", 0)):
        assert judged(BASE, less, policy=Policy(new=severity)).exit_code(strict=False) == code


def test_p_values_are_adjusted_for_all_cells():
    values = [one.p_value for one in judged(BASE).outcomes if one.metric == "time"]
    assert len(values) == len(BASE.subjects) and set(values) == {1.0}


def test_impossible_controls_are_passed_over():
    cells = records(lengths=(128,))
    doubted = planted.record("sdpa_math", 128, processes=12, rounds=10, flags=[("impossible", "too fast")])
    cells = [doubted if one.implementation == "sdpa_math" else one for one in cells]
    assert state(cells).subjects[CELL].control == "naive"
