"""``log t = a + log(r + x**p)`` through many series at once: exponents of resampled processes.

Where ``x = T / Tmax`` and ``r`` is the floor over the power term at Tmax, as in :mod:`bench.scaling`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[float, float]

BOUNDS = ((-1.0, -16.0), (6.0, 16.0))
"""Least and largest exponent and logarithm of r."""
STARTS = ((0.7, -1.0), (1.5, -3.0), (2.5, -6.0))
"""Where searches for both begin, as the valley may have two bottoms."""
BOOTSTRAPS = 200
"""Resamples of the processes."""
REFIT_STEPS, SETTLED = 60, 1e-5
"""Of the resamples: steps at most, and a fall of the sums of squares, relative to themselves, that ends them."""


def centred(values: Array) -> Array:
    """Values minus their mean over the last axis, which fits the scale ``a`` exactly."""
    found: Array = values - values.mean(axis=-1, keepdims=True)
    return found


def resampled_exponents(t: Array, table: Array) -> Array:
    """Exponents of resampled processes. ``table``: logarithms of the medians, ``(processes, lengths)``."""
    picks = np.random.default_rng(0).integers(0, len(table), (BOOTSTRAPS, len(table)))
    y = np.median(table[picks], axis=1)
    found = [_refit(t / t[-1], y, start) for start in STARTS]
    least = np.argmin([rest for _, rest in found], axis=0)
    exponents: Array = np.asarray([each for each, _ in found])[least, np.arange(BOOTSTRAPS)]
    return exponents


def _refit(x: Array, y: Array, start: Interval) -> tuple[Array, Array]:
    """Exponent and sum of squares of the curve through each row of ``y``, ``(resamples, lengths)``, from one start.

    The method of Levenberg and Marquardt, for all rows at once: one after the other they would take most of the time of
    a report.
    """
    theta, damping = np.tile(start, (len(y), 1)), np.full(len(y), 1e-3)

    def left(at: Array) -> Array:
        return centred(y - np.log(np.exp(at[:, 1:]) + x ** at[:, :1]))

    rest = left(theta)
    for _ in range(REFIT_STEPS):
        ratio, power = np.exp(theta[:, 1:]), x ** theta[:, :1]
        both = np.stack([power * np.log(x), np.broadcast_to(ratio, power.shape)], axis=1)
        slopes = -centred(both / (ratio + power)[:, None])
        normal = slopes @ slopes.transpose(0, 2, 1)
        diagonal = normal[:, (0, 1), (0, 1)]
        normal[:, (0, 1), (0, 1)] = diagonal * (1 + damping[:, None]) + 1e-15  # where there is no floor it has no slope
        step = np.linalg.solve(normal, slopes @ rest[:, :, None])[:, :, 0]
        tried = np.clip(theta - step, *BOUNDS)
        after = left(tried)
        gain = 1 - (after**2).sum(axis=1) / np.maximum((rest**2).sum(axis=1), 1e-300)
        better = gain > 0
        theta, rest = np.where(better[:, None], tried, theta), np.where(better[:, None], after, rest)
        damping = np.clip(np.where(better, damping / 4, damping * 4), 1e-5, 1e9)
        if gain.max() < SETTLED and (damping[~better] > 1).all():
            break
    return theta[:, 0], (rest**2).sum(axis=1)
