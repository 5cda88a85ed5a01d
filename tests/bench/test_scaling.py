from __future__ import annotations

import math
import random
from collections.abc import Callable

import planted
import pytest

from bench.scaling import TimeFit, fit_latencies, fit_time

# Milliseconds; the first two and the last three are those of the simulations that the method was chosen by.
LAWS: dict[str, tuple[Callable[[int], float], str]] = {
    "small quadratic under a floor and a linear cost": (lambda t: 0.02 + 1e-6 * t + 5e-8 * t**2, "CONFIRMED"),
    "quadratic with overhead": (lambda t: 0.03 + 1e-4 * t + 6e-6 * t**2, "CONFIRMED"),
    "quadratic": (lambda t: 1e-5 * t**2, "CONFIRMED"),
    "linear with overhead": (lambda t: 0.02 + 5e-5 * t, "REFUTED"),
    "t log t": (lambda t: 0.02 + 4e-6 * t * math.log2(t), "REFUTED"),
    "cubic": (lambda t: 0.02 + 1e-10 * t**3, "REFUTED"),
}


def simulated(law: Callable[[int], float], seed: int, noise: float = 0.03, bias: float = 0.01) -> TimeFit:
    draw = random.Random(seed)
    medians = {}
    for length in planted.LENGTHS:
        samples = sorted(law(length) * math.exp(draw.gauss(0, noise)) for _ in range(7))
        medians[length] = {0: samples[3] * math.exp(draw.gauss(0, bias))}
    return fit_latencies(medians)


@pytest.mark.parametrize("name", LAWS)
def test_planted_law_gets_its_verdict_under_noise(name: str) -> None:
    law, verdict = LAWS[name]
    fits = [simulated(law, seed) for seed in range(12)]
    assert [fit.verdict for fit in fits] == [verdict] * 12
    assert not any(fit.vote_disagrees for fit in fits)


def test_a_plain_slope_would_get_these_wrong() -> None:
    # The reason for fitting a floor: the mean log-log slope of the truly quadratic kernel is far below 2.
    fit = simulated(LAWS["small quadratic under a floor and a linear cost"][0], seed=0)
    assert sum(fit.local_slopes) / len(fit.local_slopes) < 1.5
    assert fit.exponent is not None and 1.85 < fit.exponent < 2.15


def test_exponent_floor_and_share_are_recovered() -> None:
    fit = simulated(lambda t: 2.0 + 3e-6 * t**1.5, seed=1, noise=0, bias=0)
    assert fit.exponent == pytest.approx(1.5, abs=1e-3)
    assert fit.floor_ms == pytest.approx(2.0, rel=1e-3)
    power = 3e-6 * 4096**1.5
    assert fit.power_share == pytest.approx(power / (2.0 + power), rel=1e-3)


def test_interval_covers_the_exponent_as_often_as_it_says() -> None:
    covered = [
        (low <= 2 <= high)
        for seed in range(100)
        for low, high in [simulated(lambda t: 1e-5 * t**2, seed, noise=0.03, bias=0.05).interval95]  # type: ignore[misc]  # a fit
    ]
    assert sum(covered) >= 90


def test_overhead_that_hides_the_square_is_inconclusive_not_confirmed() -> None:
    fit = simulated(lambda t: 5.0 + 1e-7 * t**2, seed=0, noise=0.001, bias=0.0)
    assert fit.verdict == "INCONCLUSIVE"
    assert "overhead dominates" in fit.reason


def test_a_large_linear_cost_does_not_refute_the_square() -> None:
    fit = simulated(lambda t: 1e-3 * t + 1e-6 * t**2, seed=0)
    assert fit.exponent is not None and fit.exponent < 1.85
    assert fit.verdict == "INCONCLUSIVE"
    assert "linear cost" in fit.reason


def test_noise_is_inconclusive() -> None:
    fits = [simulated(lambda t: 0.02 + 5e-8 * t**2, seed, noise=0.2, bias=0.3) for seed in range(6)]
    assert all(fit.verdict != "REFUTED" for fit in fits)
    assert sum(fit.verdict == "INCONCLUSIVE" for fit in fits) >= 4


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [
        ((128, 256, 512), "at least 8 lengths, got 3"),
        ((128, 256, 512, 1024, 2048), "got 5 spanning 16x"),
        ((512, 600, 700, 800, 900, 1000, 1100, 1200), "got 8 spanning 2.34x"),
    ],
)
def test_too_few_or_too_close_lengths_are_inconclusive(lengths: tuple[int, ...], reason: str) -> None:
    fit = fit_latencies({length: {0: 1e-5 * length**2} for length in lengths})
    assert fit.verdict == "INCONCLUSIVE"
    assert reason in fit.reason
    assert (fit.exponent is None) == (len(lengths) < 5)


def test_a_change_of_regime_is_reported() -> None:
    # Steep while it fills the machine, shallow afterwards: one exponent describes neither part.
    fit = fit_latencies({t: {0: (t / 700) ** (2.4 if t < 700 else 1.6)} for t in planted.LENGTHS})
    assert fit.runs_p is not None and fit.runs_p < 0.05
    assert "drifts with the length" in fit.reason


