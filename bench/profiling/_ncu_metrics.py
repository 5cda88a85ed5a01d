"""Which counters are read of a GPU, and the figures that are made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bench.digest import KernelRow
from bench.errors import Unavailable
from bench.units import ns_to_ms

RESULT = "attention-bench result: "
"""Begin of the line that holds the table."""
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_STALLS = (
    "long_scoreboard",
    "short_scoreboard",
    "barrier",
    "mio_throttle",
    "math_pipe_throttle",
    "wait",
    "lg_throttle",
)
TIME, DRAM = "gpu__time_duration.sum", "dram__bytes.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
METRICS = (TIME, DRAM, OCCUPANCY, TENSOR, *(_STALL.format(name) for name in _STALLS))
"""Counters by Nsight Compute's names."""


def read_result(text: str, name: str) -> KernelRow:
    """Figures of the call, from what the target printed.

    Raises:
        Unavailable: if it printed no table.
    """
    lines = [line for line in text.splitlines() if line.startswith(RESULT)]
    if not lines:
        raise Unavailable(f"ncu must print its table, got {text[-300:]!r}. Look into ncu.log.")
    rows = json.loads(lines[-1].removeprefix(RESULT))
    return KernelRow(tool="ncu", name=name, figures=figures({row["Metric"]: row["AvgValue"] for row in rows}))


def figures(values: Mapping[str, float | None]) -> dict[str, float | str | None]:
    """What people read, from counters by name; None where the GPU does not have a counter."""
    time_ns, moved = values.get(TIME), values.get(DRAM)
    stalls = {name: values.get(_STALL.format(name)) for name in _STALLS}
    known = {name: value for name, value in stalls.items() if value is not None}
    return {
        "time_ms": None if time_ns is None else ns_to_ms(time_ns),
        "bandwidth_gb_per_s": None if moved is None or not time_ns else moved / time_ns,
        "occupancy_share": _share(values.get(OCCUPANCY)),
        "tensor_core_share": _share(values.get(TENSOR)),
        "main_stall": max(known, key=lambda name: known[name]) if known else None,
        **{f"stall_{name}_warps": value for name, value in stalls.items()},
    }


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
