"""A few sentences under each chart of profiles, from the digests that it is drawn from and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.digest import Digest
from bench.report.profile_charts import share_of_roofs, share_of_stages
from bench.units import format_bytes, format_ms

TOLD = 0.01
"""A share below this is not told."""
MOVED = 0.05
"""A share that differs by less between two lengths is not said to change."""
FIRST = 3
"""Parts that are named."""
SCORES = ("softmax", "scale and mask")
"""Stages that go over stored scores and compute no product."""
FUSED = "fused attention"

Shares = Callable[[Digest], Mapping[str, float]]


def stage_sentence(digests: Sequence[Digest]) -> str:
    """What takes most at the longest length of each implementation, what changes from the shortest, what is fused."""
    own = _by_implementation(digests)
    fused = [name for name, ones in own.items() if all(_is_fused(one) for one in ones)]
    apart = f"In {_listed(fused)} softmax, scale and mask are within the fused kernel." if fused else ""
    told = [_leading(own, share_of_stages), *(_change(name, ones) for name, ones in own.items()), apart]
    return " ".join(text for text in told if text)


def roof_sentence(digests: Sequence[Digest]) -> str:
    """How much of the time is in stages nearest to each roof, at the longest length of each implementation."""
    return f"Time by the roof that stages are nearest to. {_leading(_by_implementation(digests), share_of_roofs)}"


def held_sentence(digest: Digest) -> str:
    """How much is held at most, when, and by what."""
    memory = digest.memory
    assert memory is not None, "only profiles with memory are drawn"
    hidden = f" {memory.omitted} small allocations are not drawn." if memory.omitted else ""
    if not memory.peak_bytes:
        return f"The call allocates nothing.{hidden}"
    named = [one for one in memory.owners[:FIRST] if one.peak_bytes >= TOLD * memory.peak_bytes]
    parts = [f"{one.name} {one.peak_bytes / memory.peak_bytes:.0%}" for one in named]
    rest = memory.peak_bytes - sum(one.peak_bytes for one in named)
    if rest >= TOLD * memory.peak_bytes:
        parts.append(f"{len(memory.owners) - len(named)} others {rest / memory.peak_bytes:.0%}")
    when = f"first {format_ms(memory.peak_ms)} after the begin of a call of {format_ms(memory.end_ms)}"
    most = f"At most {format_bytes(memory.peak_bytes)} are held at once beyond the inputs, {when}"
    return f"{most}: {', '.join(parts)}; {format_bytes(memory.output_bytes)} outlive the call.{hidden}"


def _by_implementation(digests: Sequence[Digest]) -> dict[str, list[Digest]]:
    """Digests by implementation, short lengths first."""
    own: dict[str, list[Digest]] = {}
    for digest in sorted(digests, key=lambda one: one.problem.seqlen_k):
        own.setdefault(digest.implementation, []).append(digest)
    return own


def _leading(own: Mapping[str, Sequence[Digest]], shares: Shares) -> str:
    """``At T=2048, naive (40.5 ms): score product 36%, softmax 21%; sdpa_flash (20 ms): fused attention 100%.``"""
    lengths = {name: digests[-1].problem.seqlen_k for name, digests in own.items()}
    one_length = len(set(lengths.values())) == 1
    texts = []
    for name, digests in own.items():
        parts = shares(digests[-1])
        first = [part for part in sorted(parts, key=lambda part: -parts[part]) if parts[part] >= TOLD][:FIRST]
        said = ", ".join(f"{part} {parts[part]:.0%}" for part in first) or "no stage of 1%"
        where = "" if one_length else f" at T={lengths[name]}"
        texts.append(f"{name}{where} ({format_ms(digests[-1].total_ms)}): {said}")
    begin = f"At T={next(iter(lengths.values()))}, " if one_length else ""
    return f"{begin}{'; '.join(texts)}."


def _change(name: str, digests: Sequence[Digest]) -> str:
    """The part whose share changes most from the shortest length to the longest; empty where none does."""
    short, long = digests[0], digests[-1]
    if short.problem.seqlen_k == long.problem.seqlen_k:
        return ""
    before, after = share_of_stages(short), share_of_stages(long)
    parts = {part: after.get(part, 0.0) - before.get(part, 0.0) for part in (*before, *after)}
    most = max(parts, key=lambda part: abs(parts[part]), default=None)
    if most is None or abs(parts[most]) < MOVED:
        return ""
    shares = f"{before.get(most, 0.0):.0%} to {after.get(most, 0.0):.0%}"
    return f"From T={short.problem.seqlen_k} to {long.problem.seqlen_k}, {most} goes from {shares} in {name}."


def _is_fused(digest: Digest) -> bool:
    names = {stage.name for stage in digest.stages}
    return FUSED in names and not names & set(SCORES)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
