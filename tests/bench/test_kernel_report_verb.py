"""The verb `kernels`: filters, lock and exit codes with planted facts; one real compilation."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from bench import kernel_report
from bench.cli import main
from bench.implementation import implementations
from bench.kernel_lock import KernelFacts, read_lock, write_lock
from bench.kernel_report import Compiled, Shipped, compile_all, shipped_configurations
from bench.occupancy import LIMITS

ROOT = Path(__file__).resolve().parents[2]
LOCKED = read_lock(ROOT / "kernels.lock.json")["3.7.1"]
BY_NAME: dict[str, list[KernelFacts]] = {}
for _fact in LOCKED.values():
    BY_NAME.setdefault(_fact.configuration, []).append(_fact)


class Compiler:
    """Stands in for the processes that compile: gives the facts of the lock, changed as a test asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.changes: dict[str, Any] = {}
        self.failing: set[str] = set()

    def __call__(self, wanted: Sequence[Shipped]) -> Iterator[Compiled]:
        for one in wanted:
            name = one.configuration.name
            self.asked.append(name)
            if name in self.failing:
                yield Compiled(one, failure="CompilationError: at 1:1")
            else:
                facts = (replace(fact, compile_s=1.5, **self.changes.get(name, {})) for fact in BY_NAME[name])
                yield Compiled(one, tuple(facts))


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    stand_in = Compiler()
    monkeypatch.setattr(kernel_report, "_in_processes", stand_in)
    monkeypatch.setattr(kernel_report, "version", lambda name: "3.7.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(ROOT)
    return stand_in


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str, str]:
    """Exit code, stdout and stderr of the verb."""
    with pytest.raises(SystemExit) as caught:
        main(["kernels", *words])
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


def test_everything_that_is_shipped_is_in_the_lock_and_for_a_known_target() -> None:
    shipped = shipped_configurations()
    assert {one.configuration.name for one in shipped} == set(BY_NAME) and len(shipped) <= 60
    assert {one.configuration.target for one in shipped} == set(LIMITS)
    assert {one.implementation for one in shipped} <= set(implementations.names())


