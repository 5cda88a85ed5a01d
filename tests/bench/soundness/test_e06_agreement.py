import pytest

from bench.errors import Unavailable
from bench.soundness import e06_agreement
from bench.soundness.e06_agreement import CASES, RIVALS, Agreement, time_case
from bench.soundness.e12_cost import Cost


def observation(process, **ratios):
    ours = [1_000_000 + 1000 * ((7 * i + process) % 11) for i in range(30)]
    theirs = {rival: [round(ns * ratios.get(rival.split()[0], 1.0)) for ns in ours] for rival in RIVALS}
    return {"calls": 4, "ns": {"ours": ours, **theirs}}


def observations(processes=6, **ratios):
    return {f"{case}/{process}": observation(process, **ratios) for case in CASES for process in range(processes)}


def test_timers_that_agree_meet_the_target():
    finding = Agreement().judge(observations())
    assert finding.met is True
    assert len(finding.rows) == len(CASES) * len(RIVALS)
    assert {row["processes"] for row in finding.rows} == {6}


@pytest.mark.parametrize("rival", ["timeit", "torch", "pyperf"])
@pytest.mark.parametrize("ratio", [0.97, 1.03])
def test_one_timer_that_disagrees_is_enough_to_miss_it(rival, ratio):
    finding = Agreement().judge(observations(**{rival: ratio}))
    assert finding.met is False
    assert sum(not row["agrees"] for row in finding.rows) == len(CASES)


def test_processes_that_differ_too_much_are_no_agreement():
    spread = {f"{case}/{p}": observation(p, timeit=1 + 0.01 * (p - 3)) for case in CASES for p in range(6)}
    assert Agreement().judge(spread).met is False


def test_too_few_processes_say_nothing():
    assert Agreement().judge({}).met is None
    assert Agreement().judge(observations(5)).met is None


def test_quick_units_are_units_of_the_whole():
    assert set(Agreement().units(True)) < set(Agreement().units(False))


@pytest.mark.parametrize(("experiment", "unit"), [(Agreement, "naive T=256/0"), (Cost, "pyperf/0")])
def test_without_pyperf_it_says_what_to_install(monkeypatch, experiment, unit):
    monkeypatch.setattr("bench.soundness._pyperf.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"attention-bench\[soundness\]"):
        experiment().observe(unit, None)


@pytest.mark.filterwarnings("default")  # pyperf's own warnings are not ours to fail on
def test_every_timer_times_the_same_number_of_calls_after_as_many_more(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(e06_agreement, "WARMUP_S", 0.0)
    monkeypatch.setattr(e06_agreement, "callable_of", lambda case: lambda: calls.append(sum(range(2000))))
    found = time_case("checksum of 64 KiB", 0, rounds=2)
    assert set(found["ns"]) == {"ours", *RIVALS}
    assert all(len(ns) == 2 and min(ns) > 0 for ns in found["ns"].values())
    # One to warm up; per round four blocks, each after as many calls as it holds, whoever makes them.
    assert len(calls) == 1 + 2 * 4 * 2 * found["calls"]
