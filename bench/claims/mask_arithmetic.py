"""Claim 3: a mask that is stored hides scores and saves no arithmetic; a kernel has to skip what it hides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import ClassVar

from bench.claims import Answer, Case, Drawing, Hearing, Needs, Scope, Verdict, claims
from bench.claims._ladders import square
from bench.claims._mask_figures import cell_figure, paired_figure, window_figures
from bench.claims._mask_ratios import (
    ALL_PERMITTED,
    LEAST_LENGTHS,
    NEAR,
    Series,
    cell_series,
    limit,
    pair_share,
    paired_series,
    plan,
)
from bench.claims._mask_windows import WindowLadder, window_ladders
from bench.claims._regions import placed, worst
from bench.verdicts import LOOKS

EQUAL = 0.05
"""Times within this of each other count as the same."""
LIMIT_TOLERANCE = 0.10
"""A ratio that tends to 0.5 within this tends to the visible pairs."""
MASK_COST = 1.25
"""Naive takes up to so many times as long with a mask as without: what ratios relative to naive are lowered by."""
LEAST_BESIDE_NAIVE = (0.5 - LIMIT_TOLERANCE) / MASK_COST
"""Smallest limit relative to naive that is still one half."""
WINDOW = 256
"""Keys that each query sees."""
WINDOW_BLOCKS = (1, 2, 3, 4, 5, 6, 8, 11, 16)
"""Lengths of kernels that skip, in units of the longest block of queries."""
SHORT_WINDOWS, SHARED_BLOCKS = (512, 720), 7
"""Lengths of kernels that take the window as a matrix: two short ones, and from there on the first so many of
:data:`WINDOW_BLOCKS`, so that at each of these the same ones take turns."""


@dataclass(frozen=True)
class Skipping:
    """How a kernel skips."""

    block: int
    """Longest block of queries or keys that it computes whole: shorter sequences leave nothing to skip."""
    deals_rows: bool
    """Whether threads of a CPU share the rows of one head in order, so that the later ones get the longer rows."""


CAUSAL = {
    "sdpa_flash": Skipping(512, True),
    "online_softmax": Skipping(1024, False),
    "flex": Skipping(512, True),
    "triton_flash": Skipping(128, False),
}
"""Implementations that skip what a causal mask hides."""
WINDOWED = ("online_softmax", "flex", "triton_flash")
"""Implementations that skip what a window hides."""
DENSE = ("naive", "sdpa_math", "sdpa_flash", "sdpa_efficient")
"""Implementations that take a window as a matrix."""


@claims.register("mask_arithmetic")
class MaskArithmetic:
    """Paired ratios against the share of visible pairs, and the growth of windows."""

    name: ClassVar[str] = "mask_arithmetic"
    order: ClassVar[int] = 3
    statement: ClassVar[str] = (
        "Storing a mask saves no arithmetic: naive takes as long under a causal mask as under an all-permitted one; "
        "kernels that skip what is hidden tend to the pairs' (T+1)/2T, and are linear in T under a sliding window."
    )
    rule: ClassVar[str] = (
        "CONFIRMED if every interval lies wholly in its region: naive, causal over a mask that hides one key, within "
        f"±{EQUAL:.0%}, and over no mask not below {1 - EQUAL:g}; the limit of causal over full for a kernel that "
        f"skips, from ratio = limit + b/T, within 0.5 ± {LIMIT_TOLERANCE:g} (from {LEAST_BESIDE_NAIVE:g} on if "
        "relative to naive, which pays for its mask); the exponent under a window within ±0.15 of 1 or 2. REFUTED if "
        "one lies wholly outside, or if such a kernel saves nothing at the longest T, or more than the pairs allow; "
        "INCONCLUSIVE otherwise."
    )

    def needs(self, scope: Scope) -> Needs:
        """Pairs of a causal mask, and ladders of a window."""
        found = tuple(pair for _, pair in plan(scope))
        if scope.quick:
            return Needs(pairs=found)
        on_cpu = scope.device == "cpu"
        windowed = partial(square, mask=f"sliding_window({WINDOW})")
        fields = {} if on_cpu else {"num_heads": 16, "dtype": "float16"}
        block = CAUSAL["online_softmax"].block
        stored, longer = ("naive", "sdpa_flash" if on_cpu else "sdpa_efficient"), 1 if on_cpu else 4
        lengths = (*SHORT_WINDOWS, *(block * n for n in WINDOW_BLOCKS[:SHARED_BLOCKS]))
        cases = [Case(windowed(longer * n, **fields), name) for n in lengths for name in stored]
        skipping = ("online_softmax",) if on_cpu else ("online_softmax", "triton_flash")
        cases += [Case(windowed(block * n, **fields), name) for n in WINDOW_BLOCKS for name in skipping]
        return Needs(tuple(cases), pairs=found)

    def judge(self, hearing: Hearing) -> list[Answer]:
        """One answer for each series of ratios and each ladder under a window."""
        answers = [Answer(one.subject, *_answer(one), one.rows) for one in _series(hearing)]
        for window in _windows(hearing):
            fit, rows = window.fit, tuple(str(row["cell_key"]) for row in window.rows)
            found = f"{fit.text} {fit.scope}, {fit.growth} expected"
            answers.append(Answer(window.subject, fit.verdict, found, fit.reason, rows))
        return answers

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Ratios against T with the share of pairs, from pairs and from cells; time under a window."""
        series, windows = _series(hearing), _windows(hearing)
        blocks = {name: skipping.block for name, skipping in CAUSAL.items()}
        beside = [one for one in series if one.relative]
        interleaved = [one for one in series if not one.relative]
        drawings = paired_figure(interleaved, blocks, EQUAL) + cell_figure(beside, blocks)
        return drawings + window_figures(windows)


