from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import units


def test_conversions_are_exact() -> None:
    assert units.ns_to_ms(1_234_000) == 1.234
    assert units.ns_to_s(2_500_000_000) == 2.5


@pytest.mark.parametrize(
    ("flop", "expected"),
    [(549_890_031_616, 445.616), (549_755_813_888, 445.507)],
    ids=["exact causal pairs", "exactly half of all pairs"],
)
def test_tflops_of_a_published_case(flop: int, expected: float) -> None:
    # B=4 H=32 T=4096 d=128 causal forward in 1.234 ms: neither 0.4455 (giga) nor 445507 (mega) nor 4.455e11.
    assert units.tflops(flop, 1.234) == pytest.approx(expected, abs=5e-4)


def test_bandwidth_is_decimal() -> None:
    assert units.gb_per_s(3_000_000, 2.0) == 1.5


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0.0123, "0.0123 ms"),
        (12.34, "12.3 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (1230.0, "1.23 s"),
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
    ],
)
def test_format_ms(ms: float | None, shown: str) -> None:
    assert units.format_ms(ms) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (999_999, "1.00 MB"),
        (4_000_000, "4.00 MB"),
        (16_777_216, "16.8 MB"),
        (5_000_000_000_000_000, "5000 TB"),
        (-2048, "-2.05 kB"),
        (None, "-"),
    ],
)
def test_format_bytes_uses_powers_of_1000(count: int | None, shown: str) -> None:
    assert units.format_bytes(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "0.4 s"),
        (9.96, "10 s"),
        (42.0, "42 s"),
        (59.6, "1 min 0 s"),
        (200.0, "3 min 20 s"),
    ],
)
def test_format_seconds(seconds: float, shown: str) -> None:
    assert units.format_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (9.999, "10.0"), (0.00001234, "1.23e-05"), (123456.0, "1.23e+05"), (-1.5, "-1.50")],
)
def test_significant(value: float, shown: str) -> None:
    assert units.significant(value) == shown


@given(st.floats(1e-30, 1e30), st.integers(1, 6))
def test_significant_is_off_by_half_a_digit_at_most(value: float, digits: int) -> None:
    shown = float(units.significant(value, digits))
    assert abs(shown - value) <= 0.5000001 * 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
