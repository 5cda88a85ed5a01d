"""Proton, the profiler that comes with Triton: time by kernel."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from bench.digest import KernelRow
from bench.errors import Unavailable
from bench.profiling import Absence, Found, Subject, register_tool, warmed
from bench.profiling._operators import CALL
from bench.profiling._outside import needs_gpu
from bench.units import ns_to_ms

OUTPUT = "proton.hatchet"
CALLS = 10


@register_tool
class Proton:
    """Time and launches of each kernel, Triton's own and others."""

    name: ClassVar[str] = "proton"
    summary: ClassVar[str] = "time of each GPU kernel, from Triton's profiler"
    default: ClassVar[bool] = True

    def absence(self, subject: Subject) -> Absence | None:
        """It needs Triton, and a GPU."""
        if found := needs_gpu(subject, "proton"):
            return found
        triton = find_spec("triton")  # asking for its profiler by name would import it
        places = [] if triton is None else triton.submodule_search_locations or []
        if not any(Path(place, "profiler").is_dir() for place in places):
            return Absence("no triton with its profiler is installed", "`pip install triton` (it ships for Linux)")
        return None

    def look(self, subject: Subject, folder: Path) -> Found:
        """Profile some calls."""
        from triton import profiler

        step = subject.step(subject.inputs())
        warmed(step, subject)
        try:
            session = profiler.start(str(folder / "proton"), hook="triton")
            for _ in range(CALLS):
                with profiler.scope(CALL):
                    step.run()
            subject.finish()
            profiler.finalize(session)
        except (RuntimeError, ValueError, TypeError) as error:
            raise Unavailable(f"proton does not work here: {type(error).__name__}: {error}") from error
        rows = read_hatchet(json.loads((folder / OUTPUT).read_text()), CALLS)
        how = "`pip install llnl-hatchet`, then `proton-viewer -m time/ms proton.hatchet`"
        return Found(files={OUTPUT: how}, parts={"kernels": rows})


def read_hatchet(tree: Sequence[Mapping[str, Any]], calls: int) -> tuple[KernelRow, ...]:
    """Kernels of one call, the longest first, from Proton's tree of ``calls`` calls.

    Kernels are the leaves that hold a time; where one appears under several parents, it is added up.
    """
    times: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    for leaf in (leaf for root in tree for leaf in _leaves(root)):
        name, metrics = str(leaf["frame"]["name"]), leaf["metrics"]
        times[name] += float(metrics["time (ns)"])
        counts[name] += float(metrics.get("count", 1))
    return tuple(
        KernelRow(
            tool="proton",
            name=name,
            figures={"time_ms": ns_to_ms(times[name] / calls), "launches": counts[name] / calls},
        )
        for name in sorted(times, key=lambda name: -times[name])
    )


def _leaves(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    children = node.get("children", ())
    if not children and "time (ns)" in node.get("metrics", {}):
        yield node
    for child in children:
        yield from _leaves(child)
