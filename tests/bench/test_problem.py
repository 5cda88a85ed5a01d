from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import MaskError, ProblemError, UnknownNameError
from bench.masks import parse_mask
from bench.problem import Problem, expand_fields


def problems() -> st.SearchStrategy[Problem]:
    """Problems of small sizes with every optional field in play."""
    size = st.integers(1, 64)

    def build(fields: dict[str, Any], group: int) -> Problem:
        return Problem(**fields, num_heads_q=group * fields["num_heads_kv"])

    fields = st.fixed_dictionaries(
        dict.fromkeys(("seqlen_q", "seqlen_k", "head_dim", "head_dim_v"), size)
        | {
            "batch_size": st.integers(1, 3),
            "num_heads_kv": st.integers(1, 3),
            "dtype": st.sampled_from(["float32", "float16", "bfloat16"]),
            "mask": st.sampled_from(["full", "causal", "causal & padding(0.5)", "sliding_window(3)"]),
            "scale": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            "direction": st.sampled_from(["fwd", "bwd", "fwd_bwd"]),
            "distribution": st.sampled_from(["normal", "uniform", "outlier", "peaked"]),
            "seed": st.integers(0, 2**63 - 1),
        }
    )
    return st.builds(build, fields, st.integers(1, 3))


@given(problems())
def test_a_problem_survives_json(problem: Problem) -> None:
    again = Problem.model_validate(json.loads(json.dumps(problem.model_dump(mode="json"), allow_nan=False)))
    assert again == problem
    assert again.key == problem.key
    assert again.id == problem.id


@given(problems(), problems(), st.sampled_from(sorted(set(Problem.model_fields) - {"num_heads_kv"})))
def test_another_value_in_any_field_gives_another_key(a: Problem, b: Problem, field: str) -> None:
    # num_heads_kv alone may not divide num_heads_q; 0.0 and -0.0 are equal and written differently.
    value = getattr(b, field)
    if field == "num_heads_q":
        value *= a.num_heads_kv
    changed = Problem(**(dict(a) | {field: value}))
    assert (changed.key == a.key) == (changed == a) or value == 0.0


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"seqlen": 1024, "mask": "causal"}, "B1-H4-T1024-d64-float32-fwd-causal"),
        (
            {"seqlen_q": 1, "seqlen_k": 4096, "num_heads_q": 32, "num_heads_kv": 8, "head_dim": 128},
            "B1-H32:8-T1:4096-d128-float32-fwd-full",
        ),
        (
            {"seqlen": 64, "head_dim": 48, "head_dim_v": 32, "mask": "padding(0.5) & causal", "scale": 0.5},
            "B1-H4-T64-d48:32-float32-fwd-causal&padding(0.5)-scale0.5",
        ),
        (
            {
                "seqlen": 8,
                "dtype": "bfloat16",
                "direction": "fwd_bwd",
                "distribution": "outlier",
                "seed": 7,
                "batch_size": 2,
            },
            "B2-H4-T8-d64-bfloat16-fwd_bwd-full-outlier-seed7",
        ),
    ],
)
def test_keys_are_readable(fields: dict[str, Any], key: str) -> None:
    problem = Problem(**fields)
    assert problem.key == key
    assert len(problem.id) == 12


