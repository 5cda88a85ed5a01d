"""A digest as Markdown: what people read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.digest import Digest, KernelRow, Stage
from bench.units import format_bytes, format_ms, significant

TEXT_FILE = "digest.md"
ADDING_UP = 0.03
"""What the stages may be off the profiled total before that is said."""
OPERATORS = 3
"""Names of a stage that are shown."""


def save_text(digest: Digest, folder: Path, figures: Sequence[str] = ()) -> Path:
    """Write ``digest.md`` into the folder, and return its path.

    Args:
        digest: what it tells.
        folder: must exist.
        figures: names of PNG files beside it, which it shows.
    """
    path = folder / TEXT_FILE
    path.write_text(digest_text(digest, figures))
    return path


def digest_text(digest: Digest, figures: Sequence[str] = ()) -> str:
    """The whole digest."""
    lines = [f"# {_safe(digest.implementation)} on {_safe(digest.problem.key)}, {digest.device_name}", ""]
    lines += [*_time(digest), *_memory(digest, figures), *_kernels(digest.kernels), *_tools(digest)]
    return "\n".join(lines) + "\n"


def stage_rows(digest: Digest) -> list[dict[str, Any]]:
    """One flat row for each stage, for tables and files."""
    return [
        {
            "implementation": digest.implementation,
            "problem": digest.problem.key,
            "stage": stage.label,
            "time_ms": stage.time_ms,
            "share": stage.share,
            "calls": stage.calls,
            "flop": stage.flop,
            "moved_bytes": stage.moved_bytes,
            "flop_per_byte": stage.intensity,
            "roof": stage.roof,
            "roof_fraction": stage.roof_fraction,
            "reason": stage.reason,
        }
        for stage in digest.stages
    ]


def side_by_side(digests: Sequence[Digest]) -> list[dict[str, Any]]:
    """One row for each stage, a column with its time and share for each cell; where a stage does not occur, None.

    Cells of several problems are rows, and the stages columns.
    """
    if len({digest.problem.key for digest in digests}) > 1:
        return _one_below_another(digests)
    titles = [digest.implementation for digest in digests]
    labels = dict.fromkeys(stage.label for digest in digests for stage in digest.stages if stage.name != "overhead")
    rows = []
    for label in [*labels, "overhead"] if labels else ():
        found = [next((s for s in digest.stages if s.label == label), None) for digest in digests]
        cells = [None if s is None else f"{format_ms(s.time_ms)} ({s.share:.1%})" for s in found]
        rows.append({"stage": label, **dict(zip(titles, cells, strict=True))})
    totals = [None if digest.total_ms is None else format_ms(digest.total_ms) for digest in digests]
    if labels:
        rows.append({"stage": "profiled total", **dict(zip(titles, totals, strict=True))})
    peaks = [None if digest.memory is None else format_bytes(digest.memory.peak_bytes) for digest in digests]
    if any(peaks):
        rows.append({"stage": "peak memory", **dict(zip(titles, peaks, strict=True))})
    return rows


def kernel_rows(digest: Digest) -> list[dict[str, Any]]:
    """One flat row for each kernel that a tool told of."""
    names = dict.fromkeys(name for row in digest.kernels for name in row.figures)
    return [
        {"tool": row.tool, "name": row.name, **{name: row.figures.get(name) for name in names}}
        for row in digest.kernels
    ]


def _one_below_another(digests: Sequence[Digest]) -> list[dict[str, Any]]:
    names = dict.fromkeys(stage.name for digest in digests for stage in digest.stages if stage.name != "overhead")
    rows = []
    for digest in digests:
        shares: dict[str, float] = defaultdict(float)
        for stage in digest.stages:
            shares[stage.name] += stage.share
        row: dict[str, Any] = {"implementation": digest.implementation, "problem": digest.problem.key}
        row |= {name: f"{shares[name]:.1%}" if name in shares else None for name in (*names, "overhead")}
        row["profiled total"] = None if digest.total_ms is None else format_ms(digest.total_ms)
        row["peak memory"] = None if digest.memory is None else format_bytes(digest.memory.peak_bytes)
        rows.append(row)
    return rows


def _time(digest: Digest) -> Iterator[str]:
    if digest.total_ms is None:
        return
    yield "## Where the time goes"
    yield ""
    launches = "" if digest.launches is None else f", {digest.launches} GPU kernels"
    operators = f"{digest.operators} operator{'' if digest.operators == 1 else 's'}"
    yield (
        f"One call took {format_ms(digest.total_ms)} under torch's profiler (mean of the quicker half, "
        f"{digest.steps} call{'' if digest.steps == 1 else 's'}; "
        f"{operators}{launches}) and {format_ms(digest.unprofiled_ms)} without it. "
        "Neither is a measurement: `attention-bench measure` makes those."
    )
    yield ""
    yield "| stage | time | share | calls | FLOP | bytes | FLOP/byte | nearest roof | of it | operators |"
    yield "|---|---:|---:|---:|---:|---:|---:|---|---:|---|"
    for stage in digest.stages:
        yield _stage_line(stage)
    added = sum(stage.time_ms for stage in digest.stages) / digest.total_ms
    yield ""
    off = "" if abs(added - 1) <= ADDING_UP else ", which is off: the rest was spent where the profiler does not look"
    yield f"The stages add up to {added:.1%} of the profiled total{off}. {_ceilings(digest)}"
    yield ""
    for stage in digest.stages:
        if stage.reason and stage.name != "overhead":
            yield f"- {stage.label}: {_safe(stage.reason)}."
    yield from (f"- {subject}: {_safe(text)}." for subject, text in digest.notes.items())
    yield ""


def _stage_line(stage: Stage) -> str:
    names = ", ".join(stage.operators[:OPERATORS])
    more = len(stage.operators) - OPERATORS
    cells = (
        stage.label,
        format_ms(stage.time_ms),
        f"{stage.share:.1%}",
        str(stage.calls),
        "-" if stage.flop is None else significant(stage.flop),
        format_bytes(stage.moved_bytes),
        "-" if stage.intensity is None else significant(stage.intensity),
        stage.roof or "-",
        "-" if stage.roof_fraction is None else f"{stage.roof_fraction:.0%}",
        f"{names} and {more} more" if more > 0 else names,
    )
    return f"| {' | '.join(_safe(cell) for cell in cells)} |"


def _ceilings(digest: Digest) -> str:
    if digest.ceilings is None:
        return ""
    ceilings, dtype = digest.ceilings, digest.problem.dtype
    memory = ceilings.memory_bytes_per_s
    beyond = "" if memory is None else f", {significant(memory / 1e9)} GB/s beyond the last cache"
    products = ", ".join(
        f"{name} products {significant(ceilings.flop_per_s[name] / 1e9)} GFLOP/s"
        for name in dict.fromkeys((dtype, *ceilings.flop_per_s))
    )
    return (
        f"Roofs, measured in the same process: {products}; "
        f"copies {significant(ceilings.bytes_per_s / 1e9)} GB/s at best{beyond}."
    )


def _memory(digest: Digest, figures: Sequence[str]) -> Iterator[str]:
    memory = digest.memory
    if memory is None:
        return
    yield "## What the memory is"
    yield ""
    by = "as the memory probe reads them" if memory.method == "allocator_events" else f"by {memory.method}"
    yield (
        f"At most {format_bytes(memory.peak_bytes)} ({memory.peak_bytes} bytes) were held at once beyond the inputs, "
        f"{by}; {format_bytes(memory.output_bytes)} outlive the call."
    )
    yield ""
    yield "| owner | bytes at the peak | share | allocations |"
    yield "|---|---:|---:|---:|"
    for owner in memory.owners:
        share = owner.peak_bytes / memory.peak_bytes if memory.peak_bytes else 0.0
        yield f"| {_safe(owner.name)} | {format_bytes(owner.peak_bytes)} | {share:.1%} | {owner.count} |"
    yield ""
    for name in figures:
        yield f"![{name}]({name})"
        yield ""


def _kernels(rows: Sequence[KernelRow]) -> Iterator[str]:
    for tool in dict.fromkeys(row.tool for row in rows):
        own = [row for row in rows if row.tool == tool]
        columns = list(dict.fromkeys(name for row in own for name in row.figures))
        yield f"## Kernels and functions, by {tool}"
        yield ""
        yield f"| name | {' | '.join(columns)} |"
        yield f"|---|{'---:|' * len(columns)}"
        for row in own:
            yield f"| {_safe(row.name)} | {' | '.join(_figure(row.figures.get(name)) for name in columns)} |"
        yield ""


def _figure(value: float | str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return _safe(value)
    return str(int(value)) if float(value).is_integer() else significant(value)


def _tools(digest: Digest) -> Iterable[str]:
    files = [(name, how) for tool in digest.tools for name, how in tool.files.items()]
    if files:
        yield "## Files"
        yield ""
        yield from (f"- `{name}`: {how}" for name, how in files)
        yield ""
    absent = [tool for tool in digest.tools if tool.status not in ("done", "not_asked")]
    if absent:
        yield "## Tools that gave nothing"
        yield ""
        for tool in absent:
            fix = "" if not tool.fix else f" ({tool.fix})" if tool.status == "failed" else f". To get it: {tool.fix}"
            reason = _safe((tool.reason or "").rstrip("."))
            yield f"- {tool.name} ({tool.status.replace('_', ' ')}): {reason}{fix}."
        yield ""


def _safe(text: str) -> str:
    """One line without what Markdown would read as its own: the end of a cell, a tag of a C++ template."""
    return re.sub(r"([|*<>`\[\]])", r"\\\1", " ".join(text.split()))
