"""Sweep files: ranges, products, overrides, filters, ladders, and what is said about broken ones."""

from __future__ import annotations

import pytest

from bench import sweep as sweep_module
from bench.case import Case
from bench.errors import MaskError, NothingSelectedError, ProblemError, SweepError, UnknownNameError, UsageError
from bench.implementation import implementations
from bench.problem import Problem
from bench.sweep import Selection, ladders, load_sweep, parse_override, parse_sweep, plan, sweep_names

BASE = """
title = "t"
[axes]
seqlen = [64, 128]
mask = ["full", "causal"]
"""


def parse(text, overrides=()):
    return parse_sweep(text, "x.toml", "x", overrides)


def lengths(sweep):
    return sorted({problem.seqlen_q for problem, _ in sweep.problems})


def test_default_sweep_spans_32_fold_in_sqrt2_steps():
    sweep = load_sweep("default")
    timed = [problem for problem, timed in sweep.problems if timed]
    expected = [128, 176, 256, 368, 512, 720, 1024, 1456, 2048, 2896, 4096]
    for mask in ("full", "causal", "padding(0.5)"):
        for head_dim in (64, 128):
            ladder = [p for p in timed if (p.mask.spec, p.head_dim, p.num_heads_q) == (mask, head_dim, 4)]
            assert sorted(p.seqlen_q for p in ladder if p.seqlen_q == p.seqlen_k) == expected
    assert {p.head_dim for p in timed if p.seqlen_q == 4096} == {64, 128}
    assert {"full", "causal", "padding(0.5)"} <= {p.mask.spec for p in timed}
    assert {p.dtype for p, is_timed in sweep.problems if not is_timed} == {"float16", "bfloat16"}


@pytest.mark.parametrize("name", sweep_names())
def test_every_sweep_that_comes_with_the_package_reads_and_says_what_it_shows(name):
    sweep = load_sweep(name)
    assert sweep.problems
    assert len(sweep.prose) > 40
    assert len({problem.key for problem, _ in sweep.problems}) == len(sweep.problems)


def test_pow2_and_mixed_lists():
    sweep = parse("[axes]\nseqlen = [96, { pow2 = [128, 512] }]\n")
    assert lengths(sweep) == [96, 128, 256, 512]


def test_include_adds_a_product_and_exclude_drops_matches():
    text = (
        BASE
        + '[[include]]\ntimed = false\ndtype = ["float16"]\nseqlen = 64\n[[exclude]]\nmask = "causal"\nseqlen = 128\n'
    )
    sweep = parse(text)
    kinds = {(p.dtype, p.seqlen_q, p.mask.spec): timed for p, timed in sweep.problems}
    assert ("float32", 128, "causal") not in kinds
    assert kinds["float32", 64, "causal"] is True
    assert kinds["float16", 64, "full"] is False
    assert len(kinds) == 5


def test_a_problem_in_two_products_is_run_once_and_timed_if_either_says_so():
    sweep = parse(BASE + "[[include]]\ntimed = false\n")
    assert len(sweep.problems) == 4
    assert all(timed for _, timed in sweep.problems)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seqlen=128,256", ("seqlen", [128, 256])),
        ("seqlen=[128, 256]", ("seqlen", [128, 256])),
        ("scale=0.5", ("scale", 0.5)),
        (
            "mask=full,padding(lengths=[3, 4]),causal & padding(0.5)",
            ("mask", ["full", "padding(lengths=[3, 4])", "causal & padding(0.5)"]),
        ),
        ("dtype=float16", ("dtype", ["float16"])),
        ("seqlen={ pow2 = [64, 128] }", ("seqlen", {"pow2": [64, 128]})),
    ],
)
def test_overrides(text, expected):
    assert parse_override(text) == expected


def test_override_reaches_every_product():
    sweep = parse(BASE + "[[include]]\nseqlen = 999\ndtype = 'float16'\n", ["seqlen=32", "mask=full"])
    assert lengths(sweep) == [32]
    assert len(sweep.problems) == 2


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("[axes\nseqlen = 1", SweepError, "x.toml must be valid TOML"),
        ("[axes]\nseqlen = [1,\n\nmask = 3", SweepError, "line"),
        ("title = 'x'", SweepError, "must have a table [axes]"),
        ("[axes]\nseqlem = 3", SweepError, "must name known axes, got 'seqlem'"),
        ("[axis]\nseqlen = 3", SweepError, "got 'axis'"),
        ("[axes]\nseqlen = { pow3 = [1, 2] }", SweepError, "pow2"),
        ("[axes]\nseqlen = { pow2 = [8, 2] }", SweepError, "pow2"),
        ("[axes]\nseqlen = []", SweepError, "at least one value"),
        ("[axes]\nseqlen = 0", ProblemError, "seqlen_q must be at least 1, got 0"),
        ("[axes]\nseqlen = 8\nmask = 'padding(2)'", MaskError, "below 1"),
        ("[axes]\nseqlen = 8\nmask = 'cusal'", UnknownNameError, "causal"),
        (BASE + "[[exclude]]\nseqlne = 4", ProblemError, "seqlne"),
    ],
)
def test_broken_sweeps_say_what_is_wrong(text, error, says):
    with pytest.raises(error) as caught:
        parse(text)
    assert says in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["seqlen", "=3", "seqlen=", "length=3"])
def test_broken_overrides(text):
    with pytest.raises(UsageError):
        parse_override(text)


