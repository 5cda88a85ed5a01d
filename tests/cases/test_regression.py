"""Public cases O37 and O38: a check without a baseline or with another one, and zero, null and NaN on either side."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.baseline import read_state, write_state
from bench.cli import main
from bench.errors import OutputError
from bench.exact_gate import judge_values
from bench.metrics import Gate, Metric, metrics
from bench.policy import Policy
from bench.regression import check

sys.path.append(str(Path(__file__).parents[1] / "bench"))
from planted_states import state, with_subject, without_subject

POLICY = Policy()
PLAIN = state()
A, B, C = sorted(PLAIN.subjects)[:3]


def only(*keys, of=PLAIN):
    return replace(of, subjects={key: of.subjects[key] for key in keys})


def test_o37_no_baseline_is_said_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    """Exit code 2, and no results file: the message names the verb that records one."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["check", "--device", "cpu", "--baseline", "results/baselines/none.jsonl"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "baseline must be there before anything is measured" in said and "make baseline" in said
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("text", ["", "\n", '{"type":"run"}\n', "not json\n", "[]\n", '{"type":"baseline"'])
def test_o37_an_empty_or_foreign_baseline_is_refused_with_its_name(tmp_path, text):
    path = tmp_path / "empty.jsonl"
    path.write_text(text)
    with pytest.raises(OutputError, match=r"baseline must .*empty\.jsonl"):
        read_state(path)


def test_o37_common_cells_are_compared_new_and_missing_ones_named():
    done = check(only(A, B), [only(B, C)], POLICY)
    by_subject = {one.subject: one.name for one in done.outcomes if one.metric == ""}
    assert by_subject == {A: "MISSING", C: "NEW"}
    assert {one.subject for one in done.outcomes if one.metric == "time"} == {B}
    assert done.exit_code(strict=False) == 0
    assert check(only(A, B), [only(B, C)], Policy(missing="fail")).exit_code(strict=False) == 3


def test_o37_a_baseline_that_lacks_a_metric_is_compared_without_it():
    old = with_subject(PLAIN, A, values={"peak_bytes": None})
    old = replace(old, metrics=tuple(name for name in old.metrics if name != "peak_bytes"))
    done = check(old, [PLAIN], POLICY)
    (one,) = [one for one in done.outcomes if (one.subject, one.metric) == (A, "peak_bytes")]
    assert (one.name, one.severity, done.exit_code(strict=False)) == ("NEW METRIC", "note", 0)


def test_o37_a_metric_that_is_gone_is_named():
    old = with_subject(PLAIN, A, values={"a_metric_of_old": 1})
    done = check(replace(old, metrics=(*old.metrics, "a_metric_of_old")), [PLAIN], POLICY)
    (one,) = [one for one in done.outcomes if one.name == "NOT COMPARABLE"]
    assert "this version knows no such metric: a_metric_of_old" in one.text


def test_o37_a_filter_that_matches_nothing_and_runs_without_a_common_cell_do_not_pass(tmp_path, capsys):
    assert check(only(A), [only(B)], POLICY).exit_code(strict=False) == 5
    path = tmp_path / "baseline.jsonl"
    write_state(PLAIN, path)
    run = Path(__file__).parents[1] / "data" / "schema_1.jsonl"
    with pytest.raises(SystemExit) as caught:
        main(["check", "--baseline", str(path), "--candidate", str(run), "-i", "nothing_of_this_name"])
    assert caught.value.code == 5
    assert "check must have something to compare" in capsys.readouterr().err


def test_o37_a_baseline_of_another_schema_is_refused(tmp_path, capsys):
    path = tmp_path / "old.jsonl"
    write_state(PLAIN, path)
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    run = Path(__file__).parents[1] / "data" / "schema_1.jsonl"
    with pytest.raises(SystemExit) as caught:
        main(["check", "--baseline", str(path), "--candidate", str(run)])
    assert caught.value.code == 2
    assert "baseline must have schema 1, got 99" in capsys.readouterr().err


LATENCY = Metric(
    name="x", title="x", unit="ms", better="lower", value=lambda row: None, gate=Gate("nothing", tolerance=0.1)
)


@pytest.mark.parametrize(
    ("before", "after", "name", "change"),
    [
        (0, 0, "SAME", 0.0),
        (0, 5, "ROSE FROM ZERO", math.inf),
        (100, 0, "FELL TO ZERO", -1.0),
        (100, 230, "REGRESSED", 1.3),
        (math.nan, 1, "NOT A NUMBER", math.inf),
        (1, math.nan, "NOT A NUMBER", math.inf),
        (math.inf, 1, "NOT A NUMBER", math.inf),
        (None, 1, "NULL BEFORE", math.inf),
        (1, None, "NULL NOW", math.inf),
        (100, 109, "TOLERATED", 0.09),
        (100, 90, "IMPROVED", -0.1),
    ],
)
def test_o38_zero_null_and_nan_are_outcomes_of_their_own(before, after, name, change):
    assert judge_values(LATENCY, before, after) == (name, pytest.approx(change))


@pytest.mark.parametrize("value", [math.nan, math.inf, None, 0])
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("metric", ["peak_bytes", "out_rmse"])
def test_o38_none_of_them_passes(side, value, metric):
    """Through the whole check: a plain ``new > 1.1 * old`` is false for NaN and divides by zero."""
    odd = with_subject(PLAIN, A, values={metric: value})
    done = check(odd, [PLAIN], POLICY) if side == "before" else check(PLAIN, [odd], POLICY)
    (grave,) = done.severe("fail")
    assert (grave.subject, grave.metric, done.exit_code(strict=False)) == (A, metric, 3)


def test_o38_a_baseline_that_holds_nan_is_read_and_then_fails(tmp_path):
    path = tmp_path / "baseline.jsonl"
    write_state(PLAIN, path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["values"]["peak_bytes"] = math.nan
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    assert [one.name for one in check(read_state(path), [PLAIN], POLICY).severe("fail")] == ["NOT A NUMBER"]


def test_o38_an_absolute_floor_lets_small_changes_from_zero_pass():
    from datetime import date

    from bench.policy import Override

    floor = Override(metric="out_rmse", floor=5.0, reason="planted for the test", expires=date(2099, 1, 1))
    old, new = (with_subject(PLAIN, A, values={"out_rmse": value}) for value in (0, 5))
    assert check(old, [new], Policy(override=(floor,))).exit_code(strict=False) == 0
    assert check(old, [new], POLICY).exit_code(strict=False) == 3


def test_o38_a_clock_that_reads_zero_is_no_improvement():
    import planted
    from planted_states import records

    frozen = [
        planted.record(
            "naive", 128, measured={"samples_ns": (0,) * 120, "processes": tuple(i // 10 for i in range(120))}
        )
        if (one.implementation, one.problem.seqlen_k) == ("naive", 128)
        else one
        for one in records()
    ]
    done = check(PLAIN, [state(frozen)], POLICY)
    (grave,) = done.severe("fail")
    assert (grave.metric, grave.name) == ("time", "FELL TO ZERO")


def test_o38_where_zero_is_a_value_it_is_an_improvement():
    assert judge_values(metrics.get("spill_bytes"), 56, 0)[0] == "IMPROVED"
    assert judge_values(metrics.get("peak_bytes"), 56, 0)[0] == "FELL TO ZERO"


def test_o37_every_subject_of_both_sides_is_accounted_for():
    less, more = without_subject(PLAIN, A), without_subject(PLAIN, B)
    done = check(less, [more], POLICY)
    assert {one.subject for one in done.outcomes} == set(PLAIN.subjects)
