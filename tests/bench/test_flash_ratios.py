"""The table of our kernels beside PyTorch's that ends ``scripts/gpu_check.sh``."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from bench.problem import Problem

SCRIPT = Path(__file__).parents[2] / "scripts" / "flash_ratios.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("flash_ratios", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_speeds_are_those_of_the_others_over_ours_and_causal_is_over_full(script, make_record, make_run):
    full, causal = (Problem(seqlen=2048, dtype="bfloat16", mask=mask) for mask in ("full", "causal"))
    run = make_run(
        [
            make_record(problem=full, implementation="triton_flash", latency_ms=2.0),
            make_record(problem=full, implementation="sdpa_flash", latency_ms=3.0),
            make_record(problem=full, implementation="sdpa_cudnn", latency_ms=1.5),
            make_record(problem=causal, implementation="triton_flash", latency_ms=1.2),
            make_record(problem=causal, implementation="sdpa_cudnn", status="unsupported"),
        ]
    )
    first, second = script.ratio_rows(run)
    assert first["x_sdpa_flash"] == "1.50 [1.50, 1.50]"
    assert first["x_sdpa_cudnn"] == "0.75 [0.75, 0.75]"
    assert first["over_full"] is None
    assert first["tflops"] == pytest.approx(full.flop / 2e-3 / 1e12, abs=0.05)
    assert second["over_full"] == pytest.approx(0.6)
    assert second["x_sdpa_flash"] is second["x_sdpa_cudnn"] is None


def test_a_run_on_a_cpu_says_that_nothing_was_timed(script, make_record, make_run, monkeypatch, capsys):
    run = make_run([make_record("verified", implementation="triton_flash")])
    monkeypatch.setattr(script, "find_run", lambda name, folder: folder / name)
    monkeypatch.setattr(script, "read_run", lambda path: run)
    assert script.main("latest", Path()) == 0
    assert "no cell of triton_flash was timed: verified" in capsys.readouterr().out
