"""Operators find their stage by name, shape and forward operator; what nobody knows is named."""

from __future__ import annotations

import pytest
from planted_profile import CEILINGS

from bench.problem import Problem
from bench.profiling._names import STAGE_OF, STAGES, kernel_stage
from bench.profiling._operators import CALL, GRADIENT, Kernel, Operand, Operator
from bench.profiling._roofs import Limits
from bench.profiling._stages import described, place
from bench.profiling.torch_profiler import stages_of

PROBLEM = Problem(seqlen=256)
BACK = (CALL, f"{GRADIENT}: BmmBackward0", "BmmBackward0")


def tensor(*sizes, element_bytes=4, distinct=None):
    count = 1
    for size in sizes:
        count *= size
    return Operand(sizes, element_bytes, count if distinct is None else distinct)


def operator(name, *operands, own_ns=1000, within=(CALL,), **fields):
    return Operator(name, own_ns, tuple(operands), within, **fields)


Q, KT = tensor(4, 256, 64), tensor(4, 64, 256)
SCORES, V = tensor(4, 256, 256), tensor(4, 256, 64)
NUMBER = tensor(element_bytes=8)
NAIVE = (
    operator("aten::bmm", Q, KT),
    operator("aten::mul_", SCORES, NUMBER),
    operator("aten::add_", SCORES, tensor(1, 256, 256)),
    operator("aten::_softmax", SCORES),
    operator("aten::bmm", SCORES, V),
)


def stages(operators, problem=PROBLEM, **options):
    return [one.stage for one in place(operators, problem, **options)]


def test_naive_has_the_stages_of_the_theory():
    assert stages(NAIVE) == ["score product", "scale and mask", "scale and mask", "softmax", "value product"]


def test_products_are_told_apart_where_length_and_width_are_equal():
    square = tensor(4, 64, 64)
    blocks = [operator("aten::bmm", square, square)] * 6
    assert stages(blocks, Problem(seqlen=64)) == ["score product", "value product"] * 3


def test_products_are_told_apart_where_values_are_wider():
    problem = Problem(seqlen=256, head_dim=64, head_dim_v=128)
    found = [operator("aten::bmm", Q, KT), operator("aten::bmm", SCORES, tensor(4, 256, 128))]
    assert stages(found, problem) == ["score product", "value product"]


def test_a_product_that_is_not_batched_over_heads_is_a_projection():
    assert stages([operator("aten::addmm", tensor(256), tensor(256, 256), tensor(256, 256))]) == ["projections"]
    assert stages([operator("aten::mm", tensor(256, 256), tensor(256, 768))]) == ["projections"]


def test_heads_that_are_computed_one_by_one_are_no_projections():
    score = operator("aten::mm", tensor(256, 64), tensor(64, 256))
    value = operator("aten::mm", tensor(256, 256), tensor(256, 64))
    assert stages([score, value] * 2) == ["score product", "value product"] * 2


def test_a_gradient_takes_the_stage_of_its_forward_operator():
    forward = [operator("aten::bmm", Q, KT, sequence=3), operator("aten::bmm", SCORES, V, sequence=7)]
    gradients = [
        operator("aten::bmm", tensor(4, 256, 256), V, within=BACK, sequence=7),  # dv: shaped as dq is
        operator("aten::bmm", V, KT, within=BACK, sequence=7),
        operator("aten::bmm", tensor(4, 256, 256), V, within=BACK, sequence=3),
    ]
    wanted = ["value product", "value product", "score product"]
    assert stages([*forward, *gradients]) == ["score product", "value product", *wanted]
    assert stages(gradients, forward=forward) == wanted
    assert {one.half for one in place(gradients, PROBLEM, forward)} == {"backward"}


def test_gradients_by_recomputation_follow_the_order_of_the_theory():
    many = [operator("aten::bmm", Q, KT, sequence=3), operator("aten::bmm", SCORES, V, sequence=3)]
    inner = [operator("aten::baddbmm_", V, SCORES, V, within=BACK, sequence=3)] * 10
    wanted = ["score product", "value product", "value product", "score product", "score product"]
    assert stages([*many, *inner])[2:] == 2 * wanted
    assert set(stages([*many, *inner[:7]])[2:]) == {"other"}, "seven products are no tiles"


def test_a_product_that_is_computed_head_by_head_is_counted_once():
    whole = operator("aten::baddbmm_", V, SCORES, V)
    parts = [operator("aten::addmm_", V, SCORES, V, within=(CALL, whole.name))] * 4
    placed = place([whole, *parts], PROBLEM)
    assert {one.stage for one in placed} == {"value product"}
    assert [one.flop for one in placed] == [2 * 4 * 256 * 256 * 64, 0, 0, 0, 0]


