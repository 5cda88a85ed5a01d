"""E1: identical code against itself. Every verdict of a change is a false alarm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from scipy import stats

from bench.soundness import Context, Finding, Observation, experiments
from bench.soundness._batches import PROBLEMS, comparison, confirmation, covers, observe_pairs, same_pairs, stored_pairs
from bench.soundness._rivals import RIVALS, judged

BATCHES = 30
CHANGED = ("REGRESSED", "IMPROVED")


@experiments.register("e01_identical_code")
class IdenticalCode:
    """Twenty cells, thirty batches, every second batch beside three busy processes."""

    name: ClassVar[str] = "e01_identical_code"
    title: ClassVar[str] = "How often is identical code called slower or faster?"
    target: ClassVar[str] = "at most 1 of 600 verdicts flagged before confirmation, 0 after"
    reads: ClassVar[str] = "e01_identical_code"

    def units(self, quick: bool) -> list[str]:
        if quick:
            return ["batch-00/problem-0"]
        return [f"batch-{batch:02d}/problem-{problem}" for batch in range(BATCHES) for problem in range(PROBLEMS)]

    def observe(self, unit: str, context: Context) -> Observation:
        batch, problem = (int(part.rpartition("-")[2]) for part in unit.split("/"))
        return observe_pairs(same_pairs(problem), context, seed=1000 * (batch + 1) + problem, loaded=batch % 2 == 1)

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        verdicts: list[tuple[bool, str, bool, int]] = []
        rivals: dict[str, list[int]] = {name: [] for name in RIVALS}
        for _, observation, _, kept in stored_pairs(observations):
            first, again = comparison(observation, kept), confirmation(observation, kept)
            stays = again is not None and first.verdict in CHANGED and again.verdict == first.verdict
            verdicts.append((observation["loaded"], first.verdict, stays, first.processes))
            for name, answer in judged(kept).items():
                rivals[name].append(answer)
        if not verdicts:
            return Finding(None, "nothing was observed")
        total = len(verdicts)
        flagged = sum(verdict in CHANGED for _, verdict, _, _ in verdicts)
        stayed = sum(stays for _, _, stays, _ in verdicts)
        rows = [_row("this harness, before confirmation", flagged, total)]
        rows.append(_row("this harness, confirmed by fresh processes", stayed, total))
        for loaded, label in ((False, "idle"), (True, "under load")):
            part = [verdict for busy, verdict, _, _ in verdicts if busy == loaded]
            if part:
                rows.append(_row(f"this harness, {label}", sum(v in CHANGED for v in part), len(part)))
        rows += [_row(name, sum(a != 0 for a in answers), len(answers)) for name, answers in rivals.items() if answers]
        counts = {verdict: sum(v == verdict for _, v, _, _ in verdicts) for verdict in ("UNCHANGED", "UNCLEAR")}
        second = sum(processes > 6 for *_, processes in verdicts)
        held = sum(covers(kept, 1.0) for _, _, _, kept in stored_pairs(observations))
        upper = rows[0]["upper_bound_percent"]
        found = (
            f"{flagged} of {total} verdicts on identical code were a change before confirmation ({stayed} after): "
            f"at most {upper} % with 95 % confidence; {counts['UNCHANGED']} UNCHANGED, {counts['UNCLEAR']} UNCLEAR; "
            f"{second} needed the second look; intervals of six processes hold the true ratio in "
            f"{100 * held / total:.1f} % (nominal 96.9 %)"
        )
        met = flagged <= 1 and stayed == 0 if total >= 600 else (False if flagged > 1 or stayed else None)
        return Finding(met, found, rows)


def _row(rule: str, flagged: int, total: int) -> dict[str, Any]:
    """One line of the table of rules, with the exact (Clopper-Pearson) 95 % upper bound."""
    upper = stats.binomtest(flagged, total).proportion_ci(0.90, "exact").high
    return {
        "rule": rule,
        "flagged": flagged,
        "verdicts": total,
        "percent": round(100 * flagged / total, 2),
        "upper_bound_percent": round(100 * upper, 2),
    }