def test_differing_processes_widen_the_interval() -> None:
    draw = random.Random(0)
    exponents = [1.7, 1.8, 1.9, 2.1, 2.2, 2.3]
    medians = {
        t: {p: 1e-6 * t**e * math.exp(draw.gauss(0, 0.001)) for p, e in enumerate(exponents)} for t in planted.LENGTHS
    }
    several = fit_latencies(medians)
    one = fit_latencies({t: {0: 1e-6 * t**2} for t in planted.LENGTHS})
    assert several.scope == "across processes"
    assert one.scope == "within run"
    assert several.interval95 is not None and several.interval95[1] - several.interval95[0] > 0.2
    assert several.verdict == "INCONCLUSIVE"
    assert one.verdict == "CONFIRMED"


def test_latencies_of_zero_are_left_out() -> None:
    medians = {t: {0: 1e-5 * t**2} for t in planted.LENGTHS} | {64: {0: 0.0}}
    fit = fit_latencies(medians)
    assert fit.lengths == planted.LENGTHS
    assert fit.verdict == "CONFIRMED"


def test_fit_of_records_uses_time_per_call() -> None:
    cells = planted.ladder(lambda t: 1e-5 * t**2)
    measured = {cell.problem.seqlen_k: cell.measurement for cell in cells if cell.measurement is not None}
    fit = fit_time(measured)
    assert fit.latencies_ms[-1] == pytest.approx(1e-5 * 4096**2, rel=0.02)
    halved = {t: m.model_copy(update={"calls_per_sample": 2}) for t, m in measured.items()}
    assert fit_time(halved).latencies_ms[-1] == pytest.approx(fit.latencies_ms[-1] / 2)


def test_text_states_exponent_and_interval() -> None:
    fit = simulated(lambda t: 1e-5 * t**2, seed=0)
    assert fit.interval95 is not None
    assert fit.text == f"T^{fit.exponent:.2f} [{fit.interval95[0]:.2f}, {fit.interval95[1]:.2f}]"
    assert fit_latencies({128: {0: 1.0}}).text == "no exponent"


@pytest.mark.parametrize(
    ("law", "verdict"), [(lambda t: 0.02 + 5e-5 * t, "CONFIRMED"), (lambda t: 1e-5 * t**2, "REFUTED")]
)
def test_linear_growth_can_be_the_question(law: Callable[[int], float], verdict: str) -> None:
    fit = fit_latencies({t: {0: law(t)} for t in planted.LENGTHS}, expected=1)
    assert (fit.verdict, fit.growth) == (verdict, "linear")
    assert not fit.vote_disagrees


def climbed(law: Callable[[int], float], seed: int, disturbed: float = 0.0) -> TimeFit:
    """As in a run of the claims: nine lengths, seven processes, lengths that suit the machine more or less, and pairs
    that are an eighth dearer beyond the last cache. A share of the medians is ``disturbed``: a third too long.
    """
    draw, medians = random.Random(seed), {}
    pace = [draw.gauss(0, 0.02) for _ in range(7)]
    for length in (512, 720, 1024, 1456, 2048, 2896, 4096, 5792, 8192):
        beyond = 1 + 0.125 * max(0.0, 1 - 2**25 / (8 * length**2))
        common = law(length) * beyond * math.exp(draw.gauss(0, 0.01))
        noise = [draw.gauss(0, 0.03) + (draw.random() < disturbed) * 0.3 for _ in pace]
        medians[length] = {n: common * math.exp(p + e) for n, (p, e) in enumerate(zip(pace, noise, strict=True))}
    return fit_latencies(medians)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "least", "most"),
    [
        (lambda t: 0.1 + 2e-6 * t**2, 57, 60),
        (lambda t: 2e-6 * t**2, 57, 60),
        (lambda t: 0.1 + 4e-7 * t**2.2, 0, 0),
        (lambda t: 0.1 + 2e-5 * t**1.7, 0, 0),
        (lambda t: 0.1 + 1e-3 * t * math.log2(t), 0, 0),
        (lambda t: 0.1 + 1e-2 * t, 0, 0),
        (lambda t: 0.1 + 2e-10 * t**3, 0, 0),
    ],
)
def test_true_laws_are_confirmed_and_false_ones_are_not_though_scores_leave_the_cache(
    law: Callable[[int], float], least: int, most: int
) -> None:
    verdicts = [climbed(law, seed).verdict for seed in range(60)]
    assert least <= verdicts.count("CONFIRMED") <= most


@pytest.mark.slow
def test_disturbed_processes_make_a_true_law_inconclusive_at_worst() -> None:
    verdicts = [climbed(lambda t: 0.1 + 2e-6 * t**2, seed, disturbed=0.05).verdict for seed in range(60)]
    assert "REFUTED" not in verdicts
    assert verdicts.count("CONFIRMED") > 40
