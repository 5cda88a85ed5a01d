import os
from pathlib import Path

import pytest

from bench.case import Arm, Pair
from bench.claims import Case, Needs, Scope
from bench.errors import BenchError, NothingSelectedError
from bench.evidence import Evidence
from bench.inquiry import Inquiry, demonstration_inquiry, pair_inquiry, pursue
from bench.problem import Problem
from bench.proof import chosen_claims, claims_request, joint_needs

PROBLEM = Problem(seqlen=32, num_heads=1)
ROWS = [{"x": 1}]


def inquiry(name, answer=ROWS, arms=(), quick=False):
    def carry_out(folder):
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Inquiry("demonstration", name, carry_out, arms, quick)


@pytest.fixture
def pursued(tmp_path):
    def carry_out(inquiries, earlier=(), stopped=lambda: False, status=lambda arm: "ok"):
        written = []
        pursue(inquiries, earlier, tmp_path, status, stopped, written.append, lambda text: None)
        return {one.name: one for one in written}

    return carry_out


def test_every_inquiry_gives_one_line_and_a_failure_costs_only_itself(pursued):
    found = pursued([inquiry("bad", RuntimeError("broken")), inquiry("empty", []), inquiry("good")])
    assert found["good"].rows == ({"x": 1},)
    assert found["bad"].reason == "RuntimeError: broken"
    assert found["empty"].reason == "it gave no rows"


def test_what_an_earlier_run_answered_is_taken_over_and_what_failed_is_tried_again(pursued):
    earlier = [
        Evidence(kind="demonstration", name="a", rows=({"x": 7},), seconds=1),
        Evidence(kind="demonstration", name="b", rows=None, reason="died", seconds=1),
    ]
    found = pursued([inquiry("a"), inquiry("b")], earlier)
    assert found["a"].rows == ({"x": 7},)
    assert found["b"].rows == ({"x": 1},)


@pytest.mark.parametrize(
    ("stored", "asked", "taken"), [(True, False, 1), (True, True, 7), (False, True, 7), (False, False, 7)]
)
def test_a_part_of_the_rows_is_never_taken_for_the_whole(pursued, stored, asked, taken):
    earlier = [Evidence(kind="demonstration", name="a", rows=({"x": 7},), seconds=1, quick=stored)]
    found = pursued([inquiry("a", quick=asked)], earlier)["a"]
    assert found.rows == ({"x": taken},)
    assert found.quick == (stored if taken == 7 else asked)


def test_an_arm_that_was_found_wrong_since_takes_what_was_known_with_it(pursued):
    arm = Arm(PROBLEM, "naive")
    known = Evidence(kind="demonstration", name="a", rows=({"x": 7},), seconds=1)
    assert pursued([inquiry("a", arms=(arm, arm))], [known], status=lambda arm: "incorrect")["a"].rows is None
    assert pursued([inquiry("a", arms=(arm, arm))], [known], status=lambda arm: "not measured")["a"].rows == ({"x": 7},)


def test_nothing_is_started_after_a_stop_and_what_is_known_is_still_written(pursued):
    known = Evidence(kind="demonstration", name="a", rows=({"x": 7},), seconds=1)
    assert set(pursued([inquiry("a"), inquiry("b")], [known], stopped=lambda: True)) == {"a"}


@pytest.mark.parametrize("status", ["incorrect", "not measured", "crashed"])
def test_arms_that_were_not_shown_to_be_right_are_not_timed(pursued, status):
    arm = Arm(PROBLEM, "naive")
    found = pursued([inquiry("a", arms=(arm, arm))], status=lambda arm: status)
    assert found["a"].rows is None
    assert f"naive is {status} on {PROBLEM.key}" in found["a"].reason


def test_a_pair_is_measured_in_six_processes_at_least(tmp_path):
    arm = Arm(PROBLEM, "naive")
    rows = pair_inquiry(Pair("same", arm, arm), "cpu", "warm").carry_out(tmp_path)
    assert len(rows) in (6, 12)
    assert {"log_ratio", "a_ms", "rounds"} == set(rows[0])
    with pytest.raises(BenchError):
        pair_inquiry(Pair("gpu", Arm(PROBLEM, "sdpa_cudnn"), arm), "cpu", "warm").carry_out(tmp_path)


def test_a_pair_of_what_is_never_timed_here_is_a_reason_though_its_cells_are_verified(pursued):
    faulty = Path(__file__).parents[1] / "plugins" / "faulty.py"
    pair = Pair("emulated", Arm(PROBLEM, "naive"), Arm(PROBLEM, "stands_in"))
    found = pursued([pair_inquiry(pair, "cpu", "warm", (faulty,))], status=lambda arm: "verified")["emulated"]
    assert found.rows is None
    assert "stands_in is not timed here: it runs in an emulator" in found.reason


class Planted:
    name, order, statement, rule = "planted", 1, "s", "r"

    def __init__(self, needs):
        self._needs = needs

    def needs(self, scope):
        return self._needs


def test_needs_are_joined_and_arms_of_pairs_are_verified():
    pair = Pair("p", Arm(PROBLEM, "naive"), Arm(PROBLEM, "sdpa_math"))
    first = Planted(Needs(cases=(Case(PROBLEM, "naive", timed=False),), pairs=(pair,), demonstrations=("x",)))
    second = Planted(Needs(cases=(Case(PROBLEM, "naive"),), pairs=(pair,), demonstrations=("x", "y")))
    joined = joint_needs([first, second], Scope())
    assert {(case.implementation, case.timed) for case in joined.cases} == {("naive", True), ("sdpa_math", False)}
    assert joined.pairs == (pair,)
    assert joined.demonstrations == ("x", "y")


def test_a_filter_that_leaves_no_claim_is_refused():
    with pytest.raises(NothingSelectedError, match="claim filter must leave at least one"):
        chosen_claims(["no such claim"])


def test_every_claim_can_say_what_it_needs_and_the_request_plans_exactly_that(tmp_path):
    for quick in (True, False):
        request = claims_request((), quick=quick, command="c", output=tmp_path)
        sweep = request.sweep("cpu")
        assert sweep.cases
        assert {problem for problem, _ in sweep.problems} == {case.problem for case in sweep.cases}
        names = [(one.kind, one.name) for one in request.inquiries("cpu")]
        assert len(set(names)) == len(names)


def test_a_demonstration_runs_in_a_fresh_process_and_knows_loaded_files(tmp_path):
    own = tmp_path / "own_demonstration.py"
    own.write_text(
        "from bench.demonstrations import demonstrations\n"
        "@demonstrations.register('own_demonstration')\n"
        "def own(quick):\n"
        "    import os\n"
        "    return [{'pid': os.getpid(), 'quick': quick}]\n"
    )
    (row,) = demonstration_inquiry("own_demonstration", True, "warm", (own,)).carry_out(tmp_path)
    assert row["quick"] is True
    assert row["pid"] != os.getpid()
    with pytest.raises(BenchError):
        demonstration_inquiry("never_heard_of", True, "warm").carry_out(tmp_path)