def test_unknown_sweep_offers_the_nearest():
    with pytest.raises(UnknownNameError, match="default"):
        load_sweep("defualt")


def test_missing_file_is_named():
    with pytest.raises(SweepError, match=r"nowhere\.toml"):
        load_sweep("nowhere.toml")


def test_filters_search_and_capitals_exclude():
    sweep = parse(BASE)
    cases, _ = plan(
        sweep, Selection(implementation=("^naive$", "online"), problem=("causal",), not_problem=("T64-",)), "cpu"
    )
    assert {case.implementation for case in cases} == {"naive", "online_softmax"}
    assert {case.problem.key for case in cases} == {"B1-H4-T128-d64-float32-fwd-causal"}


def test_skipped_and_foreign_implementations_are_left_out_with_a_reason_unless_asked_for():
    sweep = parse('skip_implementations = ["naive"]\n' + BASE)
    cases, left_out = plan(sweep, Selection(), "cpu")
    assert "naive" not in {case.implementation for case in cases}
    assert "-i naive" in left_out["naive"]
    assert "cuda only" in left_out["sdpa_cudnn"]
    cases, _ = plan(sweep, Selection(implementation=("^naive$", "cudnn")), "cpu")
    assert {case.implementation for case in cases} == {"naive", "sdpa_cudnn"}


class StandsIn:
    """Never timed on a CPU."""

    devices = ("cpu", "cuda")

    def untimed(self, problem, device):
        return "runs in an emulator" if device == "cpu" else None

    def unavailable(self, problem, device):
        return None


def test_what_is_never_timed_is_planned_on_the_smallest_problems_alone_unless_asked_for(monkeypatch):
    members = {"stands_in": StandsIn(), "naive": implementations.get("naive")}
    monkeypatch.setattr(sweep_module, "implementations", members)
    sweep = parse(BASE)
    cases, left_out = plan(sweep, Selection(), "cpu")
    own = [case for case in cases if case.implementation == "stands_in"]
    assert [(case.problem.seqlen_q, case.timed) for case in own] == [(64, False)] * 2
    assert len(cases) == 2 + 4 and all(case.timed for case in cases if case.implementation == "naive")
    assert "runs in an emulator" in left_out["stands_in"] and "-i stands_in" in left_out["stands_in"]
    cases, left_out = plan(sweep, Selection(problem=("T128",)), "cpu")
    assert {case.implementation for case in cases} == {"naive"} and "stands_in" in left_out
    cases, left_out = plan(sweep, Selection(implementation=("stands",)), "cpu")
    assert len(cases) == 4 and not any(case.timed for case in cases) and not left_out
    cases, left_out = plan(sweep, Selection(), "cuda")
    assert len(cases) == 8 and all(case.timed for case in cases) and not left_out


@pytest.mark.parametrize("name", [name for name in sweep_names() if not name.endswith("_cuda")])
def test_every_sweep_shows_what_is_never_timed_somewhere_and_only_on_small_problems(name, monkeypatch):
    """One decoding problem is smaller than any square one, and would otherwise be the only one of its sweep."""
    monkeypatch.setattr(sweep_module, "implementations", {"stands_in": StandsIn()})
    sweep = load_sweep(name)
    planned = {case.problem for case in plan(sweep, Selection(), "cpu")[0]}
    square = [problem for problem, _ in sweep.problems if problem.seqlen_q == problem.seqlen_k]
    assert planned
    assert bool(square) == any(problem.seqlen_q == problem.seqlen_k for problem in planned)
    assert max(problem.all_pairs for problem in planned) <= min(p.all_pairs for p in square or planned)


@pytest.mark.parametrize("selection", [Selection(implementation=("nothing",)), Selection(problem=("nothing",))])
def test_nothing_selected_is_its_own_error(selection):
    with pytest.raises(NothingSelectedError) as caught:
        plan(parse(BASE), selection, "cpu")
    assert caught.value.exit_code == 5


def test_a_filter_that_is_no_regular_expression():
    with pytest.raises(UsageError, match="regular expression"):
        Selection(implementation=("(",))


def test_ladders_hold_all_lengths_of_one_kind_in_order():
    cases, _ = plan(parse(BASE), Selection(implementation=("^naive$",)), "cpu")
    climbed = ladders(reversed(cases))
    assert [[case.problem.seqlen_q for case in ladder] for ladder in climbed] == [[64, 128], [64, 128]]
    assert all(len({case.problem.mask.spec for case in ladder}) == 1 for ladder in climbed)


def test_coarse_lengths_come_first_under_a_time_budget():
    sweep = parse("[axes]\nseqlen = { pow2 = [16, 4096] }\nmask = ['full', 'causal']\n")
    cases = [Case(problem, "naive") for problem, _ in sweep.problems]
    order = [[case.problem.seqlen_q for case in ladder] for ladder in ladders(cases, coarse_first=True)]
    assert order == [[16, 256, 4096]] * 2 + [[64, 1024]] * 2 + [[32, 128, 512, 2048]] * 2


def test_cases_that_name_a_ladder_are_climbed_together_though_their_widths_differ() -> None:
    wide = [Case(Problem(seqlen=64, head_dim=width), "naive", ladder="d_k") for width in (16, 32)]
    plain = [Case(Problem(seqlen=64, head_dim=width), "naive") for width in (16, 32)]
    assert [len(ladder) for ladder in ladders(wide)] == [2]
    assert [len(ladder) for ladder in ladders(plain)] == [1, 1]
