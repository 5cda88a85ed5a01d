"""Claim 9: from which length on what stores no scores beats naive, in time and in memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from bench.claims import Answer, Drawing, Hearing, Needs, Scope, Verdict, claims
from bench.claims._crossover_figure import crossover_figure
from bench.claims._growth import cases, problem
from bench.claims._storage import (
    WHOLE_BLOCKS,
    constants,
    deciding,
    plain_lengths,
    several_machines,
    span,
    whole_blocks,
)
from bench.claims._versus import MARGIN, Versus, crossing_text, versus_naive
from bench.memory_law import NAIVE, bytes_polynomial
from bench.metrics import Row
from bench.plots import Reading
from bench.units import significant

NAMED = (NAIVE, "online_softmax", "sdpa_flash", "sdpa_math")
GPU_ONLY = ("triton_flash",)
HEADS, MASKED_LENGTHS = 4, (256, 368, 512, 720, 1024, 1456)
"""Where what skips hidden blocks overtakes within a few hundred positions; one head leaves cores without work."""
LEAST_LENGTHS, LEAST_SPAN = 4, 4.0
"""Fewer lengths, or the longest less than this many times the shortest, say nothing about order along the length."""
LEAST_PROCESSES = 5
"""The interval over five processes holds the median of all with 94 %; over two, with 50 %."""
LIMIT_BYTES = 2 << 30
"""For how long a sequence memory would suffice is said of 2 GiB."""


@claims.register("crossover")
class Crossover:
    """Paired ratios to naive at every length, and exact bytes."""

    name: ClassVar[str] = "crossover"
    order: ClassVar[int] = 9
    statement: ClassVar[str] = (
        "What stores no scores overtakes naive once: from some length on it is faster and stays ahead, and from some "
        "length on it holds fewer bytes, by a factor that grows with T."
    )
    rule: ClassVar[str] = (
        "Time: ratios to naive, paired round by round, count as ahead or behind where their whole interval over at "
        f"least {LEAST_PROCESSES} processes is beyond ±{MARGIN:.0%}. CONFIRMED if after the shortest length that is "
        "ahead none may be behind, and the longest is ahead; REFUTED if a longer one is behind. Memory: CONFIRMED if "
        "no length holds as many bytes as naive after one that held fewer, and the factor grows with every length from "
        f"{WHOLE_BLOCKS:,} on; REFUTED if not. INCONCLUSIVE where nothing is ahead yet, or it cannot be told."
    )

    def needs(self, scope: Scope) -> Needs:
        """The shared ladder and the lengths at which bytes lie on a law; half the keys hidden, several heads."""
        names = NAMED if scope.device == "cpu" else NAMED + GPU_ONLY
        problems = [problem(scope, length) for length in plain_lengths(scope)]
        if not scope.quick and scope.device == "cpu":
            problems += [problem(scope, length, num_heads=HEADS, mask="padding(0.5)") for length in MASKED_LENGTHS]
        return Needs(tuple(cases(problems, names)))

    def judge(self, hearing: Hearing) -> list[Answer]:
        """Time and memory of each implementation on each ladder that naive climbed too."""
        reading = hearing.reading
        several = several_machines(reading)
        found = versus_naive(reading)
        answers = []
        for one in deciding([one for one in found if one.times], tells_time):
            subject = f"time, {one.implementation} against {NAIVE}, {constants(one.rows[0], several)}"
            answers.append(Answer(subject, *time_verdict(one), one.keys))
        for one in deciding([one for one in found if one.memory], tells_memory):
            subject = f"memory, {one.implementation} against {NAIVE}, {constants(one.rows[0], several)}"
            verdict, said, reason = memory_verdict(one)
            answers.append(Answer(subject, verdict, said + _reach(reading, one), reason, one.keys))
        return answers

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Ratios to naive of everything there is, time beside memory."""
        return crossover_figure(hearing.reading, answers)


def tells_time(one: Versus) -> bool:
    """Whether there are lengths enough that were timed in processes enough, far enough apart."""
    lengths = [point.length for point in one.times if point.processes >= LEAST_PROCESSES]
    return len(lengths) >= LEAST_LENGTHS and lengths[-1] >= LEAST_SPAN * lengths[0]


def tells_memory(one: Versus) -> bool:
    """Whether there are lengths enough with whole blocks."""
    return len(one.whole_lengths) >= LEAST_LENGTHS


