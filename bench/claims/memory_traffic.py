"""Claim 13: attention in blocks moves fewer bytes through main memory than attention that stores its scores.

The score matrix of naive is written and read again by every operator, and each pass that the cache cannot hold goes
through memory. Blocks of scores stay in the cache; what has to move is the inputs and the output.

Source: Dao et al., FlashAttention (2022), section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, ClassVar

from bench.analysis import median_interval
from bench.claims import Answer, Drawing, Hearing, Needs, Scope, claims
from bench.claims._regions import Interval, placed, worst
from bench.figure_style import (
    byte_tick,
    grid,
    headline,
    length_axis,
    line_entry,
    log_axis,
    printable,
    shared_legend,
    slug,
    styles,
)
from bench.plots import grouped
from bench.units import format_bytes, significant

Row = Mapping[str, Any]

SOURCES = {"cpu": "memory_traffic", "cuda": "gpu_memory_traffic"}
"""By device: the demonstration that counts bytes."""
BASELINE = "naive"
HALF = 0.5
"""What blocks save has to be more than half of naive's traffic."""
LEAST_CALLS = 6
"""As few give an interval of the median with 95 %."""
_LEAST: dict[str, Any] = {"color": "#777777", "linestyle": (0, (1, 1)), "linewidth": 1.2}
_SCORES: dict[str, Any] = {"color": "#999999", "linestyle": "-", "linewidth": 1.0}


