"""Columns of JSON made small: a page must stay below a size that every browser opens at once."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

EXACT: set[type] = {int, str, bool, type(None)}
"""Types whose values are written as they are."""
NUMBERS: set[type] = {int, float, bool}
Packed = dict[str, Any]
"""``{"v": values}``, or ``{"of": distinct values, "at": an index into them for each row}``."""


def packed(values: Iterable[object], digits: int = 7) -> Packed:
    """One column: where values repeat, each is written once.

    Floats keep ``digits`` significant digits; integers and texts are exact. JSON has no infinity and no NaN: they
    become the texts ``inf``, ``-inf`` and ``nan``, so that they are shown as what they are.
    """
    plain = list(values)
    kinds = set(map(type, plain))
    if not kinds <= EXACT:
        plain = [_plain(value, digits) for value in plain]
    keys: list[Any] = [json.dumps(one, sort_keys=True) for one in plain] if kinds & {list, tuple, dict} else plain
    if len(kinds & NUMBERS) > 1:  # 1, 1.0 and True are one key of a dict, and not one value
        keys = [(type(key), key) for key in keys]
    first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
    if 2 * len(first) > len(plain):
        return {"v": plain}
    distinct = sorted(first.values())
    place = {keys[index]: number for number, index in enumerate(distinct)}
    return {"of": [plain[index] for index in distinct], "at": list(map(place.__getitem__, keys))}


def compressed(content: object) -> str:
    """JSON, compressed and in base64: the same bytes for the same content."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


def apart(content: dict[str, Any], cells: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The dataset without what the dialog of a record alone needs, and that: half of a large page, read when it opens.

    Args:
        content: as :func:`bench.report.dataset.dataset` gives it.
        cells: columns that go with the samples.
    """
    columns = dict(content["cells"])
    details = {"samples": content["samples"], "cells": {name: columns.pop(name) for name in cells}}
    return content | {"cells": columns, "samples": {"kind": content["samples"]["kind"]}}, details


def deltas(values: Sequence[int]) -> list[int]:
    """The first value, then each one's distance from the one before: small numbers, which compress well."""
    return [value - before for before, value in zip([0, *values], values, strict=False)]


def rounded(value: float, digits: int) -> float:
    """``value`` with that many significant digits."""
    return float(f"{value:.{digits}g}")


def _plain(value: object, digits: int) -> object:
    if isinstance(value, float):
        return rounded(value, digits) if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {name: _plain(inner, digits) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, digits) for inner in value]
    return value
