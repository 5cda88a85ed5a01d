"""The campaign in small: what is right passes, what is wrong is refused, what is not taken is counted apart."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from bench.errors import NothingSelectedError, Unsupported
from bench.implementation import AttentionOutput, Call, implementations
from bench.masks import Intersection, masks
from bench.problem import Direction, Distribution, Dtype
from bench.refusals import (
    COMPILED,
    LONG,
    LONG_SEEDS,
    SEEDS,
    SHORT,
    SLOW_LONG_FLOAT16,
    judge_all,
    long_problems,
    run_campaign,
    short_problem,
    summary_rows,
)
from bench.sweep import Selection

FEW = range(300, 312)
"""Seeds outside the campaign's own, so that together they show more."""


class _Planted:
    """Right attention of one dtype through dense rows, forward alone; subclasses spoil it."""

    name = "planted"
    summary = "for tests"
    layout = "bhsd"
    devices = ("cpu",)
    backward = False
    expects: tuple[str, ...] = ()

    def version(self):
        return "1"

    def unsupported(self, problem, device):
        return None if problem.mask.spec == "full" else "takes the full mask only"

    def predicted_peak_bytes(self, problem, device="cpu"):
        return None

    def prepare(self, problem, inputs):
        if problem.head_dim_v != problem.head_dim:
            raise Unsupported("takes equal widths only")

        def run():
            group = problem.num_heads_q // problem.num_heads_kv
            q, k, v = (tensor.float() for tensor in (inputs.q, inputs.k, inputs.v))
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            out = torch.softmax(q @ k.transpose(-1, -2) * problem.softmax_scale, -1) @ v
            return AttentionOutput(self.spoil(out).to(inputs.q.dtype))

        return Call(run)

    def spoil(self, out):
        return out


@pytest.fixture
def campaign(clean_registry):
    """Run a planted implementation through full-mask problems of some seeds: ``(judged, lines told)``."""
    clean_registry(implementations)

    def run(spoil=None, seeds=SEEDS, **filters):
        member = _Planted()
        if spoil is not None:
            member.spoil = spoil
        implementations.add("planted", member)
        lines = []
        selection = Selection(**({"implementation": ("^planted$",), "problem": ("-fwd-full",)} | filters))
        return run_campaign(seeds, lines.append, selection=selection), lines

    return run


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tensors this small gain nothing from threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_what_is_right_passes_on_a_few_seeds():
    judged = run_campaign(FEW, lambda line: None)
    assert [(one.problem.key, one.implementation, one.reason) for one in judged if one.verdict == "refused"] == []
    passed = {one.implementation for one in judged if one.verdict == "passed"}
    assert passed >= {"naive", "online_softmax", "sdpa_flash", "sdpa_math"}
    assert passed.isdisjoint(COMPILED)


def test_a_right_implementation_passes_and_what_it_does_not_take_is_counted_apart(campaign):
    judged, _ = campaign(problem=("-full", "-causal"))
    reasons = {one.reason for one in judged if one.verdict == "unsupported"}
    assert reasons == {"takes the full mask only", "takes equal widths only", "has no backward pass"}
    assert {one.verdict for one in judged} == {"passed", "unsupported"}
    rows = summary_rows(judged)
    assert {row["dtype"] for row in rows} == set(get_args(Dtype))
    assert all(row["passed"] + row["unsupported"] == row["problems"] and row["refused"] == 0 for row in rows)
    assert sum(row["passed"] for row in rows) == sum(one.verdict == "passed" for one in judged)
    assert all(row["passed_by"] == f"planted:{row['passed']}" for row in rows)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda out: out * 1.05, "out is off by"),
        (lambda out: torch.zeros_like(out), "out is off by"),
        (lambda out: out.index_fill(2, torch.tensor([0]), float("nan")), "non-finite"),
        (lambda out: out[:, :, :0], "ValueError"),
    ],
    ids=["5 % off", "zeros", "one row NaN", "wrong shape"],
)
def test_what_is_wrong_is_refused_on_every_problem_that_it_takes(campaign, spoil, said):
    judged, lines = campaign(spoil)
    taken = [one for one in judged if one.verdict != "unsupported"]
    assert len(taken) >= 3
    assert {one.verdict for one in taken} == {"refused"}
    assert all(said in one.reason for one in taken)
    assert sum(line.startswith("  refused planted: ") for line in lines) == len(taken)
    assert sum(row["refused"] for row in summary_rows(judged)) == len(taken)


