"""What holds for every claim."""

import time

import pytest
from planted import default_run, record, run

from bench.case import Arm, Pair
from bench.claims import Answer, Case, Hearing, Needs, Scope, claims, hear
from bench.demonstrations import demonstrations
from bench.evidence import Evidence
from bench.implementation import implementations, untimed
from bench.plots import Reading
from bench.problem import Problem

MEMBERS = [member() for _, member in claims.items()]
DEVICES = ("cpu", "cuda")


def with_evidence(*evidence):
    from dataclasses import replace

    return replace(run([]), evidence=evidence)


def pair_evidence(name="p", ratios=(0.1,) * 6, reason=None):
    rows = None if reason else tuple({"log_ratio": value, "a_ms": 1.0, "rounds": 20} for value in ratios)
    return Evidence(kind="pair", name=name, rows=rows, reason=reason, seconds=1.0)


@pytest.mark.parametrize("claim", MEMBERS, ids=lambda claim: claim.name)
class TestEveryClaim:
    def test_it_is_registered_under_its_name_and_speaks_in_sentences(self, claim):
        assert claims.get(claim.name) is type(claim)
        assert claim.statement.endswith(".")
        assert claim.rule.endswith(".")
        assert claim.order >= 1

    @pytest.mark.parametrize("device", DEVICES)
    @pytest.mark.parametrize("quick", [False, True])
    def test_what_it_needs_exists_and_quick_needs_no_more(self, claim, device, quick):
        needs = claim.needs(Scope(device, quick))
        names = {case.implementation for case in needs.cases}
        names |= {arm.implementation for pair in needs.pairs for arm in (pair.a, pair.b)}
        assert names <= set(implementations.names())
        timed = {case.implementation for case in needs.cases if case.timed}
        timed |= {arm.implementation for pair in needs.pairs for arm in (pair.a, pair.b)}
        small = Problem(seqlen=8)
        assert not any(untimed(implementations.get(name), small, device) for name in timed)
        assert set(needs.demonstrations) <= set(demonstrations.names())
        assert len({pair.name for pair in needs.pairs}) == len(needs.pairs)
        if quick:
            whole = claim.needs(Scope(device, False))
            assert len(needs.cases) <= len(whole.cases)
            assert len(needs.pairs) <= len(whole.pairs)

    def test_it_says_nothing_without_rows(self, claim):
        hearing = Hearing(Reading([run([])]))
        assert claim.judge(hearing) == []
        assert claim.draw(hearing, []) == []

    def test_it_judges_and_draws_the_rows_of_another_sweep_quickly(self, claim):
        reading = Reading([default_run()])
        hear([default_run()], reading)  # fits are computed once and kept
        began = time.process_time()
        answers = claim.judge(Hearing(reading))
        assert time.process_time() - began < 2
        assert all(answer.found for answer in answers)
        for drawing in claim.draw(Hearing(reading), answers):
            assert drawing.caption
            assert drawing.alt

    def test_every_verdict_names_its_rows(self, claim):
        for answer in claim.judge(Hearing(Reading([default_run()]))):
            assert answer.rows, answer
            assert answer.reason


def test_the_orders_are_all_different():
    assert len({claim.order for claim in MEMBERS}) == len(MEMBERS)


def test_a_claim_without_rows_is_inconclusive_and_says_what_to_do():
    judged = hear([run([])])
    assert {one.verdict for one in judged} == {"INCONCLUSIVE"}
    assert not any(one.heard for one in judged)
    assert f"attention-bench claims --only {judged[0].claim.name}" in judged[0].answers[0].reason


def test_a_pair_is_judged_over_its_processes_and_one_that_failed_is_none():
    hearing = Hearing(Reading([with_evidence(pair_evidence("good"), pair_evidence("bad", reason="died"))]))
    assert hearing.pair("good").ratio == pytest.approx(1.105, abs=0.001)
    assert hearing.pair("bad") is None
    assert hearing.pair("never asked for") is None


