"""E3: real extra work is found, and its size is estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, ClassVar

from bench.paired import Arm, Pair
from bench.problem import Problem
from bench.soundness import Context, Finding, Observation, experiments
from bench.soundness._batches import comparison, covers, observe_pairs, stored_pairs
from bench.soundness._rivals import RIVALS, judged
from bench.timing import FULL

REPEATS = 15
CELLS = tuple(
    (problem, name)
    for problem in (Problem(seqlen=128, num_heads=1), Problem(seqlen_q=1, seqlen_k=2048, num_heads=4, mask="causal"))
    for name in ("naive", "sdpa_flash")
)
"""Short calls, of about 0.1 ms: a block must hold up to 33 of them."""
PLAN = replace(FULL, isolated_blocks=0)
EVERY = {3: 33, 5: 20, 10: 10, 20: 5}
"""Percent of extra work -> one more call after so many."""
WANTED = {5: 0.80, 10: 1.00, 20: 1.00}
"""Share of verdicts that must be REGRESSED."""
POINTS = 1.0
"""The estimate must be within this many percentage points of what was injected."""


@experiments.register("e03_power")
class Power:
    """3, 5, 10 and 20 % more calls of the same code: 60 verdicts of each size, half of them beside busy processes."""

    name: ClassVar[str] = "e03_power"
    title: ClassVar[str] = "Is real extra work found?"
    target: ClassVar[str] = (
        "+5 % found in at least 80 % of 60 verdicts, +10 % and +20 % in all; median estimate within 1 point"
    )
    reads: ClassVar[str] = "e03_power"

    def units(self, quick: bool) -> list[str]:
        return [f"repeat-{repeat:02d}" for repeat in range(1 if quick else REPEATS)]

    def observe(self, unit: str, context: Context) -> Observation:
        repeat = int(unit.rpartition("-")[2])
        pairs = [
            Pair(f"+{percent} % {name} {cell.key}", Arm(cell, name), Arm(cell, name, repeat_every=every))
            for cell, name in CELLS
            for percent, every in EVERY.items()
        ]
        loaded, seed = repeat % 2 == 1, 100_000 + 1000 * repeat
        return observe_pairs(pairs, context, seed=seed, loaded=loaded, plan=PLAN, confirm=False)

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        by_size: dict[int, list[tuple[bool, str, float]]] = {}
        rivals: dict[int, dict[str, list[int]]] = {}
        held: dict[int, list[bool]] = {}
        for _, observation, name, kept in stored_pairs(observations):
            size = int(name.split()[0])
            found = comparison(observation, kept)
            by_size.setdefault(size, []).append((observation["loaded"], found.verdict, found.ratio))
            held.setdefault(size, []).append(covers(kept, 1 + 1 / EVERY[size]))
            for rule, answer in judged(kept).items():
                rivals.setdefault(size, {r: [] for r in RIVALS})[rule].append(answer)
        if not by_size:
            return Finding(None, "nothing was observed")
        rows: list[dict[str, Any]] = []
        wrong, enough = [], True
        for size, verdicts in sorted(by_size.items()):
            count, share = len(verdicts), sum(v == "REGRESSED" for _, v, _ in verdicts) / len(verdicts)
            off = 100 * (median(ratio for _, _, ratio in verdicts) - 1 - 1 / EVERY[size])
            worst = max((100 * (ratio - 1 - 1 / EVERY[size]) for _, _, ratio in verdicts), key=lambda x: abs(x))
            row: dict[str, Any] = {
                "injected_percent": round(100 / EVERY[size], 2),
                "verdicts": count,
                "regressed_percent": round(100 * share, 1),
                "idle": _found(verdicts, loaded=False),
                "under_load": _found(verdicts, loaded=True),
                "improved": sum(v == "IMPROVED" for _, v, _ in verdicts),
                "unclear": sum(v == "UNCLEAR" for _, v, _ in verdicts),
                "median_estimate_off_points": round(off, 2),
                "worst_estimate_off_points": round(worst, 2),
                "interval_covers_percent": round(100 * sum(held[size]) / count, 1),
            }
            for rule, answers in rivals.get(size, {}).items():
                row[rule] = f"{100 * sum(a > 0 for a in answers) / len(answers):.0f} %" if answers else "-"
            rows.append(row)
            enough &= count >= 60
            if share < WANTED.get(size, 0.0) or abs(off) > POINTS:
                wrong.append(size)
        parts = [f"+{r['injected_percent']:g} % in {r['idle']} idle and {r['under_load']} under load" for r in rows]
        sizes = ", ".join(f"{row['median_estimate_off_points']:+.2f}" for row in rows)
        found_text = f"REGRESSED at {', '.join(parts)}; median estimates off by {sizes} points"
        return Finding(False if wrong else (True if enough else None), found_text, rows)


def _found(verdicts: Sequence[tuple[bool, str, float]], *, loaded: bool) -> str:
    """How many of the verdicts on an idle or on a busy machine found the slow-down."""
    part = [verdict for busy, verdict, _ in verdicts if busy == loaded]
    return f"{sum(verdict == 'REGRESSED' for verdict in part)} of {len(part)}"
