"""One HTML page and its PNG figures from stored runs; nothing is measured, nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.errors import OutputError
from bench.report import claims, compare, environment, leaderboard, numerics, overview, profiles
from bench.report.cells import reasons, status_counts
from bench.report.charts import specifications
from bench.report.dataset import DETAILS, dataset
from bench.report.figures import Figures, draw_figures, embedded
from bench.report.findings import findings
from bench.report.kernels import kernel_section
from bench.report.machine import bandwidth_tables, diagnoses
from bench.report.material import Material
from bench.report.packing import apart, compressed
from bench.report.profile_charts import profile_specifications
from bench.report.protocol import flag_table, protocol_table, telemetry_tables
from bench.report.quantities import LINES, MEMORY, NUMERICS, SPEED
from bench.report.repeat import repeat_command
from bench.report.soundness import soundness
from bench.report.speed import break_even_table
from bench.report.vega import vega_script
from bench.results import Run, uncollected

__all__ = ["Material", "build_report", "repeat_command", "summary_text"]

PAGE_BYTES = 5_000_000
"""Bytes of the page, figures included: those that do not fit are files beside it, so that the page opens at once."""
TEXT_BYTES = 600_000
"""Of these, for everything but the dataset, the charts' library and the figures."""
SECTIONS = {
    "overview": overview,
    "leaderboard": leaderboard,
    "numerics": numerics,
    "compare": compare,
    "profiles": profiles,
    "environment": environment,
}
"""Parts of the page with a module and a template of their own."""
SCRIPTS = ("format", "dom", "data", "families", "charts", "table", "record", "which", "profiles", "page")
"""The page's own scripts, in the order of use; together they are one module."""


def build_report(
    runs: Sequence[Run],
    folder: Path,
    notebook: Path | None = None,
    material: Material | None = None,
    *,
    figures: bool = True,
) -> Path:
    """Write ``index.html`` and the PNG figures into ``folder`` and return the page's path.

    A page that holds quantiles instead of samples gets the runs beside it, one JSON Lines file each. Files of an
    earlier page in the folder are removed: they would show other rows, or what this one leaves out on purpose.

    Args:
        runs: what to show.
        folder: is made if it is not there.
        notebook: soundness notebook; None takes the published one of the checkout, if there is one.
        material: of the same runs and notebook, if it is at hand.
        figures: whether to draw the PNG figures; the page's charts need none.

    Raises:
        NothingSelectedError: if the runs hold no cell.
        OutputError: if the folder cannot be written, or the notebook is none.
    """
    material = material or Material.of(runs, notebook)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"report folder must be writable, got {str(folder)!r} ({error.strerror}). Choose another with --output."
        ) from error
    _clear(folder)
    with ThreadPoolExecutor(1) as background:
        library = background.submit(vega_script)  # takes seconds the first time, and none of Python's
        with uncollected():
            content = dataset(material)
        drawn = draw_figures(material, folder) if figures else Figures({}, {}, {})
        with uncollected():
            html = _page(material, content, drawn, library.result())
    if content["samples"]["kind"] != "raw":
        for run, shown in zip(runs, content["runs"], strict=True):
            _write(folder / shown["file"], _lines(run))
    _write(folder / "index.html", [html])
    return folder / "index.html"


def summary_text(runs: Sequence[Run], notebook: Path | None = None, material: Material | None = None) -> str:
    """The findings for a terminal, one a line; arguments as for :func:`build_report`."""
    material = material or Material.of(runs, notebook)
    return "\n".join(f"- {finding.text}" for finding in findings(material.reading, material.notes, material.judged))


