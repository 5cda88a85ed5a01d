"""Two arms against each other: blocks interleaved in one process, several processes, one verdict.

An arm is an implementation on a problem; the two of a pair differ in what is to be judged. Every process measures all
its pairs in random order. :mod:`bench.verdicts` decides from one estimate per process.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from bench.calls import Step, differentiable, make_step
from bench.case import Arm, Pair
from bench.clocks import Block, clocks_for, overhead_ns
from bench.errors import BenchError, Unsupported
from bench.implementation import implementations, untimed
from bench.inputs import make_inputs, place_inputs
from bench.registry import load_file
from bench.server import worker_context
from bench.timing import FULL, SamplingPlan, interleave
from bench.verdicts import LOOKS, MARGIN, Comparison, decide, process_estimate
from bench.worker import PADDING_BYTES, detach

if TYPE_CHECKING:
    import torch

ARMS = ("a", "b")
NEVER = 1 << 62
"""More calls than anybody makes."""


@dataclass(frozen=True)
class PairTask:
    """What one process is to measure. Sent by pickle."""

    pairs: tuple[Pair, ...]
    plan: SamplingPlan
    device: str
    process: int
    seed: int
    log: Path
    load: tuple[Path, ...] = ()
    fixed_order: bool = False
    """A always first: only to show what random order is good for."""


@dataclass(frozen=True)
class PairSamples:
    """What one process measured of one pair."""

    pair: str
    process: int
    calls: int
    """Calls in a block of either arm, extra work not counted."""
    ns: dict[str, list[int]]
    """Duration of each block by arm (``a``, ``b``); the same index is the same round."""
    cpu_ns: dict[str, list[int]]
    isolated_ns: dict[str, list[int]]
    steady: bool
    total_ns: int
    """Warm-up, rounds and isolated blocks of both arms."""

    @property
    def estimate(self) -> float:
        """Median over rounds of log(B / A)."""
        return process_estimate(self.ns["a"], self.ns["b"])


@dataclass
class PairResult:
    """All processes of one pair."""

    pair: Pair
    samples: list[PairSamples] = field(default_factory=list)
    error: str | None = None
    """Why there is no result."""

    @property
    def estimates(self) -> list[float]:
        """One per process."""
        return [one.estimate for one in self.samples]

    def decided(self, margin: float) -> Comparison:
        """The verdict on what is there."""
        return decide(self.estimates, margin)


def compare_pairs(
    pairs: Sequence[Pair],
    *,
    folder: Path,
    seed: int,
    plan: SamplingPlan = FULL,
    margin: float = MARGIN,
    looks: Sequence[int] = LOOKS,
    device: str = "cpu",
    allocator: str = "warm",
    load: tuple[Path, ...] = (),
    fixed_order: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, PairResult]:
    """Measure every pair in fresh processes: as many as the first look asks for, and more for those it leaves UNCLEAR.

    Args:
        pairs: with different names.
        folder: where the workers' own output goes.
        seed: of the order and of the alignment; every process gets its own.
        plan: how much each process measures.
        margin: see :func:`bench.verdicts.decide`.
        looks: numbers of processes.
        device: ``cpu`` or ``cuda``.
        allocator: setting of the workers; see :mod:`bench.environment`.
        load: files of unpackaged implementations.
        fixed_order: see :class:`PairTask`.
        say: told after each process.
    """
    results = {pair.name: PairResult(pair) for pair in pairs}
    process = 0
    for look in looks:
        open_pairs = [
            result.pair
            for result in results.values()
            if result.error is None and (not result.samples or result.decided(margin).verdict == "UNCLEAR")
        ]
        while open_pairs and process < look:
            task = PairTask(
                pairs=tuple(open_pairs),
                plan=plan,
                device=device,
                process=process,
                seed=seed * 1000 + process,
                log=folder / f"pairs-{seed}-{process}.log",
                load=load,
                fixed_order=fixed_order,
            )
            for name, outcome in _one_process(task, allocator):
                if isinstance(outcome, PairSamples):
                    results[name].samples.append(outcome)
                else:
                    results[name].error = outcome
            process += 1
            say(f"process {process} of {look}: {len(open_pairs)} pairs")
    return results


def _one_process(task: PairTask, allocator: str) -> Iterator[tuple[str, PairSamples | str]]:
    """Run one worker; yields its samples, and for pairs that it did not get to a reason."""
    context = worker_context(allocator)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure_pairs, args=(task, sender))
    process.start()
    sender.close()
    missing = {pair.name for pair in task.pairs}
    try:
        while missing:
            name, outcome = receiver.recv()
            missing.discard(name)
            yield name, outcome
    except EOFError:
        process.join()
        for name in missing:
            yield name, f"process {task.process} ended with exit code {process.exitcode}"
    finally:
        process.join()


def measure_pairs(task: PairTask, connection: Connection) -> None:
    """Entry point of a worker: sends ``(name, PairSamples or reason)`` for every pair, in random order."""
    detach(task.log)
    for path in task.load:
        load_file(path)
    rng = random.Random(task.seed)
    padding = bytearray(rng.randrange(PADDING_BYTES))  # forks share their layout: this moves what comes next
    pairs = list(task.pairs)
    rng.shuffle(pairs)
    for pair in pairs:
        try:
            connection.send((pair.name, measure_pair(pair, task, rng)))
        except (BenchError, RuntimeError, MemoryError) as error:
            connection.send((pair.name, f"{type(error).__name__}: {error}"))
        gc.collect()
    del padding


def measure_pair(pair: Pair, task: PairTask, rng: random.Random) -> PairSamples:
    """Interleave the two arms of a pair in this process.

    Raises:
        Unsupported: if an arm is never timed on this device.
    """
    for arm in (pair.a, pair.b):
        why = untimed(implementations.get(arm.implementation), arm.problem, task.device)
        if why is not None:
            raise Unsupported(f"{arm.implementation} is not timed here: it {why}")
    clock, _ = clocks_for(task.device)
    names = list(ARMS)
    rng.shuffle(names)  # which arm is allocated first must not be tied to which arm it is
    steps = {name: _step(getattr(pair, name), task.device) for name in names}
    runs = {name: _extra_work(steps[name], getattr(pair, name)) for name in ARMS}

    def attempt(name: str, block: Callable[[], Block]) -> Block:
        steps[name].negate()
        return block()

    samples = interleave(
        runs,
        clock,
        task.plan,
        _Unshuffled() if task.fixed_order else rng,
        attempt,
        overhead_ns=overhead_ns(clock),
        together=(ARMS,),
        multiple=pair.call_multiple,
    )
    a, b = samples["a"], samples["b"]
    return PairSamples(
        pair=pair.name,
        process=task.process,
        calls=a.calls,
        ns={"a": a.ns, "b": b.ns},
        cpu_ns={"a": a.cpu_ns, "b": b.cpu_ns},
        isolated_ns={"a": a.isolated_ns, "b": b.isolated_ns},
        steady=a.steady and b.steady,
        total_ns=a.total_ns + b.total_ns,
    )


class _Unshuffled(random.Random):
    """Leaves every order as it is."""

    def shuffle(self, x: object) -> None:
        """Do nothing."""


def _step(arm: Arm, device: str) -> Step:
    """The arm's prepared step, called once."""
    member = implementations.get(arm.implementation)
    inputs = differentiable(arm.problem, place_inputs(make_inputs(arm.problem, device=device), member.layout, device))
    step = make_step(member.prepare(arm.problem, inputs), arm.problem, inputs, member.layout)
    step.run()
    return step


def _extra_work(step: Step, arm: Arm) -> Callable[[], object]:
    """The step's call with the arm's extra work."""
    every, done = arm.repeat_every or NEVER, 0

    def repeated() -> object:
        nonlocal done
        done += 1
        if done % every == 0:
            step.run()
        return step.run()

    if arm.copies:

        def copied() -> object:
            result = step.run()
            target: torch.Tensor = result.out
            for _ in range(arm.copies):
                target = target.clone()
            return target

        return copied
    return repeated  # an arm without extra work counts as well, so that counting is no difference between the arms
