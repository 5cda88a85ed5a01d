from __future__ import annotations

import math

import numpy as np
import pytest

from bench.power_law import BOUNDS, fitted_curves
from bench.scaling import fit_latencies

T = np.array([128, 176, 256, 368, 512, 720, 1024, 1456, 2048, 2896, 4096], dtype=np.float64)


def curve(exponent: float, log_ratio: float) -> np.ndarray:
    found: np.ndarray = np.log(math.exp(log_ratio) + (T / T[-1]) ** exponent) + 3.0
    return found


@pytest.mark.parametrize("exponent", [0.7, 1.0, 2.0, 3.1])
@pytest.mark.parametrize("log_ratio", [-7.0, -3.0, 0.0])
def test_a_curve_without_noise_is_found_again(exponent: float, log_ratio: float) -> None:
    found, ratios = fitted_curves(T, curve(exponent, log_ratio)[None])
    assert found == pytest.approx([exponent], abs=1e-5)
    assert ratios == pytest.approx([log_ratio], abs=1e-3)


def test_without_a_floor_the_search_goes_on_along_its_bound() -> None:
    """The scatter asks for a negative floor: the exponent has to be the one of a straight line."""
    y = curve(2.0, -30.0) + np.where(T < 200, -0.01, 0.0)
    found, ratios = fitted_curves(T, y[None])
    slope = np.polyfit(np.log(T), y, 1)[0]
    assert ratios[0] == BOUNDS[0][1]
    assert found[0] == pytest.approx(slope, abs=1e-4)


def test_series_do_not_change_one_another() -> None:
    rng = np.random.default_rng(5)
    many = curve(2.0, -2.0) + rng.normal(0, 0.02, (40, len(T)))
    together = fitted_curves(T, np.concatenate([many[:1], many]))
    for row in range(0, 40, 7):
        alone = fitted_curves(T, np.stack([many[0], many[row]]))
        assert [alone[0][1], alone[1][1]] == pytest.approx([together[0][row + 1], together[1][row + 1]], abs=1e-9)


def test_where_the_floor_hides_the_power_the_longer_search_decides() -> None:
    """No start of the quick search leads out of the flat of such a valley."""
    times = {int(t): {0: ms} for t, ms in zip(T, np.exp(curve(2.0, 2.3)), strict=True)}
    fit = fit_latencies(times)
    assert fit.exponent == pytest.approx(2.0, abs=0.01)
    assert fit.power_share == pytest.approx(1 / (1 + math.exp(2.3)), abs=0.005)
