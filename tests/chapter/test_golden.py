"""The float64 reference and every implementation give the numbers of the worked examples, and the gate no others."""

from __future__ import annotations

import math

import pytest
import torch
from golden import ATTENTION, CASES, DIGITS, assert_near, expected, given, numbers, problem, scores, tolerance
from members import COMPILED, DTYPES, QUICK, RUNNABLE, RefusedError, attend, attend_padded, problem_of

from bench.implementation import AttentionInputs, dense_mask, implementations
from bench.numerics import LSE_LIMIT_EPS, agree
from bench.problem import Problem
from bench.reference import naive_yardstick, reference

# The numbers themselves


def test_there_are_23_cases():
    assert len(CASES) == 23
    assert len(ATTENTION) == 11


@pytest.mark.parametrize("name", ATTENTION)
def test_the_float64_reference_gives_every_number(name):
    answers = CASES[name]["expected"]
    q, k, v = given(name)
    exact = reference(problem(name, q, k, v), AttentionInputs(q.double(), k.double(), v.double()))
    eye = given(name, identity=True)[2].double()
    weights = reference(problem(name, q, k, eye), AttentionInputs(q.double(), k.double(), eye)).out[0, 0]
    found = {
        "out": exact.out[0, 0],
        "lse": exact.lse[0, 0],
        "weights": weights,
        "right_weights": weights,
        "row_sums": weights.sum(dim=-1),
        "out_coordinate_sums": exact.out[0, 0].sum(dim=-1),
        "loss_per_row": exact.out[0, 0].square().sum(dim=-1),
    }
    assert set(answers) & set(found), "something is compared"
    for key in set(answers) & set(found):
        assert_near(found[key], expected(name, key), DIGITS)


@pytest.mark.parametrize("name", ATTENTION)
def test_scores_follow_from_q_and_k(name):
    """The lse of a query with a single key is their score, so the reference is asked for one pair at a time."""
    q, k, _ = (tensor[0, 0].double() for tensor in given(name))
    pairs = [(i, j) for i in range(len(q)) for j in range(len(k))]
    one_key = {"batch_size": len(pairs), "num_heads": 1, "seqlen": 1, "head_dim": q.shape[1], "head_dim_v": 1}

    def all_scores(scale):
        rows = AttentionInputs(
            torch.stack([q[i] for i, _ in pairs])[:, None, None],
            torch.stack([k[j] for _, j in pairs])[:, None, None],
            torch.zeros(len(pairs), 1, 1, 1),
        )
        return reference(Problem(**one_key, scale=scale), rows).lse.view(len(q), len(k))

    raw, scaled = all_scores(1.0), all_scores(problem(name, *given(name)).softmax_scale)
    hidden = scaled.masked_fill(~dense_mask(problem(name, *given(name)), "cpu")[0, 0], -math.inf)
    found = {"raw_scores": raw, "scores": scaled, "masked_scores": hidden, "exp_scores": scaled.exp()}
    found |= {"raw_third_row": raw[-1], "scores_third_row": scaled[-1], "exp_third_row": scaled[-1].exp()}
    found |= {"unmasked_weights": torch.softmax(scaled, -1), "exp_third_row_sum": scaled[-1].exp().sum()}
    for key in set(CASES[name]["expected"]) & set(found):
        # exp_third_row has eleven digits
        assert_near(found[key], expected(name, key), 1e-10 if "third_row" in key else DIGITS)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "printed" in case])
def test_printed_numbers_are_these_rounded(name):
    printed = dict(CASES[name]["printed"])
    decimals = printed.pop("decimals")
    for key, rounded in printed.items():
        assert torch.equal(expected(name, key).round(decimals=decimals), numbers(rounded)), key


def test_rounding_before_the_sum_shows_in_the_last_digits():
    """What is printed from rounded parts is no golden number: 4.947 and (8.81, 0.238)."""
    assert sum(CASES["causal_three_tokens"]["printed"]["exp_third_row"]) == pytest.approx(4.947)
    assert float(expected("causal_three_tokens", "exp_third_row_sum").round(decimals=3)) == 4.946
    from_rounded = numbers([0.881 * 10, 0.119 * 2])
    assert_near(from_rounded, expected("sharper_row", "out_from_rounded_weights"), 1e-12)
    assert (from_rounded - expected("sharper_row", "out")).abs().max() > 1e-4


def test_the_first_of_two_keys_weighs_twice_the_second():
    first, second = expected("two_key_row", "weights")[0]
    assert float(first / second) == pytest.approx(CASES["two_key_row"]["expected"]["weight_ratio_first_to_second"])