def work_of(found):
    return [(one.flop, one.moved_bytes) for one in found]


def test_an_operator_that_calls_another_of_its_stage_leaves_the_counting_to_that():
    filled = operator("aten::masked_fill", SCORES, tensor(4, 256, 256, element_bytes=1))
    around = (CALL, filled.name)
    parts = [
        operator("aten::clone", SCORES, within=around),
        operator("aten::copy_", SCORES, SCORES, within=(*around, "aten::clone")),
        operator("aten::masked_fill_", SCORES, tensor(4, 256, 256, element_bytes=1), within=around),
    ]
    summed = operator("aten::sum", SCORES)
    again = operator("aten::sum", SCORES, within=(CALL, "aten::sum"))
    pairs = 4 * 256 * 256
    assert work_of(place([filled, *parts, summed, again, summed], PROBLEM)) == [
        (0, 0),
        (0, 0),
        (0, 8 * pairs),
        (pairs, 9 * pairs),
        (0, 0),
        (pairs, 4 * pairs),
        (pairs, 4 * pairs),
    ]


def test_softmax_counts_itself_whatever_it_copies_before():
    copied = operator("aten::copy_", SCORES, SCORES, within=(CALL, "aten::_softmax", "aten::contiguous"))
    found = place([operator("aten::_softmax", SCORES), copied], PROBLEM)
    assert [one.flop for one in found] == [5 * 4 * 256 * 256, 0]


def test_what_is_written_into_is_counted_once_and_in_its_own_width():
    pairs, hidden = 4 * 256 * 256, tensor(4, 256, 256, element_bytes=1)
    for found, stage, moved in (
        (operator("aten::exp", SCORES, SCORES), "softmax", 8 * pairs),
        (operator("aten::mul", SCORES, NUMBER, SCORES), "scale and mask", 8 * pairs),
        (operator("aten::sub", SCORES, SCORES, SCORES), "softmax", 12 * pairs),
        (operator("aten::le", SCORES), "scale and mask", 5 * pairs),
        (operator("aten::isneginf", SCORES), "softmax", 5 * pairs),
        (operator("aten::where", hidden, SCORES, NUMBER), "scale and mask", 9 * pairs),
        (operator("aten::cat", SCORES, SCORES), "layout copies", 16 * pairs),
        (operator("aten::mul", tensor(4, 256, 1), tensor(4, 1, 256)), "softmax", 8 * 4 * 256 + 4 * pairs),
    ):
        (one,) = place([found], PROBLEM)
        assert (found.name, one.stage, one.moved_bytes) == (found.name, stage, moved)
    (one,) = place([operator("aten::index_select", SCORES, tensor(2, element_bytes=8))], PROBLEM)
    assert (one.stage, one.moved_bytes) == ("layout copies", None), "how much of it is read is not known"


def test_gradients_of_what_was_repeated_are_no_softmax():
    back = (CALL, f"{GRADIENT}: ExpandBackward0", "ExpandBackward0")
    (one,) = place([operator("aten::sum", tensor(2, 2, 256, 64), within=back, sequence=9)], PROBLEM)
    assert (one.stage, one.half) == ("layout copies", "backward")
    assert one.moved_bytes == 4 * 4 * 256 * 64


def test_gradients_that_are_added_up_are_no_mask():
    back = (CALL, f"{GRADIENT}: SplitBackward0")
    assert stages([operator("aten::add_", SCORES, SCORES, within=back, sequence=9)]) == ["other"]


def test_all_within_a_safe_softmax_is_softmax():
    within = (CALL, "aten::_safe_softmax")
    assert stages([operator("aten::where", SCORES, SCORES, within=within)]) == ["softmax"]


