"""Clocks of one cell against one another: which of them disagree, and what that says.

The protocols of :mod:`bench.clocks` time the same calls in different ways on purpose, so where they differ, the
difference is the finding:

| finding | what disagrees | what it says |
|---|---|---|
| ``missing_synchronisation`` | wall time or events well below the work | timing ended before the work did |
| ``uncaptured`` | the graph well below the events | part of the work did not get into the graph |
| ``host_bound`` | issuing a call takes longer than its work | the device waits for the host |
| ``hot_cache`` | hot below cold | inputs were still in the cache |
| ``short_call`` | as before, by a few microseconds | the gap between two events, not the cache |
| ``slowed_down`` | hot or the graph above cold | without pauses, the device clocks lower |
| ``unexplained`` | hot and the graph differ otherwise | look at the samples |

Two clocks *disagree* where one median is more than :data:`BOUND` above the other and the middle halves of their samples
do not overlap. Ten percent is also what separates isolated from interleaved blocks; it is above what a few clock steps
of a processor or the resolution of an event do to a call of more than ten microseconds. The rule about the middle
halves keeps noise out where there is more of it. *Well below* is less than half (:data:`FAR`), and is asked only where
neither cache nor launching can make the lower clock right: then the rest is not timed at all.

How samples of the *same* clock differ (other cores' work, other arms' blocks, the order, drift) is a matter of
:mod:`bench.flags`: ``contended``, ``interference``, ``order_effect``, ``not_steady``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from bench.record import Measurement, Telemetry

BOUND = 0.10
"""Medians that differ by more disagree."""
FAR = 0.5
"""Less than this share of the work's time cannot be the work."""
EVENT_GAP_NS = 10_000.0
"""What two events around a single call can add to it: their own resolution of half a microsecond, and a few
microseconds from the end of one queued item to the start of the next."""


class Finding(NamedTuple):
    """Clocks that disagree."""

    name: str
    """What that says, in a word."""
    reason: str
    """The numbers, and what they suggest."""


class _Reading(NamedTuple):
    """What one clock says of one call."""

    ns: float
    """Median."""
    low: float
    """Lower quartile."""
    high: float
    """Upper quartile."""

    def above(self, other: _Reading, by: float = BOUND) -> bool:
        """Whether this is more than ``by`` above the other, beyond noise."""
        return self.ns > (1 + by) * other.ns and self.low > other.high

    def __str__(self) -> str:
        return f"{self.ns / 1e3:.1f} us"


def cross_examine(measurement: Measurement) -> tuple[Finding, ...]:
    """Where the clocks of a measurement disagree; empty where it has one clock, or where all agree."""
    return tuple(_findings(_readings(measurement), measurement.telemetry))


def _findings(clocks: dict[str, _Reading], telemetry: Sequence[Telemetry]) -> Iterator[Finding]:
    host, graph, hot = clocks.get("host"), clocks.get("cuda_graph"), clocks.get("cuda_event_hot")
    if graph and hot and host and _far_below(graph, hot) and host.ns < FAR * hot.ns:
        yield Finding(
            "uncaptured",
            f"a call takes {graph} replayed and {hot} between events, and the {host} it takes to issue it are not why: "
            "part of its work is not in the CUDA graph",
        )
        graph = None
    work = graph or hot
    if work is None:
        return
    paced = hot is not None and _explains(host, hot)  # then hot may be the pace of the host, not that of the work
    if graph is not None or not paced:
        early = list(_ended_early(clocks, work))
        yield from early
        if early:
            return
    bound = list(_host_bound(host, graph, hot))
    yield from bound
    warm = graph if paced else hot or graph
    if warm is not None:
        yield from _cache(clocks.get("cuda_event_cold"), warm, host, telemetry)
    if graph and hot and not bound and (hot.above(graph) or graph.above(hot)):
        yield Finding("unexplained", f"a call takes {hot} between events and {graph} in a CUDA graph")


