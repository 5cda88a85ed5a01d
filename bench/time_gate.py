"""Times held against a baseline: ratios to a control measured in the same rounds, two looks, then a confirmation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from bench.between_runs import decide_shift, two_look_shift
from bench.outcome import Name, Outcome, outcome, time_text
from bench.policy import Policy
from bench.state import State, Subject
from bench.verdicts import LOOKS, Comparison, holm

TO_NORMAL = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""


def compare_times(
    common: Sequence[tuple[Subject, Subject]], baseline: State, looks: Sequence[State], policy: Policy, differing: str
) -> tuple[list[Outcome], list[str]]:
    """Times of all cells, and the cells that want another look."""
    timed = [(old, new) for old, new in common if old.log_ratios or new.log_ratios or new.untimed or old.untimed]
    if differing and timed:
        text = f"not comparable, {differing}: times of {len(timed)} cells"
        return [outcome(f"{len(timed)} cells", "time", "NOT COMPARABLE", text, count=len(timed))], []
    found: list[Outcome] = []
    unsettled: list[str] = []
    few: list[Subject] = []
    for old, new in timed:
        if not (old.log_ratios and new.log_ratios) or old.control != new.control:
            found.append(_untimed(old, new))
            continue
        if not all(math.isfinite(value) for value in (*old.log_ratios, *new.log_ratios)):
            found.append(outcome(new.key, "time", "NOT A NUMBER", "a ratio to the control is no finite number"))
            continue
        if min(len(old.log_ratios), len(new.log_ratios)) < LOOKS[0]:
            few.append(new)
            continue
        override = policy.overriding("time", new.key)
        margin = max(baseline.margin, policy.margin)
        if override is not None and override.tolerance is not None:
            margin = max(margin, override.tolerance)  # less than what the machine's noise asks for would cry wolf
        one, open_ = _time(old, [s.subjects[new.key] for s in looks if new.key in s.subjects], margin)
        found.append(one)
        if open_:
            unsettled.append(new.key)
    if few:
        text = f"fewer than {LOOKS[0]} processes say nothing of the next: {len(few)} cells, such as {few[0].key}"
        found.append(outcome(f"{len(few)} cells", "time", "TOO FEW PROCESSES", text, count=len(few)))
    adjusted = holm({one.subject: one.p_value for one in found if one.p_value is not None})
    return [replace(one, p_value=adjusted.get(one.subject)) for one in found], unsettled


def _time(old: Subject, looks: Sequence[Subject], margin: float) -> tuple[Outcome, bool]:
    """One cell's time through all looks, and whether it wants another one."""
    rest = [one.log_ratios for one in looks]
    found, ratios = _decided(old.log_ratios, rest, margin)
    name: Name = found.verdict
    said, open_ = "", name == "UNCLEAR" and len(ratios) < LOOKS[-1]
    if name == "REGRESSED" and rest:
        again, fresh = _decided(old.log_ratios, rest, margin)
        said = f"; fresh processes say {'so too' if again.verdict == 'REGRESSED' else time_text(again)}"
        open_ = again.verdict == "UNCLEAR" and len(fresh) < LOOKS[-1]
        name = "REGRESSED" if again.verdict == "REGRESSED" else "NOT CONFIRMED"
    elif name == "REGRESSED":
        said, open_ = "; not confirmed by fresh processes yet", True
    return timed(looks[0].key, name, found, (old.log_ratios, ratios), f"{time_text(found)}{said}"), open_


def _decided(
    before: Sequence[float], looks: list[tuple[float, ...]], margin: float
) -> tuple[Comparison, tuple[float, ...]]:
    """Take looks from the front of the list until they give a verdict or are all that one decision may have."""
    ratios = looks.pop(0)
    found = two_look_shift(before, ratios, margin)
    while found.verdict == "UNCLEAR" and looks and len(ratios) < LOOKS[-1]:
        ratios += looks.pop(0)
        found = decide_shift(before, ratios[: LOOKS[-1]], margin)
    return found, ratios


def timed(key: str, name: Name, found: Comparison, groups: Sequence[Sequence[float]], text: str) -> Outcome:
    """The outcome of one cell's time.

    Args:
        key: of the cell.
        name: of the outcome.
        found: what was decided.
        groups: estimates of processes of the same code, a group for each side; how far they scatter is the noise.
        text: in words.
    """
    spread = [abs(value - median(group)) for group in groups for value in group]
    return outcome(
        key,
        "time",
        name,
        text,
        change_percent=100 * (found.ratio - 1),
        lo_percent=100 * (found.lo - 1),
        hi_percent=100 * (found.hi - 1),
        noise_percent=100 * TO_NORMAL * median(spread),
        significance=abs(math.log(found.ratio)) / math.log1p(found.margin),
        p_value=found.p_value,
    )


def _untimed(old: Subject, new: Subject) -> Outcome:
    """Why two times are not compared."""
    if new.untimed and "read 0" in new.untimed and old.log_ratios:
        return outcome(new.key, "time", "FELL TO ZERO", new.untimed)
    if old.log_ratios and new.log_ratios:
        text = f"measured against {new.control}, was against {old.control}"
        return outcome(new.key, "time", "NOT COMPARABLE", text)
    side, one = ("candidate", new) if old.log_ratios else ("baseline", old)
    return outcome(new.key, "time", "NO CONTROL", f"{side}: {one.untimed or one.status or 'no time'}")
