from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from bench import projected
from bench.clocks import PerfCounterClock
from bench.demonstrations.projected_attention import REPETITIONS, WIDTHS, time_parts
from bench.errors import ProblemError, Unsupported
from bench.problem import Problem
from bench.projected import (
    PROJECTED,
    Prepared,
    ProjectedInputs,
    ProjectedProblem,
    draw_inputs,
    expected,
    verify,
)
from bench.timing import SamplingPlan

MASKS = ("full", "causal", "padding(0.5)", "causal & padding(0.5)")


def problem(width: int = 64, source_width: int | None = None, **fields: Any) -> ProjectedProblem:
    plain = {"seqlen": 24, "num_heads": 4, "head_dim": 16, "batch_size": 2}
    return ProjectedProblem(Problem(**(plain | fields)), width, width if source_width is None else source_width)


def passes(one: ProjectedProblem, name: str) -> bool:
    inputs = draw_inputs(one)
    return verify(one, PROJECTED[name](one, inputs).whole(), expected(one, inputs)).passed


def test_flop_of_the_chapters_cross_attention() -> None:
    one = problem(6, 7, seqlen_q=2, seqlen_k=3, head_dim=4, head_dim_v=5, num_heads=1, batch_size=1, seqlen=2)
    assert one.projection_flop == 2 * (2 * 6 * 4 + 3 * 7 * 4 + 3 * 7 * 5)
    assert one.pair_flop == 2 * 2 * 3 * (4 + 5)
    assert one.output_flop == 2 * 2 * 5 * 6


def test_doubling_the_length_doubles_projections_and_quadruples_pairs() -> None:
    short, long = problem(512, seqlen=1000), problem(512, seqlen=2000)
    assert (short.attention.all_pairs, long.attention.all_pairs) == (8_000_000, 32_000_000)  # two items, four heads
    assert long.projection_flop == 2 * short.projection_flop
    assert long.pair_flop == 4 * short.pair_flop


@pytest.mark.parametrize(
    ("widths", "with_output", "length"),
    [
        ((512, 512), False, 768),  # 1.5 D
        ((512, 512), True, 1024),  # 2 D
        ((512, 1024), False, 1280),  # D / 2 + D_s
        ((512, 256), False, 512),
    ],
)
def test_crossover_is_where_flop_are_equal(widths: tuple[int, int], with_output: bool, length: int) -> None:
    shape = {"num_heads": 8, "head_dim": 64}
    assert problem(*widths, seqlen=100, **shape).crossover_seqlen(with_output) == pytest.approx(length)
    there = problem(*widths, seqlen=length, **shape)
    assert there.projection_flop + with_output * there.output_flop == there.pair_flop


def test_crossover_without_half_of_the_pairs_is_twice_as_far_and_without_any_nowhere() -> None:
    full, causal = problem(64, seqlen=256), problem(64, seqlen=256, mask="causal")
    assert causal.crossover_seqlen() == pytest.approx(full.crossover_seqlen() * 2 * 256 / 257)  # type: ignore[operator]  # only nothing visible gives None
    nothing = problem(seqlen=8, batch_size=1, mask="padding(lengths=[0])")
    assert nothing.crossover_seqlen() is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 0}, "width must be a whole number from 1"),
        ({"source_width": 1.5}, "source_width must be a whole number"),
        ({"num_heads_q": 4, "num_heads_kv": 2}, "num_heads_kv of a projected problem must be 4, got 2"),
        ({"direction": "bwd"}, "direction of a projected problem must be fwd, got bwd"),
        ({"distribution": "peaked"}, "distribution of a projected problem must be normal, got peaked"),
    ],
)
def test_what_cannot_be_projected_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        problem(**fields)


@pytest.mark.parametrize("name", sorted(PROJECTED))
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shape", [{}, {"source_width": 40}, {"seqlen_q": 9, "seqlen_k": 30, "seqlen": 9}])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_implementation_agrees_with_float64(name: str, mask: str, shape: dict[str, Any], dtype: str) -> None:
    assert passes(problem(mask=mask, dtype=dtype, **shape), name)


@pytest.mark.parametrize("mask", MASKS[1:])
def test_a_mask_of_the_wrong_polarity_is_caught(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projected, "blocking", lambda keep: keep)
    assert not passes(problem(mask=mask), "multihead")


def test_the_limit_leaves_no_room_for_a_wrong_weight() -> None:
    one = problem(mask="causal")
    inputs = draw_inputs(one)
    other = inputs.w_v.clone()
    other[3, 5] += 0.001
    answer = expected(one, inputs)
    assert verify(one, PROJECTED["projected_sdpa"](one, inputs).whole(), answer).passed
    off = PROJECTED["projected_sdpa"](one, replace(inputs, w_v=other)).whole()
    assert not verify(one, off, answer).passed