def _ended_early(clocks: dict[str, _Reading], work: _Reading) -> Iterator[Finding]:
    """Clocks that say less than the work takes."""
    for name in ("perf_counter", "cuda_event_hot", "cuda_event_cold"):
        clock = clocks.get(name)
        if clock is not None and _far_below(clock, work):
            launch = ", no more than issuing it takes" if _explains(clocks.get("host"), clock) else ""
            yield Finding(
                "missing_synchronisation",
                f"{name} gives {clock} a call{launch}, but its work takes {work}: timing ended before the work did, "
                "or the work is on another stream",
            )


def _host_bound(host: _Reading | None, graph: _Reading | None, hot: _Reading | None) -> Iterator[Finding]:
    """The host needs longer to issue a call than the device to do it, whether or not the events show it."""
    if host is None:
        return
    if graph is not None and host.above(graph):
        shown = "shows between hot events" if hot is not None and hot.above(graph) else "is hidden from the events"
        work = f"{graph} in a CUDA graph; the difference {shown}"
    elif graph is None and hot is not None and _explains(host, hot):
        work = f"{hot} between events, which is hardly longer"
    else:
        return
    yield Finding("host_bound", f"issuing a call takes {host}, its work {work}: the device waits for the host")


def _cache(
    cold: _Reading | None, warm: _Reading, host: _Reading | None, telemetry: Sequence[Telemetry]
) -> Iterator[Finding]:
    """Cold against hot, which is not paced by the host, unless the host may be what cold shows."""
    if cold is None:
        return
    if cold.above(warm) and not _explains(host, cold):
        if cold.ns - warm.ns > EVENT_GAP_NS:
            why = "its inputs are in the cache where nothing comes in between"
            yield Finding(
                "hot_cache", f"a call takes {cold} after a flush and {warm} hot ({_ratio(cold, warm)}): {why}"
            )
        else:
            why = "by no more than the gap between two events; only a CUDA graph resolves it"
            yield Finding("short_call", f"a call takes {cold} on its own and {warm} among others: longer {why}")
    elif warm.above(cold):
        yield Finding(
            "slowed_down",
            f"a call takes {warm} hot and {cold} after a flush ({_ratio(warm, cold)}), though its inputs are in the "
            f"cache: a device that works without a pause clocks lower{_frequencies(telemetry)}",
        )


def _readings(measurement: Measurement) -> dict[str, _Reading]:
    """Time of one call by clock; those without samples, and those that read 0, are left out."""
    blocks = [(measurement.clock, measurement.samples_ns, measurement.calls_per_sample)]
    blocks += [(other.clock, other.samples_ns, other.calls_per_sample) for other in measurement.others]
    return {name: _reading(ns, calls) for name, ns, calls in blocks if ns and median(ns) > 0}


def _reading(samples_ns: Sequence[int], calls: int) -> _Reading:
    ordered = [ns / calls for ns in sorted(samples_ns)]
    quarter = len(ordered) // 4
    return _Reading(median(ordered), ordered[quarter], ordered[-1 - quarter])


def _far_below(one: _Reading, other: _Reading) -> bool:
    return other.above(one) and one.ns < FAR * other.ns


def _explains(host: _Reading | None, seen: _Reading) -> bool:
    """Whether issuing the calls takes so long that what was seen may be the pace of the host."""
    return host is not None and host.ns >= (1 - BOUND) * seen.ns


def _ratio(one: _Reading, other: _Reading) -> str:
    return f"{one.ns / other.ns:.2f}x"


def _frequencies(telemetry: Sequence[Telemetry]) -> str:
    """The clock of the device before and after, where a sensor told."""
    for window in telemetry:
        start, end = (window.readings.get(f"sm_clock_{when}_mhz") for when in ("start", "end"))
        if start is not None and end is not None:
            return f" (it went from {start} to {end} MHz while samples were taken)"
    return ""
