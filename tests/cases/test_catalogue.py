"""Every public case of these kinds has tests that carry its number, and the documented faults name tests there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py")))
KINDS = {
    "empty row": (1, 2),
    "mask semantics": (3, 4, 5, 6),
    "shape edge": (7, 8),
    "numeric range": (9, 10, 11, 12),
    "precision metrics": (13, 14, 15),
    "layout and index": (16, 17, 18),
    "grouped heads": (19,),
    "backend selection": (20,),
    "randomness": (21,),
    "flop and units": (22, 23),
    "timing": (24, 25, 26, 27, 28),
    "memory": (29,),
    "failure isolation": (30, 31),
    "device telemetry": (32, 33, 34),
    "store": (35, 36),
    "regression": (37, 38),
    "report": (39, 40, 41),
}


@pytest.mark.parametrize("case", [case for cases in KINDS.values() for case in cases])
def test_the_case_has_tests(case: int) -> None:
    assert len(re.findall(rf"^def test_o{case:02}_", TESTS, re.MULTILINE)) >= 2


def test_every_documented_fault_of_pytorch_names_a_test() -> None:
    page = (ROOT / "docs" / "implementations.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+)`", page.partition("## What PyTorch gets wrong today")[2])
    assert len(named) >= 8
    for name in named:
        assert f"def {name}(" in TESTS, name
