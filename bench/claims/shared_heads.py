"""Claim 10: sharing keys and values between heads saves storage, not arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bench.case import Arm
from bench.claims import Answer, Case, Drawing, Hearing, Needs, Pair, Scope, Verdict, claims
from bench.claims._shared_heads_figure import shared_heads_figure
from bench.claims._sharing import IN_PLACE, Sharing, sharings
from bench.claims._storage import several_machines
from bench.problem import Problem
from bench.units import format_bytes
from bench.verdicts import LOOKS, Comparison

HEADS = 8
"""Query heads throughout."""
SHARED = (8, 4, 2, 1)
"""Key heads: one for each query head, two grouped forms, one for all."""
CONTRAST = "sdpa_math"
"""Repeats shared heads to full width before it computes: drawn, not judged."""
LEAST_SHARE = 0.5
"""Least part of the time that has to follow the pairs."""
ALLOWED, REFUTING = 0.25, 0.5
"""Parts of what time would fall by if the pairs shrank with the key heads: below the first it is a matter of caches and
shapes, from the second on the arithmetic itself is less."""


@claims.register("shared_heads")
class SharedHeads:
    """Bytes of k and v and of the call by key heads; time of one key head against eight, paired, with a control."""

    name: ClassVar[str] = "shared_heads"
    order: ClassVar[int] = 10
    statement: ClassVar[str] = (
        "Sharing keys and values between query heads divides the bytes stored for them by the size of the group; the "
        "pairs, and so the time, stay."
    )
    rule: ClassVar[str] = (
        "Storage: CONFIRMED if a call with fewer key heads, whose k and v are smaller in proportion, holds not a byte "
        "more than without sharing; REFUTED if it holds more, for then it repeats what was shared. Time: a control "
        "doubles the pairs at one key head, and the part of time that follows them says how far time would fall if "
        "pairs shrank with the key heads. CONFIRMED if the paired interval allows less than a quarter of that fall, "
        "REFUTED if it is at least half of it, INCONCLUSIVE between, or if under half of the time follows the pairs."
    )

    def needs(self, scope: Scope) -> Needs:
        """Cells by key heads; for each implementation one key head against eight, and the control."""
        counts = (HEADS, 1) if scope.quick else SHARED
        names = (*IN_PLACE, CONTRAST)
        cells = [Case(sized(scope.device, count), name) for count in counts for name in names]
        timed = IN_PLACE[-1:] if scope.quick else IN_PLACE
        cells += [Case(halved(scope.device), name, timed=False) for name in timed]
        pairs = [pair for name in timed for pair in (shared_pair(scope.device, name), control_pair(scope.device, name))]
        return Needs(tuple(cells), tuple(pairs))

    def judge(self, hearing: Hearing) -> list[Answer]:
        """Storage from all cells that differ in their key heads alone; time from the pairs."""
        several = several_machines(hearing.reading)
        answers = [_storage_answer(one, several) for one in sharings(hearing.reading) if one.implementation in IN_PLACE]
        for device in ("cpu", "cuda"):
            for name in IN_PLACE:
                shared, control = shared_pair(device, name), control_pair(device, name)
                ratio = hearing.pair(shared.name)
                if ratio is not None:
                    said = _time_verdict(ratio, hearing.pair(control.name))
                    problem = shared.b.problem
                    subject = f"time, {name}, 1 of {HEADS} key heads, T={problem.seqlen_k:,}, {problem.dtype}, {device}"
                    answers.append(Answer(subject, *said, (shared.name, control.name)))
        return answers

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Stored bytes, pairs and time against the key heads."""
        paired = {
            (name, device): (ratio, hearing.pair(control_pair(device, name).name))
            for device in ("cpu", "cuda")
            for name in IN_PLACE
            if (ratio := hearing.pair(shared_pair(device, name).name)) is not None
        }
        return shared_heads_figure(hearing.reading, paired, answers)


def sized(device: str, num_heads_kv: int, num_heads_q: int = HEADS) -> Problem:
    """Long enough for pairs to rule the time, short enough for a dozen processes of each pair."""
    fields = {"seqlen": 512} if device == "cpu" else {"seqlen": 4096, "batch_size": 4, "dtype": "float16"}
    return Problem(num_heads_q=num_heads_q, num_heads_kv=num_heads_kv, **fields)


def halved(device: str) -> Problem:
    """One key head and half the query heads: half the pairs."""
    return sized(device, 1, HEADS // 2)


def shared_pair(device: str, name: str) -> Pair:
    """One key head against one for each query head."""
    plain, shared = sized(device, HEADS), sized(device, 1)
    return Pair(f"{name}: {shared.key} against {plain.key}", Arm(plain, name), Arm(shared, name))


def control_pair(device: str, name: str) -> Pair:
    """Twice the query heads at one key head: as many keys and values, twice the pairs."""
    half, shared = halved(device), sized(device, 1)
    return Pair(f"{name}: {shared.key} against {half.key}", Arm(half, name), Arm(shared, name))


def following_share(ratio: float) -> float:
    """Part of the time of the longer call that follows the pairs, where doubling them multiplied time by ``ratio``."""
    return min(1.0, max(0.0, 2 * (1 - 1 / ratio)))


def _time_verdict(ratio: Comparison, control: Comparison | None) -> tuple[Verdict, str, str]:
    """Verdict, what was found, and why."""
    said = f"takes {ratio.ratio:.2f}x [{ratio.lo:.2f}, {ratio.hi:.2f}] of the time with {HEADS} key heads"
    if control is None:
        return "INCONCLUSIVE", said, "no control says which part of the time follows the pairs"
    few = min(ratio.processes, control.processes)
    if few < LOOKS[0]:
        return "INCONCLUSIVE", said, f"needs {LOOKS[0]} processes, got {few}"
    least, middle, most = (following_share(value) for value in (control.lo, control.ratio, control.hi))
    doubled = f"twice the pairs take {control.ratio:.2f}x [{control.lo:.2f}, {control.hi:.2f}]"
    if least < LEAST_SHARE:
        return "INCONCLUSIVE", said, f"{doubled}: overhead may be more than half of the time"
    away = 1 - 1 / HEADS
    said += f"; {1 - middle * away:.2f}x if pairs shrank with the key heads, for {doubled}"
    if 1 - ratio.lo < ALLOWED * least * away:
        return "CONFIRMED", said, f"time falls by less than {ALLOWED:.0%} of what fewer pairs would save"
    if 1 - ratio.hi >= REFUTING * most * away:
        return "REFUTED", said, f"time falls by at least {REFUTING:.0%} of what fewer pairs would save"
    return "INCONCLUSIVE", said, "the interval does not tell caches and shapes from less arithmetic"


def _storage_answer(one: Sharing, several: bool) -> Answer:
    counts = ", ".join(f"{format_bytes(one.kv_bytes[n])} with {n}" for n in one.counts)
    rise = max((one.rise_bytes[n] for n in one.counts), default=0)
    said = f"k and v take {counts} key heads; the call holds {format_bytes(one.peak_bytes[one.counts[0]])}"
    said += ", no more with sharing" if rise <= 0 else f", {format_bytes(rise)} more with sharing"
    said += f"; {one.pairs:,} pairs throughout"
    subject = f"storage, {one.implementation}, {one.constants(several)}"
    if rise > 0:
        return Answer(subject, "REFUTED", said, "what is shared is stored again during the call", one.keys)
    return Answer(subject, "CONFIRMED", said, "stored bytes fall in proportion, and nothing replaces them", one.keys)
