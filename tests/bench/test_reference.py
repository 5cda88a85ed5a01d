"""The oracle against float64 autograd, against numbers worked by hand, and in chunks against itself."""

from __future__ import annotations

import math

import pytest
import torch

from bench import reference as module
from bench.implementation import AttentionInputs, dense_mask
from bench.inputs import make_inputs
from bench.problem import Problem
from bench.reference import naive_yardstick, reference

INF = math.inf
MASKS = [
    "full",
    "causal",
    "causal_top_left",
    "padding(lengths=[0, 3])",
    "causal & padding(lengths=[0, 4], side=left)",
    "sliding_window(2)",
    "prefix_lm(2)",
]


def autograd(problem, inputs):
    """Out, lse and gradients by float64 autograd through the whole score matrix."""
    q, k, v = (t.double().requires_grad_() for t in (inputs.q, inputs.k, inputs.v))
    group = problem.num_heads_q // problem.num_heads_kv
    scores = q @ k.repeat_interleave(group, 1).transpose(-1, -2) * problem.softmax_scale
    keep = dense_mask(problem, "cpu").expand(scores.shape)
    exp = torch.where(keep, scores, -INF).exp().masked_fill(~keep, 0.0)
    total = exp.sum(-1, keepdim=True)
    out = exp / total.masked_fill(total == 0, 1.0) @ v.repeat_interleave(group, 1)
    return (out, total.log().squeeze(-1), *torch.autograd.grad(out, (q, k, v), inputs.dout.double()))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(7, 7), (4, 9), (9, 4), (1, 6)])
@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_agrees_with_autograd(mask, seqlen_q, seqlen_k, chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ENTRIES", chunk)  # 1: one query row at a time
    problem = Problem(
        batch_size=2,
        num_heads_q=4,
        num_heads_kv=2,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        head_dim=5,
        head_dim_v=3,
        mask=mask,
        direction="fwd_bwd",
    )
    inputs = make_inputs(problem)
    got = reference(problem, inputs).tensors()
    wanted = dict(zip(("out", "lse", "dq", "dk", "dv"), autograd(problem, inputs), strict=True))
    for name, tensor in wanted.items():
        assert got[name].dtype == torch.float64
        torch.testing.assert_close(got[name], tensor, rtol=0, atol=1e-13)


def rows(q, k, v, **problem):
    """Reference for one head given as lists."""
    q, k, v = (torch.tensor(t, dtype=torch.float32)[None, None] for t in (q, k, v))
    sizes = {"seqlen_q": q.shape[2], "seqlen_k": k.shape[2], "head_dim": q.shape[3], "head_dim_v": v.shape[3]}
    return reference(Problem(num_heads=1, **sizes, **problem), AttentionInputs(q, k, v))


TOKENS_Q = [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0]]
TOKENS_K = [[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]]
TOKENS_V = [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("answer", "out", "lse"),
    [
        # one query of width 2 with scores 1/sqrt(2) and 0
        (
            rows([[1, 0]], [[1, 0], [0, 2]], [[10, 0], [0, 2]]),
            [[6.697615493267, 0.6604769013467]],
            [1.107940307657],
        ),
        # scores 2 and 0
        (
            rows([[1, 0]], [[2, 0], [0, 2]], [[10, 0], [0, 2]], scale=1.0),
            [[8.807970779779, 0.2384058440442]],
            [2.126928011043],
        ),
        # three tokens that see one another
        (
            rows([[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]], [[2, 0], [0, 2], [1, 1]]),
            [[1.203336278039, 0.7966637219606], [0.7966637219606, 1.203336278039], [1, 1]],
            [1.620621139057, 1.620621139057, 2.100405301228],
        ),
        # three tokens under a causal mask, width 4
        (
            rows(TOKENS_Q, TOKENS_K, TOKENS_V, mask="causal"),
            [[1, 0, 0, 1], [0.5, 0.5, 0, 0.5], [1 / 3, 1 / 3, 1 / 3, 1 / 3]],
            [0.5, 1.19314718056, 1.598612288668],
        ),
        # the same with another third query: the first two rows stay
        (
            rows([*TOKENS_Q[:2], [2, 0, 0, 0]], TOKENS_K, TOKENS_V, mask="causal"),
            [
                [1, 0, 0, 1],
                [0.5, 0.5, 0, 0.5],
                [0.4223187982515, 0.155362403497, 0.4223187982515, 0.4223187982515],
            ],
            [0.5, 1.19314718056, 1.861994804058],
        ),
        # width 8 against value width 16: the scale follows the key's width
        (
            rows([[1] * 8], [[1] * 8, [0] * 8], [[1] * 16, [0] * 16]),
            [[0.9441928] * 16],
            [math.log1p(math.exp(8**0.5))],
        ),
        # scores 1, 2, 3: the logarithm is the natural one
        (rows([[1]], [[1], [2], [3]], [[1], [1], [1]]), [[1]], [3.4076060]),
    ],
)
def test_numbers_worked_by_hand(answer, out, lse):
    torch.testing.assert_close(answer.out[0, 0], torch.tensor(out, dtype=torch.float64), rtol=0, atol=1e-7)
    torch.testing.assert_close(answer.lse[0, 0], torch.tensor(lse, dtype=torch.float64), rtol=0, atol=1e-6)


