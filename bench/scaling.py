"""Laws of growth: does time grow as T squared (or, where the number of queries is fixed, as T)?

A straight line through log t against log T is no test: fixed overhead at short lengths bends it, so it
refutes truly quadratic kernels and confirms cubic ones. Here ``t = c0 + c1 * T**p`` is fitted to the
logarithms of the median latencies,
and the question is one of *equivalence*:

    CONFIRMED     the 90 % interval of p lies within 0.15 of the expected exponent, and the power term is at
                  least half of t at the longest T
    REFUTED       the 95 % interval of p lies outside that range, and no linear cost explains it
    INCONCLUSIVE  anything else, with the reason

What the interval covers: p is profiled over c0 and c1 with the scatter of the medians around the curve
(Student's t, ``lengths - 3`` degrees of freedom), so it holds the noise of each median and the misfit of the
curve. From one process it says nothing of other processes. With several, processes are resampled as well and
the wider interval counts.

Source: profile intervals after Bates and Watts, Nonlinear Regression Analysis (1988), section 6.1; AICc after
Burnham and Anderson, Model Selection and Multimodel Inference (2002), section 2.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import comb
from statistics import median
from typing import Literal

import numpy as np

from bench.analysis import process_medians_ms
from bench.power_law import BOUNDS, STARTS, Array, Interval, centred, fitted_curves, resampled
from bench.record import Measurement

Verdict = Literal["CONFIRMED", "REFUTED", "INCONCLUSIVE"]

TOLERANCE = 0.15
"""Exponents this close to the expected one count as equal to it: 1.85 to 2.15 for the square."""
GROWTH = {1: "linear", 2: "quadratic"}
"""Names of the expected exponents."""
MIN_LENGTHS = 8
"""Fewer lengths cannot tell a floor from a power: three parameters, and room for scatter."""
MIN_SPAN = 16.0
"""Longest over shortest length; less lets a floor imitate an exponent."""
MIN_FIT_LENGTHS = 5
"""Fewer lengths are not fitted at all: two degrees of freedom are left at five."""
MIN_SHARE = 0.5
"""Least share of the power term in t at the longest length."""
RUNS_ALPHA = 0.05
"""Residual signs that change as rarely as this are not random: the exponent is not one number."""
AICC_MARGIN = 2.0
"""Differences of AICc below this do not decide between two laws."""
ROUNDING = 1e-9
"""Residuals of log t below this are rounding, whose signs mean nothing."""


@dataclass(frozen=True, kw_only=True)
class TimeFit:
    """``t = c0 + c1 * T**p`` for one implementation on one ladder of lengths; latencies in milliseconds."""

    lengths: tuple[int, ...]
    """Lengths that were measured, ascending."""
    latencies_ms: tuple[float, ...]
    """Median latency at each."""
    local_slopes: tuple[float, ...]
    """``d log t / d log T`` between neighbouring lengths."""
    expected: int
    """The exponent in question: 2, or 1 for a fixed number of queries."""
    scope: str
    """What the intervals cover: ``within run`` or ``across processes``."""
    verdict: Verdict
    """Whether time grows with the expected exponent."""
    reason: str
    """Why the verdict is what it is."""
    exponent: float | None = None
    """p; None below five lengths."""
    interval90: Interval | None = None
    """90 % interval of p, used to confirm."""
    interval95: Interval | None = None
    """95 % interval of p, used to refute."""
    floor_ms: float | None = None
    """c0."""
    power_share: float | None = None
    """Share of ``c1 * T**p`` in the fitted latency at the longest length."""
    vote: str | None = None
    """Second vote: the law with the smallest AICc among ``c0 + c1 * {T, T log2 T, T^2, T^3}``."""
    runs_p: float | None = None
    """Probability of so few changes of sign among the residuals, were they random."""

    @property
    def vote_disagrees(self) -> bool:
        """True if the second vote contradicts a CONFIRMED or a REFUTED."""
        law = {1: "T", 2: "T^2"}[self.expected]
        return self.verdict != "INCONCLUSIVE" and (self.vote == law) != (self.verdict == "CONFIRMED")

    @property
    def growth(self) -> str:
        """``quadratic`` or ``linear``: what the verdict is about."""
        return GROWTH[self.expected]

    @property
    def text(self) -> str:
        """The exponent with its 95 % interval: ``T^1.98 [1.93, 2.03]``."""
        if self.exponent is None or self.interval95 is None:
            return "no exponent"
        return f"T^{self.exponent:.2f} [{self.interval95[0]:.2f}, {self.interval95[1]:.2f}]"


def fit_time(measurements: Mapping[int, Measurement], expected: int = 2) -> TimeFit:
    """Fit the latencies of one implementation at several lengths (length to measurement)."""
    return fit_latencies({length: process_medians_ms(m) for length, m in measurements.items()}, expected)


def fit_latencies(medians_ms: Mapping[int, Mapping[int, float]], expected: int = 2) -> TimeFit:
    """Fit median latencies in milliseconds, given as length to process number to median; zeros have no
    logarithm.
    """
    medians_ms = {length: found for length, found in medians_ms.items() if min(found.values()) > 0}
    lengths = tuple(sorted(medians_ms))
    latencies = tuple(median(medians_ms[length].values()) for length in lengths)
    t, y = np.asarray(lengths, dtype=np.float64), np.log(np.asarray(latencies, dtype=np.float64))
    slopes = tuple((np.diff(y) / np.diff(np.log(t))).tolist())
    processes = sorted(set.intersection(*(set(m) for m in medians_ms.values()))) if lengths else []
    scope = "across processes" if len(processes) > 1 else "within run"
    if len(lengths) < MIN_FIT_LENGTHS:
        return TimeFit(
            lengths=lengths,
            latencies_ms=latencies,
            local_slopes=slopes,
            expected=expected,
            scope=scope,
            verdict="INCONCLUSIVE",
            reason=f"needs at least {MIN_LENGTHS} lengths, got {len(lengths)}",
        )
    series = y[None]
    if len(processes) > 1:
        table = np.log([[medians_ms[length][process] for length in lengths] for process in processes])
        series = np.concatenate([series, resampled(table)])
    exponents, log_ratios = fitted_curves(t, series)
    curve = _best_curve(t, y, float(exponents[0]), float(log_ratios[0]))
    intervals = _profile_intervals(t, y, curve)
    if len(processes) > 1:
        intervals = _widen(intervals, exponents[1:])
    growths = np.stack([growth(t) / growth(t[-1:]) for growth in _LAWS.values()], axis=1)
    sums = _sums_beside_floors(y, growths).tolist()
    votes = {name: _aicc(left, len(y), 3) for name, left in zip(_LAWS, sums, strict=True)}
    runs_p = _runs_probability(curve.residuals)
    linear_cost = expected == 2 and _linear_cost_explains(t, y, curve)
    verdict, reason = _judge(lengths, intervals, expected, curve.power_share, linear_cost)
    if runs_p < RUNS_ALPHA:
        reason += f"; the exponent drifts with the length (runs test of the residuals, p = {runs_p:.3f})"
    return TimeFit(
        lengths=lengths,
        latencies_ms=latencies,
        local_slopes=slopes,
        expected=expected,
        scope=scope,
        verdict=verdict,
        reason=reason,
        exponent=curve.exponent,
        interval90=intervals[0.90],
        interval95=intervals[0.95],
        floor_ms=curve.floor_ms,
        power_share=curve.power_share,
        vote=min(votes, key=votes.__getitem__),
        runs_p=runs_p,
    )


def _judge(
    lengths: tuple[int, ...],
    intervals: dict[float, Interval],
    expected: int,
    power_share: float,
    linear_cost: bool,
) -> tuple[Verdict, str]:
    low, high = expected - TOLERANCE, expected + TOLERANCE
    (low90, high90), (low95, high95) = intervals[0.90], intervals[0.95]
    equal, span = f"[{low:.2f}, {high:.2f}]", lengths[-1] / lengths[0]
    if len(lengths) < MIN_LENGTHS or span < MIN_SPAN:
        need = f"at least {MIN_LENGTHS} lengths spanning {MIN_SPAN:.0f}x"
        return "INCONCLUSIVE", f"needs {need}, got {len(lengths)} spanning {span:.3g}x"
    if (high95 < low or low95 > high) and linear_cost:
        return "INCONCLUSIVE", "a linear cost hides the square: floor + linear + quadratic fits better"
    if high95 < low or low95 > high:
        return "REFUTED", f"the 95 % interval lies outside {equal}"
    if low90 < low or high90 > high:
        return "INCONCLUSIVE", f"too noisy: the 90 % interval reaches outside {equal}"
    if power_share < MIN_SHARE:
        said = f"the power term is {power_share:.0%} of the longest latency"
        return "INCONCLUSIVE", f"overhead dominates: {said}"
    return "CONFIRMED", f"the 90 % interval lies within {equal}"


FLAT, LEAST_EXPONENT = 1.0, 0.25
"""Above that logarithm of the floor over the power term at Tmax, and below that exponent, the valley is flat."""
LEVELS = (0.90, 0.95)
"""Of the intervals of the exponent."""
GRID, FINER, ZOOMS = np.linspace(-14.0, 14.0, 57), np.linspace(-1.0, 1.0, 17), 4
"""Where the logarithm of r is looked for, how each further grid divides two steps of the one before, and how often."""


@dataclass(frozen=True)
class _Curve:
    """The best ``log t = a + log(r + x**p)``, where ``x = T / Tmax`` and ``r`` is the floor over the power
    term at Tmax.
    """

    exponent: float
    log_ratio: float
    residuals: Array
    floor_ms: float

    @property
    def power_share(self) -> float:
        return 1.0 / (1.0 + math.exp(self.log_ratio))

    @property
    def sse(self) -> float:
        return float((self.residuals**2).sum())


def _best_curve(t: Array, y: Array, exponent: float, log_ratio: float) -> _Curve:
    """The curve that was found; where the valley is flat, with a bottom at either end, what a longer search finds."""
    x = t / t[-1]
    if log_ratio > FLAT or not LEAST_EXPONENT < exponent < BOUNDS[1][0]:
        exponent, log_ratio = _searched(x, y)
    left = y - np.log(math.exp(log_ratio) + x**exponent)
    return _Curve(exponent, log_ratio, centred(left), math.exp(float(left.mean()) + log_ratio))


def _searched(x: Array, y: Array) -> tuple[float, float]:
    """(p, log r) by the method of trust regions, from every start: surer, and ten times as long."""
    from scipy.optimize import least_squares

    def residuals(theta: Array) -> Array:
        return centred(y - np.log(math.exp(theta[1]) + x ** theta[0]))

    def slopes(theta: Array) -> Array:
        ratio, power = math.exp(theta[1]), x ** theta[0]
        return -centred(np.stack([power * np.log(x), np.full_like(x, ratio)]) / (ratio + power)).T

    found = [least_squares(residuals, theta, jac=slopes, bounds=BOUNDS) for theta in STARTS]
    exponent, log_ratio = min(found, key=lambda solution: float(solution.cost)).x.tolist()
    return exponent, log_ratio


def _profile_intervals(t: Array, y: Array, curve: _Curve) -> dict[float, Interval]:
    """By level: exponents whose best sum of squares is not significantly above the least. All four edges at once."""
    from scipy.special import stdtrit

    degrees = len(t) - 3
    limits = [curve.sse * (1 + float(stdtrit(degrees, 0.5 + level / 2)) ** 2 / degrees) for level in LEVELS]
    limit, direction = np.repeat(limits, 2), np.tile([-1.0, 1.0], len(LEVELS))
    inside, step = np.full(limit.shape, curve.exponent), np.full(limit.shape, 0.01)
    striding = np.full(limit.shape, fill_value=True)
    while striding.any():  # stride out with growing steps, then halve back onto the edge
        striding &= _profiled_sses(t, y, inside + direction * step) <= limit
        inside, step = np.where(striding, inside + direction * step, inside), np.where(striding, step * 1.5, step)
        striding &= np.abs(inside - curve.exponent) < 4
    low, high = np.zeros(limit.shape), step
    for _ in range(12):
        middle = (low + high) / 2
        beyond = _profiled_sses(t, y, inside + direction * middle) > limit
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    edges = (inside + direction * low).reshape(-1, 2).tolist()
    return {level: (below, above) for level, (below, above) in zip(LEVELS, edges, strict=True)}


def _profiled_sses(t: Array, y: Array, exponents: Array) -> Array:
    """Least sum of squares for each exponent."""
    return _sums_beside_floors(y, (t / t[-1])[:, None] ** exponents)


def _sums_beside_floors(y: Array, growths: Array) -> Array:
    """Sums of squares of ``log t - a - log(r + growth)`` with the best floor ``r >= 0``, by column of ``growths``.

    Args:
        y: logarithms of latencies.
        growths: ``(lengths, curves)``, 1 at Tmax.
    """
    least, columns = _squared(y[:, None] - np.log(growths)), np.arange(growths.shape[1])
    grid = np.tile(GRID[:, None], (1, len(columns)))  # (floors, curves)
    for _ in range(ZOOMS):
        sums = _squared(y[:, None, None] - np.log(np.exp(grid) + growths[:, None]))
        index = sums.argmin(axis=0)
        least = np.minimum(least, sums[index, columns])
        grid = grid[index, columns] + FINER[:, None] * (grid[1] - grid[0])
    return least


def _squared(values: Array) -> Array:
    """Sum of the squares over the first axis, without the mean."""
    rest = values - values.sum(axis=0) / len(values)
    found: Array = (rest * rest).sum(axis=0)
    return found


_LAWS: dict[str, Callable[[Array], Array]] = {
    "T": lambda t: t,
    "T log2 T": lambda t: t * np.log2(np.maximum(t, 2.0)),
    "T^2": lambda t: t**2,
    "T^3": lambda t: t**3,
}
"""What the second vote chooses among, each with a floor."""


def _aicc(sum_of_squares: float, n: int, parameters: int) -> float:
    """Akaike's criterion for few data, ``n`` of them; ``parameters`` includes the variance."""
    mean_square = max(sum_of_squares / n, 1e-300)
    spare = n - parameters - 1
    return (
        n * math.log(mean_square) + 2 * parameters + (2 * parameters * (parameters + 1) / spare if spare else math.inf)
    )


