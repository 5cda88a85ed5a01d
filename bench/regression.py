"""Whether a state of the code is worse than a baseline: exact numbers exactly, times by a paired and confirmed rule.

Bytes, errors, counts and statuses are compared wherever the libraries are the same; times only on the same kind of
machine, as ratios to a control that was measured in the same rounds. Whatever cannot be compared says so, by a name of
its own: nothing passes in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from bench.errors import NothingSelectedError
from bench.exact_gate import compare_exact, presence
from bench.outcome import NOT_COMPARED, Outcome, order, outcome
from bench.policy import Policy, Severity
from bench.results import uncollected
from bench.state import State
from bench.time_gate import compare_times


@dataclass(frozen=True)
class Check:
    """Everything that was compared."""

    outcomes: tuple[Outcome, ...]
    """The gravest first."""
    unsettled: tuple[str, ...] = ()
    """Cells whose time wants another look at fresh processes: unclear, or slower and not yet confirmed."""

    @cached_property
    def compared(self) -> int:
        """How many numbers were compared."""
        return sum(one.count for one in self.outcomes if one.name not in NOT_COMPARED)

    @cached_property
    def counts(self) -> Counter[str]:
        """Numbers per outcome."""
        found: Counter[str] = Counter()
        for one in self.outcomes:
            found[one.name] += one.count
        return found

    def severe(self, severity: Severity) -> list[Outcome]:
        """Outcomes of one severity."""
        return [one for one in self.outcomes if one.severity == severity]

    def exit_code(self, strict: bool) -> int:
        """3: worse. 5: nothing was compared. 4: something is in doubt and no doubt is wanted. 0: all is well."""
        if self.severe("fail"):
            return 3
        if not self.compared:
            return 5
        return 4 if strict and self.severe("doubt") else 0


@uncollected()
def check(
    baseline: State,
    looks: Sequence[State],
    policy: Policy,
    *,
    exact: bool = False,
    takes: Callable[[str], bool] = lambda key: True,
    times: Sequence[Outcome] | None = None,
) -> Check:
    """Compare.

    Args:
        baseline: what it is held against.
        looks: the candidate; after the first, states with fresh processes of cells that earlier ones left unsettled.
        policy: what is tolerated.
        exact: whether times are left out.
        takes: which subjects to compare, by key.
        times: what was said of them where both codes took turns; None compares ratios to controls.

    Raises:
        NothingSelectedError: if there is no subject.
    """
    candidate = looks[0]
    before = {key: one for key, one in baseline.subjects.items() if takes(key)}
    after = {key: one for key, one in candidate.subjects.items() if takes(key)}
    if not before or not after:
        side = "baseline" if not before else "candidate"
        raise NothingSelectedError(
            f"check must have something to compare, got nothing in the {side}. Change -i, -I, -p or -P, or measure."
        )
    found = list(presence(before, after, policy))
    common = [(before[key], after[key]) for key in before if key in after]
    libraries = _differences(baseline.toolchain, candidate.toolchain)
    everything = differing_fields(baseline, candidate)
    triton = _differences(*({"triton": side.toolchain.get("triton")} for side in (baseline, candidate)))
    differing = {"triton": triton, "toolchain": libraries, "machine": everything}
    found += compare_exact(common, baseline.metrics, policy, differing)
    unsettled: list[str] = []
    if times is not None:
        found += times
    elif not exact and not baseline.timed:
        found.append(outcome("all cells", "time", "NOT COMPARABLE", "not comparable: the baseline holds no times"))
    elif not exact:
        ratios, unsettled = compare_times(common, baseline, looks, policy, everything)
        found += ratios
    found += _idle(baseline, candidate, policy)
    outcomes = sorted((_waived(one, policy) for one in found), key=order)
    return Check(tuple(outcomes), tuple(unsettled))


def differing_fields(baseline: State, candidate: State) -> str:
    """What makes times of the two incomparable, in words; empty if nothing does."""
    sides = ((baseline.toolchain, candidate.toolchain), (baseline.machine, candidate.machine))
    return ", ".join(text for side in sides if (text := _differences(*side)))


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """``cpu differs (A, was B)`` and so on; empty if all is equal."""
    names = dict.fromkeys((*before, *after))
    return ", ".join(
        f"{name} differs ({after.get(name)}, was {before.get(name)})"
        for name in names
        if before.get(name) != after.get(name)
    )


def _waived(one: Outcome, policy: Policy) -> Outcome:
    """The outcome as it is, or waived by an override that ignores it."""
    override = policy.overriding(one.metric, one.subject) if one.severity is not None else None
    if override is None or not override.ignore:
        return one
    text = f"{one.name}: {one.text}; waived until {override.expires}: {override.reason}"
    return replace(one, name="WAIVED", severity="note", text=text)


def _idle(baseline: State, candidate: State, policy: Policy) -> Iterator[Outcome]:
    """Overrides that no number needs."""
    if policy.override:
        metrics = ("time", "status", "ran", "", *baseline.metrics, *candidate.metrics)
        keys = dict.fromkeys((*baseline.subjects, *candidate.subjects))
        for one in policy.idle((metric, key) for key in keys for metric in metrics):
            yield outcome(one.title, "override", "IDLE OVERRIDE", "it fits nothing; remove it or mend its pattern")
