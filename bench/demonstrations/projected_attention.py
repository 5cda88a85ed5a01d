"""Projections, pairs and both together, timed side by side along a ladder of lengths.

One row for each combination of widths, implementation, length and part::

    part "projections"   the products with weights alone; for ``multihead`` with that of its output
    part "pairs"         attention on queries, keys and values that are projected already
    part "whole"         both in one call

with ``latency_ms``, one time per call for each round, and ``flop``. A repetition goes through all lengths in random
order and times the parts of one length in interleaved rounds, so that whatever slows the machine down meets all of
them; round n of one part and round n of another belong together.
Every implementation is verified against float64 at every length before it is timed; one that fails, or cannot compute
the problem, has a row with a ``reason`` and no latencies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from bench.clocks import Clock, PerfCounterClock, overhead_ns
from bench.demonstrations import Rows, demonstrations
from bench.errors import Unsupported
from bench.numerics import failure_reason
from bench.problem import Problem
from bench.projected import PROJECTED, Prepared, ProjectedProblem, draw_inputs, expected, verify
from bench.timing import SamplingPlan, interleave
from bench.units import ns_to_ms

WIDTHS = ((256, 256), (256, 320))
"""Width of queries and of sources: self-attention, and attention to wider vectors. By FLOP the pairs overtake at
T = 384 and 448, in the middle of the ladder; with a projection of the output at 512 and 576."""
HEADS, HEAD_DIM = 4, 64
LENGTHS = tuple(round(64 * 2 ** (step / 2)) for step in range(10))
"""64 to 1448."""
QUICK_LENGTHS = LENGTHS[:9]
THREADS = 1
"""The question is what the arithmetic costs, not how it parallelises: threads that wait for one another at every
operator would make short calls a measure of who else uses the machine."""
REPETITIONS = 6
"""With a round in each there is a distribution-free 96.9 % interval for the median; more rounds narrow it."""
BLOCK_NS = 2_000_000
"""Calls in a block together take at least this, so that the first of them, whose data others have pushed out of the
cache, does not decide."""
PLAN = SamplingPlan(
    min_block_ns=BLOCK_NS, warmup_ns=0, warmup_calls=1, budget_ns=100_000_000, min_rounds=2, max_rounds=12
)
"""Of one length in one repetition."""
QUICK_PLAN = replace(PLAN, budget_ns=20_000_000, min_rounds=1, max_rounds=4)


@dataclass(frozen=True)
class _Arm:
    """An implementation that is timed at one length."""

    about: dict[str, Any]
    """What its rows have in common."""
    prepared: Prepared
    pair_flop: int
    latency_ms: dict[str, list[float]] = field(default_factory=dict)
    """Of each part, one time per round."""

    @property
    def parts(self) -> dict[str, Callable[[], object]]:
        """What is timed, by part."""
        return {part: getattr(self.prepared, part) for part in ("projections", "pairs", "whole")}

    def rows(self) -> Rows:
        """One row per part."""
        products = self.prepared.projection_flop
        flop = {"projections": products, "pairs": self.pair_flop, "whole": products + self.pair_flop}
        return [
            self.about
            | {
                "part": part,
                "flop": flop[part],
                "latency_ms": [float(f"{ms:.6g}") for ms in self.latency_ms[part]],
                "reason": None,
            }
            for part in flop
        ]


@demonstrations.register("projected_attention")
def projected_attention(quick: bool) -> Rows:
    """Time the parts of everything in ``bench.projected`` with one thread; ``quick``: self-attention alone."""
    import torch

    torch.set_num_threads(THREADS)
    lengths, widths, plan = (QUICK_LENGTHS, WIDTHS[:1], QUICK_PLAN) if quick else (LENGTHS, WIDTHS, PLAN)
    problems = [
        ProjectedProblem(Problem(seqlen=seqlen, num_heads=HEADS, head_dim=HEAD_DIM), *pair)
        for seqlen in lengths
        for pair in widths
    ]
    return time_parts(problems, PerfCounterClock(), plan)


def time_parts(problems: Iterable[ProjectedProblem], clock: Clock, plan: SamplingPlan) -> Rows:
    """Verify and time every implementation on each of the problems; rows as in the module docstring."""
    ladder: dict[int, list[_Arm]] = {}
    refused: Rows = []
    for problem in problems:
        arms = ladder.setdefault(problem.attention.seqlen_q, [])
        for found in _admitted(problem):
            if isinstance(found, _Arm):
                arms.append(found)
            else:
                refused.append(found)
    rng, overhead = random.Random(0), overhead_ns(clock)
    for _ in range(REPETITIONS):
        for seqlen in rng.sample(list(ladder), len(ladder)):
            _repeat(ladder[seqlen], clock, plan, rng, overhead)
    return refused + [row for arms in ladder.values() for arm in arms for row in arm.rows()]


def _repeat(arms: list[_Arm], clock: Clock, plan: SamplingPlan, rng: random.Random, overhead: int) -> None:
    """Add some rounds to every part of every arm, all of them interleaved."""
    places = {f"{index} {part}": (arm, part) for index, arm in enumerate(arms) for part in arm.parts}
    runs = {name: arm.parts[part] for name, (arm, part) in places.items()}
    samples = interleave(runs, clock, plan, rng, lambda _, block: block(), overhead_ns=overhead)
    for name, (arm, part) in places.items():
        one = samples[name]
        arm.latency_ms.setdefault(part, []).extend(ns_to_ms(ns) / one.calls for ns in one.ns)


def _admitted(problem: ProjectedProblem) -> Iterable[_Arm | dict[str, Any]]:
    """Implementations that give the right answer, and for each of the others a row with the reason."""
    inputs = draw_inputs(problem)
    answer = expected(problem, inputs)
    for name, prepare in PROJECTED.items():
        about = _about(problem, name)
        try:
            prepared = prepare(problem, inputs)
        except Unsupported as error:
            yield about | {"part": "whole", "latency_ms": None, "reason": f"unsupported: {error}"}
            continue
        agreement = verify(problem, prepared.whole(), answer)
        if agreement.passed:
            yield _Arm(about, prepared, problem.pair_flop)
        else:
            reason = f"incorrect: {failure_reason(agreement)}"
            yield about | {"part": "whole", "latency_ms": None, "reason": reason}


def _about(problem: ProjectedProblem, name: str) -> dict[str, Any]:
    """What tells apart the rows of one implementation on one problem."""
    import torch

    one = problem.attention
    return {
        "implementation": name,
        "device": "cpu",
        "threads": torch.get_num_threads(),
        "dtype": one.dtype,
        "mask": one.mask.spec,
        "batch_size": one.batch_size,
        "num_heads": one.num_heads_q,
        "head_dim": one.head_dim,
        "head_dim_v": one.head_dim_v,
        "width": problem.width,
        "source_width": problem.source_width,
        "seqlen_q": one.seqlen_q,
        "seqlen_k": one.seqlen_k,
    }
