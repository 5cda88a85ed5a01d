"""Public cases O16 to O18: strides that are not those of a contiguous tensor, and offsets and grids that overflow."""

from __future__ import annotations

import math
import mmap

import pytest
import torch
from members import (
    DTYPES,
    QUICK,
    RefusedError,
    TableMask,
    attend,
    judge,
    problem_of,
    weights,
    weights_unless_structureless,
)

from bench.calls import differentiable, make_step
from bench.errors import Unsupported
from bench.implementation import AttentionInputs, dense_mask, implementations, refusal
from bench.inputs import make_inputs
from bench.problem import Problem

BATCH, SEQLEN, HEADS, WIDTH = 2, 7, 2, 4
SIZES = {"batch_size": BATCH, "num_heads": HEADS, "seqlen": SEQLEN, "head_dim": WIDTH}


def fused(tensors):
    """Slices of one buffer ``(batch, seqlen, 3, heads, width)``, as a fused projection leaves them."""
    buffer = torch.stack([tensor.transpose(1, 2) for tensor in tensors], dim=2).contiguous()
    return [buffer[:, :, index].transpose(1, 2) for index in range(3)]


def width_outermost(tensors):
    """Transposed: the last axis has the stride of the length."""
    return [tensor.transpose(-1, -2).contiguous().transpose(-1, -2) for tensor in tensors]


def every_second(tensors):
    """Every second element of a buffer twice as wide."""
    return [
        torch.stack([tensor, torch.full_like(tensor, math.nan)], dim=-1).flatten(-2)[..., ::2] for tensor in tensors
    ]


def every_second_row(tensors):
    """Every second position of a buffer twice as long."""
    longer = [torch.stack([tensor, torch.full_like(tensor, math.nan)], dim=3).flatten(2, 3) for tensor in tensors]
    return [tensor[:, :, ::2] for tensor in longer]


def seqlen_first(tensors):
    """Stored as ``(seqlen, batch, heads, width)``."""
    return [tensor.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3) for tensor in tensors]


def one_head_for_all(tensors):
    """k and v of one head, expanded: stride 0 over heads."""
    return [tensors[0], *(tensor[:, :1].expand(-1, HEADS, -1, -1) for tensor in tensors[1:])]


def one_item_for_all(tensors):
    """k and v of one batch item, expanded: stride 0 over the batch."""
    return [tensors[0], *(tensor[:1].expand(BATCH, -1, -1, -1) for tensor in tensors[1:])]


LAYOUTS = [
    fused,
    width_outermost,
    every_second,
    every_second_row,
    seqlen_first,
    one_head_for_all,
    one_item_for_all,
]


def on_the_tensors_themselves(member, problem, tensors, dout):
    """As ``members.attend``, but without making anything contiguous."""
    inputs = differentiable(problem, AttentionInputs(*tensors, dout))
    prepared = implementations.get(member).prepare(problem, inputs)
    return make_step(prepared, problem, inputs, implementations.get(member).layout).run().tensors()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", ["full", "causal", "padding(lengths=[5, 3])"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("member", QUICK)
def test_o16_strided_inputs_are_read_as_what_they_are(member, layout, mask, dtype):
    """Forward and backward, with the upstream gradient of ``out.sum()``, whose strides are all 0."""
    problem = Problem(**SIZES, mask=mask, dtype=dtype, direction="fwd_bwd")
    drawn = make_inputs(problem)
    strided = layout([drawn.q, drawn.k, drawn.v])
    packed = [tensor.contiguous() for tensor in strided]
    assert any(not tensor.is_contiguous() for tensor in strided)
    everywhere_one = torch.ones((), dtype=strided[0].dtype).expand(drawn.dout.shape)
    assert everywhere_one.stride() == (0, 0, 0, 0)
    try:
        got = on_the_tensors_themselves(member, problem, strided, everywhere_one)
    except Unsupported as refused:  # PyTorch's flash kernel wants the last stride to be 1, and says so
        assert member == "sdpa_flash" and layout in (width_outermost, every_second)
        assert "last dimension of the input to have stride 1" in str(refused)
        return
    wanted = on_the_tensors_themselves(member, problem, packed, torch.ones_like(drawn.dout))
    for name, tensor in wanted.items():
        torch.testing.assert_close(got[name], tensor, rtol=0, atol=1e-6 if dtype == "float32" else 0.02)