def _series(hearing: Hearing) -> list[Series]:
    """Pairs, and cells from which a limit can be taken: others were measured for something else."""
    cells = cell_series(hearing.reading, tuple(CAUSAL))
    return paired_series(hearing) + [one for one in cells if not _too_short(one)]


def _windows(hearing: Hearing) -> list[WindowLadder]:
    expected = dict.fromkeys(DENSE, 2) | dict.fromkeys(WINDOWED, 1)
    return window_ladders(hearing.reading, expected, {name: CAUSAL[name].block for name in WINDOWED})


def _answer(one: Series) -> tuple[Verdict, str, str]:
    """Verdict, what was found, and why."""
    verdict, found, reason = _skips(one) if one.implementation in CAUSAL else _stores(one)
    processes = min(ratio.processes for ratio in one.ratios)
    if not one.relative and processes < LOOKS[0]:
        return "INCONCLUSIVE", found, f"needs {LOOKS[0]} processes, got {processes}"
    return verdict, found, reason


def _stores(one: Series) -> tuple[Verdict, str, str]:
    """A mask that is stored saves nothing, and applying it costs something."""
    found = ", ".join(ratio.text for ratio in one.ratios)
    if one.without == ALL_PERMITTED:
        region, wanted = (1 / (1 + EQUAL), 1 + EQUAL), f"within ±{EQUAL:.0%}"
    else:
        region, wanted = (1 - EQUAL, inf), f"not below {1 - EQUAL:g}"
        found += f"; the mask costs {one.longest.ratio - 1:+.0%} at T={one.longest.seqlen}"
    verdict = worst(placed((ratio.lo, ratio.hi), region) for ratio in one.ratios)
    seen = {"CONFIRMED": "every interval lies", "REFUTED": "an interval does not lie"}
    return verdict, found, f"{seen.get(verdict, 'not every interval lies')} {wanted}"


def _skips(one: Series) -> tuple[Verdict, str, str]:
    """The ratio falls to the share of visible pairs."""
    skipping, longest, share = CAUSAL[one.implementation], one.longest, pair_share(one.longest.seqlen)
    found = f"{longest.text} (pairs {share:.2f})"
    if _too_short(one):
        least = f"{LEAST_LENGTHS} lengths from {skipping.block} up to {NEAR * skipping.block} or more"
        got = ", ".join(str(ratio.seqlen) for ratio in one.ratios)
        return "INCONCLUSIVE", found, f"blocks of {skipping.block} are computed whole: needs {least}, got {got}"
    end = limit(one.bearing(skipping.block))
    found += f"; limit {end.value:.2f} [{end.lo:.2f}, {end.hi:.2f}]"
    low, high = LEAST_BESIDE_NAIVE if one.relative else 0.5 - LIMIT_TOLERANCE, 0.5 + LIMIT_TOLERANCE
    above = longest.lo > 1 - EQUAL or end.lo > high
    if above and skipping.deals_rows and one.lanes % one.threads:
        uneven = f"{one.threads} threads share {one.lanes} heads unevenly, and those with late rows take longer"
        return "INCONCLUSIVE", found, uneven
    if above:
        lies = "nothing is saved" if longest.lo > 1 - EQUAL else f"the limit lies above {high:.2f}"
        return "REFUTED", found, lies
    if longest.hi < share - EQUAL and not one.relative:
        return "REFUTED", found, "it takes less than the visible pairs would"
    if low <= end.lo and end.hi <= high:
        return "CONFIRMED", found, f"the limit lies within [{low:.2f}, {high:.2f}]"
    return "INCONCLUSIVE", found, f"the limit's interval reaches outside [{low:.2f}, {high:.2f}]"


def _too_short(one: Series) -> bool:
    """Whether there is little to skip, or too few lengths to see where the ratio goes."""
    block = CAUSAL[one.implementation].block
    return one.longest.seqlen < NEAR * block or len(one.bearing(block)) < LEAST_LENGTHS
