from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.implementation import dense_mask
from bench.problem import Problem
from bench.report.snippets import snippet

SQUARE = {"seqlen": 24, "head_dim": 8, "num_heads": 4}


def plain(problem: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    group = problem.num_heads_q // problem.num_heads_kv
    k, v = (tensor.repeat_interleave(group, dim=1) for tensor in (k, v))
    scores = (q @ k.transpose(-2, -1) * problem.softmax_scale).masked_fill(~dense_mask(problem, "cpu"), float("-inf"))
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("name", ["sdpa_math", "sdpa_flash"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mask": "causal"},
        {"mask": "causal", "seqlen_q": 8},
        {"mask": "sliding_window(5)"},
        {"num_heads_kv": 2},
        {"scale": 0.5, "mask": "causal"},
    ],
    ids=str,
)
def test_the_call_computes_what_was_measured(name: str, fields: dict[str, Any]) -> None:
    problem = Problem(**(SQUARE | fields))
    torch.manual_seed(0)
    q = torch.randn(1, problem.num_heads_q, problem.seqlen_q, problem.head_dim)
    k, v = torch.randn(2, 1, problem.num_heads_kv, problem.seqlen_k, problem.head_dim)
    space = {"q": q, "k": k, "v": v, "keep": dense_mask(problem, "cpu")}
    exec(snippet(name, problem) or "", space)
    torch.testing.assert_close(space["out"], plain(problem, q, k, v))


def test_only_where_the_triangles_are_one_is_the_mask_said_to_be_causal() -> None:
    assert "is_causal=True" in str(snippet("sdpa_flash", Problem(seqlen=8, mask="causal")))
    assert "is_causal" not in str(snippet("sdpa_flash", Problem(seqlen_q=4, seqlen_k=8, mask="causal")))
    assert "is_causal" not in str(snippet("sdpa_flash", Problem(seqlen=8, mask="causal", scale=-1.0)))


def test_flex_compiles_with_the_mask_and_unknown_names_have_no_call() -> None:
    said = str(snippet("flex", Problem(seqlen=8, mask="causal", num_heads_kv=2)))
    compile(said, "snippet", "exec")
    assert "mask causal" in said and "enable_gqa=True" in said
    assert snippet("mine", Problem(seqlen=8)) is None
