"""The campaign that counts how often a check is wrong: it plants what it says, and what it calls right is right."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bench.calls import make_step
from bench.implementation import implementations
from bench.inputs import make_inputs
from bench.notebook import Note, append
from bench.numerics import agree
from bench.probes import probe_for, read_step
from bench.problem import Problem
from bench.reference import naive_yardstick, reference

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
PROBLEM = Problem(seqlen=96, mask="causal")
NAMES = ("naive", "online_softmax", "sdpa_flash", "sdpa_math")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


plants, campaign = script("planted_regressions"), script("check_campaign")


@pytest.fixture(params=NAMES)
def planted(request, monkeypatch):
    """Makes the step of an implementation, with and without a plant."""
    member = implementations.get(request.param)

    def step(kind):
        with monkeypatch.context() as changed:
            changed.setattr(member, "prepare", member.prepare)  # is put back
            if kind is not None:
                plants.plant(kind, request.param)
            inputs = make_inputs(PROBLEM, member.layout)
            return make_step(member.prepare(PROBLEM, inputs), PROBLEM, inputs, member.layout), inputs

    return step


def test_one_byte_is_one_byte(planted):
    probe, _ = probe_for("cpu")
    plain, more = (
        read_step(probe, step, PROBLEM, inputs).peak_bytes for step, inputs in (planted(None), planted("bytes"))
    )
    assert more == plain + 1


def test_the_error_grows_by_three_tenths_in_either_sign_and_memory_does_not(planted):
    probe, _ = probe_for("cpu")
    (plain, inputs), (worse, others) = planted(None), planted("error")
    peaks = [read_step(probe, step, PROBLEM, of).peak_bytes for step, of in ((plain, inputs), (worse, others))]
    assert peaks[0] == peaks[1]
    for _ in range(2):
        truth = reference(PROBLEM, inputs), naive_yardstick(PROBLEM, inputs)
        found = [agree(PROBLEM, *truth, step.run().tensors()) for step in (plain, worse)]
        assert all(one.passed for one in found), "it stays right"
        assert found[1].tensors["out"].rmse / found[0].tensors["out"].rmse == pytest.approx(1.3, abs=0.04)
        plain.negate()
        worse.negate()


def test_a_tenth_of_a_call_is_added(planted, monkeypatch):
    """A clock on which a call takes 1 ms and each further reading 10 us: ten of them are a tenth."""
    readings = iter([0, 1_000_000, *range(1_010_000, 9_000_000, 10_000)])
    (plain, _), (slower, _) = planted(None), planted("slower")
    monkeypatch.setattr(plants, "perf_counter_ns", readings.__next__)
    assert slower.run().out.equal(plain.run().out)
    assert next(readings) == 1_110_000


def test_only_the_candidate_is_worse(monkeypatch, tmp_path):
    """The baseline's own code has the file too, elsewhere."""
    monkeypatch.setenv(plants.VARIABLE, "slower naive")
    monkeypatch.setenv(plants.TREE, str(SCRIPTS.parent))
    assert plants.asked() == ["slower", "naive"]
    monkeypatch.setenv(plants.TREE, str(tmp_path))
    assert plants.asked() == []
    monkeypatch.delenv(plants.VARIABLE)
    assert plants.asked() == []


def seen(code, *outcomes, planted="naive"):
    names = ("subject", "metric", "severity")
    return {
        "exit_code": code,
        "seconds": 2.0,
        "planted": planted,
        "outcomes": [dict(zip(names, one, strict=True)) for one in outcomes],
    }


@pytest.mark.parametrize(
    ("kind", "found", "answer"),
    [
        ("unchanged", seen(0), True),
        ("unchanged", seen(3, ("naive B1", "time", "fail")), False),
        ("unchanged", seen(5), False),
        ("slower", seen(3, ("naive B1", "time", "fail")), True),
        ("slower", seen(3, ("sdpa_flash B1", "time", "fail")), False),
        ("slower", seen(0, ("naive B1", "time", "doubt")), False),
        ("bytes", seen(3, ("naive B1", "peak_bytes", "fail")), True),
        ("bytes", seen(3, ("naive B1", "out_rmse", "fail")), False),
        ("error", seen(3, ("naive B1", "out_max_abs", "fail")), True),
        ("error", seen(1), False),
        ("register", seen(3, ("kernel a/b", "spill_bytes", "fail"), planted="kernel a/b"), True),
        ("register", seen(3, ("kernel a/c", "spill_bytes", "fail"), planted="kernel a/b"), False),
    ],
)
def test_what_counts_as_right(kind, found, answer):
    assert campaign.right(kind, found) is answer


def test_the_table_counts_what_the_notebook_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "NOTEBOOK", tmp_path / "notes.jsonl")
    assert campaign.table() == "Nothing has been published yet.\n"
    for number, code in enumerate((0, 0, 3)):
        machine = {"cpu": "A CPU", "cores": 2}
        append(campaign.NOTEBOOK, Note("observation", "unchanged", f"{number:02d}", "now", machine, 1.0, seen(code)))
    assert "| nothing: it must pass | 3 | 2 | 2 |" in campaign.table()
    assert "On A CPU, 2 cores" in campaign.table()
