"""What `attention-bench list` shows: the members of each family with what is known about them."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.implementation import implementations
from bench.masks import masks
from bench.registry import Registry
from bench.sweep import load_sweep, sweep_names

if TYPE_CHECKING:
    from bench.profiling import Tool

Versions = Mapping[str, tuple[str | None, str | None]]


def catalogue(family: str, versions: Versions | None = None) -> list[dict[str, Any]]:
    """Rows of one family; modules that could not be imported are rows too, with the reason.

    Args:
        family: plural name of the family.
        versions: per implementation its version, or None and the reason, if the libraries were asked.
    """
    rows = {
        "implementations": lambda: _implementations(versions),
        "masks": _masks,
        "sweeps": _sweeps,
        "profilers": _profilers,
    }
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


def _profilers() -> list[dict[str, Any]]:
    """Profiling tools; whether one is available is asked of it for every implementation on every device."""
    from bench.profiling import tools

    rows = []
    for name, tool in tools.items():
        why = _absence(tool())
        default = "yes" if tool.default else "no"
        row = {"name": name, "default": default, "available": "no" if why else "yes", "reason": why}
        rows.append(row | {"summary": tool.summary})
    empty = dict.fromkeys(("name", "default", "available", "reason", "summary"))
    return rows + [
        empty | {"name": module, "available": "no", "summary": f"not loaded: {why}"}
        for module, why in tools.broken.items()
    ]


def _absence(tool: Tool) -> str | None:
    """Why a profiling tool can look at nothing here, and the fix; None if it can look at something."""
    from bench.problem import Problem
    from bench.profiling import Subject

    problem = Problem(seqlen=64)
    subjects = (Subject(problem, name, device) for device in ("cpu", "cuda") for name in implementations.names())
    reasons = []
    for subject in subjects:
        absence = tool.absence(subject)
        if absence is None and (subject.device == "cpu" or _has_gpu()):
            return None
        if absence is None:
            return "it needs a GPU, and none is seen here"
        reasons.append(absence)
    first = next((one for one in reasons if one.applicable), reasons[0])
    return f"{first.reason}{f'. To get it: {first.fix}' if first.fix else ''}"


def _has_gpu() -> bool:
    """Whether NVML sees one: torch is not asked, since importing it takes seconds."""
    from bench import nvml
    from bench.errors import Unavailable

    try:
        with nvml.session() as library:
            return bool(nvml.list_boards(library)[0])
    except Unavailable:
        return False


def _sweeps() -> list[dict[str, Any]]:
    rows = []
    for name in sweep_names():
        sweep = load_sweep(name)
        rows.append({"name": name, "problems": len(sweep.problems), "title": sweep.title})
    return rows