@claims.register("memory_traffic")
class MemoryTraffic:
    """Each blockwise implementation against naive, by a hardware counter."""

    name: ClassVar[str] = "memory_traffic"
    order: ClassVar[int] = 13
    statement: ClassVar[str] = (
        "Blockwise processing moves less than half the bytes of naive through main memory where the scores exceed the "
        "last cache."
    )
    rule: ClassVar[str] = (
        "Bytes by hardware counter over those of naive, with the 95 % intervals of both medians over calls combined at "
        f"their worst: CONFIRMED if the interval lies below {HALF}, REFUTED if above, INCONCLUSIVE otherwise, where no "
        "trustworthy counter can be read, and where the scores fit into the last cache."
    )

    def needs(self, scope: Scope) -> Needs:
        """The demonstration for the device."""
        return Needs(demonstrations=(SOURCES[scope.device],))

    def judge(self, hearing: Hearing) -> list[Answer]:
        """Each device at its longest sequence."""
        answers = []
        for source in SOURCES.values():
            rows = hearing.demonstration(source)
            longest = max((row["seqlen"] for row in rows), default=0)
            answers += _answers(source, [row for row in rows if row["seqlen"] == longest])
        return answers

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Bytes by length; none where nothing was counted."""
        rows = [row for source in SOURCES.values() for row in hearing.demonstration(source) if row["moved_bytes"]]
        devices = grouped(rows, "device")
        return [_figure(list(devices.values()), answers)] if devices else []


def _answers(source: str, rows: Sequence[Row]) -> list[Answer]:
    """Answers on one device; a single one where nothing was counted."""
    if not rows:
        return []
    naive = next((row for row in rows if row["implementation"] == BASELINE), None)
    where = f"{rows[0]['device']}, {rows[0]['dtype']}, T={rows[0]['seqlen']}"
    uncounted = list(dict.fromkeys(str(row["reason"]) for row in rows if not row["moved_bytes"]))
    if naive is None or not naive["moved_bytes"]:
        sizes = [format_bytes(rows[0][name]) for name in ("score_bytes", "least_bytes")]
        found = f"not counted; the scores are {sizes[0]}, at least {sizes[1]} must move"
        return [Answer(where, "INCONCLUSIVE", found, "; ".join(uncounted) or f"no row of {BASELINE}", (source,))]
    return [_answer(f"{row['implementation']}, {where}", row, naive, source) for row in rows if row is not naive]


def _answer(subject: str, row: Row, naive: Row, source: str) -> Answer:
    if not row["moved_bytes"]:
        return Answer(subject, "INCONCLUSIVE", "not counted", str(row["reason"]), (source,))
    (low, high), (naive_low, naive_high) = (median_bytes(one) for one in (row, naive))
    value, naive_value = median(row["moved_bytes"]), median(naive["moved_bytes"])
    found = f"{format_bytes(value)} a call, {BASELINE} {format_bytes(naive_value)}"
    if not naive_low > 0:
        return Answer(subject, "INCONCLUSIVE", found, f"the counter saw nothing of {BASELINE}", (source,))
    interval = low / naive_high, high / naive_low
    found += f": {significant(value / naive_value)}x [{significant(interval[0])}, {significant(interval[1])}]"
    found += f"; at least {format_bytes(row['least_bytes'])} must move"
    calls = min(len(row["moved_bytes"]), len(naive["moved_bytes"]))
    if not row["cache_bytes"] or row["score_bytes"] <= row["cache_bytes"]:
        reason = f"the scores ({format_bytes(row['score_bytes'])}) may fit into the last cache"
        return Answer(subject, "INCONCLUSIVE", found, f"{reason} ({format_bytes(row['cache_bytes'])})", (source,))
    if calls < LEAST_CALLS:
        return Answer(subject, "INCONCLUSIVE", found, f"needs {LEAST_CALLS} calls, got {calls}", (source,))
    verdict = placed(interval, (0.0, HALF))
    where = {"CONFIRMED": "lies below", "REFUTED": "lies above", "INCONCLUSIVE": "reaches across"}[verdict]
    return Answer(subject, verdict, found, f"the interval {where} {HALF}", (source,))


def median_bytes(row: Row) -> Interval:
    """Interval of the median over calls."""
    ordered = sorted(row["moved_bytes"])
    low, high, _ = median_interval(len(ordered))
    return ordered[low], ordered[high]


def _figure(devices: Sequence[Sequence[Row]], answers: Sequence[Answer]) -> Drawing:
    looks = styles({row["implementation"] for rows in devices for row in rows})
    figure, axes = grid(1, len(devices), width=5.5, height=4.0, least=(8.0, 5.2))
    for rows, one in zip(devices, axes[0], strict=True):
        for (name,), own in grouped(sorted(rows, key=lambda row: row["seqlen"]), "implementation").items():
            look, middles = looks[str(name)], [median(row["moved_bytes"]) for row in own]
            spans = [median_bytes(row) for row in own]
            bars = [[mid - low for mid, (low, _) in zip(middles, spans, strict=True)]]
            bars.append([high - mid for mid, (_, high) in zip(middles, spans, strict=True)])
            plain: dict[str, Any] = {"color": look.color, "marker": look.marker, "linestyle": look.linestyle}
            one.errorbar([row["seqlen"] for row in own], middles, yerr=bars, **plain)
        lengths = {row["seqlen"]: row for row in rows}
        for column, line in (("least_bytes", _LEAST), ("score_bytes", _SCORES)):
            one.plot(sorted(lengths), [lengths[length][column] for length in sorted(lengths)], **line)
        length_axis(one, lengths, "sequence length T")
        values = [value for row in rows for value in (*row["moved_bytes"], row["least_bytes"], row["score_bytes"])]
        log_axis(one, "bytes through main memory per call", values, form=byte_tick)
        cache = format_bytes(rows[0]["cache_bytes"])
        one.set_title(f"{rows[0]['device']}, {rows[0]['dtype']}, last cache {cache}", fontweight="bold")
    entries = [
        line_entry(printable(name), color=look.color, marker=look.marker, linestyle=look.linestyle)
        for name, look in looks.items()
    ]
    ends = [line_entry("inputs and output once", **_LEAST), line_entry("one score matrix", **_SCORES)]
    shared_legend(figure, [*entries, *ends])
    verdict = worst(answer.verdict for answer in answers)
    found = "Blocks of scores stay in the cache: attention in blocks moves less than half of naive's bytes"
    headline(figure, found if verdict == "CONFIRMED" else f"{verdict}: bytes through main memory, naive and in blocks")
    said = " ".join(f"{answer.subject}: {answer.found}." for answer in answers)
    return Drawing(
        stem=slug("memory-traffic"),
        figure=figure,
        caption="Misses of the last cache times 64 bytes, one head of width 64 on one thread (GPU: bytes of its memory "
        "read and written, by ncu); median over calls with its 95 % interval. A counter is used only after it counted "
        "known traffic rightly.",
        alt=f"Bytes moved per call against sequence length, both logarithmic, one line per implementation. {said}",
    )
