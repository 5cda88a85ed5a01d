"""One HTML page and its PNG figures from stored runs; nothing is measured, nothing is fetched."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import NothingSelectedError, OutputError
from bench.plots import Drawing, Reading, draw_all, save
from bench.report.cells import cell_table, reasons, repeat_command, status_counts
from bench.report.findings import findings
from bench.results import Run
from bench.units import format_bytes, significant

__all__ = ["build_report", "repeat_command", "summary_text"]

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


def build_report(runs: Sequence[Run], folder: Path) -> Path:
    """Write ``index.html`` and the PNG figures into ``folder`` and return the page's path.

    Raises:
        NothingSelectedError: if the runs hold no cell.
        OutputError: if the folder cannot be written.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    reading = _reading(runs)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"report folder must be writable, got {str(folder)!r} ({error.strerror}). Choose another with --output."
        ) from error
    sections, embedded = _figures(reading, folder)
    _, missing = sections
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
        findings=findings(reading),
        machine=_machine_table(runs),
        prose=[(run.header.sweep_title, _paragraphs(run.header.sweep_prose)) for run in _by_sweep(runs)],
        sections=sections[0],
        missing=missing,
        linked=not embedded,
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


def summary_text(runs: Sequence[Run]) -> str:
    """The findings for a terminal, one a line."""
    return "\n".join(f"- {finding.text}" for finding in findings(_reading(runs)))


def _reading(runs: Sequence[Run]) -> Reading:
    if not any(run.records for run in runs):
        names = ", ".join(str(run.path) for run in runs) or "no run"
        raise NothingSelectedError(f"report must have at least one cell, got none in {names}. Measure something first.")
    return Reading(runs)


def _figures(reading: Reading, folder: Path) -> tuple[tuple[list[tuple[str, list[_Image]]], dict[str, str]], bool]:
    """Draw and save all figures; the second result says whether all of them are embedded."""
    drawn, missing = draw_all(reading)
    budget, taken, all_embedded = EMBED_BYTES, set[str](), True
    sections = []
    for plot, drawings in drawn:
        images = []
        for drawing in drawings:
            path = _with_palette(save(_unique(drawing, taken), folder))
            raw = path.read_bytes()
            embed = len(raw) * 4 // 3 <= budget
            budget -= len(raw) * 4 // 3 if embed else 0
            all_embedded &= embed
            source = f"data:image/png;base64,{base64.b64encode(raw).decode()}" if embed else path.name
            images.append(_Image(source, path.name, drawing.caption, drawing.alt))
        sections.append((plot.title, images))
    return (sections, missing), all_embedded


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


def _machine_table(runs: Sequence[Run]) -> list[tuple[str, list[str], bool]]:
    """Name, one value for each run, and whether these differ."""
    names: dict[str, list[str]] = {}
    tables = [_environment(run) for run in runs]
    for table in tables:
        for name in table:
            names.setdefault(name, [])
    for name, values in names.items():
        values.extend(table.get(name, "-") for table in tables)
    return [(name, values, len(set(values)) > 1) for name, values in names.items()]


def _environment(run: Run) -> dict[str, str]:
    """What is known of the machine and the software, in words."""
    env = run.header.environment
    gpus = (
        ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in env.gpus or ())
        or f"none ({env.gpus_reason or 'NVML lists none'})"
    )
    state = {True: ", with uncommitted changes", False: "", None: ""}[env.git_dirty]
    shown = {
        "started": run.header.started_at,
        "host": env.hostname,
        "operating system": env.os,
        "processor": f"{env.cpu}, {env.cores} cores usable",
        "memory": format_bytes(env.memory_bytes),
        "GPUs": gpus,
        "device measured": env.device,
        "allocator": ALLOCATORS.get(env.allocator, env.allocator),
        "torch threads": "-" if env.torch_threads is None else str(env.torch_threads),
        "torch build": env.torch_build or "-",
        "Python": env.python,
        "git commit": f"{env.git_commit}{state}" if env.git_commit else "- (not a git checkout)",
    }
    shown |= {f"package {name}": version or "not installed" for name, version in env.packages.items()}
    shown |= {f"variable {name}": value for name, value in env.variables.items()}
    return shown | _ceilings(run) | {f"not planned: {name}": why for name, why in run.header.left_out.items()}


def _ceilings(run: Run) -> dict[str, str]:
    """What the machine can do at most, measured at the start of the run; empty if it was not."""
    ceilings = run.header.ceilings
    if ceilings is None:
        return {}
    rates = {
        f"ceiling {dtype}": f"{significant(rate / 1e9)} GFLOP/s in matrix products"
        for dtype, rate in ceilings.flop_per_s.items()
    }
    return rates | {"ceiling of memory": f"{significant(ceilings.bytes_per_s / 1e9)} GB/s copied, read and written"}


ALLOCATORS = {
    "warm": "warm: freed memory stays with the process, so page faults are paid once",
    "default": "default: large tensors go back to the system and fault in anew on every call, which is timed",
}
"""What the two allocator settings mean for the numbers."""
