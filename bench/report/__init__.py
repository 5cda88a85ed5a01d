"""One HTML page and its PNG figures from stored runs; nothing is measured, nothing is fetched."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.claims import Judged, hear
from bench.errors import NothingSelectedError, OutputError
from bench.notebook import Note, latest_findings, present_notebook
from bench.plots import Drawing, Reading, draw_all, save
from bench.report import claims
from bench.report.cells import cell_table, reasons, status_counts
from bench.report.findings import findings
from bench.report.kernels import kernel_section
from bench.report.machine import bandwidth_tables, diagnoses, machine_table
from bench.report.protocol import flag_table, protocol_table, telemetry_tables
from bench.report.repeat import repeat_command
from bench.report.soundness import soundness
from bench.report.speed import break_even_table
from bench.results import Run

__all__ = ["Material", "build_report", "repeat_command", "summary_text"]

EMBED_BYTES = 6_000_000
"""Figures beyond this many bytes in all are linked instead of embedded, so that the page opens quickly."""
COLOURS = 256
"""Colours of a figure: all that a palette can hold, more than lines, bars and the edges of letters need."""


@dataclass(frozen=True)
class _Image:
    """A figure as the template needs it."""

    source: str
    file: str
    caption: str
    alt: str


@dataclass(frozen=True)
class Material:
    """What page and summary are made of, computed once."""

    reading: Reading
    judged: list[Judged]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Material:
        """The runs' rows with the claims judged.

        Raises:
            NothingSelectedError: if the runs hold nothing.
        """
        if not any(run.records or run.evidence for run in runs):
            names = ", ".join(str(run.path) for run in runs) or "no run"
            raise NothingSelectedError(
                f"report must have at least one cell, got none in {names}. Measure something first."
            )
        reading = Reading(runs)
        return cls(reading, hear(runs, reading))


def build_report(
    runs: Sequence[Run], folder: Path, notebook: Path | None = None, material: Material | None = None
) -> Path:
    """Write ``index.html`` and the PNG figures into ``folder`` and return the page's path.

    Args:
        runs: what to show.
        folder: is made if it is not there.
        notebook: soundness notebook; None takes the published one of the checkout, if there is one.
        material: of the same runs, if it is at hand.

    Raises:
        NothingSelectedError: if the runs hold no cell.
        OutputError: if the folder cannot be written, or the notebook is none.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    material, notes = material or Material.of(runs), _notes(notebook)
    reading, judged = material.reading, material.judged
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"report folder must be writable, got {str(folder)!r} ({error.strerror}). Choose another with --output."
        ) from error
    drawn, missing = draw_all(reading)
    shelf = _Shelf(folder)
    sections = [(plot.title, [shelf.put(drawing) for drawing in drawings]) for plot, drawings in drawn]
    proofs = {title: [shelf.put(drawing) for drawing in found] for title, found in claims.drawings(judged, reading)}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    statuses, counts = status_counts(reading.rows)
    html = environment.get_template("template.html").render(
        runs=runs,
        findings=findings(reading, notes, judged),
        claims=claims.sections(judged),
        proofs=proofs,
        unheard=claims.unheard(judged),
        kernels=kernel_section(),
        soundness=soundness(notes),
        machine=machine_table(runs),
        diagnoses=diagnoses(runs),
        bandwidth=bandwidth_tables(runs),
        protocol=protocol_table(runs),
        telemetry=telemetry_tables(runs),
        flags=flag_table(reading),
        break_even=break_even_table(runs),
        prose=[(run.header.sweep_title, _paragraphs(run.header.sweep_prose)) for run in _by_sweep(runs)],
        sections=sections,
        missing=missing,
        linked=shelf.linked,
        statuses=statuses,
        counts=counts,
        reasons=reasons(reading.rows),
        cells=cell_table(reading),
    )
    path = folder / "index.html"
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"report must be written into a writable folder, got {str(path)!r} ({error.strerror}). Choose "
            "another with --output."
        ) from error
    return path


def summary_text(runs: Sequence[Run], notebook: Path | None = None, material: Material | None = None) -> str:
    """The findings for a terminal, one a line; arguments as for :func:`build_report`."""
    material = material or Material.of(runs)
    return "\n".join(f"- {finding.text}" for finding in findings(material.reading, _notes(notebook), material.judged))


def _notes(notebook: Path | None) -> list[Note]:
    """The latest findings of a soundness notebook; none where there is none."""
    path = notebook or present_notebook()
    return [] if path is None else latest_findings(path)


class _Shelf:
    """Saves figures into a folder; embeds them into the page as long as it stays small."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.budget, self.taken, self.linked = folder, EMBED_BYTES, set[str](), False

    def put(self, drawing: Drawing) -> _Image:
        """Save one figure under a name of its own."""
        path = _with_palette(save(_unique(drawing, self.taken), self.folder))
        raw = path.read_bytes()
        size = len(raw) * 4 // 3
        if size > self.budget:
            self.linked = True
            return _Image(path.name, path.name, drawing.caption, drawing.alt)
        self.budget -= size
        source = f"data:image/png;base64,{base64.b64encode(raw).decode()}"
        return _Image(source, path.name, drawing.caption, drawing.alt)


def _with_palette(path: Path) -> Path:
    """Rewrite a PNG with a palette of :data:`COLOURS`: a third of the bytes, and lines and text look the same."""
    from PIL import Image  # matplotlib itself writes PNG files with it

    with Image.open(path) as image:
        palette = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        palette.save(path, "PNG", optimize=True)
    return path


def _unique(drawing: Drawing, taken: set[str]) -> Drawing:
    """The drawing under a stem that no other has; letter case does not distinguish files everywhere."""
    stem, number = drawing.stem, 2
    while stem.lower() in taken:
        stem, number = f"{drawing.stem}-{number}", number + 1
    taken.add(stem.lower())
    return Drawing(stem=stem, figure=drawing.figure, caption=drawing.caption, alt=drawing.alt)


def _by_sweep(runs: Sequence[Run]) -> list[Run]:
    """One run for each sweep."""
    return list({(run.header.sweep, run.header.sweep_prose): run for run in runs}.values())


def _paragraphs(prose: str) -> list[list[tuple[bool, str]]]:
    """Paragraphs of (is code, text) pieces; code stands between backticks."""
    blocks = [" ".join(block.split()) for block in re.split(r"\n\s*\n", prose.strip())]
    return [[(index % 2 == 1, piece) for index, piece in enumerate(block.split("`"))] for block in blocks if block]
