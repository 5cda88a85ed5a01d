from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
READING_HALF = next(c["source_modules"] for c in CONTRACTS if "bench.results" in c.get("source_modules", ()))

VIOLATIONS = {  # a line planted into a module, for each contract in the order of pyproject.toml
    "bench/units.py": "import bench.cli",
    "bench/registry.py": "import implementations",
    "implementations/naive.py": "import bench.numerics",
    "implementations/online_softmax.py": "import implementations.naive",
    "bench/analysis.py": "import torch",
    "bench/masks/causal.py": "import torch",
}


def lint_imports(folder: Path) -> str:
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
    ]
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "300"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in ("bench", "implementations"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_each_contract_notices_its_violation(copy: Path) -> None:
    assert len(VIOLATIONS) == len(CONTRACTS)
    for module, line in VIOLATIONS.items():
        path = copy / module
        path.write_text(path.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")
    output = lint_imports(copy)
    for contract in CONTRACTS:
        assert f"{contract['name']} BROKEN" in output, output


def test_a_module_without_a_place_is_noticed(copy: Path) -> None:
    (copy / "bench" / "utils.py").write_text('"""Odds and ends."""\n')
    assert "utils" in lint_imports(copy)


def test_the_reading_half_imports_neither_torch_nor_triton() -> None:
    code = f"import sys, {', '.join(READING_HALF)}; print(sorted({{'torch', 'triton'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
