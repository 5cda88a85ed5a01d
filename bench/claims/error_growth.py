"""Claim 7: rounding errors grow slowly with T, and blockwise kernels in low precision are no worse than naive.

An output is a sum over T keys. Rounding errors of independent signs add up as the square root of the number of
additions, so relative to the output the RMS error grows at most as ``T**0.5``; a sum that is kept in low precision
loses more, and one that drops terms is not off by rounding at all. Where sums are kept in float32, as blockwise
kernels do, what remains in low precision are roundings whose number does not depend on T: exponent 0.

Source: Higham and Mary, A new approach to probabilistic rounding error analysis (2019); for the direction of the
comparison on inputs with outliers FlashAttention-3 (2024), table 3: RMS 1.9e-4 against 3.2e-4 of naive, in float16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import ClassVar

from bench.claims import Answer, Case, Drawing, Hearing, Needs, Scope, Verdict, claims
from bench.claims._errors import (
    CONSTANT,
    FA3_RATIO,
    LEAST_LENGTHS,
    LEAST_SPAN,
    ROOT,
    STORE_SCORES,
    ErrorLadder,
    error_ladders,
)
from bench.claims._errors_figure import error_figure
from bench.claims._ladders import square
from bench.claims._regions import Interval, placed, worst
from bench.problem import DTYPE_BYTES
from bench.units import significant

LENGTHS, QUICK_LENGTHS = (128, 256, 512, 1024, 2048), (64, 128, 256, 512, 1024)
COMPARED = ("naive", "online_softmax", "sdpa_flash", "triton_flash")
"""Measured for this claim; others are judged where they were verified."""
SLOWLY_VERIFIED = ("triton_flash",)
"""Takes seconds a cell on a CPU, where it is interpreted."""
INPUTS = ("normal", "outlier")
QUICK_LADDERS = (("float32", "normal"), ("float16", "normal"), ("bfloat16", "normal"), ("float16", "outlier"))
MARGIN = 0.05
"""A ratio of errors this close to 1 is no difference."""


@claims.register("error_growth")
class ErrorGrowth:
    """For each dtype and kind of inputs one answer on growth, and in low precision one against naive."""

    name: ClassVar[str] = "error_growth"
    order: ClassVar[int] = 7
    statement: ClassVar[str] = (
        "Relative to the output, the RMS error grows at most as √T in every dtype; blockwise kernels in low precision "
        "are not worse than naive, and clearly better on inputs with outliers."
    )
    rule: ClassVar[str] = (
        f"Growth: CONFIRMED if the 95 % interval of the exponent of T lies at or below {ROOT}, REFUTED if it lies "
        "above or a cell is wrong by more than rounding. Against naive: CONFIRMED if the 95 % interval of the ratio of "
        f"RMS errors at a further T lies below 1 + {MARGIN} (with outliers: below 1 - {MARGIN}), REFUTED if above. "
        f"INCONCLUSIVE otherwise, and with fewer than {LEAST_LENGTHS} lengths over {LEAST_SPAN}x."
    )

    def needs(self, scope: Scope) -> Needs:
        """Cells that need no timing: errors alone."""
        ladders = QUICK_LADDERS if scope.quick else [(dtype, inputs) for inputs in INPUTS for dtype in DTYPE_BYTES]
        slow = SLOWLY_VERIFIED if scope.quick and scope.device == "cpu" else ()
        return Needs(
            tuple(
                Case(square(length, dtype=dtype, distribution=inputs), name, timed=False)
                for dtype, inputs in ladders
                for length in (QUICK_LENGTHS if scope.quick else LENGTHS)
                for name in COMPARED
                if name not in slow
            )
        )

    def judge(self, hearing: Hearing) -> list[Answer]:
        """Growth in every group, then the comparison in those of low precision."""
        groups = error_ladders(hearing.reading)
        several = len({(group[0].rows[0]["machine"], group[0].rows[0]["device"]) for group in groups}) > 1
        answers = [_growth(_subject(group, several), group) for group in groups]
        return answers + [
            found for group in groups if (found := _against_naive(_subject(group, several), group)) is not None
        ]

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """RMS and largest error by length: a column for each dtype, a row for each kind of inputs."""
        alike: dict[object, list[list[ErrorLadder]]] = {}
        for group in error_ladders(hearing.reading):
            row = group[0].rows[0]
            key = tuple(row[name] for name in CONSTANT if name not in ("dtype", "distribution"))
            alike.setdefault(key, []).append(group)
        if not alike:
            return []
        shown = max(alike.values(), key=lambda groups: sum(len(one.rows) for group in groups for one in group))
        return [error_figure(shown, answers)]


def _subject(group: Sequence[ErrorLadder], several_machines: bool) -> str:
    row = group[0].rows[0]
    sizes = [f"B={row['batch_size']}" if row["batch_size"] > 1 else "", f"H={row['num_heads_q']}", f"d={row['width']}"]
    if row["num_heads_kv"] != row["num_heads_q"]:
        sizes.append(f"H_kv={row['num_heads_kv']}")
    scale = "" if row["scale"] is None else f"scale {row['scale']:g}"
    where = f"{row['device']} of {row['machine']}" if several_machines else ""
    parts = (row["dtype"], f"{row['distribution']} inputs", *sizes, scale, where)
    return ", ".join(str(part) for part in parts if part)


def _growth(subject: str, group: Sequence[ErrorLadder]) -> Answer:
    subject, cells = f"growth: {subject}", tuple(row["cell_key"] for one in group for row in one.rows)
    wrong = [row for one in group for row in one.rows if row["status"] == "incorrect"]
    fitted = {one.name: one.exponent("rms") for one in group if one.enough}
    found = ", ".join(f"{name} {_exponent(*one)}" for name, one in fitted.items())
    if wrong:
        worst_row = max(wrong, key=lambda row: row["rms"])
        found = found or f"relative RMS error {significant(worst_row['rms'])}"
        text = f"{worst_row['implementation']} is wrong at T={worst_row['length']}: {worst_row['reason']}"
        return Answer(subject, "REFUTED", found, text, cells)
    if not fitted:
        found = ", ".join(f"{one.name} {significant(max(row['rms'] for row in one.rows))}" for one in group)
        text = f"needs {LEAST_LENGTHS} lengths over {LEAST_SPAN}x"
        return Answer(subject, "INCONCLUSIVE", f"relative RMS error at most {found}", text, cells)
    largest = [one.exponent("largest")[0] for one in group if one.enough]
    found += f"; largest error T^{min(largest):.2f} to T^{max(largest):.2f}"
    verdicts = {name: placed(interval, (-inf, ROOT)) for name, (_, interval) in fitted.items()}
    said = {
        "CONFIRMED": f"every 95 % interval lies at or below {ROOT}",
        "REFUTED": f"grows faster than √T: {_of(verdicts, 'REFUTED')}",
        "INCONCLUSIVE": f"too noisy: the 95 % interval reaches beyond {ROOT} for {_of(verdicts, 'INCONCLUSIVE')}",
    }
    verdict = worst(verdicts.values())
    return Answer(subject, verdict, found, said[verdict], cells)


def _against_naive(subject: str, group: Sequence[ErrorLadder]) -> Answer | None:
    """None where there is no blockwise kernel or no low precision."""
    blockwise = [one for one in group if one.name not in STORE_SCORES]
    if not blockwise or blockwise[0].rows[0]["dtype"] == "float32":
        return None
    outliers = blockwise[0].rows[0]["distribution"] == "outlier"
    limit = 1 - MARGIN if outliers else 1 + MARGIN
    ratios = {one.name: one.ratio for one in blockwise}
    unknown = ", ".join(name for name, ratio in ratios.items() if ratio is None)
    verdicts: dict[str, Verdict] = {
        name: "INCONCLUSIVE" if ratio is None else placed(ratio[1], (0.0, limit)) for name, ratio in ratios.items()
    }
    found = ", ".join(f"{name} {'unknown' if ratio is None else _times(*ratio)}" for name, ratio in ratios.items())
    said = {
        "CONFIRMED": f"every 95 % interval lies below {limit:g}",
        "REFUTED": f"the 95 % interval lies above {limit:g} for {_of(verdicts, 'REFUTED')}",
        "INCONCLUSIVE": f"needs {LEAST_LENGTHS} lengths over {LEAST_SPAN}x for {unknown}"
        if unknown
        else f"the 95 % interval reaches beyond {limit:g} for {_of(verdicts, 'INCONCLUSIVE')}",
    }
    verdict = worst(verdicts.values())
    reason = said[verdict] + (f"; FlashAttention-3, table 3: {FA3_RATIO:.2f} in float16" if outliers else "")
    cells = tuple(row["cell_key"] for one in blockwise for row in one.rows)
    return Answer(f"RMS error over naive's: {subject}", verdict, found, reason, cells)


def _of(verdicts: Mapping[str, Verdict], wanted: Verdict) -> str:
    return ", ".join(name for name, verdict in verdicts.items() if verdict == wanted)


def _exponent(value: float, interval: Interval) -> str:
    return f"T^{value:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"


def _times(value: float, interval: Interval) -> str:
    return f"{significant(value)}x [{significant(interval[0])}, {significant(interval[1])}]"
