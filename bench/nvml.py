"""The part of NVML that is used, through NVIDIA's own bindings (package ``nvidia-ml-py``, module ``pynvml``).

Nothing here may cost a measurement: what cannot be opened raises :class:`~bench.errors.Unavailable` with its
reason, what cannot be read is None with its reason, and one reading never costs another.

NVML orders boards by PCI address, CUDA by speed or as ``CUDA_VISIBLE_DEVICES`` says, so an index of the one means
nothing to the other: boards are found by UUID, else by PCI address, and what matches nothing is unknown, never
board 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from bench.errors import Unavailable

T = TypeVar("T")


@dataclass(frozen=True)
class Identity:
    """What CUDA knows of a device that NVML knows as well."""

    uuid: str | None
    """With or without its ``GPU-`` or ``MIG-``."""
    pci: tuple[int, int, int] | None = None
    """Domain, bus and device."""


@dataclass(frozen=True)
class Board:
    """One GPU, or one MIG instance of one."""

    handle: Any
    """NVML's own handle."""
    uuid: str
    """With its ``GPU-`` or ``MIG-``."""
    pci: tuple[int, int, int] | None
    """Domain, bus and device."""
    split: bool = False
    """Whether MIG is on, so that the board's readings are not those of one instance."""
    instance: bool = False
    """Whether this is a MIG instance."""


def cuda_identity(device: str, cuda: Any = None) -> tuple[Identity, ...]:
    """The current CUDA device by what NVML knows of it too; empty for ``cpu``.

    CUDA has already applied ``CUDA_VISIBLE_DEVICES`` and its own order, so its answer needs no second guess.

    Args:
        device: device type.
        cuda: a stand-in for ``torch.cuda`` in tests.
    """
    if device != "cuda":
        return ()
    if cuda is None:
        import torch

        cuda = torch.cuda
    try:
        about = cuda.get_device_properties(cuda.current_device())
    except (AssertionError, RuntimeError):  # no usable device: the measurement itself will say so
        return (Identity(None),)
    uuid = getattr(about, "uuid", None)
    try:
        pci = (int(about.pci_domain_id), int(about.pci_bus_id), int(about.pci_device_id))
    except AttributeError:
        return (Identity(None if uuid is None else str(uuid)),)
    return (Identity(None if uuid is None else str(uuid), pci),)


def open_library() -> Any:
    """The initialised bindings; the caller owes them an ``nvmlShutdown()``, or uses :func:`session`.

    Raises:
        Unavailable: if the bindings are missing or not NVIDIA's, or if NVML cannot be initialised.
    """
    try:
        import pynvml
    except ImportError as error:
        raise Unavailable(f"nvidia-ml-py is not installed ({error})") from error
    if hasattr(pynvml, "__path__"):  # NVIDIA's is one file; the abandoned package of the same name is a folder
        raise Unavailable(
            f"module pynvml must be that of nvidia-ml-py, got the old package pynvml ({pynvml.__file__}). "
            "Run `pip uninstall pynvml`, then `pip install --force-reinstall nvidia-ml-py`"
        )
    _, reason = ask(pynvml, "nvmlInit")
    if reason is not None:
        raise Unavailable(reason)
    return pynvml


@contextmanager
def session(opener: Callable[[], Any] = open_library) -> Iterator[Any]:
    """The initialised bindings for a ``with`` block.

    Raises:
        Unavailable: as :func:`open_library`.
    """
    library = opener()
    try:
        yield library
    finally:
        close_library(library)


def close_library(library: Any) -> None:
    """Give back what :func:`open_library` took; a refusal is nobody's concern."""
    ask(library, "nvmlShutdown")


