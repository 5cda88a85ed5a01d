"""``log t = a + log(r + x**p)`` through many series at once: the measured one and those of resampled processes.

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
STEPS = 200
"""Of a search, at most."""
SETTLED, RESAMPLE_SETTLED = 1e-12, 1e-5
"""The fall of a sum of squares, relative to itself, that ends a search: for the medians, and for a resample."""


def centred(values: Array) -> Array:
    """Values minus their mean over the last axis, which fits the scale ``a`` exactly."""
    found: Array = values - values.mean(axis=-1, keepdims=True)
    return found


def resampled(table: Array) -> Array:
    """Medians of resampled processes, ``(resamples, lengths)``. ``table``: one row of logarithms per process."""
    picks = np.random.default_rng(0).integers(0, len(table), (BOOTSTRAPS, len(table)))
    medians: Array = np.median(table[picks], axis=1)
    return medians


def fitted_curves(t: Array, y: Array) -> tuple[Array, Array]:
    """Exponent and logarithm of r of the curve through each row of ``y``, ``(rows, lengths)``: the best of all starts.

    The first row is searched for longer than the others, its resamples. The method of Levenberg and Marquardt, for all
    rows and starts at once: one after the other they would take most of the time of a report. Series lie in columns, as
    sums over the first axis are quick ones.
    """
    settled = np.tile([SETTLED, *[RESAMPLE_SETTLED] * (len(y) - 1)], len(STARTS))
    log_x = np.log(t / t[-1])[:, None]
    series = np.tile(y.T, len(STARTS))
    theta = np.repeat(np.asarray(STARTS).T, len(y), axis=1)
    sums = np.empty(theta.shape[1])
    low, high = (np.asarray(bound)[:, None] for bound in BOUNDS)

    at, now, damping = np.arange(len(sums)), theta, np.full(len(sums), 1e-3)
    power, ratio, rest, square = _curve(log_x, series, now)
    for _ in range(STEPS):
        slopes = _slopes(log_x, power, ratio)
        down = (slopes * rest).sum(axis=1)
        held = ((now <= low) & (down > 0)) | ((now >= high) & (down < 0))  # would leave the bounds: the other one moves
        tried = np.clip(now - _step(slopes, np.where(held, 0.0, down), held.any(axis=0), damping), low, high)
        new = _curve(log_x, series, tried)
        gain = 1 - new[3] / np.maximum(square, 1e-300)
        better = gain > 0
        now = np.where(better, tried, now)
        power, ratio, rest, square = (
            np.where(better, *both) for both in zip(new, (power, ratio, rest, square), strict=True)
        )
        done = (gain < settled[at]) & (better | (damping > 1))
        damping = np.clip(np.where(better, damping / 4, damping * 4), 1e-5, 1e9)
        if done.any():
            theta[:, at[done]], sums[at[done]] = now[:, done], square[done]
            left = ~done
            at, now, damping, series = at[left], now[:, left], damping[left], series[:, left]
            power, ratio, rest, square = power[:, left], ratio[left], rest[:, left], square[left]
        if not len(at):
            break
    theta[:, at], sums[at] = now, square
    best = sums.reshape(len(STARTS), -1).argmin(axis=0) * len(y) + np.arange(len(y))
    return theta[0, best], theta[1, best]


def _curve(log_x: Array, series: Array, theta: Array) -> tuple[Array, Array, Array, Array]:
    """``x**p``, r, what the curve leaves of the series, and the sum of its squares, by column."""
    power, ratio = np.exp(theta[0] * log_x), np.exp(theta[1])
    rest = series - np.log(ratio + power)
    rest -= rest.sum(axis=0) / len(rest)
    return power, ratio, rest, (rest**2).sum(axis=0)


def _slopes(log_x: Array, power: Array, ratio: Array) -> Array:
    """Derivatives of what is left, ``(2, lengths, columns)``: by p and by log r."""
    total = ratio + power
    slopes = np.stack([-power * log_x / total, -ratio / total])
    slopes -= slopes.sum(axis=1, keepdims=True) / len(log_x)
    return slopes


def _step(slopes: Array, down: Array, apart: NDArray[np.bool_], damping: Array) -> Array:
    """How far to go against p and log r, ``(2, columns)``; ``apart``: where one of both stays."""
    normal = (slopes**2).sum(axis=1) * (1 + damping) + 1e-15  # where there is no floor it has no slope
    both = np.where(apart, 0.0, (slopes[0] * slopes[1]).sum(axis=0))
    steps: Array = (normal[::-1] * down - both * down[::-1]) / (normal[0] * normal[1] - both**2)
    return steps
