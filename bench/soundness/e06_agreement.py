"""E6: does our clock agree with the timers that others trust, on the same callable at the same time?

In one process, rounds of one block by each timer in random order, all with the same number of calls and right after
as many calls more: where a timer does not make them itself, they are made for it. When our blocks had two calls before
them, torch's Timer seemed 1.0 % faster than we are on naive at T=256, with equal ones 0.3 %. pyperf stayed 1.3 % faster
there, for a reason that we do not know. One estimate per process, the median over rounds of ``log(theirs / ours)``, and
the interval of :mod:`bench.verdicts` over processes.

* ``timeit``: ``timeit.Timer(run).timeit(n)``.
* ``torch Timer``: ``torch.utils.benchmark.Timer.timeit(n)``, the block that ``blocked_autorange`` repeats.
* ``pyperf``: ``Runner.bench_func`` in pyperf's own worker mode, a value of ``n`` loops, so that pyperf's loop times.
  Its manager, which would start processes of its own and so could not alternate with anybody, is left out.
"""

from __future__ import annotations

import math
import random
import time
import timeit
import zlib
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, ClassVar

from bench.calls import make_step
from bench.clocks import PerfCounterClock
from bench.fresh_call import in_fresh_process
from bench.implementation import implementations
from bench.inputs import make_inputs, place_inputs
from bench.problem import Problem
from bench.soundness import Context, Finding, Observation, experiments
from bench.soundness._pyperf import need_pyperf
from bench.verdicts import LOOKS, Comparison, decide, process_estimate

CASES: dict[str, tuple[str, int]] = {
    "sdpa_flash T=128": ("sdpa_flash", 128),
    "naive T=256": ("naive", 256),
    "checksum of 64 KiB": ("", 1 << 16),
}
"""What is timed: an implementation and its length, or a checksum of so many bytes on one core."""
RIVALS = ("timeit", "torch Timer", "pyperf")
MARGIN = 0.02
"""Agreement: the whole interval of the ratio within plus or minus this."""
BLOCK_S = 0.001
LEAST_CALLS = 2
"""torch's Timer makes at least so many calls for itself before a block."""
WARMUP_S = 0.2
ROUNDS = 300
"""With 100, the estimates of single processes scattered by 1 to 2 %: too coarse to settle 2 %."""

Timed = Callable[[int], float]
"""Runs so many calls and gives the seconds that they took."""


@experiments.register("e06_agreement")
class Agreement:
    """Agreement with other timers."""

    name: ClassVar[str] = "e06_agreement"
    title: ClassVar[str] = "Does our clock agree with other timers?"
    target: ClassVar[str] = "interval of the ratio to timeit, torch's Timer and pyperf within 2 % on every case"
    reads: ClassVar[str] = "e06_agreement"

    def units(self, quick: bool) -> list[str]:
        cases, processes = (list(CASES)[:1], LOOKS[0]) if quick else (list(CASES), LOOKS[-1])
        return [f"{case}/{process}" for process in range(processes) for case in cases]

    def observe(self, unit: str, context: Context) -> Observation:
        need_pyperf()
        case = unit.split("/")[0]
        found: Observation = in_fresh_process(
            time_case, case, zlib.crc32(unit.encode()), log=context.folder / "agreement.log"
        )
        return found

    def judge(self, observations: Mapping[str, Observation]) -> Finding:
        estimates: dict[tuple[str, str], list[float]] = {}
        call_ns: dict[str, list[float]] = {}
        for unit, found in sorted(observations.items()):
            case = unit.split("/")[0]
            call_ns.setdefault(case, []).append(median(found["ns"]["ours"]) / found["calls"])
            for rival in RIVALS:
                estimate = process_estimate(found["ns"]["ours"], found["ns"][rival])
                estimates.setdefault((case, rival), []).append(estimate)
        compared = {key: decide(values, MARGIN) for key, values in estimates.items()}
        rows = [_row(*key, median(call_ns[key[0]]), found) for key, found in compared.items()]
        if not rows or any(found.processes < LOOKS[0] for found in compared.values()):
            return Finding(None, f"too few processes: a verdict needs {LOOKS[0]} of each case", rows)
        agreed = sum(found.verdict == "UNCHANGED" for found in compared.values())
        worst = max(compared.values(), key=_reach)
        found_text = (
            f"{agreed} of {len(compared)} ratios within 2 % as a whole interval; the widest reaches "
            f"{100 * math.expm1(_reach(worst)):.2f} % from equal, over {worst.processes} processes"
        )
        return Finding(agreed == len(compared), found_text, rows)


def _reach(found: Comparison) -> float:
    """How far the interval reaches from a ratio of 1, as a logarithm."""
    return max(abs(math.log(found.lo)), abs(math.log(found.hi)))


def _row(case: str, rival: str, call_ns: float, found: Comparison) -> dict[str, Any]:
    """One case and one other timer."""
    return {
        "case": case,
        "timer": rival,
        "call_us": call_ns / 1e3,
        "ratio": found.ratio,
        "lo": found.lo,
        "hi": found.hi,
        "processes": found.processes,
        "agrees": found.verdict == "UNCHANGED",
    }


def time_case(case: str, seed: int, rounds: int = ROUNDS) -> dict[str, Any]:
    """In a fresh process: every timer's blocks of one case.

    Returns:
        ``calls`` of a block, and under ``ns`` by timer the duration of each block in nanoseconds.
    """
    run = callable_of(case)
    spent: list[float] = []
    start = time.perf_counter()
    while not spent or time.perf_counter() - start < WARMUP_S:
        spent.append(timeit.timeit(run, number=1))
    calls = max(LEAST_CALLS, math.ceil(BLOCK_S / median(spent[len(spent) // 2 :])))
    timers = {
        "ours": _ours(run),
        "timeit": timeit.Timer(run).timeit,
        "torch Timer": _torch(run),
        "pyperf": _pyperf(run),
    }
    by_itself = {"torch Timer": max(LEAST_CALLS, calls // 100), "pyperf": calls}
    rng, names = random.Random(seed), list(timers)
    ns: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(rounds):
        rng.shuffle(names)
        for name in names:
            for _ in range(calls - by_itself.get(name, 0)):
                run()
            ns[name].append(round(timers[name](calls) * 1e9))
    return {"calls": calls, "ns": ns}


def callable_of(case: str) -> Callable[[], object]:
    """What a case calls."""
    implementation, size = CASES[case]
    if not implementation:
        data = bytes(size)
        return lambda: zlib.crc32(data)
    problem, member = Problem(seqlen=size), implementations.get(implementation)
    inputs = place_inputs(make_inputs(problem), member.layout, "cpu")
    return make_step(member.prepare(problem, inputs), problem, inputs, member.layout).run


def _ours(run: Callable[[], object]) -> Timed:
    clock = PerfCounterClock()
    return lambda calls: clock.time_block(run, calls).ns / 1e9


def _torch(run: Callable[[], object]) -> Timed:
    import torch
    from torch.utils.benchmark import Timer

    timer = Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
    return lambda calls: timer.timeit(calls).raw_times[0]


def _pyperf(run: Callable[[], object]) -> Timed:
    """Pyperf's worker, under a new name each time, as it wants; of two values the first is the lead-in."""
    import pyperf

    runner = pyperf.Runner()
    runner.parse_args(["--worker", "--quiet", "--loops=1", "--values=2", "--warmups=0"])
    number = 0

    def timed(calls: int) -> float:
        nonlocal number
        number += 1
        runner.args.loops = calls
        value: float = runner.bench_func(f"value {number}", run).get_values()[-1]
        return value * calls

    return timed