def test_an_error_that_random_inputs_hide_is_refused_by_a_check(campaign):
    """The gate judges with its structured checks too: a row that saw a change keeps its old output."""
    stored = {}

    def spoil(out):
        return stored.setdefault(out.shape, out.clone())

    judged, _ = campaign(spoil)
    reasons = [one.reason for one in judged if one.verdict == "refused"]
    assert reasons
    assert any(reason.startswith("check ") for reason in reasons)


def test_a_seed_is_one_problem_and_a_problem_is_one_verdict():
    assert [short_problem(seed).key for seed in FEW] == [short_problem(seed).key for seed in FEW]
    assert len({short_problem(seed).key for seed in SEEDS}) == len(SEEDS) == 200
    assert run_campaign(FEW[:3], print) == run_campaign(FEW[:3], print)


def test_the_seeds_reach_every_member_of_every_axis():
    """A mask, dtype, direction or distribution that is added takes part by itself, or this fails."""
    problems = [short_problem(seed) for seed in SEEDS]
    parts = [p.mask.members if isinstance(p.mask, Intersection) else (p.mask,) for p in problems]
    assert {part.name for mask in parts for part in mask} == set(masks.names())
    assert {len(mask) for mask in parts} == {1, 2, 3}
    for axis, kinds in (("dtype", Dtype), ("direction", Direction), ("distribution", Distribution)):
        assert {getattr(p, axis) for p in problems} == set(get_args(kinds))
    assert max(max(p.seqlen_q, p.seqlen_k) for p in problems) == SHORT
    assert any(p.empty_rows for p in problems)
    for differ in (("num_heads_q", "num_heads_kv"), ("head_dim", "head_dim_v"), ("seqlen_q", "seqlen_k")):
        assert 20 < sum(getattr(p, differ[0]) != getattr(p, differ[1]) for p in problems) < 180


def test_the_long_problems_are_five_seeds_of_both_masks_in_every_dtype():
    problems = list(long_problems(LONG_SEEDS))
    assert len(problems) == 30
    assert {(p.seqlen_q, p.seqlen_k, p.num_heads_q, p.batch_size, p.direction) for p in problems} == {
        (LONG, LONG, 1, 1, "fwd")
    }
    assert {(p.seed, p.mask.spec, p.dtype) for p in problems} == {
        (seed, mask, dtype) for seed in range(5) for mask in ("full", "causal") for dtype in get_args(Dtype)
    }


def test_float16_arithmetic_that_is_slow_at_length_is_left_out_there_alone(monkeypatch):
    monkeypatch.setattr("bench.refusals.long_problems", lambda seeds: [short_problem(0).model_copy(update=small)])
    small = {"seqlen_q": 1, "seqlen_k": SHORT + 1, "dtype": "float16", "mask": masks.get("full")(), "direction": "fwd"}
    for dtype in get_args(Dtype):
        small["dtype"] = dtype
        judged = run_campaign([], lambda line: None, long_seeds=[0])
        missing = set(SLOW_LONG_FLOAT16) - {one.implementation for one in judged}
        assert missing == (set(SLOW_LONG_FLOAT16) if dtype == "float16" else set())
        assert {one.verdict for one in judged} <= {"passed", "unsupported"}


def test_filters_choose_and_an_empty_choice_is_an_error():
    judged = run_campaign(
        FEW, lambda line: None, selection=Selection(not_implementation=("sdpa", "triton"), problem=("full",))
    )
    assert {one.implementation for one in judged} == {"naive", "online_softmax"}
    assert all("full" in one.problem.key for one in judged)
    for nothing in ({"implementation": ("nobody",)}, {"problem": ("nothing",)}):
        with pytest.raises(NothingSelectedError, match="must have an implementation and a problem"):
            run_campaign(FEW, print, selection=Selection(**nothing))


@pytest.mark.parametrize("seed", [80, 104, 155, 158, 159, 238, 243, 559, 574, 648, 925, 991, 1569])
def test_what_limits_without_a_reason_once_refused_passes(seed):
    """Small weights at a large scale (locality), equal weights (row sums), gradients added up over heads in float16."""
    judged = judge_all(short_problem(seed), ["naive", "online_softmax", "sdpa_math", "sdpa_flash"])
    assert [one.reason for one in judged if one.verdict == "refused"] == []
