"""Figures as files: for print and for pages, drawn by several processes at once.

A child process gets its share as a pickle file and is started as ``python -m bench.plots._saving SHARE``: unlike a fork
it inherits no threads, and unlike a spawn it does not run the caller's main module again.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import OutputError
from bench.figure_style import figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRINT_DPI = 300
"""Dots per inch of the PNG for print."""
PAGE_DPI = 192
"""Of the PNG for pages: two dots for each of the 96 pixels that a browser takes for an inch."""
COLOURS = 256
"""Colours of a figure: all that a palette can hold, more than lines, bars and the edges of letters need."""
LEAST = 3
"""Fewer figures than this are drawn here: starting a process takes about as long as drawing two."""

Task = tuple[str, "Figure"]
"""A stem and its figure."""


@dataclass(frozen=True)
class Saved:
    """The files of one figure."""

    print_path: Path
    """``STEM.png`` with :data:`PRINT_DPI`."""
    page_path: Path
    """``STEM@2x.png`` with :data:`PAGE_DPI`."""


def saved_paths(stem: str, folder: Path) -> Saved:
    """Where the files of a figure are. No stem holds an @, so that no two figures share a file."""
    return Saved(folder / f"{stem}.png", folder / f"{stem}@2x.png")


def unique_stems(stems: Sequence[str]) -> list[str]:
    """The stems, with a number where one was there before; letter case does not distinguish files everywhere."""
    taken: set[str] = set()
    unique = []
    for stem in stems:
        name, number = stem, 2
        while name.lower() in taken:
            name, number = f"{stem}-{number}", number + 1
        taken.add(name.lower())
        unique.append(name)
    return unique


def save_tasks(tasks: Sequence[Task], folder: Path, processes: int | None = None) -> list[Saved]:
    """Write all figures, with as many processes as there are cores.

    Raises:
        OutputError: if a file cannot be written.
    """
    shares = min(processes or len(os.sched_getaffinity(0)), len(tasks))
    if len(tasks) >= LEAST and shares > 1:
        _save_in_parallel(tasks, folder, shares)
    for stem, figure in tasks:  # what is not there was not drawn by a child, and its error is raised here
        if not all(path.is_file() for path in vars(saved_paths(stem, folder)).values()):
            write(stem, figure, folder)
    return [saved_paths(stem, folder) for stem, _ in tasks]


def _save_in_parallel(tasks: Sequence[Task], folder: Path, shares: int) -> None:
    for stem, _ in tasks:
        for path in vars(saved_paths(stem, folder)).values():
            path.unlink(missing_ok=True)  # of an earlier report in the same folder
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryDirectory() as scratch:
        children = []
        for number in range(shares):
            share = Path(scratch) / f"{number}.pickle"
            share.write_bytes(pickle.dumps((folder, list(tasks[number::shares]))))
            command = [sys.executable, "-m", "bench.plots._saving", str(share)]
            children.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
        for child in children:
            child.wait()


def write(stem: str, figure: Figure, folder: Path) -> Saved:
    """Write both files of one figure.

    Raises:
        OutputError: if one cannot be written.
    """
    from PIL import Image  # matplotlib itself writes PNG files with it

    paths, drawn = saved_paths(stem, folder), io.BytesIO()
    with figure_style():
        figure.savefig(drawn, dpi=PRINT_DPI, facecolor="white", pil_kwargs={"compress_level": 1})
    full = Image.open(drawn).convert("RGB")
    size = (round(full.width * PAGE_DPI / PRINT_DPI), round(full.height * PAGE_DPI / PRINT_DPI))
    for image, path, dpi in (
        (full, paths.print_path, PRINT_DPI),
        (full.resize(size, Image.Resampling.BILINEAR), paths.page_path, PAGE_DPI),
    ):
        try:
            image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, "PNG", dpi=(dpi, dpi))
        except OSError as error:
            raise _unwritable(path, error) from error
    return paths


def write_print(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG for print, in full colours.

    Raises:
        OutputError: if it cannot be written.
    """
    try:
        with figure_style():
            figure.savefig(path, dpi=PRINT_DPI, facecolor="white", metadata={"Software": "attention-bench"})
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"figure must be written into a writable folder, got {str(path)!r} ({error.strerror}). Choose another folder."
    )


def _main(share: Path) -> None:
    folder, tasks = pickle.loads(share.read_bytes())  # written by the parent a moment ago, into a folder of its own
    for stem, figure in tasks:
        write(stem, figure, folder)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
