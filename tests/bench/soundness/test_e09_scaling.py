import pytest

from bench.soundness.e09_scaling import LADDERS, LAWS, PROCESSES, Scaling, simulate

QUADRATIC = [law for law, (quadratic, _, _) in LAWS.items() if quadratic]
REAL = {"naive": lambda t: 0.03 + 2e-6 * t**2, "linear": lambda t: 0.005 + 8e-5 * t, "short": lambda t: 0.03 + 1e-7 * t}


def ladder(name, law, process):
    # 1 % of scatter that repeats in no pattern of the lengths
    wobble = {t: 1 + 0.01 * ((i * 7 + 3 * process) % 5 - 2) for i, t in enumerate(LADDERS[name][0])}
    return {"latency_ms": {str(t): law(t) * wobble[t] for t in LADDERS[name][0]}}


def observations(counts=None, laws=REAL, processes=PROCESSES):
    right, wrong = {"CONFIRMED": 100}, {"REFUTED": 100}
    simulated = {f"{law}/1/0": (right if law in QUADRATIC else wrong) | (counts or {}).get(law, {}) for law in LAWS}
    return simulated | {f"{n}/{p}": ladder(n, laws[n], p) for n in LADDERS for p in range(processes)}


def test_right_verdicts_meet_the_target():
    finding = Scaling().judge(observations())
    assert finding.met is True, finding
    assert "in 0 of 300" in finding.found


def test_too_few_confirmed_squares_miss_it():
    counts = {QUADRATIC[0]: {"CONFIRMED": 94, "INCONCLUSIVE": 6}}
    assert Scaling().judge(observations(counts)).met is False


def test_confirmed_lines_miss_it():
    line = next(law for law in LAWS if law not in QUADRATIC)
    assert Scaling().judge(observations({line: {"REFUTED": 96, "CONFIRMED": 4}})).met is False


@pytest.mark.parametrize("name", list(LADDERS))
def test_one_real_ladder_with_another_verdict_misses_it(name):
    wrong = {"naive": REAL["linear"], "linear": REAL["naive"], "short": lambda t: 1e-6 * t**2}[name]
    finding = Scaling().judge(observations(laws=REAL | {name: wrong}))
    assert finding.met is False


def test_too_little_says_nothing():
    assert Scaling().judge({}).met is None
    assert Scaling().judge(observations(processes=PROCESSES - 1)).met is None
    assert Scaling().judge({k: v for k, v in observations().items() if "short" not in k}).met is None
    assert Scaling().judge({k: v for k, v in observations().items() if k.split("/")[0] not in LAWS}).met is None


def test_quick_units_are_units_of_the_whole():
    assert set(Scaling().units(True)) < set(Scaling().units(False))


@pytest.mark.parametrize("law", list(LAWS))
def test_simulated_laws_are_judged_by_the_library(law):
    verdicts = simulate(LAWS[law][1:], 1, 5, seed=1)
    assert sum(verdicts.values()) == 5
    assert ("REFUTED" if law in QUADRATIC else "CONFIRMED") not in verdicts