def test_zero_and_negative_scales_are_computed():
    ln2, v = math.log(2), [[1], [2], [6]]
    zero = rows([[1]] * 3, [[1], [2], [3]], v, mask="causal", scale=0.0).out.flatten()
    assert zero.tolist() == pytest.approx([1, 1.5, 3])
    negative = rows([[1]] * 3, [[0], [ln2], [0]], v, mask="causal", scale=-1.0).out.flatten()
    assert negative.tolist() == pytest.approx([1, 4 / 3, 3.2])


def test_float64_keeps_logits_that_float32_could_not():
    """Equal scores of 1e8 weigh a quarter each, forward and backward."""
    problem = Problem(num_heads=1, seqlen=4, head_dim=1, scale=1.0, direction="bwd")
    ones = torch.ones(1, 1, 4, 1)
    answer = reference(problem, AttentionInputs(ones * 1e4, ones * 1e4, ones, ones))
    assert answer.max_abs_score == pytest.approx(1e8)
    assert answer.out.flatten().tolist() == [1.0] * 4
    assert answer.dv is not None and answer.dv.flatten().tolist() == pytest.approx([1.0] * 4)


def test_an_empty_row_is_zero_with_zero_gradient_and_harms_no_other():
    problem = Problem(
        num_heads=1, seqlen=4, head_dim=4, mask="causal & padding(lengths=[3], side=left)", direction="bwd"
    )
    zeros, eye = torch.zeros(1, 1, 4, 4), torch.eye(4)[None, None]
    answer = reference(problem, AttentionInputs(zeros, zeros, eye, torch.ones(1, 1, 4, 4)))
    wanted = [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1 / 2, 1 / 2, 0], [0, 1 / 3, 1 / 3, 1 / 3]]
    torch.testing.assert_close(answer.out[0, 0], torch.tensor(wanted, dtype=torch.float64))
    assert answer.lse[0, 0, 0] == -INF
    assert all(tensor.isfinite().all() for name, tensor in answer.tensors().items() if name != "lse")
    assert answer.dq is not None and not answer.dq[0, 0, 0].any()


def test_forward_has_no_gradients():
    problem = Problem(seqlen=4)
    assert set(reference(problem, make_inputs(problem)).tensors()) == {"out", "lse"}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mask", ["full", "causal & padding(lengths=[60], side=left)"])
def test_the_yardstick_is_the_naive_arithmetic_of_the_dtype(dtype, mask):
    """Stage by stage: round(softmax(round(scale * round(q @ k^T)))) @ v, each computed in float32."""
    problem = Problem(num_heads=2, seqlen=90, dtype=dtype, mask=mask)
    inputs, storage = make_inputs(problem), getattr(torch, dtype)
    q, k, v = (t.float() for t in (inputs.q, inputs.k, inputs.v))
    scores = ((q @ k.transpose(-1, -2)).to(storage).float() * problem.softmax_scale).to(storage).float()
    scores = scores.masked_fill(~dense_mask(problem, "cpu"), -INF)
    weights = torch.softmax(scores, -1).nan_to_num(0.0).to(storage).float()
    got = naive_yardstick(problem, inputs)
    assert got.out.dtype == storage
    step = 4 * torch.finfo(storage).eps  # sums in another order; roundings that fall on the other side
    torch.testing.assert_close(got.out.float(), (weights @ v).to(storage).float(), rtol=step, atol=step)
    torch.testing.assert_close(got.lse, torch.logsumexp(scores, -1).float(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_yardstick_errs_by_about_an_epsilon_of_its_dtype(dtype):
    problem = Problem(seqlen=256, dtype=dtype, direction="fwd_bwd")
    inputs, eps = make_inputs(problem), torch.finfo(getattr(torch, dtype)).eps
    exact, naive = reference(problem, inputs).tensors(), naive_yardstick(problem, inputs).tensors()
    for name in ("out", "dq", "dk", "dv"):
        assert eps / 100 < (naive[name].double() - exact[name]).abs().max() < 16 * eps


def test_memory_stays_bounded_by_the_chunk(monkeypatch):
    """No score tensor may have more than the entries of a chunk, or of one row of all heads."""
    seen = []
    weights = module._weights

    def spy(q, k, *rest):
        result = weights(q, k, *rest)
        seen.append(result[0].numel())
        return result

    monkeypatch.setattr(module, "_weights", spy)
    monkeypatch.setattr(module, "CHUNK_ENTRIES", 1 << 10)
    problem = Problem(num_heads=2, seqlen=128, head_dim=4)
    reference(problem, make_inputs(problem))
    assert max(seen) <= 1 << 10
    assert sum(seen) == problem.all_pairs


def test_keys_that_no_row_of_a_chunk_may_see_are_never_looked_at(monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ENTRIES", 64 * 256)
    problem = Problem(num_heads=1, seqlen=256, head_dim=4, mask="causal")
    pairs = sum(
        (c.rows.stop - c.rows.start) * (c.keys.stop - c.keys.start)
        for c in module._chunks(problem, torch.device("cpu"))
    )
    assert problem.attended_pairs < pairs < 0.7 * problem.all_pairs