@pytest.mark.parametrize("member", QUICK)
def test_o16_the_gradient_of_a_sum_is_one_for_every_value(member):
    """Equal weights, v = identity: each key receives 4 times 1/4 in each column."""
    zeros, eye = torch.zeros(1, 1, 4, 4), torch.eye(4)[None, None]
    problem = problem_of(zeros, zeros, eye, direction="fwd_bwd")
    one = torch.ones(()).expand(1, 1, 4, 4)
    got = on_the_tensors_themselves(member, problem, [zeros, zeros.clone(), eye], one)
    torch.testing.assert_close(got["dv"], torch.ones_like(eye))


class StridedMask(TableMask):
    """A table that lies in memory in another way."""

    def __init__(self, rows, way):
        super().__init__(rows)
        table = self.rows
        self.rows = {
            "transposed": lambda: table.t().contiguous().t(),
            "every second column": lambda: torch.stack([table, ~table], dim=-1).flatten(-2)[:, ::2],
            "expanded": lambda: table[:1].expand(4, 4),
        }[way]()


@pytest.mark.parametrize("way", ["transposed", "every second column", "expanded"])
@pytest.mark.parametrize("member", QUICK)
def test_o16_a_strided_mask_hides_what_it_says(member, way):
    rows = [
        [True, False, True, True],
        [True, True, False, True],
        [False, True, True, False],
        [True, False, False, True],
    ]
    mask = StridedMask(rows, way)
    problem = Problem(num_heads=1, seqlen=4, mask=mask)
    assert dense_mask(problem, "cpu").is_contiguous()
    plain = weights_unless_structureless(member, TableMask(mask.rows.tolist()), 4, 4)
    if plain is None:
        return
    assert torch.equal(weights(member, mask, 4, 4)["out"], plain["out"])
    assert torch.equal(plain["out"][0, 0] > 0, mask.rows)


@pytest.mark.parametrize("name", implementations.names())
def test_o16_inputs_arrive_in_the_declared_layout_so_a_copy_would_be_timed(name):
    member = implementations.get(name)
    inputs = make_inputs(Problem(**SIZES, direction="bwd"), member.layout)
    assert all(getattr(inputs, field).is_contiguous() for field in ("q", "k", "v", "dout"))
    axes = (BATCH, HEADS, SEQLEN, WIDTH) if member.layout == "bhsd" else (BATCH, SEQLEN, HEADS, WIDTH)
    assert inputs.q.shape == axes


# O17: element offsets beyond 2**31.


INT32_MAX = 2**31 - 1


def largest_offset(shape, strides):
    """Offset of the last element, in elements."""
    return sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


@pytest.mark.parametrize(
    ("shape", "strides", "fits"),
    [
        # q of a fused projection of 56 heads of width 128: a position is 3 * 56 * 128 elements long
        ((1, 56, 99_865, 128), (0, 128, 21_504, 1), True),
        ((1, 56, 99_866, 128), (0, 128, 21_504, 1), False),
        # the whole buffer, or v counted from the beginning of q
        ((1, 3 * 56, 99_864, 128), (0, 128, 21_504, 1), True),
        ((1, 3 * 56, 99_865, 128), (0, 128, 21_504, 1), False),
        ((24, 16, 12_288, 512), (16 * 12_288 * 512, 12_288 * 512, 512, 1), False),
        ((8, 28, 4096, 4096), (28 * 4096**2, 4096**2, 4096, 1), False),
        ((1, 1, 262_144, 8192), (0, 0, 8192, 1), True),
        ((1, 1, 262_145, 8192), (0, 0, 8192, 1), False),
    ],
)
def test_o17_which_published_tensors_fit_32_bit_offsets(shape, strides, fits):
    assert (largest_offset(shape, strides) <= INT32_MAX) == fits


