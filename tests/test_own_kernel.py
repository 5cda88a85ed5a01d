"""The example consumer, as its CI would run it: a fresh environment, nothing fetched, its own script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "own-kernel"

pytestmark = pytest.mark.slow


class Consumer:
    """A copy of the example with an environment of its own, which sees this checkout and what it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "own-kernel"
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns("__pycache__", "build"))
        venv.create(folder / "venv", symlinks=True)
        self.bin = folder / "venv" / "bin"
        site = next((folder / "venv" / "lib").glob("python*/site-packages"))
        shared = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
        (site / "shared.pth").write_text("\n".join(shared) + "\n")
        (self.bin / "attention-bench").write_text(f'#!/bin/sh\nexec "{self.bin}/python" -m bench "$@"\n')
        (self.bin / "attention-bench").chmod(0o755)

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy, with its environment first on the path."""
        variables = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        variables.pop("PYTHONPATH", None)
        words = list(map(str, command))
        return subprocess.run(words, cwd=self.folder, env=variables, capture_output=True, text=True, check=False)

    def install(self) -> None:
        """Install the copy, from its own files alone."""
        words = ("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", ".")
        done = self.run(self.bin / "python", *words)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    return Consumer(tmp_path)


def test_its_ci_passes_and_leaves_the_numbers_of_its_kernel(consumer: Consumer) -> None:
    consumer.install()
    done = consumer.run("./ci.sh", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| own_kernel |" in done.stdout
    entries = json.loads((consumer.folder / "out" / "benchmarks.json").read_text())
    assert {entry["name"].split("/")[0] for entry in entries} == {"own_kernel"}
    assert {entry["unit"] for entry in entries} == {"ms", "B", ""}
    (run,) = (consumer.folder / "out" / "runs").glob("*.jsonl")
    cells = [line for line in map(json.loads, run.read_text().splitlines()) if line["type"] == "cell"]
    own = [cell for cell in cells if cell["implementation"] == "own_kernel"]
    assert {cell["status"] for cell in own} == {"ok", "verified", "unsupported"}
    assert {cell["implementation_version"] for cell in own} == {"0.1.0"}
    scores = {
        c["implementation"]: c["measurement"]["memory"]["peak_bytes"]
        for c in cells
        if c["problem"]["seqlen_q"] == 512 and c["status"] == "ok"
    }
    assert scores["own_kernel"] < scores["naive"]  # what the kernel is for


def test_a_wrong_kernel_fails_its_ci_before_it_has_a_speed(consumer: Consumer) -> None:
    kernel = consumer.folder / "own_kernel" / "__init__.py"
    text = kernel.read_text()
    broken = text.replace(".triu(1)", ".triu(2)")
    assert broken != text
    kernel.write_text(broken)
    consumer.install()
    done = consumer.run("./ci.sh", "out")
    assert done.returncode == 1
    assert "incorrect" in done.stdout + done.stderr
    assert not (consumer.folder / "out" / "runs").exists()


def test_without_the_package_the_selection_is_empty_and_ci_fails(consumer: Consumer) -> None:
    assert consumer.run("./ci.sh", "out").returncode == 5
