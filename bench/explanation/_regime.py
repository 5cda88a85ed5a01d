"""What bounds the cell: products, memory, cache, or the cost of calling. A limit bounds it that takes half its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.analysis import latency_summary
from bench.digest import Digest, Stage
from bench.explanation._cell import Cell, Refusal, Sentence, Support, interval_text, percent
from bench.explanation._limits import (
    BEATEN,
    Regime,
    Share,
    bytes_share,
    calling_share,
    place,
    place_support,
    products_share,
)
from bench.record import Record

TOPIC = "regime"
HALF = 0.5
"""A limit that takes this share of the time leaves no other one as much; a stage that reaches this share of its roof is
held by it."""
TIE = 1.25
"""Two limits that are nearer to one another than this factor are not told apart: a ceiling is good to some percent."""
PROFILE_SLACK = 0.03
"""Times of stages add up to the profiled total within this."""
REGIMES: dict[str, Regime] = {"compute": "compute", "bandwidth": "bandwidth", "overhead": "launch"}
"""By the roof of a stage in a digest."""


class Found(NamedTuple):
    """What one source says."""

    bound: Regime | None
    """None: it is open."""
    text: str
    support: tuple[Support, ...]

    def sentence(self) -> Sentence:
        """As it is said."""
        return Sentence(TOPIC, self.text, self.support, self.bound is not None)


def regime(cell: Cell) -> Iterator[Sentence | Refusal]:
    """The regime by the limits and by the profile; INCONCLUSIVE where they do not tell, or contradict one another."""
    time = cell.time
    if time is None:
        yield Refusal(TOPIC, cell.no_time or "")
        return
    shares: list[Share] = []
    tried: list[Share | str] = [calling_share(cell, time)]
    if cell.ceilings is None:
        tried.append("the run measured no limits of its machine (header.ceilings is null)")
    else:
        tried += [products_share(cell, time, cell.ceilings), bytes_share(cell, time, cell.ceilings)]
    for one in tried:
        if isinstance(one, str):
            yield Refusal(TOPIC, one)
        else:
            shares.append(one)
    profiled = None if cell.digest is None else _profiled(cell, cell.digest)
    if isinstance(profiled, Refusal):
        yield profiled
        profiled = None
    for found in _reconciled(_by_limits(shares, cell.slowed) if shares else None, profiled):
        yield found.sentence()
        if found.bound == "bandwidth" and place(cell) is None:
            missing = "memory was not measured" if cell.touched_bytes is None else "header.ceilings.cache_bytes is null"
            yield Refusal(TOPIC, f"whether it is the bandwidth of memory or of a cache is not known: {missing}")
    yield from _issuing(cell.record)


def _reconciled(limits: Found | None, profiled: Found | None) -> Sequence[Found]:
    """What is said where there are two sources: the one that knows first, and neither where they contradict."""
    if limits is None or profiled is None:
        return [one for one in (limits, profiled) if one is not None]
    if limits.bound is None or profiled.bound is None:
        return sorted((limits, profiled), key=lambda found: found.bound is None)
    if limits.bound == profiled.bound or {limits.bound, profiled.bound} == {"bandwidth", "cache"}:
        return [limits, profiled]
    text = f"INCONCLUSIVE: run and profile contradict one another. {limits.text} {profiled.text}"
    return [Found(None, text, limits.support + profiled.support)]


def _by_limits(shares: Sequence[Share], slowed: str | None) -> Found:
    """The verdict of the lower bounds, of which there is at least one."""
    ranked = sorted(shares, key=lambda share: -share.middle)
    top, near = ranked[0], [share for share in ranked[1:] if _rival(share, ranked[0])]
    told = f"{top.text} {_take(top)} {_range(top)} of its time"
    if top.hi < HALF:
        every = "; ".join(f"{share.text}, {_range(share)}" for share in ranked)
        text = f"INCONCLUSIVE: no limit that is known takes half of its time ({every})."
        if slowed is not None:
            text += f" That time is longer than the call needs: it is flagged {slowed}."
        return Found(None, text, _support(ranked))
    if near:
        others = " and ".join(f"{share.text} ({_range(share)})" for share in near)
        return Found(None, f"INCONCLUSIVE: {told}, but so do, or nearly, {others}.", _support([top, *near]))
    if top.lo < HALF:
        text = f"INCONCLUSIVE: {told}, so whether it is {top.regime}-bound is open: one half lies within."
        return Found(None, text, _support([top]))
    least = "" if top.regime == "launch" else " at least"
    return Found(top.regime, f"It is {top.regime}-bound: {told}{least}.", _support([top]))


def _profiled(cell: Cell, digest: Digest) -> Found | Refusal:
    """The verdict of the stages: which roof most of the profiled time is nearest to."""
    if not digest.stages or digest.total_ms is None:
        return Refusal(TOPIC, "its profile has no stages: torch's profiler did not run")
    if cell.profile_doubt is not None:
        return Refusal(TOPIC, f"its profile does not tell: {cell.profile_doubt}")
    stages = [stage for stage in sorted(digest.stages, key=lambda stage: -stage.share) if stage.roof is not None]
    beaten = [stage.label for stage in stages if stage.roof_fraction is not None and stage.roof_fraction > BEATEN]
    if beaten:
        return Refusal(
            TOPIC, f"its profile does not tell: {beaten[0]} beats a roof that was measured too low beside it"
        )
    shares = {roof: sum(stage.share for stage in stages if stage.roof == roof) for roof in REGIMES}
    told = ", ".join(f"{percent(share)} {roof}" for roof, share in sorted(shares.items(), key=lambda item: -item[1]))
    support = tuple(
        Support("digest", f"stages[{one.label}].share, roof, roof_fraction", _stage_text(one)) for one in stages
    )
    top = max(shares, key=lambda roof: shares[roof])
    if shares[top] < HALF + PROFILE_SLACK:
        return Found(None, f"INCONCLUSIVE: no one roof is nearest for most of its profiled time: {told}.", support)
    if top == "overhead" and digest.unprofiled_ms is None:
        return Refusal(TOPIC, "what calling costs cannot be read off the profile: it has no time without the profiler")
    reached = sum(one.share * (one.roof_fraction or 0.0) for one in stages if one.roof == top) / shares[top]
    if top != "overhead" and reached < HALF:
        text = (
            f"INCONCLUSIVE: {percent(shares[top])} of its profiled time is nearest to the {top} roof, but reaches "
            f"{percent(reached)} of it: something else holds it."
        )
        return Found(None, text, support)
    bound = REGIMES[top]
    if bound == "bandwidth" and place(cell) == "cache":
        bound, support = "cache", (*support, *place_support(cell))
    text = f"It is {bound}-bound by its profile: by the roof nearest to each stage, its time is {told}."
    return Found(bound, text, support)


def _stage_text(stage: Stage) -> str:
    """``45%, bandwidth, 70%``."""
    reached = "" if stage.roof_fraction is None else f", {percent(stage.roof_fraction)}"
    return f"{percent(stage.share)}, {stage.roof}{reached}"


def _issuing(record: Record) -> Iterator[Sentence]:
    """On a GPU: whether the host needs longer to issue a call than the device to do it."""
    others = () if record.measurement is None else record.measurement.others
    clocks = {one.clock: latency_summary(one) for one in others if one.samples_ns}
    host, graph = clocks.get("host"), clocks.get("cuda_graph")
    if host is None or graph is None or host.lo_ms <= graph.hi_ms:
        return
    seen = {name: interval_text(clocks[name]) for name in ("host", "cuda_graph")}
    text = (
        f"It is launch-bound where calls follow one another: issuing one takes {seen['host']}, its work "
        f"{seen['cuda_graph']} when replayed from a CUDA graph."
    )
    yield Sentence(
        TOPIC, text, tuple(Support("record", f"measurement.others[{n}].samples_ns", told) for n, told in seen.items())
    )


def _support(shares: Sequence[Share]) -> tuple[Support, ...]:
    """All that they rest on, each once."""
    return tuple(dict.fromkeys(one for share in shares for one in share.support))


def _rival(share: Share, top: Share) -> bool:
    """Whether the largest share does not rule this one out: it is as large, or both would be half of the time.

    Products and bytes may take the same half, one behind the other; what does not grow is beside them.
    """
    both = "launch" in (share.regime, top.regime) and share.hi >= HALF
    return both or share.middle * TIE > top.middle


def _range(share: Share) -> str:
    """``62% [60%, 63%]``. What does not grow is all at most, and none where time grows faster than the work."""
    middle, low, high = (percent(min(1.0, max(0.0, part))) for part in (share.middle, share.lo, share.hi))
    return f"{middle} [{low}, {high}]"


def _take(share: Share) -> str:
    """Products and inputs are many."""
    return "takes" if share.regime == "launch" else "take"