@pytest.mark.parametrize("name", sorted(PROJECTED))
def test_three_tokens_with_identity_projections(name: str) -> None:
    tokens = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
    one = problem(2, seqlen=3, num_heads=1, head_dim=2, batch_size=1, mask="causal")
    out = PROJECTED[name](one, ProjectedInputs(tokens, tokens, *[torch.eye(2)] * 3)).whole()
    truth = [[1.0, 0.0], [0.3302384506733, 0.6697615493267], [0.7517449217423, 0.7517449217423]]
    torch.testing.assert_close(out, torch.tensor(truth)[None, None], atol=2e-7, rtol=0)


@pytest.mark.parametrize("name", sorted(PROJECTED))
def test_the_whole_projects_anew_in_every_call(name: str) -> None:
    one = problem()
    inputs = draw_inputs(one)
    prepared = PROJECTED[name](one, inputs)
    before = prepared.whole().clone()
    inputs.x.neg_()  # self-attention: q, k and v change their sign, so scores stay and outputs turn
    torch.testing.assert_close(prepared.whole(), -before)


def test_projections_and_pairs_one_after_the_other_are_the_whole() -> None:
    one = problem(mask="causal", source_width=40)
    inputs = draw_inputs(one)
    answer = expected(one, inputs)
    for prepare in PROJECTED.values():
        prepared = prepare(one, inputs)
        prepared.projections()
        assert verify(one, prepared.pairs(), answer).passed


def test_multihead_counts_the_projection_of_its_output() -> None:
    one = problem()
    flop = {name: prepare(one, draw_inputs(one)).projection_flop for name, prepare in PROJECTED.items()}
    assert flop.pop("multihead") == one.projection_flop + one.output_flop
    assert set(flop.values()) == {one.projection_flop}


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("multihead", {"width": 48}, "it needs width == num_heads \\* head_dim"),
        ("multihead", {"head_dim_v": 8}, "head_dim_v == head_dim"),
        ("multihead", {"scale": 1.0}, "it scales by head_dim \\*\\* -0.5"),
        ("projected_sdpa", {"head_dim_v": 8}, "head_dim_v == head_dim"),
    ],
)
def test_what_a_library_cannot_do_has_a_reason(name: str, fields: dict[str, Any], reason: str) -> None:
    one = problem(**fields)
    with pytest.raises(Unsupported, match=reason):
        PROJECTED[name](one, draw_inputs(one))
    assert passes(one, "projected_naive")


class TestDemonstration:
    PLAN = SamplingPlan(min_block_ns=1, warmup_ns=0, warmup_calls=1, budget_ns=0, min_rounds=1, max_rounds=1)

    def rows(self, **fields: Any) -> list[dict[str, Any]]:
        problems = [problem(64, source, seqlen=t, **fields) for t in (4, 8) for source in (64, 40)]
        return time_parts(problems, PerfCounterClock(), self.PLAN)

    def test_every_part_of_every_implementation_has_a_row_at_every_length(self) -> None:
        rows = self.rows()
        seen = {(r["implementation"], r["source_width"], r["seqlen_q"], r["part"]) for r in rows}
        assert len(rows) == len(seen) == len(PROJECTED) * 2 * 2 * 3
        assert all(len(row["latency_ms"]) == REPETITIONS and row["reason"] is None for row in rows)
        assert json.loads(json.dumps(rows)) == rows

    def test_what_is_wrong_or_unsupported_is_not_timed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def without_last_key(one: ProjectedProblem, inputs: ProjectedInputs) -> Prepared:
            kept = Problem(**one.attention.model_dump() | {"mask": f"padding(lengths=[{one.attention.seqlen_k - 1}])"})
            return PROJECTED["projected_naive"](replace(one, attention=kept), inputs)

        monkeypatch.setitem(PROJECTED, "projected_sdpa", without_last_key)
        rows = self.rows(batch_size=1, scale=0.5)
        reasons = {row["implementation"]: row["reason"] for row in rows}
        assert reasons["projected_naive"] is None
        assert reasons["projected_sdpa"].startswith("incorrect: out is off by")
        assert reasons["multihead"].startswith("unsupported: it scales by")
        assert all(row["latency_ms"] is None for row in rows if row["reason"])

    def test_flop_cross_in_the_middle_of_the_ladder(self) -> None:
        places = [problem(*widths, seqlen=64, num_heads=4, head_dim=64).crossover_seqlen() for widths in WIDTHS]
        assert places == [384, 448]
