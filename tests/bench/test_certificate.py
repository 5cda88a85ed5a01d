"""The certificate: a small problem of the same kind, and what it says of deterministic and batch-invariant code."""

from __future__ import annotations

import itertools

import pytest

from bench.certificate import certificate_problem, certify
from bench.implementation import AttentionOutput, Call, implementations
from bench.problem import Problem


@pytest.mark.parametrize(
    ("given", "seqlen_q", "seqlen_k"),
    [
        ({"seqlen": 4096}, 160, 160),
        ({"seqlen_q": 256, "seqlen_k": 2048}, 97, 160),
        ({"seqlen_q": 2048, "seqlen_k": 256}, 160, 97),
        ({"seqlen_q": 1, "seqlen_k": 4096}, 1, 160),
        ({"seqlen": 7}, 7, 7),
    ],
)
def test_lengths_shrink_and_keep_their_order(given, seqlen_q, seqlen_k):
    problem = Problem(**given, mask="causal", dtype="bfloat16", num_heads_q=8, num_heads_kv=2, head_dim=80, scale=0.3)
    small = certificate_problem(problem)
    assert (small.seqlen_q, small.seqlen_k, small.batch_size) == (seqlen_q, seqlen_k, 2)
    same = ("num_heads_q", "num_heads_kv", "head_dim", "head_dim_v", "dtype", "mask", "scale", "direction")
    assert all(getattr(small, name) == getattr(problem, name) for name in same)


def test_masks_with_absolute_numbers_keep_what_they_need():
    assert certificate_problem(Problem(seqlen=512, mask="padding(lengths=[300])")).seqlen_k == 512
    assert certificate_problem(Problem(seqlen=512, mask="padding(lengths=[30])")).batch_size == 1
    assert certificate_problem(Problem(seqlen=512, mask="sliding_window(256)")).seqlen_k == 160


@pytest.mark.parametrize("name", ["naive", "online_softmax", "sdpa_math", "sdpa_flash"])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_shipped_implementations_are_certified(name, direction):
    problem = Problem(seqlen=2048, mask="causal", num_heads_q=4, num_heads_kv=2, dtype="bfloat16", direction=direction)
    certificate = certify(implementations.get(name), problem, "cpu")
    assert certificate.reason is None
    assert certificate.agreement.passed
    assert certificate.agreement.deterministic is True
    assert {"needle", "block_mass", "row_sums", "locality"} <= set(certificate.agreement.checks)


class Odd:
    """Right to rounding, but not twice the same, and different when alone."""

    name, summary, layout, devices, backward, expects = "odd", "odd", "bhsd", ("cpu",), False, ()
    calls = itertools.count(1)

    def version(self):
        return "1"

    def unsupported(self, problem, device):
        return None

    def predicted_peak_bytes(self, problem, device="cpu"):
        return None

    def prepare(self, problem, inputs):
        def run():
            weights = (inputs.q @ inputs.k.transpose(-1, -2) * problem.softmax_scale).softmax(-1)
            # A factor of each call's own: a random one would repeat itself now and then, as float32 has few of them.
            factor = 1 + 4e-7 * next(self.calls) + 1e-6 * problem.batch_size
            return AttentionOutput(weights @ inputs.v * factor)

        return Call(run)


def test_what_is_not_repeatable_is_said_so():
    certificate = certify(Odd(), Problem(seqlen=64), "cpu")
    assert certificate.agreement.deterministic is False
    assert certificate.agreement.batch_invariant is False


class Scaled(Odd):
    """Scales by the wrong width: computes another function."""

    def prepare(self, problem, inputs):
        def run():
            weights = (inputs.q @ inputs.k.transpose(-1, -2) / problem.head_dim).softmax(-1)
            return AttentionOutput(weights @ inputs.v)

        return Call(run)


def test_another_function_is_refused_with_the_checks_that_saw_it():
    certificate = certify(Scaled(), Problem(seqlen=4096), "cpu")
    assert not certificate.agreement.passed
    assert "out is off by" in certificate.reason
    assert "block_mass" in certificate.reason
    assert "T160" in certificate.reason