def _page(material: Material, content: dict[str, Any], drawn: Figures, library: str) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    packed, details = (compressed(part) for part in apart(content, DETAILS))
    budget = PAGE_BYTES - TEXT_BYTES - len(packed) - len(details) - len(library)
    sources = embedded(drawn.images, budget)
    here = Path(__file__).parent
    loader = FileSystemLoader([here / "templates", here])
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    pages.filters["digest"] = _digest
    return pages.get_template("page.html").render(
        **_texts(material),
        **{name: module.section(material) for name, module in SECTIONS.items()},
        figures=drawn,
        sources=sources,
        linked=any(not source.startswith("data:") for source in sources.values()),
        charts={"speed": SPEED, "memory": MEMORY, "numerics": NUMERICS},
        choices={chart.name: [asdict(choice) for choice in chart.choices] for chart in LINES},
        specifications=specifications(content["looks"]) | (profile_specifications() if material.profiles.found else {}),
        packed=packed,
        details=details,
        library=Markup(f"\n{library}\n"),  # a script of a package, with what would end it escaped
        own=Markup(_own_script()),
        files=[] if content["samples"]["kind"] == "raw" else [run["file"] for run in content["runs"]],
    )


def _own_script() -> str:
    """The page's scripts as one module."""
    folder = Path(__file__).parent / "scripts"
    return "\n" + "".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)


def _digest(script: str) -> str:
    """What the page's security policy knows a script by: nothing else runs, whatever gets into the page."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _texts(material: Material) -> dict[str, Any]:
    """What the templates of this module show."""
    reading, runs = material.reading, material.runs
    statuses, counts = status_counts(reading.rows)
    return {
        "runs": runs,
        "claims": claims.sections(material.judged),
        "unheard": claims.unheard(material.judged),
        "kernels": kernel_section(),
        "soundness": soundness(material.notes),
        "diagnoses": diagnoses(runs),
        "bandwidth": bandwidth_tables(runs),
        "protocol": protocol_table(runs),
        "telemetry": telemetry_tables(runs),
        "flags": flag_table(reading),
        "break_even": break_even_table(runs),
        "prose": [(run.header.sweep_title, _paragraphs(run.header.sweep_prose)) for run in _by_sweep(runs)],
        "statuses": statuses,
        "counts": counts,
        "reasons": reasons(reading.rows),
        "cells": len(reading.rows),
        "replaced": sum(len(run.records) for run in runs) - len(reading.rows),
    }


def _lines(run: Run) -> Iterator[str]:
    """The run as its results file has it; from the run itself, which may have been redacted."""
    for line in (run.header, *run.records, *run.evidence, *([] if run.end is None else [run.end])):
        yield f"{line.model_dump_json()}\n"


def _write(path: Path, texts: Iterable[str]) -> None:
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(texts)
    except OSError as error:
        raise OutputError(
            f"report must be written into a writable folder, got {str(path)!r} ({error.strerror}). Choose "
            "another with --output."
        ) from error


def _clear(folder: Path) -> None:
    """Remove the page in the folder and the files that it names, nothing else."""
    page = folder / "index.html"
    if not page.is_file():
        return
    text = page.read_text(encoding="utf-8", errors="replace")
    names = set(re.findall(r'(?:href|src)="([A-Za-z0-9._@-]+\.(?:png|jsonl))"', text))
    names |= {f"{name.removesuffix('.png')}@2x.png" for name in names if name.endswith(".png")}
    for path in (page, *(folder / name for name in names)):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(
                f"files of the earlier report must be removable, got {str(path)!r} ({error.strerror}). Choose another "
                "folder with --output."
            ) from error


def _by_sweep(runs: Sequence[Run]) -> list[Run]:
    """One run for each sweep."""
    return list({(run.header.sweep, run.header.sweep_prose): run for run in runs}.values())


def _paragraphs(prose: str) -> list[list[tuple[bool, str]]]:
    """Paragraphs of (is code, text) pieces; code stands between backticks."""
    blocks = [" ".join(block.split()) for block in re.split(r"\n\s*\n", prose.strip())]
    return [[(index % 2 == 1, piece) for index, piece in enumerate(block.split("`"))] for block in blocks if block]
