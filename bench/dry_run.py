"""The plan of a run in words, without starting anything: what ``--dry-run`` shows."""

from __future__ import annotations

from collections.abc import Iterator

from bench.implementation import implementations, refusal
from bench.request import Request
from bench.sweep import ladders, plan
from bench.units import format_bytes


def plan_lines(request: Request) -> Iterator[str]:
    """The plan of a run, in lines, without starting anything (``--dry-run``).

    Raises:
        NothingSelectedError: if the filters leave nothing.
    """
    device = request.device or "cpu"
    cases, left_out = plan(request.sweep(device), request.selection, device)
    for ladder in ladders(cases, coarse_first=request.time_budget_s is not None):
        problems = list(dict.fromkeys(case.problem for case in ladder))
        names = list(dict.fromkeys(case.implementation for case in ladder))
        refused = [c for c in ladder if refusal(implementations.get(c.implementation), c.problem, device) is not None]
        peaks = [
            implementations.get(c.implementation).predicted_peak_bytes(c.problem, device)
            for c in ladder
            if c not in refused
        ]
        peak = max((p for p in peaks if p is not None), default=None)
        lengths = " ".join(str(p.seqlen_k) for p in problems)
        kind = "timed" if ladder[0].timed and request.timed else "verified"
        yield (
            f"{problems[0].key}, seqlen {lengths}: {len(ladder)} cells of {', '.join(names)}; {kind}; "
            f"{len(refused)} refused; predicted peak up to {format_bytes(peak)}"
        )
    for name, reason in left_out.items():
        yield f"left out: {name}: {reason}"
    yield f"{len(cases)} cells in {len({case.problem for case in cases})} problems"
