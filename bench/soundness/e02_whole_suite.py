"""E2: identical code, a whole suite at a time. One false alarm anywhere fails the suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bench.soundness import Context, Finding, Observation, experiments
from bench.soundness._batches import PROBLEMS, comparison, confirmation, stored_pairs
from bench.soundness.e01_identical_code import BATCHES, CHANGED


@experiments.register("e02_whole_suite")
class WholeSuite:
    """The batches of E1, each judged as one run of a suite of twenty cells."""

    name: ClassVar[str] = "e02_whole_suite"
    title: ClassVar[str] = "How often does a suite of twenty unchanged cells fail?"
    target: ClassVar[str] = "0 of 30 suites"
    reads: ClassVar[str] = "e01_identical_code"

    def units(self, quick: bool) -> list[str]:
        return []

    def observe(self, unit: str, context: Context) -> Observation:
        raise AssertionError("it judges the batches of e01_identical_code and has no units of its own")

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        parts: dict[str, set[str]] = {}
        failed: set[str] = set()
        alarmed: set[str] = set()
        for unit, observation, _, kept in stored_pairs(observations):
            batch, _, part = unit.partition("/")
            parts.setdefault(batch, set()).add(part)
            first, again = comparison(observation, kept), confirmation(observation, kept)
            if first.verdict in CHANGED:
                alarmed.add(batch)
                if again is not None and again.verdict == first.verdict:
                    failed.add(batch)
        whole = {batch for batch, seen in parts.items() if len(seen) == PROBLEMS}
        if not whole:
            return Finding(None, "no whole batch was observed")
        found = (
            f"{len(failed & whole)} of {len(whole)} suites of identical code failed; "
            f"{len(alarmed & whole)} had an alarm that fresh processes did not confirm"
        )
        met = not failed & whole if len(whole) >= BATCHES else (False if failed & whole else None)
        return Finding(met, found)
