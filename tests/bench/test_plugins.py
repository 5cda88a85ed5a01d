"""Implementations that are not ours: a package found through its entry point, and a file given with ``--load``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[1] / "plugins"
SMALL = ["--sweep", "smoke", "--set", "seqlen=[64,128]", "--set", "dtype=float32"]


def bench(*words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "bench", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that holds the test plug-in, installed by pip as its users would."""
    target = tmp_path_factory.mktemp("site")
    words = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", target]
    subprocess.run([sys.executable, *map(str, words), str(PLUGINS / "package")], check=True, capture_output=True)
    return str(target)


def test_an_installed_package_is_listed_measured_and_named_with_its_version(installed, tmp_path):
    listed = bench("list", "implementations", "--probe", "--format", "json", PYTHONPATH=installed)
    row = {r["name"]: r for r in json.loads(listed.stdout)}["plugin_transposed"]
    assert (row["available"], row["version"], row["layout"]) == ("yes", "0.3.1", "bshd")

    done = bench(
        "measure", *SMALL, "-o", tmp_path, "-i", "plugin", "-i", "^naive$", "--format", "json", PYTHONPATH=installed
    )
    assert done.returncode == 0, done.stderr
    mine = [r for r in json.loads(done.stdout) if r["implementation"] == "plugin_transposed"]
    assert {r["status"] for r in mine if r["mask"] == "full"} == {"ok"}
    refused = [r for r in mine if r["mask"] != "full"]
    assert refused
    assert {(r["status"], r["reason"]) for r in refused} == {("unsupported", "takes the full mask only")}
    assert {r["implementation_version"] for r in mine} == {"0.3.1"}


def test_without_the_package_nothing_is_left_of_it():
    assert "plugin_transposed" not in bench("list", "implementations").stdout


def test_a_single_file_is_loaded_in_parent_and_worker(tmp_path):
    path = PLUGINS / "package" / "attention_bench_plugin" / "transposed.py"
    text = (
        path.read_text().replace("plugin_transposed", "my_own").replace('version("attention-bench-plugin")', '"draft"')
    )
    own = tmp_path / "my own kernel.py"
    own.write_text(text)
    done = bench(
        "measure", *SMALL, "-o", tmp_path, "--load", own, "-i", "my_own", "--set", "mask=full", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    assert {(r["implementation"], r["status"]) for r in json.loads(done.stdout)} == {("my_own", "ok")}


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("import no_such_library", 2, "ModuleNotFoundError: No module named 'no_such_library'"),
        ("x = (", 2, "SyntaxError"),
        (
            "from bench.implementation import implementations\nimplementations.add('naive', object())",
            1,
            "implementation name must be unique, got 'naive'",
        ),
    ],
)
def test_a_file_that_does_not_load_is_said_so_before_anything_is_measured(tmp_path, text, code, says):
    own = tmp_path / "broken.py"
    own.write_text(text)
    done = bench("measure", *SMALL, "-o", tmp_path / "runs", "--load", own)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.jsonl"))
