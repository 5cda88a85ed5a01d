from __future__ import annotations

import json
from pathlib import Path

import planted
import pytest

from bench.gate import Score
from bench.laboratory import note_gate
from bench.mutants import mutants
from bench.notebook import GATE, latest_findings
from bench.plots import Reading
from bench.problem import Problem
from bench.record import TensorError
from bench.report.material import Material
from bench.report.numerics import gate_score, section, worst_errors

NO_NOTEBOOK = Path("there is no such notebook")
FIRST, SECOND = mutants.names()[:2]


def test_errors_come_worst_first_by_implementation_and_dtype() -> None:
    half = planted.agreement(1e-3, limit=2e-3)
    wrong = planted.agreement(1.0, limit=1e-3, passed=False)
    gradient = planted.agreement(1e-7, limit=1e-5)
    dq = TensorError(max_abs=9e-6, rmse=1e-6, rel_rmse=None, nonfinite=0, limit=1e-5)
    gradient = gradient.model_copy(update={"tensors": gradient.tensors | {"dq": dq}})
    found = worst_errors(
        Reading(
            [
                planted.run(
                    [
                        planted.record("a", 128),
                        planted.record("a", 256, judged=planted.agreement(8e-6, limit=1e-5)),
                        planted.record("a", 128, status="verified", judged=half, dtype="float16"),
                        planted.record("bad", 128, status="incorrect", judged=wrong),
                        planted.record("b", 128, judged=gradient, direction="bwd"),
                        planted.record("c", 128, status="unsupported"),
                    ]
                )
            ]
        )
    )
    assert [(one.implementation, one.dtype, one.tensor) for one in found] == [
        ("bad", "float32", "out"),
        ("b", "float32", "dq"),
        ("a", "float32", "out"),
        ("a", "float16", "out"),
    ]
    assert [one.share for one in found] == pytest.approx([1000.0, 0.9, 0.8, 0.5])
    assert found[2].row["length"] == 256 and found[2].judged == 2
    assert found[0].incorrect == 1


def test_values_that_are_not_finite_come_before_small_errors() -> None:
    nan = planted.agreement(None, nonfinite=3, passed=False)
    first, _ = worst_errors(
        Reading([planted.run([planted.record("a", 128), planted.record("n", 128, status="incorrect", judged=nan)])])
    )
    assert (first.implementation, first.share, first.nonfinite) == ("n", None, 1)


def scores(caught: tuple[str, ...]) -> list[Score]:
    problem = Problem(seqlen=64)
    return [
        Score(FIRST, problem, {"needle": 50.0}, ("needle",), (), ()),
        Score(SECOND, problem, {"needle": float("inf")}, caught, (), ()),
        Score(SECOND, Problem(seqlen=32), {"needle": 1.0}, (), (), ()),  # the same function there
    ]


def test_the_score_of_the_gate_is_stored_and_shown(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    note_gate(scores(("needle",)), path, quick=False, seconds=1.0)
    (note,) = latest_findings(path)
    assert note.experiment == GATE and note.content["met"] is True
    assert json.loads(path.read_text())["content"]["rows"][1]["smallest_separation"] is None
    shown = gate_score([note])
    assert shown is not None
    assert shown["found"] == "2 of 2 broken results refused: 2 faults in 2 settings"
    assert [row[0] for row in shown["rows"]] == [FIRST, SECOND]
    assert shown["rows"][0][2:5] == ["1", "1", "50.0x"] and shown["rows"][1][4] == "without bound"


@pytest.mark.parametrize(("quick", "caught", "met"), [(True, ("needle",), None), (True, (), False), (False, (), False)])
def test_a_part_of_the_settings_can_miss_and_never_meet_the_target(
    tmp_path: Path, quick: bool, caught: tuple[str, ...], met: bool | None
) -> None:
    note = note_gate(scores(caught), tmp_path / "notes.jsonl", quick=quick, seconds=1.0)
    assert note.content["met"] is met
    assert ("missed" in note.content["found"]) == (met is False)
    shown = gate_score([note])
    assert shown is not None and shown["rows"][0][0] == (SECOND if met is False else FIRST)


def test_without_a_score_the_command_is_named() -> None:
    shown = section(Material.of([planted.run([planted.record()])], NO_NOTEBOOK))
    assert shown is not None and shown["gate"] is None and "verify --mutants" in shown["command"]
    assert section(Material.of([planted.run([planted.record(status="crashed")])], NO_NOTEBOOK)) is None


def test_the_cell_that_is_not_finite_is_the_one_shown_even_in_a_gradient() -> None:
    fine = planted.record("a", 256, judged=planted.agreement(9e-6, limit=1e-5), direction="bwd")
    judged = planted.agreement(1e-7, limit=1e-5, passed=False)
    dq = TensorError(max_abs=None, rmse=None, rel_rmse=None, nonfinite=5, limit=1e-5)
    broken = judged.model_copy(update={"tensors": {"dq": dq}})
    run = planted.run([fine, planted.record("a", 128, status="incorrect", judged=broken, direction="bwd")])
    (found,) = worst_errors(Reading([run]))
    assert (found.nonfinite, found.broken, found.share, found.row["length"]) == (1, True, None, 128)
    shown = section(Material.of([run], NO_NOTEBOOK))
    assert shown is not None and shown["errors"][0]["share"] == "not finite"
