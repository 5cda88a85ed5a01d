"""The JavaScript of Vega, Vega-Lite and Vega-Embed, out of the package vl-convert, for a page without a network."""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import version
from pathlib import Path


def vega_script() -> str:
    """One module that sets ``window.vegaEmbed``.

    Bundling takes seconds, so the result is kept in the user's cache folder under the version of the package. What
    ends a script within HTML is escaped.
    """
    import vl_convert

    folder = _folder()
    kept = None if folder is None else folder / f"vega-{version('vl-convert-python')}.js"
    if kept is not None and kept.is_file():
        return kept.read_text(encoding="utf-8")
    text = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    text = text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    if kept is not None:
        _keep(kept, text)
    return text


def _folder() -> Path | None:
    """That of the user; None for a user without a home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "attention-bench"
    except RuntimeError:
        return None


def _keep(path: Path, text: str) -> None:
    """Write whole or not at all; without a cache the next report only takes longer."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError:
        return
