"""Each implementation's memory law against the allocator's events, and the claims that rest on them."""

from __future__ import annotations

from functools import cache

import pytest

from bench.calls import differentiable, make_step
from bench.errors import Unavailable
from bench.implementation import implementations, refusal, untimed
from bench.inputs import make_inputs
from bench.probes import probe_for
from bench.problem import Problem

COMPILED = {"flex", "naive_compiled"}


def runnable(member):
    try:
        member.version()
    except Unavailable:
        return False
    return "cpu" in member.devices


RUNNABLE = [name for name, member in implementations.items() if runnable(member)]
QUICK = [name for name in RUNNABLE if name not in COMPILED]


@cache
def probe():
    found, reason = probe_for("cpu")
    assert found is not None, reason
    return found


def read(name, problem):
    """What the allocator saw in a second call, and the law; None where the implementation refuses."""
    member = implementations.get(name)
    if refusal(member, problem, "cpu") is not None:
        return None
    inputs = differentiable(problem, make_inputs(problem, member.layout))
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    step.run()
    return probe().read(step.run), member.predicted_peak_bytes(problem)


FORWARD = [
    {},
    {"mask": "causal"},
    {"mask": "padding(0.5)"},
    {"seqlen_q": 512, "seqlen_k": 1024, "mask": "causal"},
    {"num_heads_q": 8, "num_heads_kv": 2, "batch_size": 2, "mask": "causal & padding(0.3)"},
    {"head_dim": 128},
    {"dtype": "bfloat16", "mask": "causal"},
    {"dtype": "float16", "mask": "padding(0.5)"},
]


def problem_for(name, **fields):
    """Long enough to tell a law by; shorter for what is interpreted, which takes seconds for what others do at once."""
    interpreted = untimed(implementations.get(name), Problem(seqlen=8), "cpu") is not None
    return Problem(**({"seqlen": 128 if interpreted else 1024} | fields))


def members_and_problems():
    for name in RUNNABLE:
        compiled = name in COMPILED
        for fields in [FORWARD[index] for index in (0, 1, 4, 6)] if compiled else FORWARD:
            marks = [pytest.mark.slow] if compiled else []
            yield pytest.param(name, fields, id=f"{name}-{fields}", marks=marks)


@pytest.mark.parametrize(("name", "fields"), list(members_and_problems()))
def test_predicted_forward_peak_is_within_five_percent(name, fields):
    reading = read(name, problem_for(name, **fields))
    if reading is not None:
        measured, predicted = reading
        assert predicted == pytest.approx(measured.peak_bytes, rel=0.05)


@pytest.mark.parametrize("direction", ["bwd", "fwd_bwd"])
@pytest.mark.parametrize("fields", [FORWARD[index] for index in (1, 2, 4, 6)], ids=str)
@pytest.mark.parametrize("name", QUICK)
def test_predicted_gradient_peak_is_within_five_percent(name, fields, direction):
    reading = read(name, problem_for(name, direction=direction, **fields))
    if reading is not None:
        measured, predicted = reading
        assert predicted == pytest.approx(measured.peak_bytes, rel=0.05)


@pytest.mark.parametrize("mask", ["full", "causal", "padding(0.5)", "padding(lengths=[3], side=left) & causal"])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(64, 64), (100, 300), (512, 512), (1024, 1024)])
def test_naive_holds_exactly_two_score_matrices_and_its_output(mask, seqlen_q, seqlen_k):
    problem = Problem(seqlen_q=seqlen_q, seqlen_k=seqlen_k, num_heads_q=4, num_heads_kv=2, mask=mask)
    measured, predicted = read("naive", problem)
    assert measured.peak_bytes == predicted == 2 * 4 * seqlen_q * seqlen_k * 4 + problem.output_bytes
    assert measured.output_bytes == problem.output_bytes


@pytest.mark.parametrize("direction", ["fwd", "fwd_bwd"])
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_online_softmax_grows_linearly(mask, direction):
    """From one whole block of queries on, equal steps in length cost equal bytes: no term grows faster."""
    one, two, three = (
        read("online_softmax", Problem(seqlen=n, num_heads=2, mask=mask, direction=direction))[0].peak_bytes
        for n in (1024, 2048, 3072)
    )
    assert three - two == two - one > 0


@pytest.mark.parametrize("direction", ["fwd", "fwd_bwd"])
def test_online_softmax_masks_are_linear_where_the_mask_is_a_band(direction):
    small, large = (
        implementations.get("online_softmax").prepare(problem, make_inputs(problem)).mask_bytes
        for problem in (Problem(seqlen=n, num_heads=1, mask="causal", direction=direction) for n in (2048, 4096))
    )
    assert large == 2 * small


def test_online_softmax_needs_less_than_a_twentieth_of_naive_workspace():
    problem = Problem(seqlen=4096)
    measured, _ = read("online_softmax", problem)
    naive = implementations.get("naive").predicted_peak_bytes(problem) - problem.output_bytes
    assert measured.peak_bytes - measured.output_bytes < naive / 20


def test_peaks_repeat_to_the_byte():
    problem = Problem(seqlen=512, mask="causal")
    for name in ("naive", "online_softmax", "sdpa_math", "sdpa_flash"):
        assert read(name, problem)[0].peak_bytes == read(name, problem)[0].peak_bytes
