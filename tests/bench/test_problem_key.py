"""A problem is read back from its key, and from less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import ProblemError, UnknownNameError
from bench.problem import Problem
from bench.problem_key import parse_problem

MASKS = ("full", "causal", "sliding_window(16)", "causal & padding(0.5)", "prefix_lm(8)", "padding(lengths=[3, 9])")


@given(
    batch=st.integers(2, 2),
    heads=st.sampled_from([(4, 4), (8, 2)]),
    lengths=st.sampled_from([(32, 32), (1, 64), (64, 32)]),
    widths=st.sampled_from([(64, 64), (192, 128)]),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    direction=st.sampled_from(["fwd", "bwd", "fwd_bwd"]),
    mask=st.sampled_from(MASKS),
    scale=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    distribution=st.sampled_from(["normal", "uniform", "outlier", "peaked", "padded_dout_zero"]),
    seed=st.integers(0, 9),
)
def test_every_key_gives_its_problem(batch, heads, lengths, widths, dtype, direction, mask, scale, distribution, seed):
    problem = Problem(
        batch_size=batch,
        num_heads_q=heads[0],
        num_heads_kv=heads[1],
        seqlen_q=lengths[0],
        seqlen_k=lengths[1],
        head_dim=widths[0],
        head_dim_v=widths[1],
        dtype=dtype,
        direction=direction,
        mask=mask,
        scale=scale,
        distribution=distribution,
        seed=seed,
    )
    assert parse_problem(problem.key).key == problem.key


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("T2048", {"seqlen": 2048}),
        ("T2048-fwd_bwd", {"seqlen": 2048, "direction": "fwd_bwd"}),
        ("T1:4096-causal", {"seqlen_q": 1, "seqlen_k": 4096, "mask": "causal"}),
        (
            "H8:2-T64-d128-bfloat16",
            {"seqlen": 64, "num_heads_q": 8, "num_heads_kv": 2, "head_dim": 128, "dtype": "bfloat16"},
        ),
        ("T64-outlier", {"seqlen": 64, "distribution": "outlier"}),
        ("T64-scale-0.5-seed3", {"seqlen": 64, "scale": -0.5, "seed": 3}),
        ("T64-causal & padding(0.5)", {"seqlen": 64, "mask": "causal & padding(0.5)"}),
    ],
)
def test_what_is_left_out_takes_its_default(text, fields):
    assert parse_problem(text) == Problem(**fields)


@pytest.mark.parametrize("text", ["", "2048", "naive", "Tx", "B2-H4"])
def test_what_is_no_key_is_told_what_one_looks_like(text):
    with pytest.raises(ProblemError, match="T2048"):
        parse_problem(text)


def test_a_mask_that_is_none_is_named():
    with pytest.raises(UnknownNameError, match="causal"):
        parse_problem("T64-casual")