def read(library: Any, call: Callable[[], T]) -> tuple[T | None, str | None]:
    """The result of ``call``, or None with the reason.

    Beside NVML's own errors, bindings may lack a function or trip over what a driver returned.
    """
    try:
        return call(), None
    except (library.NVMLError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        return None, f"NVML: {error}"


def ask(library: Any, name: str, *arguments: Any) -> tuple[Any, str | None]:
    """What the function ``name`` of the bindings returns, or None with the reason."""
    return read(library, lambda: getattr(library, name)(*arguments))


def call_either(library: Any, names: tuple[str, ...], *arguments: Any) -> Any:
    """The first function of ``names`` that works: a new name that an old driver lacks, or an old one.

    Raises:
        Exception: that of the first name if none works.
    """
    first: Exception | None = None
    for name in names:
        try:
            return getattr(library, name)(*arguments)
        except (library.NVMLError, AttributeError) as error:
            first = first or error
    assert first is not None, "names must not be empty"
    raise first


def list_boards(library: Any) -> tuple[list[Board], list[str]]:
    """Every board followed by its MIG instances, and what went wrong on the way; one lost board costs no other."""
    count, reason = ask(library, "nvmlDeviceGetCount")
    boards: list[Board] = []
    reasons = [reason] if reason else []
    for index in range(count or 0):
        board, reason = read(library, partial(_board, library, index))
        if board is None:
            reasons.append(str(reason))
            continue
        boards.append(board)
        if board.split:
            boards.extend(_instances(library, board))
    return boards, reasons


def _board(library: Any, index: int) -> Board:
    handle = library.nvmlDeviceGetHandleByIndex(index)
    modes, _ = ask(library, "nvmlDeviceGetMigMode", handle)  # current and pending
    pci, _ = read(library, lambda: _pci(library, handle))
    return Board(handle, text(library.nvmlDeviceGetUUID(handle)), pci, split=bool(modes and modes[0] == 1))


def _pci(library: Any, handle: Any) -> tuple[int, int, int]:
    info = call_either(library, ("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v3"), handle)
    return int(info.domain), int(info.bus), int(info.device)


def _instances(library: Any, board: Board) -> Iterator[Board]:
    count, _ = ask(library, "nvmlDeviceGetMaxMigDeviceCount", board.handle)
    for index in range(count or 0):
        handle, _ = ask(library, "nvmlDeviceGetMigDeviceHandleByIndex", board.handle, index)
        uuid = None if handle is None else ask(library, "nvmlDeviceGetUUID", handle)[0]
        if uuid is not None:  # slots may be empty
            yield Board(handle, text(uuid), board.pci, split=True, instance=True)


def find_board(library: Any, identity: Identity) -> Board:
    """The board or MIG instance that is this CUDA device.

    Raises:
        Unavailable: if none is for certain.
    """
    boards, reasons = list_boards(library)
    for board in boards:
        same = identity.uuid is not None and _bare(board.uuid) == _bare(identity.uuid)
        if same and board.instance == board.split:
            return board
    for board in boards:
        if board.pci is not None and board.pci == identity.pci and not board.split:
            return board
    seen = ", ".join(board.uuid for board in boards) or "; ".join(reasons) or "none"
    raise Unavailable(f"NVML knows no device with UUID {identity.uuid} at PCI {identity.pci}, only: {seen}")


def visible_boards(variable: str | None, order: str | None, boards: list[Board]) -> list[Board] | None:
    """The boards that CUDA would show, in its order, as far as its variables alone can tell; None if they cannot.

    Args:
        variable: ``CUDA_VISIBLE_DEVICES``; None if it is not set.
        order: ``CUDA_DEVICE_ORDER``. Without ``PCI_BUS_ID`` an index counts by a speed that nobody here knows.
        boards: as from :func:`list_boards`.

    As CUDA reads it: UUIDs may be cut short, the first entry that is nobody ends the list, an entry that comes
    twice empties it.
    """
    whole = [board for board in boards if not board.instance]
    ordered = order == "PCI_BUS_ID" or len(whole) == 1
    if variable is None:
        return whole if ordered or not whole else None
    visible: list[Board] = []
    for entry in (part.strip() for part in variable.split(",")):
        if entry.isdigit() and not ordered:
            return None
        if entry.isdigit():
            matches = whole[int(entry) : int(entry) + 1]
        else:
            named = entry.startswith(("GPU-", "MIG-"))
            matches = [board for board in boards if named and board.uuid.startswith(entry)]
        if len(matches) != 1:
            break
        if matches[0] in visible:
            return []
        visible += matches
    return visible


def _bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


def text(value: str | bytes) -> str:
    """Older bindings return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
