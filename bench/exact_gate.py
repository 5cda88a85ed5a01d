"""Numbers without a clock in them, held against a baseline: bytes, errors, counts, statuses, verdicts of claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from bench.metrics import Metric, gated
from bench.outcome import Name, Outcome, number_text, outcome
from bench.policy import Policy
from bench.state import Subject

GOOD = ("ok", "verified", "CONFIRMED")
"""Statuses of cells and verdicts of claims that are what one wants."""
GRAVE = ("REFUTED", "incorrect", "crashed", "error", "timeout")
"""Those that are a failure, whatever was before and whatever it ran on."""


def presence(before: Mapping[str, Subject], after: Mapping[str, Subject], policy: Policy) -> Iterator[Outcome]:
    """Subjects that one side alone has. What is new and wrong is a failure, not news."""
    for key, one in before.items():
        if key not in after:
            text = f"it was there ({one.status or 'values'}), and is gone"
            yield outcome(key, "", "MISSING", text, severity=policy.missing)
    for key, one in after.items():
        if key not in before:
            text = f"it was not there before ({one.status or 'values'}{f': {one.reason[:200]}' if one.reason else ''})"
            yield outcome(key, "", "NEW", text, severity="fail" if one.status in GRAVE else policy.new)


def judge_values(
    metric: Metric, before: float | None, after: float | None, *, known: bool = True
) -> tuple[Name, float]:
    """Compare two values of a metric: the outcome, and the relative change (infinite where there is none).

    Args:
        metric: has a gate.
        before: None where it is null.
        after: as ``before``.
        known: whether the baseline knew of the metric at all.
    """
    gate = metric.gate
    assert gate is not None, f"{metric.name} is gated"
    if before is None or after is None:
        name: Name = "NULL NOW" if after is None else "NULL BEFORE" if known else "NEW METRIC"
        return name, math.inf
    if not (math.isfinite(before) and math.isfinite(after)):
        return "NOT A NUMBER", math.inf
    if before == after:
        return "SAME", 0.0
    change = (after - before) / abs(before) if before else math.inf
    if metric.better == "same":
        return "CHANGED", change
    worse = (after > before) == (metric.better == "lower")
    if after == 0 and not gate.zero:
        return "FELL TO ZERO", change
    if not worse:
        return "IMPROVED", change
    if before == 0:
        return "ROSE FROM ZERO", change
    return ("TOLERATED" if abs(change) <= gate.tolerance else "REGRESSED"), change


def compare_exact(
    common: Sequence[tuple[Subject, Subject]], known: Sequence[str], policy: Policy, differing: Mapping[str, str]
) -> list[Outcome]:
    """Statuses, receipts and gated metrics of all subjects; what cannot be compared, in one line for each reason.

    Args:
        common: before and after.
        known: gated metrics that the side before knew.
        policy: what is tolerated.
        differing: what differs, in words, by what a metric needs (see :data:`bench.metrics.Needs`).
    """
    found: list[Outcome] = []
    left_out: dict[str, Counter[str]] = {scope: Counter() for scope in differing}
    metrics = gated()
    for old, new in common:
        if differing["toolchain"] and new.status not in GRAVE:
            left_out["toolchain"]["status"] += 1
        else:
            found += _statuses(old, new)
        measured_alike = old.status == new.status
        for name in dict.fromkeys((*old.values, *new.values)):
            metric = metrics.get(name)
            if metric is None or metric.gate is None:
                left_out["toolchain"][name] += 1  # of a baseline that knew a metric that is gone
                continue
            needs = metric.gate.needs
            if needs != "nothing" and differing[needs]:
                left_out[needs][name] += 1
            elif measured_alike or (name in old.values and name in new.values):
                found.append(_value(metric, old, new, name in known, policy))
    for scope, counts in left_out.items():
        if counts:
            why = differing[scope] or "this version knows no such metric"
            text = f"not comparable, {why}: {', '.join(sorted(counts))}"
            found.append(outcome(f"{len(common)} subjects", scope, "NOT COMPARABLE", text, count=counts.total()))
    return found


def _value(metric: Metric, old: Subject, new: Subject, known: bool, policy: Policy) -> Outcome:
    before, after = old.values.get(metric.name), new.values.get(metric.name)
    assert metric.gate is not None, "gated"
    if before == after and before is not None and math.isfinite(before):  # as nearly all are: nothing to tolerate
        text = f"{metric.title}: {after}, was {before}"
        return Outcome(new.key, metric.name, "SAME", text, before=before, after=after, change_percent=0.0)
    tolerance, floor = metric.gate.tolerance, 0.0
    override = policy.overriding(metric.name, new.key)
    if override is not None and override.tolerance is not None:
        tolerance = override.tolerance
        metric = replace(metric, gate=replace(metric.gate, tolerance=tolerance))
    if override is not None and override.floor is not None:
        floor = override.floor
    name, change = judge_values(metric, before, after, known=known)
    if name in ("REGRESSED", "ROSE FROM ZERO", "CHANGED") and abs((after or 0) - (before or 0)) <= floor:
        name = "TOLERATED"
    text = f"{after}, was {before}"
    if before is not None and after is not None and name not in ("NOT A NUMBER", "SAME"):
        text = number_text(metric, before, after)
    return outcome(
        new.key,
        metric.name,
        name,
        f"{metric.title}: {text}",
        before=before,
        after=after,
        change_percent=100 * change if math.isfinite(change) else None,
        significance=_size(name, change, tolerance),
    )


def _size(name: Name, change: float, tolerance: float) -> float | None:
    """How many times what is tolerated a change is; of exact numbers every change is beyond measure."""
    if name in ("SAME", "NEW METRIC"):
        return None
    return abs(change) / tolerance if tolerance else math.inf


def _statuses(old: Subject, new: Subject) -> Iterator[Outcome]:
    sides = {"before": old.status, "after": new.status}
    if old.status == new.status:
        if new.kind == "cell" and new.status in GRAVE:  # no news, but nothing to pass over either
            text = f"{new.status}, as before{f': {new.reason[:200]}' if new.reason else ''}"
            yield outcome(new.key, "status", "SAME", text, severity="doubt", **sides)
        elif new.status is not None:
            yield outcome(new.key, "status", "SAME", new.status, **sides)
    else:
        text = f"{new.status}, was {old.status}{f': {new.reason[:200]}' if new.reason else ''}"
        was, now = old.status in GOOD, new.status in GOOD
        if now and not was:
            yield outcome(new.key, "status", "IMPROVED", text, **sides)
        elif was and not now and new.status != "INCONCLUSIVE":
            yield outcome(new.key, "status", "REGRESSED", text, **sides)
        else:
            gravely = new.status in GRAVE
            yield outcome(new.key, "status", "CHANGED", text, severity="fail" if gravely else "doubt", **sides)
    if old.ran != new.ran and old.status == new.status:
        text = f"ran {new.ran or 'nothing known'}, was {old.ran or 'nothing known'}"
        yield outcome(new.key, "ran", "CHANGED", text, severity="doubt", before=old.ran, after=new.ran)