def test_a_failure_does_not_replace_rows_and_later_rows_replace_earlier_ones():
    first, later = with_evidence(pair_evidence()), with_evidence(pair_evidence(ratios=(0.2,) * 6))
    failed = with_evidence(pair_evidence(reason="died"))
    assert Hearing(Reading([first, later])).pair("p").ratio == pytest.approx(1.2214, abs=0.001)
    assert Hearing(Reading([first, failed])).pair("p").ratio == pytest.approx(1.105, abs=0.001)
    assert Hearing(Reading([failed, first])).pair("p").ratio == pytest.approx(1.105, abs=0.001)


class Planted:
    name, order, statement, rule = "planted", 99, "s.", "r."

    def needs(self, scope):
        problem = Problem(seqlen=16)
        pair = Pair("p", Arm(problem, "naive"), Arm(problem, "naive"))
        return Needs(cases=(Case(problem, "naive"),), pairs=(pair,), demonstrations=("unknown",))


def test_why_something_is_missing_is_said():
    hearing = Hearing(Reading([with_evidence(pair_evidence(reason="naive is incorrect on it"))]))
    assert hearing.missing(Planted()) == "p: naive is incorrect on it"
    assert Hearing(Reading([with_evidence(pair_evidence())])).missing(Planted()) == ""


def claims_run(cells=(), evidence=(), command="attention-bench claims"):
    from dataclasses import replace

    return replace(run(cells, header={"sweep": "claims", "command": command}), evidence=evidence)


class OfClaims(Planted):
    """Answers whatever there is."""

    def needs(self, scope):
        whole = super().needs(scope)
        return Needs(cases=whole.cases) if scope.quick else whole

    def judge(self, hearing):
        return [Answer("naive", "CONFIRMED", "f", "r", ("row",))]


def lacking(*runs):
    return [(one.found, one.reason) for one in Hearing(Reading(list(runs))).lacking(OfClaims())]


CELL = record("naive", 16)
SHOWN = Evidence(kind="demonstration", name="unknown", rows=({"a": 1},), seconds=1.0)


class TestRowsThatAClaimAsksFor:
    def test_a_whole_run_lacks_nothing(self):
        assert lacking(claims_run([CELL], (pair_evidence(), SHOWN))) == []
        assert lacking(claims_run([CELL], command="attention-bench claims --quick")) == []

    @pytest.mark.parametrize(
        ("cells", "evidence", "reason"),
        [
            ([CELL], (SHOWN,), "p (not measured)"),
            ([CELL], (pair_evidence(reason="died"), SHOWN), "p (died)"),
            ([CELL], (pair_evidence(),), "unknown (not measured)"),
            ([record("naive", 32)], (pair_evidence(), SHOWN), f"naive on {CELL.problem.key} (not measured)"),
            *(
                ([record("naive", 16, status=status)], (pair_evidence(), SHOWN), f"({status}: planted {status})")
                for status in ("incorrect", "out_of_memory", "timeout", "crashed", "error")
            ),
        ],
    )
    def test_each_missing_row_is_named(self, cells, evidence, reason):
        ((found, said),) = lacking(claims_run(cells, evidence))
        assert found == "1 of 3 are missing"
        assert said.endswith(reason)

    def test_what_cannot_be_computed_here_is_an_answer_and_absent_implementations_are_not_asked_for(self):
        refused = record("naive", 16, status="unsupported")
        assert lacking(claims_run([refused], (pair_evidence(), SHOWN))) == []
        assert lacking(claims_run([record("sdpa_flash", 16)], (SHOWN,))) == []

    def test_another_run_may_bring_them_and_other_sweeps_owe_nothing(self):
        assert lacking(claims_run(evidence=(SHOWN,)), claims_run([CELL], (pair_evidence(),))) == []
        assert lacking(run([CELL])) == []

    def test_they_keep_a_claim_from_being_confirmed(self, monkeypatch):
        monkeypatch.setattr(claims, "items", lambda: [("planted", OfClaims)])
        (judged,) = hear([claims_run([CELL])])
        assert [answer.verdict for answer in judged.answers] == ["CONFIRMED", "INCONCLUSIVE"]
        assert judged.verdict == "INCONCLUSIVE"
        (judged,) = hear([run([CELL])])
        assert judged.verdict == "CONFIRMED"
