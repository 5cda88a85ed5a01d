"""Two sides of a change, measured in turns: two revisions, two implementations, or one under two settings.

Each side is a process of its own with its own code. For every cell both prepare, then blocks alternate in random
order, so that whatever slows the machine down for a while slows both. The unit of inference is the pair of processes;
six pairs decide, twelve where six leave it unclear, and what is slower counts once fresh pairs say so too.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from bench.ab_worker import Side, Worker, working
from bench.case import Case
from bench.clocks import Block
from bench.errors import BenchError
from bench.exact_gate import compare_exact, presence
from bench.kernel_state import kernel_subjects
from bench.metrics import Needs, gated
from bench.outcome import Name, Outcome, order, outcome, time_text
from bench.policy import Policy
from bench.regression import Check
from bench.state import Subject
from bench.time_gate import timed
from bench.timing import SamplingPlan, interleave
from bench.verdicts import LOOKS, MARGIN, Comparison, confirmed, decide, process_estimate

QUICK = SamplingPlan(
    warmup_calls=5, warmup_ns=20_000_000, budget_ns=0, arm_budget_ns=40_000_000, min_rounds=20, max_rounds=200
)
"""A fifth of the full protocol: the answer has to come while its author waits."""
PAIRS_PER_START = 2
"""Pairs of processes that are forked from one pair that has imported torch: they share its layout of addresses, which
may favour one side, so few do."""


@dataclass
class Pairing:
    """One cell on both sides."""

    case: Case
    margin: float = MARGIN
    """Changes of time within it do not matter."""
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What preparing and verifying gave, by side (``a``, ``b``)."""
    estimates: list[float] = field(default_factory=list)
    """Logarithm of B over A, one per pair of processes."""
    fresh: list[float] = field(default_factory=list)
    """Those of the pairs that were to confirm."""
    untimed: str | None = None
    """Why a pair gave no estimate, where neither side failed."""

    @property
    def key(self) -> str:
        """``implementation problem``."""
        return f"{self.case.implementation} {self.case.problem.key}"

    @property
    def sound(self) -> bool:
        """Whether neither side is known to be wrong, or to have failed: nothing else has a time."""
        return all(answer["status"] == "ok" for answer in self.answers.values())

    @property
    def decided(self) -> Comparison | None:
        """The verdict on time; None where one side has none."""
        return decide(self.estimates, self.margin) if self.estimates and self.sound else None

    @property
    def confirmation(self) -> Comparison | None:
        """What fresh processes say."""
        return decide(self.fresh, self.margin) if self.fresh else None

    @property
    def time(self) -> Outcome | None:
        """What is said of the time; None where one side has none."""
        first, again, said = self.decided, self.confirmation, ""
        if first is None:
            return None
        name: Name = first.verdict
        if name == "REGRESSED":
            held = again is not None and confirmed(first, again)
            fresh = "say so too" if held else "were not measured" if again is None else f"say {time_text(again)}"
            name, said = ("REGRESSED" if held else "NOT CONFIRMED"), f"; fresh processes {fresh}"
        return timed(self.key, name, first, (self.estimates,), f"{time_text(first)}{said}")


