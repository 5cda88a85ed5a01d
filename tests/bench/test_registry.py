from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.errors import OutputError, RegistryError, UnknownNameError
from bench.registry import Registry, load_file

_fresh = itertools.count()
Family = Callable[..., Registry[object]]


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Family:
    """Makes a package with the given modules and a registry over it; modules see it as ``registry``."""

    def make(**modules: str) -> Registry[object]:
        name = f"family_{next(_fresh)}"
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text(
            f"from bench.registry import Registry\nregistry = Registry('{name}', 'thing', '{name}')\norder = []\n"
        )
        for module, body in modules.items():
            (folder / f"{module}.py").write_text(f"from {name} import order, registry\n{body}\n")
        monkeypatch.syspath_prepend(tmp_path)
        registry: Registry[object] = __import__(name).registry
        return registry

    return make


def member(name: str) -> str:
    return f"order.append('{name}')\n@registry.register('{name}')\nclass {name.title()}: ..."


def test_modules_are_imported_in_sorted_order_and_private_ones_are_not(family: Family) -> None:
    registry = family(zebra=member("zebra"), apple=member("apple"), _hidden=member("hidden"))
    assert registry.names() == ["apple", "zebra"]
    assert [name for name, _ in registry.items()] == ["apple", "zebra"]
    assert __import__(registry.package).order == ["apple", "zebra"]
    assert registry.owner("apple") == f"{registry.package}.apple"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise OSError('libfoo.so: cannot open')", "OSError: libfoo.so: cannot open"),
    ],
)
def test_a_module_that_cannot_be_imported_is_reported_and_stops_nobody(family: Family, line: str, reason: str) -> None:
    registry = family(apple=member("apple"), broken=line, zebra=member("zebra"))
    assert registry.names() == ["apple", "zebra"]
    assert registry.broken == {f"{registry.package}.broken": reason}


def test_a_mistake_in_a_module_is_raised_each_time(family: Family) -> None:
    registry = family(apple=member("apple"), wrong="1 / 0")
    for _ in range(2):  # half a family must not pass for the whole on the second call
        with pytest.raises(ZeroDivisionError):
            registry.names()


def test_two_owners_of_one_name_are_both_named(family: Family) -> None:
    registry = family(apple=member("apple"), pear=member("apple"))
    with pytest.raises(RegistryError) as caught:
        registry.names()
    package = registry.package
    assert str(caught.value) == (
        f"thing name must be unique, got 'apple' from both {package}.apple and {package}.pear. Rename one of them."
    )


def test_an_unknown_name_offers_the_nearest(family: Family) -> None:
    registry = family(apple=member("apple"))
    with pytest.raises(UnknownNameError, match=r"thing must be a known name, got 'aple'; did you mean apple\?"):
        registry.get("aple")
    with pytest.raises(UnknownNameError):
        registry.owner("aple")


def test_entry_points_are_discovered(family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = family(apple=member("apple"))
    info = tmp_path / "plugin" / "plugin_of_a_test-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-a-test\nVersion: 1.0\n")
    plugin, missing = f"plugin_{registry.package}", f"missing_{registry.package}"
    (info / "entry_points.txt").write_text(
        f"[attention_bench.{registry.family}]\nmine = {plugin}\ngone = {missing}:Thing\n"
    )
    (info.parent / f"{plugin}.py").write_text(f"from {registry.package} import order, registry\n{member('mine')}\n")
    monkeypatch.syspath_prepend(info.parent)
    assert registry.names() == ["apple", "mine"]
    assert registry.owner("mine") == plugin
    assert registry.broken == {missing: f"ModuleNotFoundError: No module named '{missing}'"}


def test_a_file_is_loaded(family: Family, tmp_path: Path) -> None:
    registry = family()
    path = tmp_path / "extra.py"
    path.write_text(
        "from __future__ import annotations\n"  # with it, dataclasses look their own module up
        "from dataclasses import dataclass\n"
        f"from {registry.package} import registry\n"
        "@registry.register('extra')\n@dataclass(frozen=True)\nclass Extra:\n    size: int = 1\n"
    )
    load_file(path)
    assert registry.names() == ["extra"]
    assert registry.owner("extra") == "attention_bench_loaded_extra"


def test_a_loaded_file_may_not_take_a_name(family: Family, tmp_path: Path) -> None:
    registry = family(apple=member("apple"))
    registry.names()
    path = tmp_path / "extra.py"
    path.write_text(f"from {registry.package} import order, registry\n{member('apple')}\n")
    with pytest.raises(RegistryError, match=r"both family_\d+\.apple and attention_bench_loaded_extra"):
        load_file(path)


def test_a_file_that_cannot_be_loaded_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"--load must name a Python file, got .*nowhere\.py"):
        load_file(tmp_path / "nowhere.py")
    (tmp_path / "notes.txt").write_text("x = 1")
    with pytest.raises(OutputError, match=r"--load must name a Python file \(\*\.py\), got .*notes\.txt"):
        load_file(tmp_path / "notes.txt")
    (tmp_path / "wrong.py").write_text("1 / 0")
    with pytest.raises(OutputError, match=r"imports cleanly, got .*wrong\.py': ZeroDivisionError"):
        load_file(tmp_path / "wrong.py")
