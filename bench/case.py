"""What is to be measured: a case is one cell, a pair is two arms that are compared."""

from __future__ import annotations

from dataclasses import dataclass

from bench.problem import Problem


@dataclass(frozen=True)
class Case:
    """One cell to run."""

    problem: Problem
    implementation: str
    timed: bool = True
    ladder: str = ""
    """Cells of the same name are climbed together though they differ in more than their lengths."""


@dataclass(frozen=True)
class Arm:
    """One side of a comparison."""

    problem: Problem
    implementation: str
    repeat_every: int = 0
    """Real extra work: every so many calls, one more call. 20 adds exactly 5 %, in blocks of multiples of 20 calls."""
    copies: int = 0
    """Real extra work: after each call, copy the output this many times."""


@dataclass(frozen=True)
class Pair:
    """What is compared: B against A."""

    name: str
    a: Arm
    b: Arm

    @property
    def call_multiple(self) -> int:
        """A block's calls must be a multiple of this for the extra work to be exact."""
        return max(1, self.a.repeat_every, self.b.repeat_every)


def same(problem: Problem, implementation: str) -> Pair:
    """A pair of identical arms."""
    arm = Arm(problem, implementation)
    return Pair(f"{implementation} {problem.key}", arm, arm)
