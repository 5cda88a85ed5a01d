"""What must hold before a run measures anything."""

from __future__ import annotations

from collections.abc import Sequence

from bench.doctor import fatal_reason
from bench.errors import UsageError
from bench.header import Diagnosis, Environment

CONDITIONS = ("cpu", "cores", "device", "allocator", "torch_threads", "torch_build")
"""Fields of the environment that must be as they were for an earlier run to be resumed."""


def refuse_worthless(diagnoses: Sequence[Diagnosis]) -> None:
    """Stop before anything is measured where no number would mean anything."""
    fatal = fatal_reason(diagnoses)
    if fatal is not None:
        raise UsageError(f"machine must allow a measurement, got {fatal} `attention-bench doctor` shows all.")


def refuse_other_conditions(before: Environment, now: Environment) -> None:
    """Times of an earlier run are taken over only where they would have come out here."""
    differing = [
        f"{name} {getattr(before, name)!r}, now {getattr(now, name)!r}"
        for name in CONDITIONS
        if getattr(before, name) != getattr(now, name)
    ]
    if differing:
        raise UsageError(
            f"resumed run must have been made under the same conditions, got {'; '.join(differing)}. "
            "Repeat them or leave out --resume."
        )