def test_running_sums_are_softmax_and_not_scale_or_mask():
    statistic = tensor(4, 256, 1)
    found = [
        operator("aten::amax", SCORES, statistic),
        operator("aten::sub_", SCORES, statistic),
        operator("aten::exp_", SCORES),
        operator("aten::mul_", V, statistic),
        operator("aten::add_", statistic, statistic),
        operator("aten::mul_", Q, NUMBER),
    ]
    assert stages(found) == ["softmax"] * 5 + ["scale and mask"]


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "fused attention"),
        ("aten::_efficient_attention_forward", "fused attention"),
        ("attention_bench::triton_attention_forward", "fused attention"),
        ("flash_attn::_flash_attn_forward", "fused attention"),
        ("my_library::attend", "other"),
        ("torch::autograd::AccumulateGrad", "overhead"),
        ("CompiledFxGraph fab123", "compiled code"),
        ("cpp_fused__scaled_dot_product_flash_attention_for_cpu_mul_0", "compiled code"),
        ("aten::copy_", "layout copies"),
        ("aten::empty", "allocation"),
        ("aten::transpose", "overhead"),
        ("SoftmaxBackward0", "overhead"),
        ("aten::some_new_operator", "other"),
    ],
)
def test_names_have_their_stage(name, stage):
    assert stages([operator(name, Q, Q)]) == [stage]


def test_a_number_on_its_way_into_an_operator_is_overhead():
    assert stages([operator("aten::_to_copy", NUMBER), operator("aten::copy_", NUMBER, NUMBER)]) == ["overhead"] * 2


def test_work_follows_from_shapes():
    score, scale, mask, softmax, value = place(NAIVE, PROBLEM)
    pairs = 4 * 256 * 256
    assert score.flop == value.flop == 2 * pairs * 64
    assert score.moved_bytes == 4 * (2 * 4 * 256 * 64 + pairs)
    assert (scale.flop, softmax.flop) == (pairs, 5 * pairs)
    assert scale.moved_bytes == softmax.moved_bytes == 8 * pairs
    assert mask.moved_bytes == 8 * pairs + 4 * 256 * 256


def test_a_repeated_axis_is_read_once():
    wide = tensor(4, 256, 256, distinct=256 * 256)
    (copied,) = place([operator("aten::copy_", SCORES, wide)], PROBLEM)
    assert (copied.flop, copied.moved_bytes) == (0, 4 * (4 * 256 * 256 + 256 * 256))


def test_a_fused_kernel_does_the_work_of_the_theory_once():
    outer = operator("aten::_scaled_dot_product_flash_attention", Q)
    inner = operator("aten::_flash_attention_forward", Q, within=(CALL, outer.name))
    first, second = place([outer, inner], PROBLEM)
    assert first.flop == PROBLEM.flop
    assert first.moved_bytes == PROBLEM.least_bytes + 4 * 4 * 256
    assert (second.flop, second.moved_bytes) == (0, 0)
    back = operator("aten::_flash_attention_backward", Q, within=BACK)
    assert place([back], PROBLEM)[0].flop == Problem(seqlen=256, direction="bwd").flop


def test_a_fused_kernel_that_is_given_one_head_does_the_work_of_one():
    heads = [operator("aten::_scaled_dot_product_flash_attention_for_cpu", tensor(1, 1, 256, 64))] * 4
    found = place(heads, PROBLEM)
    assert sum(one.flop for one in found) == PROBLEM.flop
    assert sum(one.moved_bytes for one in found) == PROBLEM.least_bytes + 4 * 4 * 256


def test_a_compiled_graph_is_told_without_its_hash():
    (one,) = place([operator("## Call CompiledFxGraph f2mzguryq2hzev2s ##")], PROBLEM)
    assert described(one) == "CompiledFxGraph"


def test_a_kernel_that_no_operator_launched_is_known_by_its_name():
    (one,) = place([operator("Function", kernels=(Kernel("attention_forward_kernel", 10),))], PROBLEM)
    assert one.stage == "fused attention"
    assert kernel_stage("Memcpy DtoD (Device -> Device)") == "layout copies"
    assert kernel_stage("mystery") == "other"


def test_the_table_names_known_stages_only():
    known = {*STAGES, "product", "factor", "sum"}
    assert set(STAGE_OF.values()) <= known


LIMITS = Limits(CEILINGS, "float32", operator_ns=2_000)
"""100 GFLOP/s; 10 GB/s beyond a cache of 32 MiB and 40 GB/s in it; an operator costs 2 us."""


def planted(name, *operands, own_ns):
    """The stage of one planted operator in a call that takes as long."""
    placed = place([operator(name, *operands, own_ns=own_ns)], Problem(seqlen=4096, num_heads=4))
    return stages_of([placed], [own_ns], LIMITS, "cpu")[0]


def test_a_large_copy_is_bound_by_bandwidth():
    big = tensor(4, 4096, 1024)  # 67 MB read and as many written: 13.4 ms at 10 GB/s
    found = planted("aten::copy_", big, big, own_ns=20_000_000)
    assert (found.roof, found.flop) == ("bandwidth", 0)
    assert found.roof_fraction == pytest.approx(2 * 4 * 4096 * 1024 * 4 / 10e9 / 20e-3)


