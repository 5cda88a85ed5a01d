from __future__ import annotations

from fractions import Fraction

import planted
import pytest

from bench.memory_law import NAIVE_LAW, OWN_LAW, bytes_polynomial, check_memory, naive_law_bytes
from bench.problem import Problem
from bench.record import Memory


def off_by(count: int, length: int = 1024) -> Memory:
    right = planted.memory("naive", Problem(seqlen=length))
    return right.model_copy(update={"peak_bytes": right.peak_bytes + count})


@pytest.mark.parametrize(("seqlen", "peak"), [(512, 8_912_896), (2048, 136_314_880)])
def test_naive_law_against_measured_bytes(seqlen: int, peak: int) -> None:
    # Peaks that allocator events gave for B=1 H=4 d=64 float32.
    assert naive_law_bytes(Problem(seqlen=seqlen)) == peak


def test_naive_law_counts_query_heads_both_lengths_and_the_width_of_v() -> None:
    problem = Problem(
        batch_size=2, num_heads_q=8, num_heads_kv=2, seqlen_q=3, seqlen_k=5, head_dim=4, head_dim_v=7,
        dtype="float16",
    )  # fmt: skip
    assert naive_law_bytes(problem) == 2 * 2 * 8 * 3 * 5 * 2 + 2 * 8 * 3 * 7 * 2


def test_exact_bytes_hold() -> None:
    (check,) = check_memory(planted.ladder(lambda t: 1e-5 * t**2))
    assert check.holds
    assert (check.cells, check.residual_bytes, check.law) == (11, 0, NAIVE_LAW)


@pytest.mark.parametrize("residual", [1, -4096])
def test_one_byte_in_one_cell_is_seen(residual: int) -> None:
    cells = [
        *planted.ladder(lambda t: 1.0, lengths=(128, 256)),
        planted.record(seqlen=1024, peak=off_by(residual)),
    ]
    (check,) = check_memory(cells)
    assert not check.holds
    assert (check.cells, check.equal, check.residual_bytes) == (3, 2, residual)
    assert check.worst == "B1-H4-T1024-d64-float32-fwd-full"
    assert check.worst_share == pytest.approx(residual / naive_law_bytes(Problem(seqlen=1024)))


def test_others_are_held_against_their_own_prediction() -> None:
    right = planted.memory("flash", Problem(seqlen=1024))
    wrong = right.model_copy(update={"predicted_peak_bytes": right.peak_bytes - 10})
    silent = right.model_copy(update={"predicted_peak_bytes": None})
    cells = [
        planted.record("a", 1024, 1.0, peak=right),
        planted.record("b", 1024, 1.0, peak=wrong),
        planted.record("c", 1024, 1.0, peak=silent),
        planted.record("d", 1024, status="crashed"),
    ]
    found = {check.implementation: check.residual_bytes for check in check_memory(cells)}
    assert found == {"a": 0, "b": 10}


def test_polynomial_of_naive_is_exact() -> None:
    found = bytes_polynomial({t: naive_law_bytes(Problem(seqlen=t)) for t in planted.LENGTHS})
    assert found is not None and found.exact
    assert (found.quadratic, found.linear, found.constant) == (2 * 4 * 4, 4 * 64 * 4, 0)
    assert found.tested == 8


def test_polynomial_of_linear_memory_has_no_quadratic_part() -> None:
    found = bytes_polynomial({t: 1324 * t + 30_000 for t in planted.LENGTHS})
    assert found is not None and found.exact
    assert (found.quadratic, found.linear, found.constant) == (0, 1324, 30_000)


def test_bytes_off_the_polynomial_are_stated() -> None:
    peaks = {t: 32 * t * t for t in (128, 256, 512, 1024)} | {2048: 32 * 2048**2, 368: 32 * 368**2 + 5}
    found = bytes_polynomial(peaks)
    assert found is not None and not found.exact
    assert found.residual_bytes == Fraction(5)


def test_three_lengths_solve_but_prove_nothing() -> None:
    found = bytes_polynomial({1: 3, 2: 8, 3: 15})
    assert found is not None
    assert (found.quadratic, found.linear, found.constant) == (1, 2, 0)
    assert not found.exact
    assert bytes_polynomial({1: 3, 2: 8}) is None


def test_gradients_of_naive_are_not_held_against_the_forward_law() -> None:
    cells = [planted.record(direction="bwd"), planted.record(direction="fwd")]
    assert {(check.law, check.theory) for check in check_memory(cells)} == {
        (NAIVE_LAW, True),
        (OWN_LAW, False),
    }


@pytest.mark.parametrize(
    ("law", "limit", "longest"),
    [
        (lambda n: 8 * n * n + 256 * n, 2**31, 16368),
        (lambda n: 1040 * n + 1000, 2**31, 2064887),
        (lambda n: 100 * n + 1000, 1099, None),
        (lambda n: 4096, 2**31, None),
    ],
)
def test_the_longest_length_under_a_limit_is_exact(law, limit, longest) -> None:
    found = bytes_polynomial({n: law(n) for n in (64, 128, 256, 512)})
    assert found is not None
    assert found.longest(limit) == longest
    if longest is not None:
        assert law(longest) <= limit < law(longest + 1)