def compare_sides(
    a: Side,
    b: Side,
    cases: Sequence[Case],
    *,
    device: str = "cpu",
    allocator: str = "warm",
    plan: SamplingPlan = QUICK,
    margin: Callable[[Case], float] = lambda case: MARGIN,
    looks: Sequence[int] = LOOKS,
    seed: int = 0,
    exact: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> list[Pairing]:
    """Measure every cell on both sides; then those that are unclear again; then, in fresh pairs, those that are slower.

    Args:
        a: What B is held against.
        b: What may be slower.
        cases: Cells of both.
        device: Where.
        allocator: State of the allocator that both have.
        plan: How much to measure in each pair of processes.
        margin: Changes of a cell's time within it do not matter; 0.03 is 3 %.
        looks: Pairs after which a verdict is taken; the later ones where it is unclear.
        seed: Of the order.
        exact: One pair of processes verifies every cell and reads its memory, and nothing is timed.
        say: Told of progress.

    Raises:
        BenchError: if a side cannot be started.
    """
    pairings = [Pairing(case, margin(case)) for case in cases]
    process = 0

    def measure(chosen: Sequence[Pairing], count: int, into: str, why: str) -> None:
        nonlocal process
        for first in range(0, count, PAIRS_PER_START):
            if not any(one.sound for one in chosen):
                return
            with working(a, device, allocator) as one_side, working(b, device, allocator) as other:
                for number in range(first, min(first + PAIRS_PER_START, count)):
                    chosen = [one for one in chosen if one.sound]
                    rng, sides = random.Random(seed * 1000 + process), {"a": one_side, "b": other}
                    with one_side.fresh(), other.fresh():
                        for one in rng.sample(chosen, len(chosen)):
                            if _ready(one, sides, verify=process == 0) and not exact:
                                _take_turns(one, sides, plan, rng, into)
                    process += 1
                    cells = f"{len(chosen)} cell{'' if len(chosen) == 1 else 's'}"
                    say(f"pair {number + 1} of {count}{why}: {cells}")

    def found(which: Literal["decided", "confirmation"], verdict: str) -> list[Pairing]:
        return [one for one in pairings if (said := getattr(one, which)) is not None and said.verdict == verdict]

    if exact:
        measure(pairings, 1, "estimates", " that verify")
        return pairings
    done = 0
    for look in looks:
        chosen, why = (found("decided", "UNCLEAR"), " for what is unclear") if done else (pairings, "")
        measure(chosen, look - done, "estimates", why)
        done = look
    measure(found("decided", "REGRESSED"), looks[0], "fresh", " that confirm")
    measure(found("confirmation", "UNCLEAR"), looks[-1] - looks[0], "fresh", " for what they leave unclear")
    return pairings


class _Turns:
    """A clock for :func:`bench.timing.interleave` whose blocks are timed by the sides themselves."""

    name, most_calls = "turns", 1000

    def time_block(self, run: Callable[[], object], calls: int) -> Block:
        """``run`` gives the side to ask."""
        worker: Any = run()
        return worker.time_block(calls)  # type: ignore[no-any-return]  # it is a Worker

    def excluded_bytes(self) -> dict[str, int]:
        """Nothing."""
        return {}


def _ready(one: Pairing, workers: Mapping[str, Worker], *, verify: bool) -> bool:
    """Prepare one cell on both sides; whether it can be timed."""
    answers = {name: _prepared(worker, one.case, verify) for name, worker in workers.items()}
    if verify:
        one.answers = answers
    if {answer["status"] for answer in answers.values()} != {"ok"}:
        one.answers |= {name: answer for name, answer in answers.items() if answer["status"] != "ok"}
        return False
    return True


def _take_turns(one: Pairing, workers: Mapping[str, Worker], plan: SamplingPlan, rng: random.Random, into: str) -> None:
    """Time a prepared cell in alternating blocks."""
    failed: dict[str, str] = {}

    def attempt(name: str, block: Callable[[], Block]) -> Block | None:
        try:
            return block()
        except (BenchError, EOFError, OSError) as error:
            failed[name] = str(error) or "the process died"
            return None

    runs = {name: (lambda worker=worker: worker) for name, worker in workers.items()}
    overhead_ns = max(worker.overhead_ns or 0 for worker in workers.values())
    samples = interleave(runs, _Turns(), plan, rng, attempt, overhead_ns=overhead_ns, together=(("a", "b"),))
    for name, reason in failed.items():
        one.answers[name] = {"status": "crashed", "reason": reason}
        workers[name].end()
        workers[name].start()
    if failed:
        return
    if min(*samples["a"].ns, *samples["b"].ns) > 0:
        getattr(one, into).append(process_estimate(samples["a"].ns, samples["b"].ns))
    else:
        one.untimed = "a clock read 0"


def _prepared(worker: Worker, case: Case, verify: bool) -> dict[str, Any]:
    """What preparing the cell gave; a side that cannot even start ends the comparison."""
    name = worker.side.implementation or case.implementation
    worker.ready()
    try:
        answer: dict[str, Any] = worker.ask("prepare", case.problem.model_dump(mode="json"), name, verify)
    except (EOFError, OSError) as error:
        worker.end()
        worker.start()
        return {"status": "crashed", "reason": str(error) or "the process died"}
    except BenchError as error:
        return {"status": "error", "reason": str(error)}
    return answer


def compiled_kernels(side: Side) -> list[Subject]:
    """What the kernels of a side's tree compile to, by its own verb in a process of its own.

    Raises:
        BenchError: if they do not.
    """
    command = [side.python, "-P", "-m", "bench", "kernels", "--format", "json"]
    variables = os.environ | {"PYTHONPATH": str(side.tree)} | dict(side.settings)
    done = subprocess.run(command, cwd=side.tree, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(
            f"kernels of {side.title} must compile, got: {done.stderr.strip()[-300:]}. Leave out --kernels."
        )
    return kernel_subjects(done.stdout, f"kernels of {side.title}")


def judged(pairings: Sequence[Pairing], kernels: tuple[Sequence[Subject], Sequence[Subject]] = ((), ())) -> Check:
    """Everything that was compared, in the form of a check: A is the baseline, B the candidate.

    Args:
        pairings: cells.
        kernels: of both sides.
    """
    before, after = ({one.key: one for one in side} for side in kernels)
    found = list(presence(before, after, Policy()))
    common = [(before[key], after[key]) for key in before if key in after]
    for one in pairings:
        a, b = (_subject(one, side) for side in ("a", "b"))
        if a is None and b is None:
            found.append(outcome(one.key, "", "NOT COMPARABLE", "neither side has this implementation"))
            continue
        if a is None or b is None:
            found += presence({} if a is None else {a.key: a}, {} if b is None else {b.key: b}, Policy())
            continue
        common.append((a, b))
        if one.time is not None:
            found.append(one.time)
        elif one.sound and one.untimed is not None:
            found.append(outcome(one.key, "time", "NOT COMPARABLE", one.untimed))
    found += compare_exact(common, tuple(gated()), Policy(), dict.fromkeys(get_args(Needs), ""))
    return Check(tuple(sorted(found, key=order)))


def _subject(one: Pairing, side: str) -> Subject | None:
    """What is exact of one side; None if it does not have the implementation."""
    answer = one.answers[side]
    if answer["status"] is None:
        return None
    row, metrics = answer.get("row", {}), gated()
    values = {name: value for name in metrics if (value := metrics[name].value(row)) is not None}
    return Subject("cell", one.key, answer["status"], answer.get("reason"), answer.get("ran"), values)