def test_o17_counts_of_such_problems_are_exact():
    """Nothing is allocated; Python's integers do not wrap, and neither do sums over rows."""
    scores = Problem(batch_size=8, num_heads=28, seqlen=4096)
    assert scores.all_pairs == 3_758_096_384 > INT32_MAX
    dense = Problem(batch_size=24, num_heads=16, seqlen=12_288, head_dim=512, dtype="bfloat16")
    assert dense.output_bytes == 2 * 2_415_919_104
    long = Problem(num_heads=1, seqlen=1 << 20, mask="causal")
    assert long.attended_pairs == (1 << 20) * ((1 << 20) + 1) // 2
    assert long.flop == 2 * long.attended_pairs * 128
    assert implementations.get("naive").predicted_peak_bytes(scores) > 8 * scores.all_pairs


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("member", QUICK)
def test_o17_rows_further_apart_than_32_bits_are_read_right(member, dtype):
    """Two keys 2**31 elements apart, in memory that is reserved and, but for those two rows, never touched."""
    element = getattr(torch, dtype)
    distance = 2**31 + 16
    reserve = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE, which Python 3.11 does not name
    with mmap.mmap(-1, (distance + 64) * element.itemsize, flags=reserve) as memory:
        far = torch.frombuffer(memory, dtype=element).as_strided((1, 1, 2, 16), (0, 0, distance, 1))
        near = torch.randn(3, 1, 1, 2, 16, generator=torch.Generator().manual_seed(0)).to(element)
        far.copy_(near[1])
        problem = problem_of(near[0], far, near[2], dtype=dtype)
        prepared = implementations.get(member).prepare(problem, AttentionInputs(near[0], far, near[2]))
        out = prepared.run().out.clone()
        del prepared, far
    assert judge(problem, AttentionInputs(near[0], near[1], near[2]), {"out": out}).passed
    # A wrapped offset would have read the first row twice, or nothing.
    twice = AttentionInputs(near[0], near[1][:, :, :1].expand(-1, -1, 2, -1), near[2])
    assert not judge(problem, twice, {"out": out}).passed


@pytest.mark.gpu
@pytest.mark.parametrize("seqlen", [99_865, 99_866])
@pytest.mark.parametrize("member", implementations.names())
def test_o17_a_fused_projection_beyond_32_bits_on_a_gpu(member, seqlen):
    """The last 16 queries of 56 heads against all keys; slices of the fused buffer against contiguous copies."""
    if "cuda" not in implementations.get(member).devices or member == "naive_compiled":
        return
    buffer = torch.randn(1, seqlen, 3, 56, 128, dtype=torch.bfloat16, device="cuda")
    q, k, v = (buffer[:, :, index].transpose(1, 2) for index in range(3))
    q = q[:, :, -16:]
    problem = problem_of(q, k, v, dtype="bfloat16")
    if implementations.get(member).unsupported(problem, "cuda") is not None:
        return
    try:
        outs = [
            implementations.get(member).prepare(problem, AttentionInputs(*tensors)).run().out
            for tensors in ([q, k, v], [tensor.contiguous() for tensor in (q, k, v)])
        ]
    except Unsupported as refused:
        assert len(str(refused)) > 10, "a refusal says why"
        return
    torch.testing.assert_close(outs[0], outs[1], rtol=0, atol=2**-8)


# O18: more than 65,535 items or heads.


def lanes(batch_size, num_heads):
    """q = k = 0 and values that tell every item and head from its neighbours: the output is v."""
    zeros = torch.zeros(batch_size, num_heads, 4, 8)
    number = torch.arange(batch_size * num_heads).remainder(251).view(batch_size, num_heads, 1, 1)
    return problem_of(zeros, zeros, zeros, dtype="float16"), zeros, number.expand_as(zeros).float()


@pytest.mark.parametrize(("batch_size", "num_heads"), [(10_922, 6), (10_923, 6), (1024, 64), (1, 65_536)])
@pytest.mark.parametrize("member", QUICK)
def test_o18_every_item_and_head_is_computed(member, batch_size, num_heads):
    problem, zeros, v = lanes(batch_size, num_heads)
    refused = refusal(implementations.get(member), problem, "cpu")
    if refused is not None:  # an interpreter would take minutes: then it has to be right on fewer
        assert refused[0] == "unavailable" and "GPU" in refused[1]
        problem, zeros, v = lanes(min(batch_size, 9), min(num_heads, 9))
    assert torch.equal(attend(member, problem, zeros, zeros, v)["out"].float(), v)


@pytest.mark.gpu
@pytest.mark.parametrize(("batch_size", "num_heads"), [(65_535, 8), (65_536, 8), (10_923, 6), (1024, 64)])
@pytest.mark.parametrize("member", implementations.names())
def test_o18_launch_grids_on_a_gpu_leave_nothing_out_or_refuse(member, batch_size, num_heads):
    """Memory that was freed full of NaN is what an output that is never written shows."""
    if "cuda" not in implementations.get(member).devices:
        return
    problem, zeros, v = lanes(batch_size, num_heads)
    poison = [torch.full(v.shape, math.nan, dtype=torch.float16, device="cuda") for _ in range(4)]
    del poison
    try:
        out = attend(member, problem, zeros, zeros, v, device="cuda")["out"]
    except (RefusedError, RuntimeError) as refused:
        assert len(str(refused)) > 10, "a refusal says why"
        return
    assert torch.equal(out.float(), v)
