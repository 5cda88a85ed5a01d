"""The report as Markdown, for the summary of a CI step: verdicts, leader boards, changes and cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import OutputError
from bench.metrics import Row
from bench.plots import Reading
from bench.report import compare, leaderboard, overview
from bench.report.cells import reasons
from bench.report.findings import FAILED
from bench.report.speed import Against, against_fastest
from bench.standings import CAUTION
from bench.units import format_bytes, format_ms, significant

if TYPE_CHECKING:
    from bench.report.material import Material

LIMIT_BYTES = 900_000
"""GitHub refuses the summary of a step from 1 MiB on and may lose one that is just below."""
MAX_TEXT = 300
"""Characters of one field; longer ones are cut."""
MAX_SENTENCE = 2_000
"""Characters of one sentence."""
ROOM = 300
"""Bytes kept free for the line that says what was cut."""

_PUNCTUATION = re.compile(
    r"([\\`*_\[\]~|!#])|(?<=\w)(@)(?=\w)|(^|(?<=\s))(@)|(:)(?=//)|(?<!\w)(:)(?=[\w+-]+:)|(?<=www)(\.)", re.IGNORECASE
)


def markdown(material: Material, limit_bytes: int = LIMIT_BYTES) -> str:
    """The summary, at most ``limit_bytes`` long in UTF-8; what is cut is said in its last line."""
    size, kept, cut = 0, [], 0
    for line in _lines(material):
        size += len(line.encode()) + 1
        if cut or size > limit_bytes - ROOM:
            cut += 1
            continue
        kept.append(line)
    if cut:
        kept += [
            "",
            f"**{cut} lines were cut** to stay below {limit_bytes:,} bytes; the page and the results file have them.",
        ]
    return "\n".join(kept) + "\n"


def write_summary(material: Material, folder: Path) -> Path:
    """Write ``summary.md`` into ``folder``, which must exist.

    Raises:
        OutputError: if it cannot be written.
    """
    path = folder / "summary.md"
    try:
        path.write_text(markdown(material), encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"summary must be written into a writable folder, got {str(path)!r} ({error.strerror}). Choose "
            "another with --output."
        ) from error
    return path


def literal(text: str, limit: int = MAX_TEXT) -> str:
    """``text`` so that Markdown shows it as it is: no markup, link, mention or line break comes of it."""
    inline = _inline(text, limit)
    return re.sub(
        r"^(\d{1,9})([.)])(?=\s|$)|^([-+=])", lambda match: f"{match[1] or ''}\\{match[2] or match[3]}", inline
    )


def _inline(text: str, limit: int = MAX_TEXT) -> str:
    """The same for a text that does not begin a line."""
    text = " ".join(text.split())
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _PUNCTUATION.sub(lambda match: f"\\{match[0]}", text)


def _lines(material: Material) -> Iterator[str]:
    first = material.runs[0].header
    yield f"# attention-bench: {literal(first.sweep)} on {literal(first.environment.device)}"
    yield ""
    yield from (f"- {literal(finding.text, MAX_SENTENCE)}" for finding in overview.headlines(material))
    shown = overview.section(material)
    yield from _table(*shown["facts"])
    yield ""
    yield from (f"    {' '.join(command.split())}" for command in shown["commands"])
    yield from _boards(material.reading)
    yield from _changes(material)
    yield from _reasons(material.reading.rows)
    yield from _cells(material.reading)


def _boards(reading: Reading) -> Iterator[str]:
    for board in leaderboard.boards(reading):
        yield from ("", f"## Leader board: {literal(board.title)}, {board.cells} common cells", "")
        yield CAUTION
        shown = leaderboard.shown(board)
        yield from _table(shown["heads"], shown["rows"])
        if shown["unranked"]:
            yield from ("", f"Not on this board: {literal('; '.join(shown['unranked']), MAX_SENTENCE)}.")


def _changes(material: Material) -> Iterator[str]:
    section = compare.section(material)
    if section is None:
        return
    yield from ("", "## Changes between runs", "")
    yield from (f"- {literal(text, MAX_SENTENCE)}" for text in section["refusals"])
    for pair in section["pairs"]:
        yield from ("", f"### {literal(pair['title'])}", "", literal(pair["said"], MAX_SENTENCE))
        if pair["shown"]:
            yield from _table(section["heads"], [row["texts"] for row in pair["shown"]])


def _reasons(rows: Sequence[Row]) -> Iterator[str]:
    found = reasons(rows)
    if found:
        yield from ("", "## Cells without a time", "")
    for name, status, reason, count in found:
        yield f"- {literal(name)} {status.replace('_', ' ')} ({count}): {literal(reason)}"


def _cells(reading: Reading) -> Iterator[str]:
    """Every cell, failed ones first."""
    against = against_fastest(reading)
    order = {status: place for place, status in enumerate(FAILED)}
    rows = sorted(reading.rows, key=lambda row: order.get(row["status"], len(order)))
    yield from ("", "## Cells")
    heads = ["implementation", "problem", "status", "latency", "interval (ms)", "against fastest", "peak", "error"]
    yield from _table(heads, (_cell(row, against.get((row["run_id"], row["cell_key"]))) for row in rows))


def _cell(row: Row, against: Against | None) -> list[str]:
    low, high = row["latency_lo_ms"], row["latency_hi_ms"]
    flags = "".join(f", {name}" for name in row["flag_names"])
    versus = "-"
    if against is not None:
        pair, best = against
        versus = "fastest" if best is row else f"~{significant(row['latency_ms'] / best['latency_ms'])}x"
        versus = pair.text if pair is not None and best is not row else versus
    return [
        row["implementation"],
        row["problem"],
        str(row["status"]).replace("_", " ") + flags,
        format_ms(row["latency_ms"]),
        "-" if low is None else f"[{significant(low)}, {significant(high)}]",
        versus,
        format_bytes(row["peak_bytes"]),
        "-" if row["out_max_abs"] is None else f"{row['out_max_abs']:.2g}",
    ]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A pipe table; it stands apart from what comes before."""
    yield ""
    yield f"| {' | '.join(_inline(head) or ' ' for head in heads)} |"
    yield f"|{'---|' * len(heads)}"
    yield from (f"| {' | '.join(_inline(text) for text in row)} |" for row in rows)
