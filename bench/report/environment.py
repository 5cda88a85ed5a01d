"""Machine and software of each run side by side, and what of their differences forbids to compare times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.comparison import COMPARABLE_PACKAGES
from bench.report.compare import refusals
from bench.report.machine import machine_table

if TYPE_CHECKING:
    from bench.report.material import Material

DECIDING = {
    "processor": "cpu",
    "device measured": "device",
    "allocator": "allocator",
    "torch threads": "torch_threads",
    "torch build": "torch_build",
    "float32 products": "float32_products",
    **{f"package {name}": name for name in COMPARABLE_PACKAGES},
}
"""Lines of the table whose difference makes times incomparable, and the field behind each; that of the processor also
holds the cores."""


def section(material: Material) -> dict[str, Any]:
    """What the template ``environment.html`` shows."""
    runs = material.reading.runs
    lines = [
        {
            "name": name,
            "values": values,
            "differs": differs,
            "decides": differs and name in DECIDING,
        }
        for name, values, differs in machine_table(runs)
    ]
    return {
        "runs": [run.run_id for run in runs],
        "lines": sorted(lines, key=lambda line: (not line["decides"], not line["differs"])),
        "differing": sum(bool(line["differs"]) for line in lines),
        "refusals": refusals(runs),
    }