def _linear_cost_explains(t: Array, y: Array, curve: _Curve) -> bool:
    """Whether floor + linear + quadratic, none negative, fits better than one power and is mostly quadratic
    at Tmax.
    """
    x = t / t[-1]
    coefficients = sum_that_fits_better(y, np.stack([np.ones_like(x), x, x**2]), curve.residuals)
    if coefficients is None or curve.exponent > 2 + TOLERANCE:
        return False
    return bool(coefficients[2] / coefficients.sum() >= MIN_SHARE)


def sum_that_fits_better(y: Array, terms: Array, residuals: Array) -> Array | None:
    """Coefficients of a sum of three terms, none negative, if it fits better than a floor and one power; None if not.

    Args:
        y: logarithms of latencies.
        terms: ``(3, lengths)``.
        residuals: of y, beside the floor and the power.
    """
    from scipy.optimize import nnls

    coefficients, _ = nnls((terms / np.exp(y)).T, np.ones_like(y))
    predicted = coefficients @ terms
    if min(predicted) <= 0:
        return None
    sums = [float(_squared(left)) for left in (y - np.log(predicted), residuals)]
    better = _aicc(sums[0], len(y), 4) + AICC_MARGIN < _aicc(sums[1], len(y), 4)
    return np.asarray(coefficients) if better else None


