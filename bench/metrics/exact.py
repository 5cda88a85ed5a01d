"""Numbers that the clock has no part in: bytes, counts, errors, and what a compiler says of a kernel. All are gated.

The largest error depends on the last bit of single entries, so it is compared on one kind of processor alone; the root
mean square over all entries is not, and is compared wherever the libraries are the same. Both may grow by a quarter:
another order of summation moves them by less.
"""

from __future__ import annotations

from functools import partial

from bench.metrics import Better, Gate, Row, register_metric

BYTES = Gate("toolchain")
MAY_VANISH = Gate("toolchain", zero=True)
LARGEST = Gate("machine", tolerance=0.25)
LIMIT = Gate("machine", tolerance=0.01)
SPREAD = Gate("toolchain", tolerance=0.25)
COUNT = Gate("nothing", zero=True)
KERNEL = Gate("triton", zero=True)

_EXACT: tuple[tuple[str, str, str, Better, Gate], ...] = (
    ("peak_bytes", "peak memory", "B", "lower", BYTES),
    ("output_bytes", "memory kept by the results", "B", "lower", BYTES),
    ("mask_bytes", "memory of mask tensors", "B", "lower", MAY_VANISH),
    ("saved_bytes", "memory saved for the backward call", "B", "lower", MAY_VANISH),
    ("backward_peak_bytes", "peak memory of the backward call", "B", "lower", BYTES),
    ("out_rmse", "error of out, root mean square", "", "lower", SPREAD),
    *((f"{name}_max_abs", f"largest error of {name}", "", "lower", LARGEST) for name in ("out", "lse")),
    *((f"{name}_max_abs", f"largest error of {name}", "", "lower", LARGEST) for name in ("dq", "dk", "dv")),
    ("out_limit", "error that would pass", "", "lower", LIMIT),
    ("flop", "FLOP over visible pairs", "FLOP", "same", COUNT),
    ("attended_pairs", "visible pairs", "", "same", COUNT),
    ("registers", "registers per thread of a kernel", "", "lower", Gate("triton")),
    ("spill_bytes", "spilled registers of a kernel", "B", "lower", KERNEL),
    ("shared_bytes", "shared memory of a kernel", "B", "lower", KERNEL),
    ("mutants_missed", "broken attention that the gate lets pass", "", "lower", MAY_VANISH),
    ("mutants_caught", "broken attention that the gate refuses", "", "higher", BYTES),
)


def _column(name: str, row: Row) -> float | None:
    """The column as it is; rows of cells have none that speaks of kernels or mutants."""
    return row.get(name)


for _name, _title, _unit, _better, _gate in _EXACT:
    register_metric(_name, title=_title, unit=_unit, better=_better, gate=_gate)(partial(_column, _name))
