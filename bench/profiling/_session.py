"""One cell under the tools, each in a process of its own, and the digest of what they brought back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.digest import DIGEST_FILE, TIMELINE, Digest, Tool, load_digest
from bench.digest_text import TEXT_FILE
from bench.errors import BenchError, NothingSelectedError, OutputError, Unavailable, UnknownNameError, Unsupported
from bench.fresh_call import in_fresh_process
from bench.implementation import implementations, refusal
from bench.profiling import Found, Subject, tools
from bench.registry import load_file

ALL = "all"
PACKAGES = ("torch", "triton", "numpy")
ABSENT: dict[str, Any] = {
    "steps": 0,
    "total_ms": None,
    "unprofiled_ms": None,
    "stages": (),
    "operators": None,
    "launches": None,
    "ceilings": None,
    "memory": None,
}
"""Fields of a digest whose tool did not run."""


@dataclass(frozen=True)
class Machine:
    """What only a process with torch can say."""

    device: str
    device_name: str
    version: str | None
    reason: str | None
    """Why the implementation is not available."""
    versions: dict[str, str | None] = field(default_factory=dict)
    """Of the packages that matter."""


def chosen_tools(names: Sequence[str]) -> list[str]:
    """Tools to use; without names those that are meant for it.

    Raises:
        UnknownNameError: if a name is none.
    """
    known = [name for name, _ in tools.items()]
    for name in names:
        if name not in (*known, ALL):
            raise UnknownNameError("profiling tool", name, [*known, ALL])
    if ALL in names:
        return known
    return [name for name in known if name in names] or [name for name, tool in tools.items() if tool.default]


def machines(names: Sequence[str], device: str | None, load: tuple[Path, ...]) -> dict[str, Machine]:
    """What is known of each implementation; asked in a process of its own."""
    for file in load:
        load_file(file)
    import torch

    has_cuda = torch.cuda.is_available()
    chosen = device or ("cuda" if has_cuda else "cpu")
    if chosen == "cuda" and not has_cuda:
        return dict.fromkeys(names, Machine(chosen, chosen, None, "torch sees no CUDA device"))
    device_name = torch.cuda.get_device_name() if chosen == "cuda" else "cpu"
    found = {}
    for name in names:
        try:
            found[name] = Machine(chosen, device_name, implementations.get(name).version(), None, _versions())
        except Unavailable as error:
            found[name] = Machine(chosen, device_name, None, str(error))
    return found


def check(subject: Subject, known: Machine) -> None:
    """End here if the cell cannot be computed.

    Raises:
        NothingSelectedError: with the reason.
    """
    refused = refusal(subject.member, subject.problem, subject.device)
    reason = known.reason or (refused[1] if refused else None)
    if reason is not None:
        raise _impossible(subject, reason)


def _impossible(subject: Subject, reason: str) -> NothingSelectedError:
    return NothingSelectedError(
        f"profiled cell must be one that runs here, got {subject.implementation} on {subject.problem.key}: "
        f"{reason.rstrip('.')}. Name another, see `attention-bench list implementations`."
    )


def profile_cell(subject: Subject, known: Machine, names: Sequence[str], folder: Path) -> Digest:
    """The digest of one cell; native files are left in the folder, which must exist.

    What an earlier profile left there is removed first: half of it would stand beside what is new.

    Raises:
        NothingSelectedError: if the cell cannot be computed here.
    """
    check(subject, known)
    _clear(folder)
    parts: dict[str, Any] = dict(ABSENT)
    kernels: tuple[Any, ...] = ()
    states = []
    for name, tool in tools.items():
        if name not in names:
            states.append(Tool(name=name, status="not_asked", fix=f"`--tool {name}`"))
            continue
        absence = tool().absence(subject)
        if absence is not None:
            status = "unavailable" if absence.applicable else "not_applicable"
            states.append(Tool(name=name, status=status, reason=absence.reason, fix=absence.fix))
            continue
        try:
            found = in_fresh_process(look, name, subject, folder, log=folder / f"{name}.log")
        except BenchError as error:
            states.append(Tool(name=name, status="failed", reason=str(error), fix=f"see {name}.log"))
            continue
        if isinstance(found, Unsupported):
            (folder / f"{name}.log").unlink(missing_ok=True)
            raise _impossible(subject, str(found))
        states.append(found if isinstance(found, Tool) else Tool(name=name, status="done", files=dict(found.files)))
        if isinstance(found, Found):
            (folder / f"{name}.log").unlink(missing_ok=True)
            kernels += tuple(found.parts.get("kernels", ()))
            parts |= {field: value for field, value in found.parts.items() if field != "kernels"}
    return Digest(
        problem=subject.problem,
        implementation=subject.implementation,
        implementation_version=known.version,
        device=subject.device,
        device_name=known.device_name,
        versions=known.versions,
        kernels=kernels,
        tools=tuple(states),
        **parts,
    )


def look(name: str, subject: Subject, folder: Path) -> Found | Tool | Unsupported:
    """Entry point of a tool's process: what it found, or why it did not."""
    for file in subject.load:
        load_file(file)
    try:
        with _quiet():
            return tools.get(name)().look(subject, folder)
    except Unsupported as error:  # the library refuses the problem, whatever the tool
        return Unsupported(str(error))
    except Exception as error:  # noqa: BLE001  # whatever a profiler breaks on, the others go on
        text = str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
        reason = text.splitlines()[0][:600] if text else type(error).__name__
        return Tool(name=name, status="failed", reason=reason, fix=f"see {name}.log")


def _clear(folder: Path) -> None:
    """Remove what an earlier profile left: its digest and text, the files that it names, its figure, its logs."""
    path = folder / DIGEST_FILE
    if not path.exists():
        return
    try:
        earlier = load_digest(path).tools
    except OutputError:
        earlier = ()  # whose the other files are is not known
    named = [name for tool in earlier for name in (*tool.files, f"{tool.name}.log")]
    for name in (*named, DIGEST_FILE, TEXT_FILE, f"{TIMELINE}.png"):
        (folder / Path(name).name).unlink(missing_ok=True)


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings: a profiler's own are not about the cell."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