def _runs_probability(residuals: Array) -> float:
    """Exact probability of at most as many runs of equal sign, given how many residuals are positive and
    negative.

    Source: Wald and Wolfowitz (1940).
    """
    if np.abs(residuals).max() < ROUNDING:
        return 1.0
    positive = (residuals > 0).tolist()
    ups, downs = sum(positive), len(positive) - sum(positive)
    if not ups or not downs:
        return 1.0
    seen = 1 + sum(a != b for a, b in pairwise(positive))
    ways = 0
    for runs in range(2, seen + 1):
        half, odd = divmod(runs, 2)
        if odd:
            ways += comb(ups - 1, half) * comb(downs - 1, half - 1) + comb(ups - 1, half - 1) * comb(downs - 1, half)
        else:
            ways += 2 * comb(ups - 1, half - 1) * comb(downs - 1, half - 1)
    return ways / comb(ups + downs, ups)


def _widen(intervals: dict[float, Interval], exponents: Array) -> dict[float, Interval]:
    """Each interval, or the percentiles of the resampled exponents where these reach further."""
    wide = {}
    for level, (low, high) in intervals.items():
        low_resampled, high_resampled = np.quantile(exponents, [(1 - level) / 2, (1 + level) / 2]).tolist()
        wide[level] = (min(low, low_resampled), max(high, high_resampled))
    return wide
