"""Every available implementation on every edge problem: right within the derived tolerance, or Unsupported.

The list of members is the registry, so that a new implementation is tested without an edit here. Those in
``COMPILED`` take seconds per problem to compile; they get the short list.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch

from bench.calls import differentiable, make_step
from bench.errors import Unavailable, Unsupported
from bench.implementation import AttentionInputs, implementations, refusal
from bench.inputs import make_inputs, to_layout
from bench.masks import Mask
from bench.numerics import agree, failure_reason
from bench.probes import probe_for
from bench.problem import Problem
from bench.reference import naive_yardstick, reference

COMPILED = {"flex", "naive_compiled"}


def available(member):
    try:
        member.version()
    except Unavailable:
        return False
    return "cpu" in member.devices


RUNNABLE = [name for name, member in implementations.items() if available(member)]
QUICK = [name for name in RUNNABLE if name not in COMPILED]
MEMBERS = [pytest.param(name, marks=pytest.mark.slow) if name in COMPILED else name for name in RUNNABLE]

EDGES = {
    "length 1": {"seqlen": 1},
    "length 127": {"seqlen": 127, "mask": "causal"},
    "length 129": {"seqlen": 129, "mask": "causal"},
    "several blocks": {"seqlen": 1025, "num_heads": 1, "mask": "causal"},
    "more keys": {"seqlen_q": 33, "seqlen_k": 300, "mask": "causal"},
    "more queries": {"seqlen_q": 300, "seqlen_k": 33, "mask": "causal"},
    "top left, more keys": {"seqlen_q": 33, "seqlen_k": 300, "mask": "causal_top_left"},
    "top left, more queries": {"seqlen_q": 300, "seqlen_k": 33, "mask": "causal_top_left"},
    "decode": {"seqlen_q": 1, "seqlen_k": 600, "mask": "causal"},
    "one kv head": {"seqlen": 65, "num_heads_q": 4, "num_heads_kv": 1, "mask": "causal"},
    "grouped heads": {
        "seqlen": 65,
        "num_heads_q": 6,
        "num_heads_kv": 2,
        "mask": "padding(0.5)",
        "batch_size": 2,
    },
    "head_dim 80": {"seqlen": 65, "head_dim": 80},
    "head_dim 1": {"seqlen": 65, "head_dim": 1},
    "head_dim 3": {"seqlen": 65, "head_dim": 3},
    "narrow values": {"seqlen_q": 33, "seqlen_k": 65, "head_dim": 48, "head_dim_v": 32},
    "wide values": {"seqlen": 65, "head_dim": 8, "head_dim_v": 16},
    "empty rows": {"seqlen": 40, "batch_size": 2, "mask": "causal & padding(lengths=[35, 0], side=left)"},
    "nothing visible": {"seqlen": 20, "batch_size": 2, "mask": "padding(lengths=[0, 0])"},
    "large logits": {"seqlen": 65, "scale": 50.0},
    "scale 0": {"seqlen": 65, "scale": 0.0, "mask": "causal"},
    "negative scale": {"seqlen": 65, "scale": -1.0, "mask": "causal"},
    "float16": {"seqlen": 129, "dtype": "float16", "mask": "causal"},
    "bfloat16": {"seqlen": 129, "dtype": "bfloat16", "mask": "causal"},
    "bfloat16 grouped": {
        "seqlen": 129,
        "dtype": "bfloat16",
        "num_heads_q": 4,
        "num_heads_kv": 2,
        "batch_size": 2,
    },
    "sliding window": {"seqlen_q": 300, "seqlen_k": 400, "mask": "sliding_window(50)"},
    "prefix": {"seqlen": 300, "mask": "prefix_lm(70)"},
    "documents": {"seqlen": 300, "mask": "document(7)"},
    "window in documents": {"seqlen": 300, "mask": "document(3) & sliding_window(20)"},
    "outliers": {"seqlen": 129, "distribution": "outlier"},
    "peaked": {"seqlen": 129, "distribution": "peaked", "mask": "causal"},
    "uniform": {"seqlen": 129, "distribution": "uniform"},
}
SHORT = ["more keys", "grouped heads", "empty rows", "bfloat16"]


class RefusedError(Exception):
    """The implementation says that it cannot compute the problem."""


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tensors this small gain nothing from threads, which wait for one another on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def truth(problem):
    """Inputs, reference and yardstick, computed once for all members."""
    inputs = make_inputs(problem)
    return inputs, reference(problem, inputs), naive_yardstick(problem, inputs)


@cache
def probe():
    return probe_for("cpu")[0]


def step_of(name, problem, inputs=None):
    """The step of ``problem``; inputs given in the logical order are laid out as the implementation wants."""
    member = implementations.get(name)
    refused = refusal(member, problem, "cpu")
    if refused is not None:
        raise RefusedError(refused[1])
    inputs = inputs or make_inputs(problem)
    fields = {n: getattr(inputs, n) for n in ("q", "k", "v", "dout")}
    placed = {n: None if t is None else to_layout(t, member.layout) for n, t in fields.items()}
    leaves = differentiable(problem, AttentionInputs(**placed))
    try:
        return make_step(member.prepare(problem, leaves), problem, leaves, member.layout)
    except Unsupported as error:
        raise RefusedError(str(error)) from error


def attend(name, problem, inputs=None):
    return step_of(name, problem, inputs).run().tensors()


def check(name, fields, direction):
    problem = Problem(**fields, direction=direction)
    inputs, exact, naive = truth(problem)
    try:
        got = attend(name, problem, inputs)
    except RefusedError as refused:
        assert len(str(refused)) > 10, "a refusal says why"
        return
    agreement = agree(problem, exact, naive, got)
    assert agreement.passed, failure_reason(agreement)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", QUICK)
def test_forward_is_right_or_refused(name, edge):
    check(name, EDGES[edge], "fwd")


@pytest.mark.parametrize("edge", [edge for edge in EDGES if edge != "length 1"])
@pytest.mark.parametrize("name", QUICK)
def test_gradients_are_right_or_refused(name, edge):
    check(name, EDGES[edge], "fwd_bwd")


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gradients_of_a_lone_key_vanish(name, dtype):
    """Its weight is 1 whatever q and k are, so dq and dk are 0 up to what float32 cancellation leaves."""
    got = attend(name, Problem(seqlen=1, dtype=dtype, direction="fwd_bwd"))
    assert max(got["dq"].abs().max(), got["dk"].abs().max()) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("edge", SHORT)
@pytest.mark.parametrize("name", sorted(COMPILED & set(RUNNABLE)))
def test_compiled_forward_is_right_or_refused(name, edge):
    check(name, EDGES[edge], "fwd")


def test_no_plain_problem_is_refused_by_a_member_that_should_compute_it():
    """A refusal passes the tests above, so what must not be refused is said here."""
    for name in ("naive", "online_softmax", "sdpa_math", "sdpa_flash", "triton_flash"):
        member = implementations.get(name)
        for fields in EDGES.values():
            problem = Problem(**fields, direction="fwd_bwd")
            other_width = problem.head_dim_v != problem.head_dim
            assert (member.unsupported(problem, "cpu") is not None) == (name == "sdpa_flash" and other_width)


# Cases that people reported against other tools; q = k = 0 and v = identity make the output the weights.


class Uneven(Mask):
    """Visible where a table of rows says so; no structure, so that only ``keep`` is left."""

    name = "uneven"

    def __init__(self, rows, as_integers=False):
        self.rows, self.as_integers = rows, as_integers

    def keep(self, batch, head, q_idx, k_idx, shape, tables):
        rows = np.array(self.rows, dtype=np.int64 if self.as_integers else np.bool_)
        return rows[q_idx, k_idx] if isinstance(q_idx, np.ndarray) else torch.from_numpy(rows)[q_idx, k_idx]

    def structure(self, shape):
        return None

    @property
    def spec(self):
        return "uneven"


def weights(name, mask, seqlen_q=4, seqlen_k=4, **fields):
    """Output for q = k = 0 and v = identity."""
    problem = Problem(num_heads=1, seqlen_q=seqlen_q, seqlen_k=seqlen_k, head_dim=seqlen_k, mask=mask, **fields)
    zeros = torch.zeros(1, 1, seqlen_q, seqlen_k)
    inputs = AttentionInputs(zeros, torch.zeros(1, 1, seqlen_k, seqlen_k), torch.eye(seqlen_k)[None, None])
    if problem.direction != "fwd":
        inputs = AttentionInputs(inputs.q, inputs.k, inputs.v, torch.ones(1, 1, seqlen_q, seqlen_k))
    return attend(name, problem, inputs)


def weights_unless_uneven(name, mask, **fields):
    """As :func:`weights`; None where a member refuses the mask, naming it, but computes the problem without it."""
    try:
        return weights(name, mask, **fields)
    except RefusedError as refused:
        assert mask.spec in str(refused)
    assert_rows(weights(name, "full", **fields)["out"], [Q] * 4)
    return None


def assert_rows(out, rows):
    torch.testing.assert_close(out[0, 0], torch.tensor(rows), rtol=0, atol=1e-6)


ROW_2_EMPTY = [[True] * 4, [True] * 4, [False] * 4, [True] * 4]
Q = [0.25] * 4
NONE = [0.0] * 4


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("as_integers", [False, True])
def test_o01_a_row_without_keys_is_zero_not_nan(name, as_integers):
    """Also for a mask that answers 0 and 1 instead of booleans (O06): it must not be added to the scores."""
    got = weights_unless_uneven(name, Uneven(ROW_2_EMPTY, as_integers), direction="fwd_bwd")
    if got is None:
        return
    assert_rows(got["out"], [Q, Q, NONE, Q])
    assert all(tensor.isfinite().all() for tensor_name, tensor in got.items() if tensor_name != "lse")
    assert not got["dq"][0, 0, 2].any()
    if "lse" in got:
        assert got["lse"][0, 0, 2] == -math.inf


@pytest.mark.parametrize("name", QUICK)
def test_o01_left_padding_under_a_causal_mask_empties_the_first_row(name):
    got = weights(name, "causal & padding(lengths=[3], side=left)")
    third = 1 / 3
    assert_rows(got["out"], [NONE, [0, 1.0, 0, 0], [0, 0.5, 0.5, 0], [0, third, third, third]])


@pytest.mark.parametrize("name", [name for name in QUICK if name != "sdpa_flash"])
@pytest.mark.parametrize("seqlen_k", [3, 8, 64])
@pytest.mark.parametrize("logit", [1e4, 1e6, 1e8])
def test_o02_equal_huge_logits_share_the_gradient_equally(name, seqlen_k, logit):
    """With ``exp(score - lse)`` and a float32 lse, dv is up to ``seqlen_k`` times too large, as in ``sdpa_flash``."""
    problem = Problem(num_heads=1, seqlen_q=1, seqlen_k=seqlen_k, head_dim=4, scale=0.25 * logit, direction="fwd_bwd")
    ones = torch.ones(1, 1, seqlen_k, 4)
    got = attend(name, problem, AttentionInputs(ones[:, :, :1].contiguous(), ones, ones, ones[:, :, :1].contiguous()))
    torch.testing.assert_close(got["dv"] * seqlen_k, ones, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", QUICK)
def test_o03_true_means_attend(name):
    """With the other polarity row 0 would be [0, 1/2, 1/2] and row 2 all zeros, with no NaN to warn."""
    assert_rows(weights(name, "causal", 3, 3)["out"], [[1.0, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]])


@pytest.mark.parametrize("name", QUICK)
def test_o04_both_corners_of_causal_are_what_they_are_called(name):
    assert_rows(weights(name, "causal_top_left", 2, 4)["out"], [[1.0, 0, 0, 0], [0.5, 0.5, 0, 0]])
    assert_rows(weights(name, "causal", 2, 4)["out"], [[1 / 3, 1 / 3, 1 / 3, 0], Q])
    assert_rows(weights(name, "causal_top_left", 1, 16)["out"], [[1.0] + [0.0] * 15])
    assert_rows(weights(name, "causal", 1, 16)["out"], [[1 / 16] * 16])


@pytest.mark.parametrize("name", QUICK)
def test_o05_causal_and_another_mask_intersect(name):
    rows = [[k <= q and k != 2 for k in range(4)] for q in range(4)]
    half = [0.5, 0.5, 0, 0]
    got = weights_unless_uneven(name, Uneven(rows))
    if got is not None:
        assert_rows(got["out"], [[1.0, 0, 0, 0], half, half, [1 / 3, 1 / 3, 0, 1 / 3]])


SIZES = [(1, 1), (1, 20), (5, 7), (17, 129), (33, 65), (192, 192), (513, 1025), (1025, 1025)]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "limit"), [("float32", 2e-6), ("bfloat16", 8e-3)])
def test_o07_odd_lengths_read_nothing_past_the_end(name, size, dtype, limit):
    problem = Problem(num_heads=1, seqlen_q=size[0], seqlen_k=size[1], head_dim=64, dtype=dtype, direction="fwd_bwd")
    inputs, exact, _ = truth(problem)

    def before_nan(tensor):
        buffer = torch.full((tensor.numel() + 4096,), math.nan, dtype=tensor.dtype)
        return buffer[: tensor.numel()].view(tensor.shape).copy_(tensor)

    fenced = AttentionInputs(*(before_nan(t) for t in (inputs.q, inputs.k, inputs.v, inputs.dout)))
    got = attend(name, problem, fenced)
    assert (got["out"].double() - exact.out).abs().max() <= limit
    assert all(tensor.isfinite().all() for tensor in got.values())
    if size == (1, 1):
        assert torch.equal(got["out"], inputs.v)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(
    ("head_dim", "head_dim_v", "wanted"), [(8, 16, 0.9441928), (3, 3, 0.8496745), (1, 1, 0.7310586)]
)
def test_o08_the_scale_follows_the_key_width(name, head_dim, head_dim_v, wanted):
    """Scaling by the value width gives 0.8807971, by a width padded to 4 or 16 0.8175745 or 0.6791787."""
    problem = Problem(num_heads=1, seqlen_q=1, seqlen_k=2, head_dim=head_dim, head_dim_v=head_dim_v)
    first = torch.tensor([1.0, 0.0])[None, None, :, None]
    inputs = AttentionInputs(
        torch.ones(1, 1, 1, head_dim), first.repeat(1, 1, 1, head_dim), first.repeat(1, 1, 1, head_dim_v)
    )
    try:
        out = attend(name, problem, inputs)["out"]
    except RefusedError as refused:
        assert "head_dim_v" in str(refused) and head_dim != head_dim_v
        return
    assert out.shape == (1, 1, 1, head_dim_v)
    torch.testing.assert_close(out, torch.full_like(out, wanted), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", MEMBERS)
def test_o10_a_first_key_block_that_is_masked_for_every_query_leaves_no_nan(name):
    got = weights(name, "padding(lengths=[3], side=left)", 8, 8)
    assert_rows(got["out"], [[0.0] * 5 + [1 / 3] * 3] * 8)


@pytest.mark.parametrize("name", QUICK)
def test_o11_zero_and_negative_scales_under_a_causal_mask(name):
    def run(scale, q, k):
        problem = Problem(num_heads=1, seqlen=3, head_dim=1, mask="causal", scale=scale)
        q, k, v = (torch.tensor(t, dtype=torch.float32)[None, None, :, None] for t in (q, k, [1, 2, 6]))
        return attend(name, problem, AttentionInputs(q, k, v))["out"].flatten().tolist()

    assert run(0.0, [1, 1, 1], [1, 2, 3]) == pytest.approx([1, 1.5, 3])
    assert run(-1.0, [1, 1, 1], [0, math.log(2), 0]) == pytest.approx([1, 4 / 3, 3.2])


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(("heads", "wanted"), [(4, [1, 1, 2, 2]), (6, [1, 1, 1, 2, 2, 2])])
def test_o19_groups_of_heads_are_blocks_not_stripes(name, heads, wanted):
    problem = Problem(num_heads_q=heads, num_heads_kv=2, seqlen=8, head_dim=16)
    zeros = torch.zeros(1, heads, 8, 16)
    v = torch.ones(1, 2, 8, 16) * torch.tensor([1.0, 2.0])[None, :, None, None]
    out = attend(name, problem, AttentionInputs(zeros, zeros[:, :2].contiguous(), v))["out"]
    assert out[0, :, 0, 0].tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mask": "padding(0.5)"},
        {"head_dim_v": 32},
        {"num_heads_q": 4, "num_heads_kv": 1},
        {"scale": 0.0, "mask": "causal"},
        {"dtype": "bfloat16"},
    ],
)
@pytest.mark.parametrize("direction", ["fwd", "bwd", "fwd_bwd"])
def test_o20_the_kernel_that_ran_is_the_one_that_is_named(name, fields, direction):
    """PyTorch falls back to other kernels in silence; a row never holds the time of a kernel not named."""
    member, problem = implementations.get(name), Problem(seqlen=64, direction=direction, **fields)
    try:
        step = step_of(name, problem)
    except RefusedError:
        return
    step.run()
    ran = probe().read(step.run).operators
    if member.expects:
        assert any(wanted in operator for wanted in member.expects for operator in ran), ran
    if name != "sdpa_flash":
        assert not any("flash" in operator for operator in ran), ran