def test_the_id_does_not_depend_on_the_process() -> None:
    assert Problem(seqlen=1024, mask="causal").id == "d311ade0e139"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"seqlen": 8}, {"seqlen_q": 8, "seqlen_k": 8}),
        ({"seqlen": 8, "seqlen_k": 16}, {"seqlen_q": 8, "seqlen_k": 16}),
        ({"seqlen_q": 8}, {"seqlen_q": 8, "seqlen_k": 8}),
        ({"num_heads": 6}, {"num_heads_q": 6, "num_heads_kv": 6}),
        ({"num_heads_q": 6}, {"num_heads_q": 6, "num_heads_kv": 6}),
        ({"head_dim": 80}, {"head_dim": 80, "head_dim_v": 80}),
        ({"head_dim_v": 80}, {"head_dim_v": 80}),
    ],
)
def test_shorthands_and_followers(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    given_fields = dict(fields)
    assert expand_fields(fields) == expected
    assert fields == given_fields


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "seqlen_q must be given, got nothing. Set it on the command line or in the sweep file."),
        ({"seqlen": 0}, "seqlen_q must be at least 1, got 0. Give a positive size."),
        ({"seqlen": 8, "batch_size": -1}, "batch_size must be at least 1, got -1. Give a positive size."),
        ({"seqlen": 8, "head_dim_v": 0}, "head_dim_v must be at least 1, got 0. Give a positive size."),
        ({"seqlen": 1.5}, "seqlen_q must be a whole number, got 1.5. Check the value."),
        ({"seqlen": "long"}, "seqlen_q must be a whole number, got 'long'. Check the value."),
        ({"seqlen": None}, "seqlen_q must be a whole number, got None. Check the value."),
        ({"seqlen": 8, "scale": "big"}, "scale must be a number, got 'big'. Check the value."),
        ({"seqlen": 8, "scale": []}, "scale must be a number, got []. Check the value."),
        (
            {"seqlen": 8, "num_heads_q": 3, "num_heads_kv": 2},
            "num_heads_q must be a multiple of num_heads_kv, got 3 and 2. Change one of them.",
        ),
        (
            {"seqlen": 8, "dtype": "float8"},
            "dtype must be 'float32', 'float16' or 'bfloat16', got 'float8'. Choose one of them.",
        ),
        (
            {"seqlen": 8, "direction": "back"},
            "direction must be 'fwd', 'bwd' or 'fwd_bwd', got 'back'. Choose one of them.",
        ),
        (
            {"seqlen": 8, "scale": math.nan},
            "scale must be a finite number, got nan. Leave it out for head_dim ** -0.5.",
        ),
        (
            {"seqlen": 8, "scale": -math.inf},
            "scale must be a finite number, got -inf. Leave it out for head_dim ** -0.5.",
        ),
        ({"seqlen": 8, "seed": -1}, "seed must be from 0 to 2**63 - 1, got -1. Choose another seed."),
        (
            {"seqlen": 8, "seed": 2**63},
            f"seed must be from 0 to 2**63 - 1, got {2**63}. Choose another seed.",
        ),
    ],
)
def test_an_impossible_problem_says_what_must_hold(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        Problem(**fields)
    assert str(caught.value) == message


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(ProblemError, match=r"problem field must be one of batch_size, .*, got 'seq_len'"):
        Problem(seqlen=8, seq_len=9)


def test_masks_are_checked_with_the_sizes() -> None:
    with pytest.raises(UnknownNameError, match="did you mean causal"):
        Problem(seqlen=8, mask="casual")
    with pytest.raises(MaskError, match="document must be used where seqlen_q equals seqlen_k, got 4 and 8"):
        Problem(seqlen_q=4, seqlen_k=8, mask="document(2)")
    assert Problem(seqlen=8, mask=parse_mask("causal")) == Problem(seqlen=8, mask="causal")
    assert Problem(seqlen=8).mask == parse_mask("full")


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e30])
def test_any_finite_scale_is_legal(scale: float) -> None:
    assert Problem(seqlen=8, scale=scale).softmax_scale == scale
    assert Problem(seqlen=8, head_dim=16).softmax_scale == 0.25


def test_a_problem_cannot_be_changed() -> None:
    problem = Problem(seqlen=8)
    with pytest.raises(ValueError, match="frozen"):
        problem.seed = 1  # type: ignore[misc]  # that it is refused is the point
    assert hash(problem) == hash(Problem(seqlen=8))


@pytest.mark.parametrize(
    ("fields", "direction", "flop"),
    [
        # Published: 64 sequences, 16 heads, 1,024 positions, width 64, all pairs; backward 2.5 times forward.
        ({"batch_size": 64, "num_heads": 16, "seqlen": 1024}, "fwd", 274_877_906_944),
        ({"batch_size": 64, "num_heads": 16, "seqlen": 1024}, "bwd", 687_194_767_360),
        ({"batch_size": 64, "num_heads": 16, "seqlen": 1024}, "fwd_bwd", 962_072_674_304),
        ({"num_heads": 12, "seqlen": 64}, "fwd", 12_582_912),
        ({"num_heads": 1, "seqlen_q": 5, "seqlen_k": 7, "head_dim": 8, "head_dim_v": 16}, "fwd", 1680),
        (
            {"batch_size": 4, "num_heads": 32, "seqlen": 4096, "head_dim": 128, "mask": "causal"},
            "fwd",
            549_890_031_616,
        ),
    ],
)
def test_flop_of_published_cases(fields: dict[str, Any], direction: str, flop: int) -> None:
    assert Problem(**fields, direction=direction).flop == flop


def test_pairs_count_query_heads_and_batch_items() -> None:
    problem = Problem(batch_size=2, num_heads_q=6, num_heads_kv=2, seqlen=4, mask="causal & padding(lengths=[4, 0])")
    assert problem.attended_pairs == 6 * 10
    assert problem.empty_rows == 6 * 4
    assert problem.all_pairs == 2 * 6 * 16


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_bytes_of_inputs_and_output(dtype: str, size: int) -> None:
    problem = Problem(
        batch_size=2,
        num_heads_q=4,
        num_heads_kv=2,
        seqlen_q=3,
        seqlen_k=5,
        head_dim=8,
        head_dim_v=16,
        dtype=dtype,
    )
    assert problem.input_bytes == (2 * 4 * 3 * 8 + 2 * 2 * 5 * (8 + 16)) * size
    assert problem.output_bytes == 2 * 4 * 3 * 16 * size


def test_the_naive_score_matrix_of_the_published_case() -> None:
    problem = Problem(batch_size=2, num_heads=8, seqlen=2048)
    assert problem.all_pairs * problem.element_bytes == 268_435_456
