"""JSON for the action ``benchmark-action/github-action-benchmark`` with ``tool: customSmallerIsBetter``.

Source: the action's README, "Custom benchmarks": a list of ``name``, ``unit``, ``value`` and, as text, ``range`` and
``extra``.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.exports import Files, by_run, cell_name, each_number, provenance, register_export
from bench.results import Run
from bench.units import significant


@register_export(
    "github-action-benchmark",
    summary="JSON for github-action-benchmark, tool customSmallerIsBetter: time, bytes, error.",
)
def github_action_benchmark(runs: Sequence[Run]) -> Files:
    """One file per run."""
    return by_run(runs, _entries)


def _entries(run: Run) -> list[dict[str, object]]:
    entries = []
    for record, measurement, number in each_number(run):
        entry: dict[str, object] = {
            "name": f"{cell_name(record)} {number.title}",
            "unit": number.unit,
            "value": number.value,
        }
        if number.lo is not None and number.hi is not None:
            entry["range"] = f"{significant(number.lo)} to {significant(number.hi)}"
        entry["extra"] = "\n".join(f"{name}: {text}" for name, text in provenance(record, measurement).items())
        entries.append(entry)
    return entries
