"""The one dataset of the page: every record once, in columns, for charts, table, form and dialog alike."""

from __future__ import annotations

from typing import Any

from bench.figure_style import slug, styles
from bench.metrics import Row, metrics
from bench.plots import LADDER, grouped
from bench.record import Agreement
from bench.report import sentences
from bench.report.cells import DERIVED, CellTable
from bench.report.looks import look
from bench.report.machine import machine_table
from bench.report.material import Material
from bench.report.packing import packed
from bench.report.repeat import described, exactly, selects, unselected
from bench.report.samples import sample_columns, whole
from bench.report.snippets import snippet
from bench.results import Run
from bench.verdicts import MARGIN

FAMILY = (*(name for name in LADDER if name not in ("mask", "head_dim", "head_dim_v")), "seed")
"""Columns that are constant in the charts: a drop-down each."""
PROBLEM: tuple[str, ...] = ("batch_size", "num_heads_q", "num_heads_kv", "seqlen_q", "seqlen_k", "head_dim")
PROBLEM += ("head_dim_v", "dtype", "mask", "scale", "direction", "distribution", "seed")
VALUES = ("latency_lo_ms", "latency_hi_ms", "out_rmse", "calls_per_sample")
"""Numbers beside those of the table."""
RATES = ("roof_fraction", "peak_fraction", "flop_per_byte")
"""Metrics that charts draw and the table does not show."""
DETAILS = ("agreement", "notes")
"""Columns that the dialog of a record alone shows."""
CLOCKS = ("host", "cuda_event_hot", "cuda_graph")
DRAWN = {
    "latency": "latency_ms",
    "peak": "peak_bytes",
    "output": "output_bytes",
    "workspace": "workspace_bytes",
    "mask": "mask_bytes",
    "error": "out_max_abs",
    "of limit": "out_share",
    "RMSE/naive": "out_rmse_over_naive",
    "kept": "saved_bytes",
    "backward peak": "backward_peak_bytes",
    "reserved": "reserved_bytes",
    **{clock: f"latency_{clock}_ms" for clock in CLOCKS},
}
"""Columns of the table that charts draw as well, by title: the name that charts know them by."""
CHART_SENTENCES = ("latency", "tflops", "ceiling_share", "memory", "error", "roofline", "heat_map")
"""Charts whose sentences follow from the rows of a family."""


def dataset(material: Material) -> dict[str, Any]:
    """Everything that the page's script draws from, ready for JSON."""
    reading, table = material.reading, material.table
    rows = reading.rows
    records = [cell.record for cell in table.rows]
    full = whole(records)
    digits = 17 if full else 5
    runs = {run.run_id: index for index, run in enumerate(material.runs)}
    problems = {row["problem"]: record.problem for row, record in zip(rows, records, strict=True)}
    place = {key: index for index, key in enumerate(problems)}
    fields = [problem.model_dump(mode="json") for problem in problems.values()]
    families = _families(material)
    unfiltered = not all(selects(run.header) for run in material.runs)
    return {
        "names": reading.names,
        "margin": f"{MARGIN:.0%}",
        "looks": {name: look(style) for name, style in styles(reading.names).items()},
        "runs": [_run(run) for run in material.runs],
        "problems": {
            "key": list(problems),
            "quoted": [exactly(key) for key in problems],
            "described": [described(problem) for problem in problems.values()] if unfiltered else None,
            **{name: packed(one[name] for one in fields) for name in PROBLEM},
        },
        "quoted": {name: exactly(name) for name in reading.names},
        "heads": [
            {"title": head.title, "about": head.about, "kind": head.kind} | ({"key": key} if key else {})
            for head, key in zip(table.heads, _keys(table), strict=True)
        ],
        "table": _table(table, digits),
        "families": families["families"],
        "cells": {
            "run": packed(runs[row["run_id"]] for row in rows),
            "cell_key": [row["cell_key"] for row in rows],
            "implementation": packed(row["implementation"] for row in rows),
            "problem": packed(place[row["problem"]] for row in rows),
            "family": packed(families["at"]),
            "status": packed(row["status"] for row in rows),
            "reason": packed(row["reason"] for row in rows),
            "flags": packed([[flag.name, flag.reason] for flag in record.flags] for record in records),
            "sound": packed(bool(row["sound"]) for row in rows),
            "agreement": packed((_agreement(record.agreement, full) for record in records), 4 if full else 3),
            "notes": packed(record.notes or None for record in records),
            **{name: packed((row[name] for row in rows), digits) for name in VALUES},
            **{name: packed((metrics.get(name).value(row) for row in rows), digits) for name in RATES},
        },
        "fastest": _fastest(material, digits),
        "samples": sample_columns(records),
    }


