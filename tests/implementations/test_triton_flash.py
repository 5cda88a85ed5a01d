"""Our Triton kernels in the interpreter: what the registry's own tests do not ask."""

from __future__ import annotations

import itertools
import math
import mmap
import random

import pytest
import torch

from bench import masks
from bench.case import Case
from bench.certificate import attend_with
from bench.clocks import Block
from bench.errors import Unavailable, Unsupported
from bench.gate import score_setting
from bench.implementation import AttentionInputs, Untimed, implementations, refusal
from bench.inputs import make_inputs
from bench.numerics import agree, failure_reason
from bench.problem import Problem
from bench.reference import naive_yardstick, reference
from bench.rung import Rung, Setting
from bench.timing import SamplingPlan

pytest.importorskip("triton", reason="Triton ships for Linux alone")
if torch.cuda.is_available():
    pytest.skip("the kernels of this process are compiled, see test_triton_flash_gpu.py", allow_module_level=True)

import triton.language as tl

import implementations.triton_flash as package
from implementations.triton_flash import autotune, forward, launch, tiles
from implementations.triton_flash.launch import Mask, run_backward, run_forward
from implementations.triton_flash.masking import visibility
from implementations.triton_flash.ops import attention
from implementations.triton_flash.tuning import Blocks

MEMBER = implementations.get("triton_flash")
MASKS = [
    "full",
    "causal",
    "sliding_window(9)",
    "causal & padding(lengths=[70, 0], side=left)",
    "document(5) & padding(0.5)",
    "prefix_lm(30) & padding(lengths=[60, 77])",
]


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors this small gain nothing from threads, which wait for one another on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def compute(problem, inputs=None):
    """Every tensor of a ``fwd_bwd`` problem, by name."""
    inputs = inputs or make_inputs(problem)
    q, k, v = (tensor.detach().clone().requires_grad_() for tensor in (inputs.q, inputs.k, inputs.v))
    output = MEMBER.prepare(problem, AttentionInputs(q, k, v, inputs.dout)).run()
    dq, dk, dv = torch.autograd.grad(output.out, (q, k, v), inputs.dout)
    return {"out": output.out.detach(), "lse": output.lse.detach(), "dq": dq, "dk": dk, "dv": dv}


def judged(problem, inputs=None):
    inputs = inputs or make_inputs(problem)
    return agree(problem, reference(problem, inputs), naive_yardstick(problem, inputs), compute(problem, inputs))


def use_blocks(monkeypatch, block_m, block_n):
    """Blocks of these sizes for every kernel."""
    for direction in ("fwd", "split", "bwd_keys", "bwd_queries"):
        monkeypatch.setitem(launch.TRIED, direction, Blocks(block_m, block_n, 1, 1))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("block_m", "block_n"), [(16, 16), (16, 64), (32, 16)])
def test_block_sizes_change_no_result(mask, block_m, block_n, monkeypatch):
    use_blocks(monkeypatch, block_m, block_n)
    problem = Problem(
        batch_size=2, num_heads_q=4, num_heads_kv=2, seqlen=77, head_dim=8, mask=mask, direction="fwd_bwd"
    )
    agreement = judged(problem)
    assert agreement.passed, failure_reason(agreement)


def test_a_block_of_keys_that_no_query_of_a_block_sees_is_not_read(monkeypatch):
    """NaN in it would survive its weight of 0."""
    use_blocks(monkeypatch, 16, 16)
    problem = Problem(num_heads=1, seqlen=96, head_dim=16, mask="sliding_window(20)", direction="fwd_bwd")
    inputs = make_inputs(problem)
    inputs.k[:, :, :16] = inputs.v[:, :, :16] = math.nan
    got = compute(problem, inputs)
    # Keys 16 on are seen by queries up to 35; from 48 on a block of queries starts behind all that.
    assert got["out"][:, :, 48:].isfinite().all()
    assert got["dq"][:, :, 48:].isfinite().all()
    inputs = make_inputs(problem)
    inputs.q[:, :, 64:] = inputs.dout[:, :, 64:] = math.nan
    got = compute(problem, inputs)
    assert got["dk"][:, :, :32].isfinite().all() and got["dv"][:, :, :32].isfinite().all()


