"""Figures of profiles: shares of time by stage across lengths, and memory over one call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.digest import TIMELINE, Digest, Lifetime, MemoryTimeline
from bench.errors import NothingSelectedError
from bench.figure_style import byte_tick, grid, headline, printable, shared_legend, slug
from bench.plots import Drawing
from bench.units import format_bytes, format_ms

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOKS: dict[str, tuple[str, str]] = {
    "projections": ("#999999", ""),
    "score product": ("#0072B2", ""),
    "scale and mask": ("#E69F00", "//"),
    "softmax": ("#D55E00", ""),
    "value product": ("#56B4E9", ".."),
    "fused attention": ("#009E73", ""),
    "compiled code": ("#009E73", "xx"),
    "layout copies": ("#CC79A7", "\\\\"),
    "allocation": ("#F0E442", ""),
    "other": ("#DDDDDD", "++"),
    "overhead": ("#444444", ""),
}
"""Colour and hatch of each stage, told apart by all common kinds of colour blindness; the products are blue."""
_OWNER_LOOKS = tuple((colour, hatch) for hatch in ("", "//", "..") for colour, _ in list(LOOKS.values())[1:6])
LEAST_TOLD = 0.01
"""A share below this is not told in words."""
MOST_OWNERS = 8
"""Drawn apart; the smallest others are drawn together."""


def draw_stage_shares(digests: Sequence[Digest]) -> Drawing:
    """Stacked shares of the profiled time by stage over lengths, a panel for each implementation.

    Raises:
        NothingSelectedError: if no digest holds times.
    """
    timed = [digest for digest in digests if digest.total_ms is not None]
    if not timed:
        raise NothingSelectedError("stage shares must come from profiled times, got none. Use `--tool torch`.")
    names = list(dict.fromkeys(digest.implementation for digest in timed))
    columns = min(len(names), 3)
    figure, axes = grid(-(-len(names) // columns), columns, width=4.4, height=3.6)
    panels = [one for line in axes for one in line]
    for name, one in zip(names, panels, strict=False):
        own = sorted((d for d in timed if d.implementation == name), key=lambda d: d.problem.seqlen_k)
        _stack_shares(one, own)
        one.set_title(printable(name, 40), fontweight="bold")
    for one in panels[len(names) :]:
        one.set_visible(False)
    present = [name for name in LOOKS if any(stage.name == name for digest in timed for stage in digest.stages)]
    shared_legend(figure, [_entry(name, *LOOKS[name]) for name in present])
    longest = max(digest.problem.seqlen_k for digest in timed)
    verdicts = [_verdict(digest) for digest in timed if digest.problem.seqlen_k == longest]
    problem = timed[-1].problem
    sizes = f"B{problem.batch_size}, H{problem.num_heads_q}, d{problem.head_dim}"
    subject = f"{sizes}, {problem.dtype}, {problem.direction}, {problem.mask.spec}"
    headline(figure, f"Where the time goes: {subject}", f"at T={longest}: {'; '.join(verdicts)}")
    lengths = ", ".join(str(n) for n in sorted({digest.problem.seqlen_k for digest in timed}))
    return Drawing(
        stem=slug("stage_shares", problem.direction, problem.dtype, problem.mask.spec),
        figure=figure,
        caption=f"Shares of one profiled call; above each bar its time. At T={longest}: {'; '.join(verdicts)}. A stage "
        "holds its gradients too. A profiler slows what it looks at: times are context, not measurements.",
        alt=f"Stacked bars of time shares by stage at lengths {lengths} for {', '.join(names)}, {subject}.",
    )


def _stack_shares(axes: Axes, digests: Sequence[Digest]) -> None:
    places = list(range(len(digests)))
    bottoms = [0.0] * len(digests)
    for name, (colour, hatch) in LOOKS.items():
        heights = [100 * sum(s.share for s in digest.stages if s.name == name) for digest in digests]
        if any(heights):
            look = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4}
            axes.bar(places, heights, bottom=bottoms, width=0.75, **look)  # type: ignore[arg-type]  # a plain dict
            bottoms = [low + high for low, high in zip(bottoms, heights, strict=True)]
    for place, top, digest in zip(places, bottoms, digests, strict=True):
        axes.annotate(
            format_ms(digest.total_ms), (place, top), (0, 2), textcoords="offset points", ha="center", fontsize=8
        )
    axes.set_xticks(places, [str(digest.problem.seqlen_k) for digest in digests])
    axes.set_ylim(0, 112)
    axes.set_yticks(range(0, 101, 20))
    axes.set_xlabel("sequence length T")
    axes.set_ylabel("share of the profiled call (%)")
    axes.grid(axis="x", visible=False)


def _verdict(digest: Digest) -> str:
    """The two stages that take most: ``naive softmax 40 % and score product 30 %``."""
    shares: dict[str, float] = defaultdict(float)
    for stage in digest.stages:
        shares[stage.name] += stage.share
    first = [name for name in sorted(shares, key=lambda name: -shares[name]) if shares[name] >= LEAST_TOLD][:2]
    told = " and ".join(f"{name} {shares[name]:.0%}" for name in first)
    return f"{printable(digest.implementation, 28).strip()} {told}"


def draw_memory_timeline(digest: Digest) -> Drawing:
    """Live bytes over one call, stacked by owner, the peak marked.

    Raises:
        NothingSelectedError: if the digest holds no timeline.
    """
    memory = digest.memory
    if memory is None:
        raise NothingSelectedError("memory timeline must come from a profile with it, got none. Use `--tool memory`.")
    figure, axes = grid(1, 1, width=9.0, height=4.6)
    one = axes[0][0]
    times, layers = stacked(memory)
    entries = []
    if times and layers:
        looks = [_OWNER_LOOKS[i % len(_OWNER_LOOKS)] for i in range(len(layers))]
        areas = one.stackplot(times, *layers.values(), colors=[look[0] for look in looks])
        for area, (name, _), (colour, hatch) in zip(areas, layers.items(), looks, strict=True):
            area.set(hatch=hatch, edgecolor="white", linewidth=0.3)
            entries.append(_entry(printable(name, 40), colour, hatch))
    one.axhline(memory.peak_bytes, color="#333333", linestyle=(0, (4, 3)), linewidth=1)
    one.axvline(memory.peak_ms, color="#333333", linestyle=(0, (1, 2)), linewidth=1)
    early = memory.peak_ms < 0.75 * max(memory.end_ms, 1e-9)
    one.annotate(
        f"peak {format_bytes(memory.peak_bytes)}",
        (memory.peak_ms, memory.peak_bytes),
        (4 if early else -4, 4),
        textcoords="offset points",
        fontsize=9,
        ha="left" if early else "right",
    )
    one.set_xlim(0, max(memory.end_ms, 1e-6))
    one.set_ylim(0, 1.15 * max(memory.peak_bytes, 1))
    ticks = one.get_yticks()
    one.set_yticks(ticks, [byte_tick(tick) for tick in ticks])
    one.set_ylim(0, 1.15 * max(memory.peak_bytes, 1))
    one.set_xlabel("time in the profiled call (ms)")
    one.set_ylabel("live bytes beyond the inputs")
    if entries:
        shared_legend(figure, entries)
    shares = [f"{owner.name} {owner.peak_bytes / memory.peak_bytes:.0%}" for owner in memory.owners[:3]]
    verdict = f"peak {format_bytes(memory.peak_bytes)}: {', '.join(shares)}" if shares else "nothing is allocated"
    headline(figure, f"Memory over one call: {digest.implementation}, {digest.problem.key}", verdict)
    hidden = f" {memory.omitted} small allocations are not drawn." if memory.omitted else ""
    return Drawing(
        stem=TIMELINE,
        figure=figure,
        caption=f"{verdict[0].upper()}{verdict[1:]}.{hidden} Time is that of the profiled call.",
        alt=f"Stacked areas of live bytes by tensor over one call of {digest.implementation} on {digest.problem.key}. "
        f"{verdict}.",
    )


def stacked(memory: MemoryTimeline) -> tuple[list[float], dict[str, list[int]]]:
    """Moments, and the live bytes of each owner then, the one that holds most first; steps are vertical."""
    weight: dict[str, int] = defaultdict(int)
    for one in memory.lifetimes:
        weight[one.owner] = max(weight[one.owner], one.size_bytes)
    for owner in memory.owners:
        if owner.name in weight:
            weight[owner.name] = max(weight[owner.name], owner.peak_bytes)
    ranked = sorted(weight, key=lambda name: (-weight[name], name))
    shown = {name: name if rank < MOST_OWNERS else "others" for rank, name in enumerate(ranked)}
    moments = sorted({0.0, memory.end_ms, *(t for one in memory.lifetimes for t in _ends(one, memory.end_ms))})
    changes: dict[str, dict[float, int]] = defaultdict(lambda: defaultdict(int))
    for one in memory.lifetimes:
        start, stop = _ends(one, memory.end_ms)
        changes[shown[one.owner]][start] += one.size_bytes
        if one.stop_ms is not None:
            changes[shown[one.owner]][stop] -= one.size_bytes
    times = [moment for moment in moments for _ in range(2)]  # before and after each step
    layers = {}
    for name in dict.fromkeys(shown.values()):
        level, line = 0, list[int]()
        for moment in moments:
            line.append(level)
            level += changes[name].get(moment, 0)
            line.append(level)
        layers[name] = line
    return times, layers


def _ends(one: Lifetime, end_ms: float) -> tuple[float, float]:
    return one.start_ms, end_ms if one.stop_ms is None else one.stop_ms


def _entry(label: str, colour: str, hatch: str) -> object:
    from matplotlib.patches import Patch

    return Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=label)
