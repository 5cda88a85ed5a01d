"""The rules by which other tools call a program slower, applied to two runs of ours.

Each takes what one process measured of A and what *another* process measured of B: two runs of a program, as these
tools compare them. They are fed with blocks that were interleaved, so drift within a run cannot hurt them; on real,
sequential runs they do worse.

Sources: pytest-benchmark ``--benchmark-compare-fail=mean:5%`` and ``min:5%`` (its documentation, "Comparing past
runs"); benchstat (golang.org/x/perf: Mann-Whitney U, alpha 0.05, ten values); criterion.rs (bootstrap of the relative
change of the mean, significance 0.05, noise threshold 1 %).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import stats

Arms = Mapping[str, Any]
"""One arm of one process: ``mean_ns``, ``min_ns``, ``blocks_ns``, all per call."""


def pytest_benchmark_mean(a: Arms, b: Arms) -> int:
    """+1 slower, -1 faster (the same rule the other way round), 0 neither."""
    return _beyond(b["mean_ns"] / a["mean_ns"], 0.05)


def pytest_benchmark_min(a: Arms, b: Arms) -> int:
    """As by the mean, with the minimum."""
    return _beyond(b["min_ns"] / a["min_ns"], 0.05)


def benchstat(a: Arms, b: Arms) -> int:
    """Mann-Whitney U on ten means of neighbouring blocks."""
    left, right = _ten(a["blocks_ns"]), _ten(b["blocks_ns"])
    if stats.mannwhitneyu(left, right, alternative="two-sided").pvalue >= 0.05:
        return 0
    return 1 if np.median(right) > np.median(left) else -1


def criterion(a: Arms, b: Arms) -> int:
    """Bootstrap interval of the relative change of the mean, outside plus or minus 1 %."""
    rng = np.random.default_rng(0)
    left, right = np.asarray(a["blocks_ns"]), np.asarray(b["blocks_ns"])
    draws = 2000
    changes = (
        right[rng.integers(0, len(right), (draws, len(right)))].mean(axis=1)
        / left[rng.integers(0, len(left), (draws, len(left)))].mean(axis=1)
        - 1
    )
    lo, hi = np.quantile(changes, [0.025, 0.975])
    return 1 if lo > 0.01 else -1 if hi < -0.01 else 0


RIVALS: dict[str, Callable[[Arms, Arms], int]] = {
    "pytest-benchmark mean:5%": pytest_benchmark_mean,
    "pytest-benchmark min:5%": pytest_benchmark_min,
    "benchstat (U, p < 0.05, n = 10)": benchstat,
    "criterion (bootstrap, 1 %)": criterion,
}
"""Rules by name."""


def judged(kept: Mapping[str, Any]) -> dict[str, int]:
    """Every rule on one stored pair: A of its first process against B of its second."""
    if len(kept["arms"]) < 2:
        return {}
    a, b = kept["arms"][0]["a"], kept["arms"][1]["b"]
    return {name: rule(a, b) for name, rule in RIVALS.items()}


def _beyond(ratio: float, share: float) -> int:
    return 1 if ratio > 1 + share else -1 if ratio < 1 / (1 + share) else 0


def _ten(blocks: list[float]) -> Any:
    size = max(1, len(blocks) // 10)
    return np.asarray(blocks[: 10 * size]).reshape(-1, size).mean(axis=1)