@pytest.mark.parametrize(("mask", "masked"), [("full", 0), ("causal", 4), ("sliding_window(20)", 1 + 2 + 3 + 3)])
def test_blocks_that_are_seen_whole_skip_the_mask_and_invisible_ones_are_not_visited(mask, masked, monkeypatch):
    """64 queries and keys in blocks of 16: under ``causal`` 4 of 10 visited blocks lie on the diagonal."""
    use_blocks(monkeypatch, 16, 16)
    seen, own = [], forward.hide
    monkeypatch.setattr(forward, "hide", lambda *args: (seen.append("masked"), own(*args))[1])
    problem = Problem(num_heads=1, seqlen=64, head_dim=16, mask=mask)
    inputs = make_inputs(problem)
    MEMBER.prepare(problem, inputs).run()
    assert seen.count("masked") == masked


@pytest.mark.parametrize("scale", [1e300, 1e30, 1e9, 1e-30, 1e-300, 0.0, -1e30])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_any_finite_scale_gives_equal_scores_equal_weights(scale, dtype):
    """A fused multiply-add of scores and scale would leave a residual that overflows from scores of 4e9 on."""
    element = getattr(torch, dtype)
    q, k = torch.ones(1, 1, 2, 16, dtype=element), torch.ones(1, 1, 20, 16, dtype=element)
    v = torch.arange(20.0).to(element).view(1, 1, 20, 1).requires_grad_()
    out, lse = attention(q, k, v, scale, Mask(right=18))
    assert out.flatten().tolist() == pytest.approx([9.0, 9.5], rel=2**-8)
    (dv,) = torch.autograd.grad(out[:, :, 1:].sum(), v)
    assert dv.flatten().tolist() == pytest.approx([0.05] * 20, rel=2**-8)
    if abs(scale) < 1e30:
        assert lse.flatten().tolist() == pytest.approx([scale * 16 + math.log(19), scale * 16 + math.log(20)], rel=1e-6)


@pytest.mark.parametrize("scale", [1e300, -1e300])
def test_a_scale_beyond_float32_leaves_gradients_of_zero_at_zero(scale):
    """A lone key has the weight 1 whatever its score is; infinity times its gradient of 0 would be NaN."""
    q, k = (torch.ones(1, 1, 1, 16).requires_grad_() for _ in range(2))
    v = torch.ones(1, 1, 1, 4)
    out, _ = attention(q, k, v, scale)
    assert all(not gradient.any() for gradient in torch.autograd.grad(out.sum(), (q, k)))


# bfloat16 in the interpreter.


def bfloat16_problem():
    return Problem(num_heads=1, seqlen=40, head_dim=16, dtype="bfloat16", mask="causal", direction="fwd_bwd")


@tiles.kernel
def multiply(a_ptr, b_ptr, out_ptr):
    rows = tl.arange(0, 16)
    grid = rows[:, None] * 16 + rows[None, :]
    product = tl.dot(tl.load(a_ptr + grid), tl.load(b_ptr + grid), tl.full([16, 16], 0.0, tl.float32))
    tl.store(out_ptr + grid, product)


def test_bfloat16_is_right_exactly_because_the_interpreters_fault_is_worked_around(monkeypatch):
    """Dropping the workaround fails the first half; the second shows that the first would notice."""
    agreement = judged(bfloat16_problem())
    assert agreement.passed, failure_reason(agreement)
    a, b = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    out = torch.empty(16, 16)
    multiply[(1,)](a, b, out)
    fault_persists = not torch.allclose(out, a.float() @ b.float(), rtol=1e-3, atol=1e-3)
    monkeypatch.setattr(tiles, "UPCAST", False)
    assert judged(bfloat16_problem()).passed != fault_persists


@tiles.kernel
def convert(x_ptr, out_ptr):
    index = tl.arange(0, 64)
    tl.store(out_ptr + index, tiles.round_to(tl.load(x_ptr + index), tl.bfloat16).to(tl.float32))


def test_float32_is_rounded_to_bfloat16_as_a_device_rounds_it():
    """To nearest, ties to even, over a carry into the exponent; the interpreter itself cuts off."""
    edges = [1.0, 1 + 2**-8, 1 + 3 * 2**-8, 2 - 2**-9, -1.99999, 3e38, 0.0, -0.0, math.inf, -math.inf, 2**-120]
    x = torch.cat([torch.tensor(edges), torch.randn(64 - len(edges), generator=torch.Generator().manual_seed(0))])
    out = torch.empty(64)
    convert[(1,)](x, out)
    assert torch.equal(out, x.to(torch.bfloat16).float())


# Few queries, long keys.


