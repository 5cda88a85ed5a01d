"""What `attention-bench list` shows: the members of each family with what is known about them."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from bench.implementation import implementations
from bench.masks import masks
from bench.registry import Registry
from bench.sweep import load_sweep, sweep_names

Versions = Mapping[str, tuple[str | None, str | None]]


def catalogue(family: str, versions: Versions | None = None) -> list[dict[str, Any]]:
    """Rows of one family; modules that could not be imported are rows too, with the reason.

    Args:
        family: plural name of the family.
        versions: per implementation its version, or None and the reason, if the libraries were asked.
    """
    rows = {"implementations": lambda: _implementations(versions), "masks": _masks, "sweeps": _sweeps}
    if family in rows:
        return rows[family]()
    registry = _registry(family)
    found = [{"name": name, "summary": _summary(member)} for name, member in registry.items()]
    return found + [{"name": name, "summary": f"not loaded: {why}"} for name, why in registry.broken.items()]


def _summary(member: Any) -> str:
    """A member's ``summary``, a claim's ``statement``, or the first line of its documentation."""
    said = getattr(member, "summary", None) or getattr(member, "statement", None) or member.__doc__ or ""
    return str(said).splitlines()[0]


def _registry(family: str) -> Registry[Any]:
    """The registry of a family; it bears the family's name in its package."""
    registry = getattr(importlib.import_module(f"bench.{family}"), family)
    assert isinstance(registry, Registry), f"bench.{family}.{family} is the registry of the family"
    return registry


def _implementations(versions: Versions | None) -> list[dict[str, Any]]:
    rows = []
    for name, member in implementations.items():
        row: dict[str, Any] = {
            "name": name,
            "devices": " ".join(member.devices),
            "backward": "yes" if member.backward else "no",
            "layout": member.layout,
        }
        if versions is not None:
            version, reason = versions.get(name, (None, "its module could not be loaded in a worker"))
            row |= {"available": "yes" if version else "no", "version": version, "reason": reason}
        rows.append(row | {"summary": member.summary})
    for module, why in implementations.broken.items():
        rows.append(
            dict.fromkeys(rows[0] if rows else ("name", "summary")) | {"name": module, "summary": f"not loaded: {why}"}
        )
    return rows


def _masks() -> list[dict[str, Any]]:
    rows = []
    for name, member in masks.items():
        parameters = ", ".join(f"{f.name}: {f.type}" for f in dataclasses.fields(member))  # type: ignore[arg-type]  # members are dataclasses
        rows.append(
            {"name": name, "parameters": parameters or "none", "summary": (member.__doc__ or "").splitlines()[0]}
        )
    return rows


def _sweeps() -> list[dict[str, Any]]:
    rows = []
    for name in sweep_names():
        sweep = load_sweep(name)
        rows.append({"name": name, "problems": len(sweep.problems), "title": sweep.title})
    return rows
