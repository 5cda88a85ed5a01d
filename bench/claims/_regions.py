"""Where an interval lies: wholly in the region that a claim allows, wholly outside, or across its edge."""

from __future__ import annotations

from collections.abc import Iterable

from bench.claims import Verdict

Interval = tuple[float, float]


def placed(interval: Interval, region: Interval) -> Verdict:
    """CONFIRMED if the interval lies wholly in the region, REFUTED if wholly outside, else INCONCLUSIVE."""
    (low, high), (least, most) = interval, region
    if least <= low and high <= most:
        return "CONFIRMED"
    return "REFUTED" if high < least or low > most else "INCONCLUSIVE"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """REFUTED if one is, else INCONCLUSIVE if one is or there is none, else CONFIRMED."""
    found: set[Verdict] = set(verdicts) or {"INCONCLUSIVE"}
    if "REFUTED" in found:
        return "REFUTED"
    return "INCONCLUSIVE" if "INCONCLUSIVE" in found else "CONFIRMED"


def t_quantile(degrees: int, level: float) -> float:
    """Half the width, in standard errors, of an interval with this coverage by Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + level / 2))
