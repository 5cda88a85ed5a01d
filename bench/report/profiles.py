"""Where time and memory of the cells go, from stored profiles: the page's section, its charts' data, and figures."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bench.digest import Digest
from bench.digest_text import kernel_rows, side_by_side, stage_rows
from bench.figure_style import figure_style, slug
from bench.plots import Drawing, grouped
from bench.problem import Problem
from bench.profile_figures import draw_memory_timeline, draw_stage_shares
from bench.report.packing import compressed
from bench.report.profile_charts import KINDS, colours, share_rows, timeline_rows
from bench.report.profile_sentences import held_sentence, roof_sentence, stage_sentence
from bench.units import format_bytes, format_ms, significant

if TYPE_CHECKING:
    from bench.report.material import Material
    from bench.report.stored_profiles import Profile

MOST = 60
"""Profiles that a page shows."""
MOST_LENGTHS = 6
"""Of the command that makes profiles."""
LONGEST = 4096
"""Of the command: a profile at a longer length takes its time."""
TITLE = "Profiles"
"""Of the section and of its figures."""
STAGE_HEADS = ("stage", "time", "share", "calls", "FLOP", "bytes", "FLOP/byte", "nearest roof", "of it")
OWNER_HEADS = ("owner", "bytes at the peak", "share", "allocations")
Table = tuple[Sequence[str], list[list[str]]]


def section(material: Material) -> dict[str, Any]:
    """What the template ``profiles.html`` shows."""
    found = material.profiles.found
    shown = found[-MOST:]
    if not shown:
        return {"shown": 0, "command": command(material), "refused": material.profiles.refused}
    families = list(_families(shown).values())
    return {
        "shown": len(shown),
        "left_out": len(found) - len(shown),
        "refused": material.profiles.refused,
        "doubts": _doubts(shown),
        "timed": any(one.digest.total_ms is not None for one in shown),
        "remembered": any(one.digest.memory is not None for one in shown),
        "problems": [_problem(profiles) for profiles in _problems(shown)],
        "packed": compressed({"families": _stage_data(families), "timelines": _timeline_data(shown)}),
    }


def drawings(material: Material) -> list[tuple[str, list[Drawing]]]:
    """The figures for print: shares of stages of each family, memory of its longest problem; empty without profiles."""
    found: list[Drawing] = []
    with figure_style():
        for title, profiles in _families(material.profiles.found[-MOST:]).items():
            digests = [one.digest for one in profiles]
            if any(digest.total_ms is not None for digest in digests):
                found.append(replace(draw_stage_shares(digests), stem=slug("stage_shares", title)))
            for digest in (one for one in digests if one.problem == digests[-1].problem and one.memory is not None):
                stem = slug("memory_timeline", digest.implementation, digest.problem.key)
                found.append(replace(draw_memory_timeline(digest), stem=stem))
    return [(TITLE, found)] if found else []


def command(material: Material) -> str | None:
    """The command that profiles cells of these runs, across the lengths that they have; None where none was timed."""
    rows = [row for row in material.reading.rows if row["sound"] and row["seqlen_q"] == row["seqlen_k"] <= LONGEST]
    if not rows:
        return None
    groups = grouped(rows, "run_id", *(name for name in Problem.model_fields if not name.startswith("seqlen")))
    same = max(groups.values(), key=len)
    longest = max(same, key=lambda row: row["seqlen_k"])
    beside = [row for row in same if row["problem"] == longest["problem"]]
    names = [row["implementation"] for row in sorted(beside, key=lambda row: row["latency_ms"])]
    lengths = sorted({row["seqlen_k"] for row in same})[-MOST_LENGTHS:]
    words = ["attention-bench", "profile"]
    words += [word for name in dict.fromkeys((names[-1], names[0])) for word in ("-i", name)]
    words += ["-p", longest["problem"]]
    return shlex.join([*words, *(("--across-seqlen", ",".join(map(str, lengths))) if len(lengths) > 1 else ())])


def _families(profiles: Sequence[Profile]) -> dict[str, list[Profile]]:
    """Profiles of problems that differ in length alone, by what they share; the largest family first."""
    families: dict[str, list[Profile]] = {}
    for one in profiles:
        families.setdefault(_shared(one.digest), []).append(one)
    return dict(sorted(families.items(), key=lambda item: -len(item[1])))


def _shared(digest: Digest) -> str:
    """``B1-H4-d64-float32-fwd-full on cpu``: the key without the length."""
    problem = digest.problem
    key = problem.key
    length = key.split("-")[2]
    queries = "" if problem.seqlen_q == problem.seqlen_k else f" with seqlen_q {problem.seqlen_q}"
    return f"{key.replace(f'-{length}-', '-', 1)}{queries} on {digest.device_name}"


def _problems(profiles: Sequence[Profile]) -> list[list[Profile]]:
    """Profiles of one problem on one device together, the longest problem first."""
    found: dict[tuple[str, str], list[Profile]] = {}
    for one in reversed(profiles):
        found.setdefault((one.digest.problem.key, one.digest.device_name), []).insert(0, one)
    return list(found.values())


def _doubts(profiles: Sequence[Profile]) -> dict[str, str]:
    """Cells by what makes their profiles doubtful."""
    cells: dict[str, list[str]] = {}
    for one in profiles:
        for doubt in one.doubts:
            cells.setdefault(doubt, []).append(_cell(one.digest))
    return {doubt: ", ".join(names) for doubt, names in cells.items()}


def _problem(profiles: Sequence[Profile]) -> dict[str, Any]:
    """One problem: its profiles side by side, and each in detail."""
    digests = [one.digest for one in profiles]
    rows = side_by_side(digests)
    heads = list(rows[0]) if rows else []
    beside = (heads, [["-" if row[head] is None else str(row[head]) for head in heads] for row in rows])
    return {
        "title": f"{digests[0].problem.key} on {digests[0].device_name}",
        "beside": beside,
        "details": [_detail(one) for one in profiles],
    }


def _detail(profile: Profile) -> dict[str, Any]:
    digest = profile.digest
    tables: list[Table] = [(STAGE_HEADS, [_stage(row) for row in stage_rows(digest)]), (OWNER_HEADS, _owners(digest))]
    tables += [_kernels(digest, tool) for tool in dict.fromkeys(row.tool for row in digest.kernels)]
    return {
        "name": digest.implementation,
        "tables": [one for one in tables if one[1]],
        "folder": profile.folder,
        "files": [(name, how) for tool in digest.tools for name, how in tool.files.items()],
        "absent": [
            f"{tool.name} ({tool.status.replace('_', ' ')}): {tool.reason}"
            for tool in digest.tools
            if tool.status not in ("done", "not_asked")
        ],
    }


def _stage(row: dict[str, Any]) -> list[str]:
    """A row of :func:`bench.digest_text.stage_rows` as texts."""
    flop, moved, ratio, fraction = (row[name] for name in ("flop", "moved_bytes", "flop_per_byte", "roof_fraction"))
    return [
        row["stage"],
        format_ms(row["time_ms"]),
        f"{row['share']:.1%}",
        str(row["calls"]),
        "-" if flop is None else significant(flop),
        "-" if moved is None else format_bytes(moved),
        "-" if ratio is None else significant(ratio),
        row["roof"] or "-",
        "-" if fraction is None else f"{fraction:.0%}",
    ]


def _owners(digest: Digest) -> list[list[str]]:
    memory = digest.memory
    if memory is None or not memory.peak_bytes:
        return []
    whole = memory.peak_bytes
    return [
        [one.name, format_bytes(one.peak_bytes), f"{one.peak_bytes / whole:.1%}", str(one.count)]
        for one in memory.owners
    ]


def _kernels(digest: Digest, tool: str) -> Table:
    rows = [row for row in kernel_rows(digest) if row["tool"] == tool]
    heads = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return heads, [[_figure(row[head]) for head in heads] for row in rows]


def _figure(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{int(value):,}" if float(value).is_integer() else significant(value)


def _stage_data(families: Sequence[Sequence[Profile]]) -> list[dict[str, Any]]:
    """By family: its title, and for stages and for roofs rows, colours and a sentence."""
    told = {"stage": stage_sentence, "roof": roof_sentence}
    data = []
    for profiles in families:
        digests = [one.digest for one in profiles if one.digest.total_ms is not None]
        if not digests:
            continue
        kinds = {}
        for kind in KINDS:
            rows = share_rows(digests, kind)
            kinds[kind] = {"rows": rows, "colours": colours(rows), "said": told[kind](digests)}
        if not any(stage.roof for digest in digests for stage in digest.stages if stage.name != "overhead"):
            del kinds["roof"]
        data.append({"title": _shared(digests[0]), "kinds": kinds})
    return data


def _timeline_data(profiles: Sequence[Profile]) -> list[dict[str, Any]]:
    """By profile with memory, the longest problem first: rows, colours and a sentence."""
    data = []
    for one in (one for group in _problems(profiles) for one in group if one.digest.memory is not None):
        rows, looks = timeline_rows(one.digest)
        title = f"{_cell(one.digest)} ({one.digest.device_name})"
        data.append({"title": title, "rows": rows, "colours": looks, "said": held_sentence(one.digest)})
    return data


def _cell(digest: Digest) -> str:
    return f"{digest.implementation} on {digest.problem.key}"