# Every implementation


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_every_implementation_gives_every_number(member, dtype, name):
    check(member, dtype, name, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("member", [name for name in RUNNABLE if name in COMPILED])
def test_compiled_implementations_give_the_numbers(member):
    """One case: each other width or mask is compiled anew."""
    q, k, v = given("causal_three_tokens")
    got = attend_padded(member, problem("causal_three_tokens", q, k, v), q, k, v)["out"][0, 0]
    assert_near(got, expected("causal_three_tokens", "out"), tolerance("causal_three_tokens", "float32", 1.0))


ON_A_GPU = [
    (member, name)
    for member in implementations.names()
    for name in (ATTENTION if member not in COMPILED else ["causal_three_tokens"])
    if "cuda" in implementations.get(member).devices
]


@pytest.mark.gpu
@pytest.mark.parametrize(("member", "name"), ON_A_GPU)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_implementation_gives_every_number_on_a_gpu(dtype, member, name):
    try:
        check(member, dtype, name, "cuda")
    except RefusedError as refused:
        assert len(str(refused)) > 10, "a refusal says why"


def check(member, dtype, name, device):
    """Output, weights (output for v = identity) and lse of one case, with zeros appended where a kernel needs them."""
    answers = CASES[name]["expected"]
    q, k, v = given(name)
    got = attend_padded(member, problem(name, q, k, v, dtype), q, k, v, device=device)
    if "out" in answers:
        largest = float(v.abs().max())
        assert_near(got["out"][0, 0], expected(name, "out"), tolerance(name, dtype, largest))
    if "lse" in answers and "lse" in got:
        top = max(1.0, float(scores(name).abs().max()))
        assert_near(got["lse"][0, 0], expected(name, "lse"), LSE_LIMIT_EPS * 2.0**-23 * top)
    weights = "right_weights" if "right_weights" in answers else "weights"
    if weights in answers:
        q, k, eye = given(name, identity=True)
        got = attend_padded(member, problem(name, q, k, eye, dtype), q, k, eye, device=device)
        assert_near(got["out"][0, 0], expected(name, weights), tolerance(name, dtype, 1.0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_padding_the_width_needs_the_scale_of_the_unpadded_one(member, dtype):
    """A kernel that wants 16 columns gets zeros appended; the default scale of 16 would give another output."""
    q, k, v = (torch.nn.functional.pad(tensor, (0, 14)) for tensor in given("two_key_row"))
    limit = tolerance("two_key_row", dtype, 10.0)
    explicit = attend(member, problem_of(q, k, v, dtype=dtype, scale=2**-0.5), q, k, v)["out"][0, 0]
    assert_near(explicit[:, :2], expected("two_key_row", "out"), limit)
    assert not explicit[:, 2:].any()
    implicit = attend(member, problem_of(q, k, v, dtype=dtype), q, k, v)["out"][0, 0, :, :2]
    assert_near(implicit, numbers([[5.621765, 0.875647]]), limit + 1e-6)
    assert (implicit - explicit[:, :2]).abs().max() > limit


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_no_scale_is_another_result_than_the_default_scale(member, dtype):
    q, k, v = given("unscaled_demonstration")
    scaled, unscaled = (
        attend_padded(member, problem(name, q, k, v, dtype), q, k, v)["out"]
        for name in ("unscaled_demonstration_if_scaled", "unscaled_demonstration")
    )
    difference = expected("unscaled_demonstration_if_scaled", "out") - expected("unscaled_demonstration", "out")
    assert_near((scaled - unscaled)[0, 0], difference, 2 * tolerance("unscaled_demonstration", dtype, 2.0))
    shown = numbers([CASES["unscaled_demonstration"]["expected"]["out_to_two_decimals"]])
    assert_near(expected("unscaled_demonstration", "out"), shown, 0.005)


# What is wrong is refused


WRONG = {
    "independent blocks, added": ("sharper_row", [[10.0, 2.0]]),
    "independent blocks, averaged, or no rescale": ("sharper_row", [[5.0, 1.0]]),
    "no scale": ("two_key_row", [[7.310585786300, 0.537882842740]]),
    "scale of a padded width": ("two_key_row", [[5.621765, 0.875647]]),
    "a scale where none belongs": ("unscaled_demonstration", [[1.291979935474, 0.7080200645259]]),
    "mask after the softmax": (
        "no_renormalisation_after_exclusion",
        CASES["no_renormalisation_after_exclusion"]["expected"]["wrong_out"],
    ),
    "inverted polarity": ("polarity_three_apis", CASES["polarity_three_apis"]["expected"]["wrong_polarity_sdpa_out"]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", WRONG)
def test_the_gate_refuses_the_wrong_numbers_and_lets_the_right_ones_pass(fault, dtype):
    name, wrong = WRONG[fault]
    tensors = given(name)
    asked = problem(name, *tensors, dtype)
    inputs = AttentionInputs(*(tensor.to(getattr(torch, dtype)) for tensor in tensors))
    exact, naive = reference(asked, inputs), naive_yardstick(asked, inputs)
    rounded = numbers(wrong)[None, None].to(getattr(torch, dtype))
    assert not agree(asked, exact, naive, {"out": rounded}).passed
    assert agree(asked, exact, naive, {"out": exact.out.to(getattr(torch, dtype))}).passed
