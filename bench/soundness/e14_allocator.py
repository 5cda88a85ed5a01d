"""E14: what the allocator's setting alone does to a time, by workers that take turns."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, ClassVar

from bench.calls import make_step
from bench.clocks import PerfCounterClock
from bench.environment import ALLOCATORS, worker_variables
from bench.fresh_process import start
from bench.implementation import implementations
from bench.inputs import make_inputs, place_inputs
from bench.lifeline import end_worker
from bench.problem import Problem
from bench.soundness import Context, Finding, Observation, experiments
from bench.verdicts import decide

LENGTHS = (1024, 4096)
NAMES = ("naive", "online_softmax", "sdpa_flash")
PROCESSES = 6
ROUNDS = 10


@experiments.register("e14_allocator")
class Allocator:
    """The same call in a process with the warm setting and in one with glibc's defaults, a block of each in turn."""

    name: ClassVar[str] = "e14_allocator"
    title: ClassVar[str] = "What does the allocator's setting do to a time?"
    target: ClassVar[str] = "none: stated, because every CPU time depends on it"
    reads: ClassVar[str] = "e14_allocator"

    def units(self, quick: bool) -> list[str]:
        return [] if quick else [f"T{length}/{name}" for length in LENGTHS for name in NAMES]

    def observe(self, unit: str, context: Context) -> Observation:
        length, name = unit[1:].split("/")
        processes = [_take_turns(int(length), name, seed) for seed in range(PROCESSES)]
        return {
            "estimates": [median(math.log(b / a) for a, b in rounds) for rounds in processes],
            "warm_ms": median(a for rounds in processes for a, _ in rounds) / 1e6,
            "default_ms": median(b for rounds in processes for _, b in rounds) / 1e6,
        }

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        rows: list[dict[str, Any]] = []
        for unit, observation in observations.items():
            found = decide(observation["estimates"])
            rows.append(
                {
                    "cell": unit,
                    "default_over_warm": round(found.ratio, 3),
                    "lo": round(found.lo, 3),
                    "hi": round(found.hi, 3),
                    "processes": found.processes,
                    "warm_ms": round(observation["warm_ms"], 2),
                    "default_ms": round(observation["default_ms"], 2),
                }
            )
        if not rows:
            return Finding(None, "nothing was observed")
        worst = max(rows, key=lambda row: abs(math.log(row["default_over_warm"])))
        ratios = [row["default_over_warm"] for row in rows]
        text = (
            f"with glibc's default setting {worst['cell']} takes {worst['default_over_warm']:.2f}x "
            f"[{worst['lo']:.2f}, {worst['hi']:.2f}] its time with a warm allocator; "
            f"all cells lie between {min(ratios):.2f}x and {max(ratios):.2f}x"
        )
        return Finding(True, text, rows)


def _take_turns(length: int, name: str, seed: int) -> list[tuple[int, int]]:
    """Rounds of (warm, default) durations of one call, in random order within a round, from two fresh processes."""
    rng = random.Random(seed)
    workers = {}
    try:
        for setting in ("warm", "default"):
            # Two processes take turns: the threads of the one that waits must not spin while the other is timed.
            asleep = {"OMP_WAIT_POLICY": "PASSIVE"}
            settings = dict.fromkeys(ALLOCATORS["warm"]) | worker_variables(setting) | asleep
            workers[setting] = start(serve_blocks, length, name, settings=settings)
        for _, connection in workers.values():
            connection.recv()  # it is warm
        rounds = []
        for _ in range(ROUNDS):
            took = {}
            for setting in rng.sample(sorted(workers), len(workers)):
                connection = workers[setting][1]
                connection.send(True)
                took[setting] = connection.recv()
            rounds.append((took["warm"], took["default"]))
        return rounds
    finally:
        for process, _ in workers.values():
            end_worker(process)


def serve_blocks(length: int, name: str, connection: Connection) -> None:
    """In a worker: time one call whenever asked; nanoseconds."""
    problem = Problem(seqlen=length, num_heads=4)
    member = implementations.get(name)
    inputs = place_inputs(make_inputs(problem), member.layout, "cpu")
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    clock = PerfCounterClock()
    for _ in range(2):
        step.run()
    connection.send(0)
    while connection.recv():
        connection.send(clock.time_block(step.run, 1).ns)