def test_a_small_copy_is_held_against_the_cache():
    small = tensor(4, 256, 1024)
    found = planted("aten::copy_", small, small, own_ns=400_000)
    assert found.roof_fraction == pytest.approx(2 * 4 * 256 * 1024 * 4 / 40e9 / 400e-6)


def test_a_product_is_bound_by_arithmetic():
    found = planted("aten::bmm", tensor(4, 4096, 64), tensor(4, 64, 4096), own_ns=100_000_000)
    assert (found.name, found.roof) == ("score product", "compute")
    assert found.roof_fraction == pytest.approx(4 * 2 * 4096**2 * 64 / 100e9 / 0.1)


def test_a_product_of_what_was_made_float32_is_held_against_the_rate_of_float32():
    rates = CEILINGS.model_copy(update={"flop_per_s": {"float32": 100e9, "bfloat16": 800e9}})
    limits = Limits(rates, "bfloat16", operator_ns=2_000)
    problem = Problem(seqlen=4096, dtype="bfloat16")
    for width, rate in ((4, 100e9), (2, 800e9)):
        q, k = tensor(4, 4096, 64, element_bytes=width), tensor(4, 64, 4096, element_bytes=width)
        placed = place([operator("aten::bmm", q, k, own_ns=100_000_000)], problem)
        (found,) = stages_of([placed], [100_000_000], limits, "cpu")
        assert found.roof_fraction == pytest.approx(
            max(4 * 2 * 4096**2 * 64 / rate, 4096**2 * 4 * width / 10e9) / 0.1, 0.05
        )


def test_a_tiny_operator_is_bound_by_its_call():
    found = planted("aten::exp_", tensor(4, 8), own_ns=3_000)
    assert (found.roof, found.roof_fraction) == ("overhead", None)
    assert "calling" in found.reason


def test_what_nobody_knows_is_named_and_has_no_figures():
    found = planted("aten::mystery", Q, own_ns=1_000_000)
    assert (found.name, found.operators, found.flop, found.roof) == ("other", ("mystery",), None, None)
    assert "mystery" in found.reason


def test_times_are_averaged_over_calls_and_overhead_comes_last():
    call = [operator(CALL, own_ns=500, within=()), *NAIVE, operator("aten::view", SCORES, own_ns=100)]
    placed = place(call, PROBLEM)
    found = stages_of([placed, placed], [5_600, 5_600], LIMITS, "cpu")
    assert sum(stage.time_ms for stage in found) == pytest.approx(5.6e-3)
    assert sum(stage.share for stage in found) == pytest.approx(1)
    assert found[-1].name == "overhead"
    assert found[-1].time_ms == pytest.approx(6e-4)
    assert found[-1].operators == ("Python", "view")
    assert {stage.name: stage.calls for stage in found}["scale and mask"] == 2


def test_on_a_gpu_stages_take_the_time_of_their_kernels_and_the_rest_is_overhead():
    call = [
        operator(CALL, own_ns=90_000, within=()),
        operator("aten::bmm", Q, KT, own_ns=70_000, kernels=(Kernel("sgemm", 4_000),)),
        operator("aten::_softmax", SCORES, own_ns=70_000, kernels=(Kernel("softmax_warp", 5_000),)),
        operator("aten::empty", own_ns=5_000),
    ]
    found = {one.name: one for one in stages_of([place(call, PROBLEM)], [20_000], LIMITS, "cuda")}
    assert {name: one.time_ms for name, one in found.items()} == pytest.approx(
        {"score product": 4e-3, "softmax": 5e-3, "overhead": 11e-3}
    )
    assert found["softmax"].operators == ("softmax_warp",)


def test_on_a_gpu_the_work_of_a_fused_operator_is_that_of_the_kernel_that_it_has_launched_by_another():
    outer = operator("aten::_scaled_dot_product_flash_attention", Q, own_ns=90_000)
    kernel = Kernel("flash_fwd_kernel<float>", 15_000_000)
    inner = operator("aten::_flash_attention_forward", Q, within=(CALL, outer.name), kernels=(kernel,))
    (found, _) = stages_of([place([outer, inner], PROBLEM)], [20_000_000], LIMITS, "cuda")
    assert (found.name, found.flop, found.operators) == ("fused attention", PROBLEM.flop, (kernel.name,))
    assert found.roof == "compute"
    assert found.roof_fraction == pytest.approx(PROBLEM.flop / 100e9 / 15e-3)
    assert "cannot be told apart" in found.reason
