"""Running maximum, exponential sum and value sum of ``online_softmax`` on the worked examples, in both orders."""

from __future__ import annotations

import pytest
import torch
from golden import CASES, DIGITS, assert_near, expected, numbers
from members import DTYPES, one_head, problem_of

from bench.calls import make_step
from bench.implementation import AttentionInputs, implementations
from bench.numerics import UNIT_ROUNDOFF

RECURRENCES = ["running_recurrence_low_first", "running_recurrence_high_first"]


def recurrence(name, dtype, block=1):
    """``(m, l, u)`` of ``online_softmax`` after each block of keys, each as a list over blocks."""
    inputs = CASES[name]["inputs"]
    k, v = one_head([[score] for score in inputs["scores_in_order"]]), one_head(inputs["values_in_order"])
    q = torch.ones(1, 1, 1, 1)
    member = type(implementations.get("online_softmax"))(block_n=block)
    tensors = AttentionInputs(*(tensor.to(getattr(torch, dtype)) for tensor in (q, k, v)))
    problem = problem_of(q, k, v, scale=1.0, dtype=dtype)
    states = [state for _, _, state in member.running_states(problem, tensors)]
    output = make_step(member.prepare(problem, tensors), problem, tensors, "bhsd").run()
    return [torch.stack([state[i].flatten() for state in states]).double() for i in range(3)], output


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RECURRENCES)
def test_running_maximum_and_sums_after_each_key(name, dtype):
    """The state is float32 in every dtype; only the result is rounded."""
    (m, total, u), output = recurrence(name, dtype)
    limit = 4 * UNIT_ROUNDOFF["float32"] * 10
    assert_near(m[:, 0], expected(name, "m"), 0)
    assert_near(total[:, 0], expected(name, "l"), limit)
    assert_near(u, expected(name, "u"), limit)
    rescale = torch.cat([torch.zeros(1, dtype=torch.float64), (m[:-1, 0] - m[1:, 0]).exp()])
    assert_near(rescale, expected(name, "rescale_old"), DIGITS)
    assert_near(output.out[0, 0, 0], expected(name, "out"), limit + UNIT_ROUNDOFF[dtype] * 10)
    assert_near(output.lse[0, 0, 0], expected(name, "lse"), limit)


@pytest.mark.parametrize("name", RECURRENCES)
def test_one_block_of_both_keys_ends_with_the_same_sums(name):
    stepwise, _ = recurrence(name, "float32")
    at_once, _ = recurrence(name, "float32", block=2)
    for one, other in zip(stepwise, at_once, strict=True):
        assert_near(one[-1], other[0], 4 * UNIT_ROUNDOFF["float32"] * 10)


def test_independent_blocks_and_a_missing_rescale_are_not_told_apart_by_this_row():
    lost = CASES["blocks_normalised_independently"]["expected"], CASES["missing_rescale"]["expected"]
    values = numbers(CASES["missing_rescale"]["inputs"]["values_in_order"])
    assert_near(values.sum(0), numbers(lost[0]["wrong_out_sum"]), 0)
    assert_near(values.mean(0), numbers(lost[0]["wrong_out_mean"]), 0)
    assert lost[0]["wrong_out_mean"] == lost[1]["wrong_out"]
    assert_near(numbers(lost[1]["wrong_u"]) / lost[1]["wrong_l"], numbers(lost[1]["wrong_out"]), 0)
    assert lost[0]["right_out"] == CASES["running_recurrence_low_first"]["expected"]["out"]
