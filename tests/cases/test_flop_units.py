"""Public cases O22 and O23: how FLOP of a masked problem are counted, and units.

Pair counts of O22 are also in ``tests/bench/test_masks.py``, its FLOP in ``tests/bench/test_problem.py``; the rate of
O23 under each convention is in ``tests/bench/test_metrics.py`` and its conversion in ``tests/bench/test_units.py``.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bench.analysis import COLUMNS
from bench.implementation import dense_mask
from bench.metrics import metrics
from bench.problem import Problem
from bench.units import format_bytes, ns_to_ms, tflops

DENSE = 12_582_912
"""FLOP of the forward products at B=1 H=12 T=64 d=64, every pair counted."""


@pytest.mark.parametrize(
    ("backend", "forward", "backward"),
    [(SDPBackend.FLASH_ATTENTION, 0, 0), (SDPBackend.MATH, DENSE, 2 * DENSE)],
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_o22_pytorchs_counter_sees_nothing_or_every_pair(backend, forward, backward, is_causal):
    """The present fault, and why FLOP are counted from the problem alone here."""
    q = torch.randn(1, 12, 64, 64, requires_grad=True)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(backend):
        out = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=is_causal)
        counted = counter.get_total_flops()
        out.sum().backward()
    assert (counted, counter.get_total_flops() - counted) == (forward, backward)


@pytest.mark.parametrize("mask", ["full", "causal", "causal_top_left", "sliding_window(5)", "padding(0.5)"])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(64, 64), (8, 64), (1, 16), (64, 8)])
def test_o22_flop_are_counted_over_the_visible_pairs(mask, seqlen_q, seqlen_k):
    sizes = {"num_heads": 12, "seqlen_q": seqlen_q, "seqlen_k": seqlen_k, "head_dim": 64, "head_dim_v": 32}
    forward, backward, both = (Problem(**sizes, mask=mask, direction=way) for way in ("fwd", "bwd", "fwd_bwd"))
    pairs = 12 * int(dense_mask(forward, "cpu").sum())
    assert forward.attended_pairs == pairs
    assert forward.flop == 2 * pairs * (64 + 32)
    assert backward.flop == 2 * pairs * (3 * 64 + 2 * 32)
    assert both.flop == forward.flop + backward.flop


def test_o22_the_convention_is_two_and_a_half_for_equal_widths_and_no_halving():
    dense = Problem(num_heads=12, seqlen=64)
    assert dense.flop == DENSE
    assert Problem(num_heads=12, seqlen=64, direction="bwd").flop == 2.5 * DENSE
    causal = Problem(num_heads=12, seqlen=64, mask="causal")
    assert DENSE / 2 < causal.flop == DENSE * 65 / 128
    square = Problem(num_heads=1, seqlen=1024, mask="causal")
    assert square.attended_pairs / square.all_pairs == pytest.approx(0.50049, abs=1e-5)


UNITS = ("_ms", "_ns", "_s", "_j", "_bytes", "_mb", "flop", "tflops")
PURE = {
    "scale",
    "batch_size",
    "attended_pairs",
    "all_pairs",
    "empty_rows",
    "samples",
    "processes",
    "calls_per_sample",
    "discarded_rounds",
    "wall_over_cpu",
    "isolated_over_interleaved",
    "peak_score_matrices",
    "peak_fraction",
    "roof_fraction",
    "registers",
    "mutants_caught",
    "mutants_missed",
}
"""Counts and ratios, which have no unit."""
PURE_ENDINGS = ("_abs", "_rmse", "_over_naive", "_nonfinite", "_nonzero", "_limit", "_index")
"""Errors, in the unit of the tensor they are of, and counts of entries."""
ENDINGS = {
    "TFLOP/s": "tflops",
    "ns": "_ns",
    "GB/s": "_gb_per_s",
    "FLOP/B": "flop_per_byte",
    "FLOP": "flop",
    "B": "_bytes",
}
"""What stands in the name of a metric of that unit."""
SIZES = ("seqlen", "num_heads", "head_dim", "seed")


def names_its_unit(column):
    """Whether a numeric column says what it is a number of."""
    pure = column in PURE or column.startswith(SIZES) or column.endswith(PURE_ENDINGS)
    return pure or column.endswith(UNITS) or column.startswith("tflops_")


@pytest.mark.parametrize("column", [name for name, dtype in COLUMNS.items() if dtype in ("int64", "Int64", "Float64")])
def test_o23_every_number_in_the_table_names_its_unit_or_has_none(column):
    assert names_its_unit(column)


@pytest.mark.parametrize("name", metrics.names())
def test_o23_every_derived_number_names_its_unit_or_has_none(name):
    unit = metrics.get(name).unit
    if unit:
        assert ENDINGS[unit] in name
    else:
        assert name in PURE or name.endswith(PURE_ENDINGS)


def test_o23_giga_for_tera_ms_for_s_and_binary_for_decimal_are_a_thousand_or_seven_percent_off():
    """B=4 H=32 T=4096 d=128 causal forward, 1.234 ms: 445.616 TFLOP/s; 445.507 if pairs are halved exactly."""
    problem = Problem(batch_size=4, num_heads=32, seqlen=4096, head_dim=128, mask="causal")
    assert problem.flop == 549_890_031_616
    rate = tflops(problem.flop, ns_to_ms(1_234_000))
    assert rate == pytest.approx(445.616, abs=5e-4)
    assert tflops(problem.flop, 1.234e-3) == pytest.approx(1000 * rate)  # seconds where milliseconds belong
    matrix = Problem(batch_size=2, num_heads=8, seqlen=2048)
    assert format_bytes(matrix.all_pairs * matrix.element_bytes) == "268 MB"  # 256 would be MiB
