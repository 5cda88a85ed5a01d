"""Families of things that are added by adding one file.

A family is a package (``bench.masks``, ``implementations``) whose modules register their members with a
decorator. Discovery imports the modules in sorted order (``_private`` ones are skipped), then the entry
points ``attention_bench.<family>``. A module that cannot be imported is *unavailable* with its reason and
stops nobody.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Generic, TypeVar

from bench.errors import OutputError, RegistryError, UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """Name to member, in registration order.

    Args:
        family: plural noun, as in ``attention-bench list <family>``.
        noun: singular, for messages.
        package: import name of the package whose modules are discovered.
    """

    def __init__(self, family: str, noun: str, package: str) -> None:
        self.family = family
        self.noun = noun
        self.package = package
        self.broken: dict[str, str] = {}
        """Module or entry point that failed to import, with the reason."""
        self._members: dict[str, T] = {}
        self._owners: dict[str, str] = {}
        self._discovered = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that adds the decorated object under ``name``."""

        def add(member: T) -> T:
            self.add(name, member)
            return member

        return add

    def add(self, name: str, member: T) -> None:
        """Add ``member``; a second owner of the same name is an error that names both."""
        self._discover()  # a name taken by a module not yet imported must be found here, at its second owner
        owner = getattr(member, "__module__", None) or type(member).__module__
        if name in self._members:
            raise RegistryError(
                f"{self.noun} name must be unique, got {name!r} from both {self._owners[name]} and {owner}. "
                "Rename one of them."
            )
        self._members[name] = member
        self._owners[name] = owner

    def owner(self, name: str) -> str:
        """The module that registered ``name``."""
        self.get(name)
        return self._owners[name]

    def get(self, name: str) -> T:
        """The member called ``name``; an unknown name raises with the nearest matches."""
        self._discover()
        if name not in self._members:
            raise UnknownNameError(self.noun, name, self._members)
        return self._members[name]

    def names(self) -> list[str]:
        """All names, sorted."""
        self._discover()
        return sorted(self._members)

    def items(self) -> Iterator[tuple[str, T]]:
        """All members by sorted name."""
        return ((name, self._members[name]) for name in self.names())

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True  # set first: a module may ask the registry while it is imported
        try:
            package = importlib.import_module(self.package)
            for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
                if not module.startswith("_"):
                    self._import(f"{self.package}.{module}")
            for point in sorted(entry_points(group=f"attention_bench.{self.family}"), key=lambda p: p.value):
                self._import(point.module)
        except BaseException:
            self._discovered = False  # half a family must not pass for the whole
            raise

    def _import(self, module: str) -> None:
        try:
            importlib.import_module(module)
        except (ImportError, OSError) as error:
            self.broken[module] = f"{type(error).__name__}: {error}"


def load_file(path: Path) -> None:
    """Execute the Python file at ``path`` so that its decorators register what it defines (``--load``).

    Raises:
        OutputError: if the file does not exist or fails to import.
    """
    if not path.is_file():
        raise OutputError(f"--load must name a Python file, got {str(path)!r}. Check the path.")
    spec = importlib.util.spec_from_file_location(f"attention_bench_loaded_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise OutputError(f"--load must name a Python file (*.py), got {str(path)!r}. Rename it.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up while they are built
    try:
        spec.loader.exec_module(module)
    except RegistryError:
        raise
    except Exception as error:
        raise OutputError(
            f"--load must name a file that imports cleanly, got {str(path)!r}: "
            f"{type(error).__name__}: {error}. Run it with python to see the traceback."
        ) from error
