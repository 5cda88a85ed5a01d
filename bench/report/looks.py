"""Colours, dashes and markers of the figures in the words of Vega."""

from __future__ import annotations

from typing import Any

from bench.figure_style import Style

WIDTH = 1.6
"""Line width that dashes are counted in."""
SHAPES = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "M-1,-0.6L-0.6,-1L0,-0.4L0.6,-1L1,-0.6L0.4,0L1,0.6L0.6,1L0,0.4L-0.6,1L-1,0.6L-0.4,0Z",
    "<": "triangle-left",
    ">": "triangle-right",
    "*": "M0,-1L0.24,-0.32L0.95,-0.31L0.38,0.12L0.59,0.81L0,0.4L-0.59,0.81L-0.38,0.12L-0.95,-0.31L-0.24,-0.32Z",
    "h": "M0,-1L0.87,-0.5L0.87,0.5L0,1L-0.87,0.5L-0.87,-0.5Z",
}
"""Markers by matplotlib's name."""
INK = {"#000000": "var(--bg)", "#0072B2": "#ffffff"}
"""Colour of text on a colour, where black is hard to read."""
TEXT_COLOUR = "var(--fg)"
"""Black of the palette: it is that of the text, so that it shows on a dark page."""


def look(style: Style) -> dict[str, Any]:
    """``color``, ``dash`` (pixels), ``shape``, and ``ink``: the colour of text on the colour."""
    pattern = [1, 0] if style.linestyle == "-" else [round(part * WIDTH, 2) for part in style.linestyle[1]]
    return {
        "color": TEXT_COLOUR if style.color == "#000000" else style.color,
        "dash": pattern,
        "shape": SHAPES[style.marker],
        "ink": INK.get(style.color, "#000000"),
    }
