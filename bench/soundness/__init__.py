"""Experiments that prove the harness itself: the contract, one file per experiment.

An experiment is made of *units*, small enough that losing one costs little. Observing a unit gives plain JSON, which is
appended to one file, so that a run of hours can stop at any moment and go on later. Judging is a pure function of the
stored observations and gives a :class:`Finding`: what was found, beside the target it was held against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bench.registry import Registry

experiments: Registry[type[Experiment]] = Registry("soundness", "experiment", "bench.soundness")

Observation = dict[str, Any]
"""What one unit showed: JSON, raw enough to be judged by another rule later."""


@dataclass(frozen=True)
class Context:
    """What an experiment may use."""

    folder: Path
    """Scratch folder, removed afterwards."""
    say: Callable[[str], None]
    """Tells the user what is going on."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one experiment."""

    met: bool | None
    """Whether the target was met; None where too little was observed to say."""
    found: str
    """One sentence with the numbers, counts and intervals."""
    rows: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """The table behind the sentence."""


class Experiment(Protocol):
    """One proof. Members have no state."""

    name: ClassVar[str]
    """As registered: ``e01_identical_code`` and so on; the order of names is the order of the table."""
    title: ClassVar[str]
    """What it asks, in a few words."""
    target: ClassVar[str]
    """What is to be shown, with the number."""
    reads: ClassVar[str]
    """Name of the experiment whose observations it judges: its own, or another's whose units it reuses."""

    def units(self, quick: bool) -> list[str]:
        """Keys of the units, in the order in which they are observed; empty if it reads another's.

        ``quick`` is a part of the full list, under the same keys.
        """
        ...

    def observe(self, unit: str, context: Context) -> Observation:
        """Carry out one unit. Deterministic in what it asks, by the key; never in what the machine answers."""
        ...

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        """Pure: what the observations show."""
        ...