def _run(run: Run) -> dict[str, Any]:
    ceilings = run.header.ceilings
    return {
        "id": run.run_id,
        "command": unselected(run.header),
        "selects": selects(run.header),
        "file": f"{slug(run.run_id)}.jsonl",
        "machine": [[name, values[0]] for name, values, _ in machine_table([run])],
        "ceilings": ceilings and ceilings.model_dump(mode="json", exclude={"bandwidth"}),
    }


def _keys(table: CellTable) -> list[str | None]:
    drawn = DRAWN | {metrics.get(name).title: name for name in DERIVED}
    return [drawn.get(head.title) for head in table.heads]


def _table(table: CellTable, digits: int) -> list[dict[str, Any]]:
    """One entry for each column: numbers or texts, what the texts sort by where that is a number, and reasons."""
    columns = []
    for index, head in enumerate(table.heads):
        fields = [row.fields[index] for row in table.rows]
        numbers = [field.sort if field.sort != "" and not isinstance(field.sort, str) else None for field in fields]
        column: dict[str, Any] = {"reason": packed(field.reason for field in fields)}
        if head.kind == "text":
            column["text"] = packed(field.text for field in fields)
            if any(value is not None for value in numbers):
                column["number"] = packed(numbers, digits)
        else:
            column["number"] = packed(numbers, digits)
        columns.append(column)
    return columns


def _families(material: Material) -> dict[str, Any]:
    """Problems that may share a chart: their constants, and for each chart a sentence on what it shows."""
    reading = material.reading
    keyed = [tuple(row[name] for name in FAMILY) for row in reading.rows]
    places = {key: index for index, key in enumerate(dict.fromkeys(keyed))}
    members: list[list[Row]] = [[] for _ in places]
    for key, row in zip(keyed, reading.rows, strict=True):
        members[places[key]].append(row)
    return {
        "at": [places[key] for key in keyed],
        "families": {
            "keys": FAMILY,
            "values": [list(key) for key in places],
            "timed": [sum(bool(row["sound"]) for row in rows) for rows in members],
            "sentences": {
                name: packed(sentences.for_chart(name, rows, reading) for rows in members) for name in CHART_SENTENCES
            },
        },
    }


def _agreement(agreement: Agreement | None, full: bool) -> dict[str, Any] | None:
    """What the gate saw: in full, or on a large page the errors of each tensor and the names of checks."""
    if agreement is None:
        return None
    if full:
        return agreement.model_dump(mode="json")
    return {
        "passed": agreement.passed,
        "tensors": {
            name: {"max_abs": error.max_abs, "rmse": error.rmse, "nonfinite": error.nonfinite, "limit": error.limit}
            for name, error in agreement.tensors.items()
        },
        "checks": {name: {"passed": result.passed} for name, result in agreement.checks.items()},
        "missing": agreement.missing,
        "certificate": agreement.certificate,
        "deterministic": agreement.deterministic,
        "batch_invariant": agreement.batch_invariant,
        "ran": list(agreement.ran),
    }


def _fastest(material: Material, digits: int) -> dict[str, Any]:
    """By run and problem with a sound time: the fastest cell, its rival, and how surely they differ."""
    reading = material.reading
    place = {(row["run_id"], row["cell_key"]): index for index, row in enumerate(reading.rows)}
    found: dict[str, list[Any]] = {name: [] for name in ("best", "next", "ratio", "said", "clear", "verdict", "call")}
    for cells in grouped((row for row in reading.rows if row["sound"]), "run_id", "problem").values():
        best, clear = reading.fastest(cells)
        rival = reading.rival(cells, best)
        pair = None if rival is None else reading.paired(rival, best)
        values = {
            "best": place[best["run_id"], best["cell_key"]],
            "next": None if rival is None else place[rival["run_id"], rival["cell_key"]],
            "ratio": None if pair is None else pair.ratio,
            "said": None if pair is None else pair.text,
            "clear": clear and rival is not None,
            "verdict": None if pair is None else pair.verdict,
            "call": snippet(best["implementation"], reading.record(best).problem),
        }
        for name, value in values.items():
            found[name].append(value)
    return {name: packed(values, digits) for name, values in found.items()}