def test_nothing_heavy_is_imported_to_list_what_is_shipped() -> None:
    import subprocess

    code = (
        "import sys; from bench.kernel_report import shipped_configurations as all_; assert len(all_()) > 40\n"
        "loaded = {'torch', 'triton', 'pandas'} & set(sys.modules); assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], set(BY_NAME)),
        (["--target", "sm_90"], {name for name in BY_NAME if name.startswith("sm_90-")}),
        (["--target", "sm_90", "--target", "gfx942"], {n for n in BY_NAME if n.startswith(("sm_90-", "gfx942-"))}),
        (["--direction", "bwd"], {name for name in BY_NAME if "-bwd_" in name}),
        (["--direction", "fwd"], {name for name in BY_NAME if "-bwd_" not in name}),
        (["--only", "half-64$"], {name for name in BY_NAME if name.endswith("half-64")}),
        (["-i", "^triton_flash$", "--only", "sm_80-fwd", "--only", "split"],
         {name for name in BY_NAME if "sm_80-fwd" in name or "split" in name}),
    ],
)  # fmt: skip
def test_filters(words: list[str], names: set[str], compiler: Compiler, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *words, "--format", "json")
    assert code == 0 and {row["configuration"] for row in json.loads(out)} == names == set(compiler.asked)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--only", "nothing"], 5, "filters must leave"),
        (["--target", "sm_91"], 2, "did you mean sm_90"),
        (["--only", "("], 2, "regular expression"),
        (["--direction", "both"], 2, "both"),
        (["--check", "--update"], 2, "either"),
        (["--check", "--lock", "nowhere.json"], 2, "kernels --update"),
        (["--format", "pdf"], 2, "pdf"),
    ],
)
def test_bad_input_is_refused_before_anything_is_compiled(
    words: list[str], code: int, text: str, compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    got, out, err = run(capsys, *words)
    assert (got, out) == (code, "") and text in err
    assert compiler.asked == []


@pytest.mark.parametrize("style", ["table", "markdown", "github", "csv", "jsonl", "json"])
def test_formats(style: str, compiler: Compiler, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--only", "sm_90-fwd-half-128", "--format", style)
    assert code == 0 and "HGMMA.64x128x16" in out
    assert ("65,536 registers" in out) == (style in ("table", "markdown", "github")), "people are told the limits"
    if style in ("markdown", "json"):
        assert "async 16 B" in out, "loads by width"


def test_a_second_call_compiles_nothing_and_fresh_compiles_again(
    compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(capsys, "--target", "sm_80", "--format", "json")
    asked = list(compiler.asked)
    assert run(capsys, "--target", "sm_80", "--format", "json") == first and compiler.asked == asked
    run(capsys, "--target", "sm_80", "--fresh")
    assert compiler.asked == 2 * asked


def test_another_source_or_triton_is_another_result_and_a_broken_file_none(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = shipped_configurations()[0]
    other = replace(one, configuration=replace(one.configuration, digest="0"))
    assert len(list(compile_all([one], folder=tmp_path))) == 1
    assert len(list(compile_all([other], folder=tmp_path))) == 1
    assert len(compiler.asked) == 2
    monkeypatch.setattr(kernel_report, "version", lambda name: "3.9.0")
    list(compile_all([one], folder=tmp_path))
    assert len(compiler.asked) == 3 == len(list(tmp_path.iterdir()))
    for path in tmp_path.iterdir():
        path.write_text("[{")
    list(compile_all([one], folder=tmp_path))
    list(compile_all([one], folder=tmp_path))
    assert len(compiler.asked) == 4


def test_check_passes_on_what_the_lock_holds(compiler: Compiler, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--check")
    assert code == 0 and f"{len(LOCKED)} kernels compared with the lock: nothing is worse" in err


def test_check_ends_with_3_and_names_what_is_worse(compiler: Compiler, capsys: pytest.CaptureFixture[str]) -> None:
    compiler.changes["sm_90-fwd-half-128"] = {"stack_bytes": 4}
    code, _, err = run(capsys, "--check")
    assert code == 3
    assert "worse: triton_flash/sm_90-fwd-half-128/attention_forward: spills: 4 bytes" in err and "1 findings" in err
    assert run(capsys, "--check", "--target", "sm_80")[0] == 0, "filtered away"
    assert run(capsys)[0] == 0, "not asked"


def test_a_kernel_that_does_not_compile_ends_with_1_and_leaves_the_lock_alone(
    compiler: Compiler, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    compiler.failing = {"sm_80-fwd-half-64"}
    lock = tmp_path / "lock.json"
    code, out, err = run(capsys, "--update", "--lock", str(lock), "--format", "json")
    assert code == 1 and "sm_80-fwd-half-64 does not compile: CompilationError: at 1:1" in err
    assert len({row["configuration"] for row in json.loads(out)}) == len(BY_NAME) - 1, "the others are shown"
    assert not lock.exists() and "not written" in err


def test_another_version_of_triton_is_not_comparable(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel_report, "version", lambda name: "3.99.0")
    code, out, err = run(capsys, "--check")
    assert (code, out, compiler.asked) == (5, "", [])
    assert "3.7.1" in err and "3.99.0" in err and "not comparable" in err
    lock = tmp_path / "lock.json"
    lock.write_bytes((ROOT / "kernels.lock.json").read_bytes())
    assert run(capsys, "--update", "--lock", str(lock))[0] == 0
    assert {"3.7.1", "3.99.0"} <= set(read_lock(lock)), "the other version stays"
    assert run(capsys, "--check", "--lock", str(lock))[0] == 0


def test_an_update_of_a_part_leaves_the_rest_and_a_whole_one_drops_what_is_gone(
    compiler: Compiler, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lock, gone = tmp_path / "lock.json", replace(next(iter(LOCKED.values())), configuration="gone")
    write_lock(lock, {"3.7.1": LOCKED | {gone.key: gone}})
    compiler.changes["sm_90-fwd-half-128"] = {"registers": 200}
    assert run(capsys, "--update", "--only", "sm_90-fwd", "--lock", str(lock))[0] == 0
    key = "triton_flash/sm_90-fwd-half-128/attention_forward"
    found = read_lock(lock)["3.7.1"]
    assert found == LOCKED | {gone.key: gone, key: replace(LOCKED[key], registers=200)}
    assert run(capsys, "--update", "--lock", str(lock))[0] == 0
    assert set(read_lock(lock)["3.7.1"]) == set(LOCKED)


def test_without_triton_the_verb_says_so(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(kernel_report, "version", missing)
    for words in ([], ["--check"], ["--update"]):
        code, out, err = run(capsys, *words)
        assert (code, out) == (5, "") and "triton" in err and "none installed" in err


def test_an_untried_version_is_told(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "tried on triton" not in run(capsys)[2]
    monkeypatch.setattr(kernel_report, "version", lambda name: "3.99.0")
    assert "tried on triton 3.7.1" in run(capsys)[2]


@pytest.mark.slow
def test_a_kernel_compiles_to_what_the_lock_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of NVIDIA and one of AMD, in processes of their own, although kernels are interpreted in this one."""
    pytest.importorskip("triton", reason="triton ships for Linux")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    chosen = ("sm_90-fwd-half-64", "gfx942-fwd-half-64")
    wanted = [one for one in shipped_configurations() if one.configuration.name in chosen]
    found = {one.shipped.configuration.name: one for one in compile_all(wanted, folder=tmp_path)}
    assert set(found) == set(chosen)
    for name, one in found.items():
        assert one.failure is None, one.failure
        assert all(fact.compile_s is not None and fact.compile_s > 0.05 for fact in one.facts)
        locked = read_lock(ROOT / "kernels.lock.json").get(version("triton"))
        expected = [] if locked is None else [fact for fact in locked.values() if fact.configuration == name]
        if expected:
            assert [replace(fact, compile_s=None) for fact in one.facts] == expected
        assert one.facts[0].mix.kinds == {"HGMMA" if "sm_90" in name else "MFMA"}
    assert list(compile_all(wanted, folder=tmp_path)) == [found[one.configuration.name] for one in wanted]