@pytest.mark.parametrize("mask", ["causal", "padding(lengths=[600, 0])", "sliding_window(40)"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_split_keys_are_joined_to_what_one_program_computes(mask, dtype, monkeypatch):
    problem = Problem(
        batch_size=2, num_heads_q=4, num_heads_kv=2, seqlen_q=3, seqlen_k=600, head_dim=16, mask=mask, dtype=dtype
    )
    inputs = make_inputs(problem)
    prepared = MEMBER.prepare(problem, inputs)
    assert prepared.notes["splits"] == "3"
    split = prepared.run()
    monkeypatch.setattr(launch, "num_splits", lambda *_: 1)
    whole = MEMBER.prepare(problem, inputs).run()
    torch.testing.assert_close(split.lse, whole.lse, rtol=1e-6, atol=1e-6)
    # Weights are rounded relative to the maximum of a share, or of the whole.
    torch.testing.assert_close(split.out, whole.out, rtol=1e-5, atol=1e-6 if dtype == "float32" else 2**-9)
    agreement = judged(problem.model_copy(update={"direction": "fwd_bwd"}))
    assert agreement.passed, failure_reason(agreement)


def test_split_keys_hold_equal_huge_scores():
    """Joined through the rounded LSE, weights of 1e8 would be wrong by more than themselves."""
    q, k = torch.full((1, 1, 1, 4), 1e4), torch.full((1, 1, 700, 4), 1e4)
    out, _ = attention(q, k, torch.arange(700.0).view(1, 1, 700, 1), 1.0)
    assert out.item() == pytest.approx(349.5)


# Shapes.


@pytest.mark.parametrize(("seqlen_q", "seqlen_k", "width"), [(0, 5, 4), (5, 0, 4), (3, 5, 0)])
def test_dimensions_of_length_zero_launch_nothing(seqlen_q, seqlen_k, width, monkeypatch):
    monkeypatch.setattr(launch, "forward", None)
    monkeypatch.setattr(launch, "backward", None)
    q, k, v = torch.randn(2, 2, seqlen_q, 4), torch.randn(2, 2, seqlen_k, 4), torch.randn(2, 2, seqlen_k, width)
    out, lse, stats = run_forward(q, k, v, 1.0, Mask(), True)
    assert out.shape == (2, 2, seqlen_q, width) and lse.shape == (2, 2, seqlen_q)
    assert not out.any() and (lse == -math.inf).all()
    assert not any(t.any() for t in run_backward(out, None, q, k, v, out, stats, 1.0, Mask()))


def test_rows_of_one_tile_further_apart_than_32_bits_are_read_right():
    """Each stride fits 32 bits, and 64 of them do not; memory between the rows is reserved and never touched."""
    distance, count = 2**26, 64
    reserve = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE, which Python 3.11 does not name
    near = torch.randn(1, 1, count, 16, generator=torch.Generator().manual_seed(0)).to(torch.float16)
    with mmap.mmap(-1, (distance * count + 16) * 2, flags=reserve) as memory:
        far = torch.frombuffer(memory, dtype=torch.float16).as_strided(near.shape, (0, 0, distance, 1))
        far.copy_(near)
        out, _ = attention(near, far, far)
        del far
    assert torch.equal(out, attention(near, near, near)[0])


def test_items_and_heads_beyond_65535_are_one_axis_of_the_grid(monkeypatch):
    grids = []

    class Recorded:
        def __getitem__(self, grid):
            grids.append(grid)
            return lambda *args, **options: None

    monkeypatch.setattr(forward, "attention_forward", Recorded())
    q = torch.zeros(70_000, 2, 17, 1)
    run_forward(q, q, q, 1.0, Mask(), False)
    assert grids == [(70_000 * 2,)]


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_both_layouts_are_computed_and_returned_as_given(layout):
    problem = Problem(batch_size=2, num_heads_q=4, num_heads_kv=2, seqlen_q=9, seqlen_k=12, head_dim=8, head_dim_v=4)
    inputs = make_inputs(problem, layout)
    out, lse = attention(inputs.q, inputs.k, inputs.v, layout=layout)
    exact = reference(problem, make_inputs(problem))
    assert out.is_contiguous()
    logical = out if layout == "bhsd" else out.transpose(1, 2)
    torch.testing.assert_close(logical.double(), exact.out, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse.double(), exact.lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", ["full", "causal_top_left", "prefix_lm(3)", "document(2) & sliding_window(2)"])
def test_masks_with_one_range_of_keys_per_query_are_taken(mask):
    assert MEMBER.unsupported(Problem(seqlen=8, mask=mask), "cpu") is None


class Striped(masks.Mask):
    """Every second key: no range."""

    name = "striped"

    def keep(self, batch, head, q_idx, k_idx, shape, tables):
        return (k_idx % 2 == 0) & (q_idx >= 0)

    @property
    def spec(self):
        return "striped"


def test_a_mask_with_holes_is_refused_with_its_name():
    problem = Problem(seqlen=8, mask=Striped())
    assert "striped" in MEMBER.unsupported(problem, "cpu")
    with pytest.raises(Unsupported, match="striped"):
        MEMBER.prepare(problem, make_inputs(problem))


def test_ranges_seen_from_keys_are_those_seen_from_queries():
    problem = Problem(batch_size=2, seqlen_q=9, seqlen_k=12, mask="prefix_lm(3) & padding(lengths=[7, 12])")
    found = visibility(problem)
    for item, i, j in itertools.product(range(2), range(9), range(12)):
        from_query = found.key_ranges[0, item, i] <= j < found.key_ranges[1, item, i]
        from_key = found.query_ranges[0, item, j] <= i < found.query_ranges[1, item, j]
        assert from_query == from_key == (j < (7, 12)[item] and (j < 3 or j <= i + 3))


# The gate, held against our kernels instead of the computation that mutants are made of.


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_mutant_stands_out_from_our_kernels(dtype):
    fields = {"batch_size": 2, "num_heads_q": 4, "num_heads_kv": 2, "seqlen": 160, "direction": "bwd", "dtype": dtype}
    problem = Problem(**fields, mask="causal & padding(lengths=[150, 40], side=left)")
    scores = score_setting(problem, None, correct=attend_with(MEMBER, "cpu"))
    counted = [score for score in scores if not score.same]
    assert len(counted) > 10
    assert [score.mutant for score in counted if not score.caught_by] == []
    assert min(score.separation for score in counted) > 10


# What it says of itself.


def test_a_search_for_blocks_is_timed_and_one_that_is_remembered_takes_nothing(tmp_path):
    path, before = tmp_path / "cache.json", len(autotune.SEARCHES)
    for _ in range(2):
        autotune.best("key", [Blocks(64, 32, 4, 2)], lambda blocks: 1.0, path)
    assert len(autotune.SEARCHES) == before + 1
    assert autotune.SEARCHES[-1] >= 0


def test_it_is_never_timed_on_a_cpu():
    assert isinstance(MEMBER, Untimed)
    assert "interpreter" in MEMBER.untimed(Problem(seqlen=8), "cpu")
    assert MEMBER.untimed(Problem(seqlen=8), "cuda") is None


def test_a_sweep_that_times_records_it_as_verified_with_the_reason():
    """The clock is None: whoever asked it for a time would fail."""

    class Clock:
        name = "none"

        def time_block(self, block, calls):
            """The first call is the one that is verified; no other may come."""
            assert calls == 1
            block()
            return Block(ns=0, cpu_ns=None)

    setting = Setting(
        device="cpu",
        device_name="stub",
        clock=Clock(),
        probe=None,
        plan=SamplingPlan(),
        process=0,
        ceilings=None,
        rng=random.Random(0),
        overhead_ns=0,
        calls=None,
        other_clocks=(),
        gpus=(),
        energy=False,
        announce=lambda _: None,
    )
    problem = Problem(num_heads=1, seqlen=8, head_dim=8)
    ((_, record),) = Rung(setting, 0, [Case(problem, "triton_flash")]).run()
    assert (record.status, record.measurement) == ("verified", None)
    assert "interpreter" in record.reason
    assert record.agreement.passed


def test_refusals_name_what_is_too_wide_or_takes_too_long():
    assert "300" in MEMBER.unsupported(Problem(seqlen=8, head_dim=300), "cuda")
    long = Problem(seqlen=32768, num_heads=4)
    status, reason = refusal(MEMBER, long, "cpu")
    assert status == "unavailable" and "needs a GPU" in reason and "interpreter" in reason
    assert refusal(MEMBER, long, "cuda") is None


def test_without_triton_it_is_unavailable_and_says_so(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(package, "import_module", missing)
    with pytest.raises(Unavailable, match="needs triton"):
        MEMBER.version()


def test_notes_name_the_blocks_of_every_kernel():
    problem = Problem(seqlen=8, direction="fwd_bwd")
    notes = MEMBER.prepare(problem, make_inputs(problem)).notes
    assert {"fwd", "bwd_keys", "bwd_queries"} <= set(notes)
    assert notes["blocks"] == "interpreter"
    assert notes["precision"] == "ieee"
