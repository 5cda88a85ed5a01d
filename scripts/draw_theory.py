"""Draw the pictures of docs/theory.md, or check that they are current.

``python scripts/draw_theory.py`` writes docs/pictures/*.png. With ``--check`` it writes nothing, names the stale ones
and ends with exit code 1. A picture holds its description with the numbers that it shows; it is stale if that is no
longer what would be drawn. Pixels are not compared, since they differ from one matplotlib to the next.
"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

from bench.attention_map import Head, draw_contributions, draw_flow, draw_masks, draw_scaling, draw_weights
from bench.errors import BenchError
from bench.figure_style import figure_style
from bench.plots import Drawing
from bench.trace import trace_example

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SHOWN = {
    "heatmap_three_tokens": "Three tokens, no mask",
    "causal_three_tokens": "Causal mask",
    "causal_three_tokens_changed_query": "Causal mask, third query changed",
    "padded_query_loss": "Causal mask, fourth position is padding",
}
"""Worked examples whose weights stand in one picture."""
DPI = 150
"""Dots per inch: pictures of documents, beside text."""
COLOURS = 128
"""Colours of the palette: a third of the bytes, and the same to the eye."""


def pictures() -> list[Drawing]:
    """Everything that is drawn."""
    return [
        draw_flow(),
        draw_masks(),
        draw_weights([head(name, title) for name, title in SHOWN.items()], stem="weights_worked_example"),
        draw_scaling(head("unscaled_demonstration", "unscaled"), head("unscaled_demonstration", "scaled", scale=None)),
        draw_contributions(head("heatmap_three_tokens", "three tokens")),
    ]


def head(name: str, title: str, **changes: object) -> Head:
    """The one head of a worked example."""
    trace = trace_example(name, **changes)
    return Head(title=title, tensors=trace.head(0, 0), query_tokens=trace.query_tokens, key_tokens=trace.key_tokens)


def write(drawing: Drawing, path: Path) -> None:
    """Write the figure as a PNG with a palette and its description."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    raw, info = BytesIO(), PngInfo()
    info.add_itxt("Description", drawing.alt)
    with figure_style():
        drawing.figure.savefig(raw, dpi=DPI, facecolor="white")
    with Image.open(raw) as image:
        palette = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        palette.save(path, "PNG", optimize=True, pnginfo=info)


def described(path: Path) -> str | None:
    """The description in a picture; None where there is no picture."""
    from PIL import Image

    if not path.is_file():
        return None
    with Image.open(path) as image:
        return str(image.info.get("Description"))


def main(arguments: list[str]) -> int:
    """Write or check; the exit code."""
    stale = 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for drawing in pictures():
        path = FOLDER / f"{drawing.stem}.png"
        if arguments:
            current = described(path) == drawing.alt
            stale += not current
            if not current:
                print(f"stale: {path.relative_to(FOLDER.parent.parent)}")
            continue
        write(drawing, path)
        print(f"written: {path.relative_to(FOLDER.parent.parent)} ({path.stat().st_size / 1000:.0f} kB)")
    return 1 if stale else 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(f"the argument must be --check or nothing, got {sys.argv[1:]}.")
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchError as error:
        sys.exit(f"error: {error}")
