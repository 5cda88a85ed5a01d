"""The gate scored against its mutants, in small; `attention-bench verify --mutants --by setting` is the whole score."""

from __future__ import annotations

import pytest
import torch

from bench.checks import checks, run_checks
from bench.gate import mutant_rows, score_setting, summary_rows
from bench.inputs import make_inputs
from bench.mutants import CORRECT, attend, mutants
from bench.numerics import agree
from bench.problem import Problem
from bench.reference import naive_yardstick, reference
from bench.rules import RULES

SMALL = {"num_heads_q": 4, "num_heads_kv": 2, "batch_size": 2, "head_dim": 64}
SETTINGS = [
    Problem(seqlen=160, mask="full", direction="bwd", dtype="float32", **SMALL),
    Problem(
        seqlen=160, mask="causal & padding(lengths=[150, 40], side=left)", direction="bwd", dtype="bfloat16", **SMALL
    ),
    Problem(seqlen=160, mask="sliding_window(65)", direction="bwd", dtype="float16", **SMALL),
    Problem(seqlen_q=70, seqlen_k=160, mask="causal", dtype="bfloat16", **SMALL | {"head_dim_v": 32}),
]


@pytest.fixture(scope="module")
def scores():
    return [score for problem in SETTINGS for score in score_setting(problem, None)]


def test_every_mutant_is_caught_wherever_it_changes_the_function(scores):
    missed = [(s.mutant, s.problem.key) for s in scores if not s.caught_by and not s.same]
    assert missed == []


def test_every_mutant_is_counted_somewhere(scores):
    assert {s.mutant for s in scores if not s.same} == set(mutants.names())
    assert len(mutants.names()) >= 16


def test_separation_is_wide(scores):
    assert min(s.separation for s in scores if not s.same) > 10


@pytest.mark.parametrize("without", ["lse"])
def test_forward_mutants_are_caught_without_lse_too(without):
    """Kernels that return no lse are judged by the other checks alone."""
    problem = Problem(seqlen=160, mask="causal", dtype="bfloat16", **SMALL)
    logical = make_inputs(problem)
    exact, naive = reference(problem, logical), naive_yardstick(problem, logical)
    missed = []
    for name, mutant in mutants.items():
        if mutant.backward_only or not mutant.applies(problem) or name == "lse_in_base_two":
            continue

        def run(p, inputs, steps=mutant.steps):
            return {k: v for k, v in attend(steps, p, inputs).items() if k != without}

        caught = not agree(problem, exact, naive, run(problem, logical)).passed
        if not (caught or not all(result.passed for result in run_checks(problem, run).values())):
            missed.append(name)
    assert missed == []


def test_a_denominator_that_skips_a_block_passes_every_published_rule_at_length_and_not_ours():
    """At 4,096 keys the error is a few roundings of bfloat16; the needle sees it whole."""
    problem = Problem(seqlen_q=256, seqlen_k=8192, num_heads=1, dtype="bfloat16")
    score = score_setting(problem, ("needle",), ["denominator_skips_block"])[0]
    assert set(score.missed_by) >= {"R2", "R3", "R4", "R5", "R6", "R7", "R10", "R11"}
    assert "needle" in score.caught_by
    assert score.separations["needle"] > 100


def test_rules_tell_right_from_hopeless():
    problem = Problem(seqlen=64, num_heads=1, dtype="bfloat16")
    logical = make_inputs(problem)
    exact, naive = reference(problem, logical), naive_yardstick(problem, logical)
    for name, rule in RULES.items():
        assert rule.passes(naive.out, exact.out, naive.out), name
        if name not in ("R3", "R7"):
            assert not rule.passes(torch.zeros_like(naive.out), exact.out, naive.out), name
        assert not rule.passes(torch.full_like(naive.out, float("nan")), exact.out, naive.out), name


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mask", ["full", "causal", "padding(0.4)", "document(3)", "prefix_lm(9)", "causal_top_left"])
def test_the_correct_computation_passes_every_check_at_every_seed(dtype, mask):
    for seed in range(3):
        problem = Problem(seqlen=96, mask=mask, dtype=dtype, seed=seed, **SMALL)
        results = run_checks(problem, lambda p, inputs: attend(CORRECT, p, inputs))
        assert {name for name, result in results.items() if not result.passed} == set()
        assert {"needle", "block_mass", "row_sums", "locality"} <= set(results)


def test_tables_count_what_was_scored(scores):
    rows = summary_rows(scores)
    assert len(rows) == len(SETTINGS)
    assert all(row["caught"] == row["total"] > 15 for row in rows)
    assert all(0 < row[name] <= row["total"] for row in rows for name in ("R1", "R8"))
    by_mutant = {row["mutant"]: row for row in mutant_rows(scores)}
    assert by_mutant["no_maximum"]["checks"].startswith("needle")
    assert by_mutant["dv_of_masked_key"]["total"] == 1


def test_every_check_has_a_summary_and_catches_something(scores):
    caught = {check for score in scores for check in score.caught_by}
    assert set(checks.names()) <= caught
    assert all(check.summary for _, check in checks.items())