def time_verdict(one: Versus) -> tuple[Verdict, str, str]:
    """Verdict, what was found, and why."""
    telling = tells_time(one)
    times = [point for point in one.times if point.processes >= LEAST_PROCESSES or not telling]
    longest = times[-1]
    said = f"{crossing_text(times)}; at T={longest.length:,} it takes {longest.text} of {NAIVE}'s time"
    if not telling:
        need = f"needs {LEAST_LENGTHS} lengths over a factor of {LEAST_SPAN:.0f}, each in {LEAST_PROCESSES} processes"
        most = max(point.processes for point in times)
        return (
            "INCONCLUSIVE",
            said,
            f"{need}; got {len(times)} in up to {most}, whose interval says too little of others",
        )
    first = next((point for point in times if point.ahead), None)
    if first is None:
        return "INCONCLUSIVE", said, f"nowhere clearly ahead up to T={longest.length:,}; longer ones may tell"
    later = [point for point in times if point.length > first.length]
    behind = [point for point in later if point.behind]
    if behind:
        again = f"ahead at T={first.length:,} ({first.text}), behind at T={behind[-1].length:,} ({behind[-1].text})"
        return "REFUTED", said, again
    doubtful = [point for point in later if not point.not_behind]
    if doubtful:
        worst = doubtful[-1]
        return "INCONCLUSIVE", said, f"ahead at T={first.length:,}, but T={worst.length:,} is too noisy ({worst.text})"
    if not longest.ahead:
        return "INCONCLUSIVE", said, f"ahead at T={first.length:,}, not clearly at the longest ({longest.text})"
    return "CONFIRMED", said, f"no length after T={first.length:,} is behind by {MARGIN:.0%}"


def memory_verdict(one: Versus) -> tuple[Verdict, str, str]:
    """Verdict, what was found, and why; bytes have no interval."""
    lengths = sorted(one.memory)
    fewer = [length for length in lengths if one.memory[length] < 1]
    whole = one.whole_lengths
    leads = [
        f"{significant(1 / one.memory[length])}x as much at {length:,}"
        for length in dict.fromkeys((*whole[:1], *lengths[-1:]))
    ]
    if not fewer:
        said = f"never fewer bytes than {NAIVE} over T {span(lengths)}"
        return "INCONCLUSIVE", said, "nowhere ahead yet; longer ones may tell"
    said = f"fewer bytes from T={fewer[0]:,} on; {NAIVE} holds {', '.join(leads)}"
    if fewer[0] == lengths[0]:
        said = said.replace("from", "from the shortest,", 1)
    back = [length for length in lengths if length > fewer[0] and one.memory[length] >= 1]
    if back:
        return "REFUTED", said, f"fewer bytes at T={fewer[0]:,}, no fewer at T={back[-1]:,}"
    shrunk = [long for short, long in pairwise(whole) if one.memory[long] >= one.memory[short]]
    if shrunk:
        return "REFUTED", said, f"the factor is no larger at T={shrunk[-1]:,} than one length before"
    if not tells_memory(one):
        need = f"needs {LEAST_LENGTHS} lengths of {WHOLE_BLOCKS:,} or more to see the factor grow, got {len(whole)}"
        return "INCONCLUSIVE", said, need
    return "CONFIRMED", said, f"the factor grows at each of {len(whole)} lengths from {whole[0]:,} on"


def _reach(reading: Reading, one: Versus) -> str:
    """Longest sequences that 2 GiB hold, where stored bytes of both lie on a law; empty where not."""
    reach = {}
    for name, rows in ((NAIVE, one.naive), (one.implementation, one.rows)):
        measured = [row for row in whole_blocks(rows) if row["peak_bytes"] is not None]
        law = bytes_polynomial({int(row["length"]): _held_bytes(reading, row) for row in measured})
        if law is None or not law.exact:
            return ""
        reach[name] = law.longest(LIMIT_BYTES)
    said = ", ".join(f"{name} T={seqlen:,}" for name, seqlen in reach.items() if seqlen)
    return f"; by the laws 2 GiB hold, inputs included, {said}"


def _held_bytes(reading: Reading, row: Row) -> int:
    """Inputs, mask tensors and peak."""
    return reading.record(row).problem.input_bytes + int(row["mask_bytes"]) + int(row["peak_bytes"])
