from __future__ import annotations

from importlib import import_module

import pytest
import torch

from bench.demonstrations import demonstrations
from bench.demonstrations._members import one_thread

module = import_module("bench.demonstrations.score_variance")


@pytest.fixture(scope="module")
def rows() -> dict[int, dict]:
    return {row["head_dim"]: row for row in demonstrations.get("score_variance")(True)}


def test_quick_asks_for_a_part_of_the_same_rows(rows, monkeypatch):
    assert tuple(rows) == module.QUICK_WIDTHS
    assert set(module.QUICK_WIDTHS) < set(module.WIDTHS)
    monkeypatch.setattr(module, "WIDTHS", (16,))
    assert demonstrations.get("score_variance")(False) == [rows[16]]


def test_moments_are_those_of_the_theory_within_their_own_errors(rows):
    """Five standard errors: one of these 20 numbers is further off once in 80,000 times."""
    for width, row in rows.items():
        for name, expected in {
            "unscaled_variance": width,
            "scaled_variance": 1,
            "same_mean": width**0.5,
            "same_variance": 2,
        }.items():
            assert abs(row[name] - expected) < 5 * row[f"{name}_se"], (width, name)


@one_thread()
def test_standard_errors_are_as_large_as_blocks_really_scatter():
    """Variances of 40 draws scatter by the error that each states, not by that of scores without common vectors."""
    blocks, width, draws = 50, 16, 40
    values, stated = [], []
    for seed in range(draws):
        q, k = torch.randn(2, blocks, module.KEYS, width, generator=torch.Generator().manual_seed(1000 + seed))
        whole = {name: one.double() for name, one in module._statistics(q, k, 0.25).items()}
        found = module._mean("variance", module._squares(whole, "scaled"))
        values.append(found["variance"])
        stated.append(found["variance_se"])
    real = float(torch.tensor(values).std())
    assert 0.7 < real / (sum(stated) / draws) < 1.4
    independent = (2 / (blocks * module.KEYS**2)) ** 0.5  # were all scores independent
    assert real > 2 * independent


def test_the_variance_is_taken_around_the_mean():
    scores = torch.tensor([[4.0, 6.0], [5.0, 5.0]])
    whole = module._moments("x", scores)
    assert float(module._squares(whole, "x").mean()) == pytest.approx(0.5)


def test_entropy_and_derivative_of_known_rows():
    """Equal keys give equal weights; a key that is far ahead takes all of the weight."""
    width = 4
    q = torch.zeros(1, module.KEYS, width)
    q[..., 0] = 1
    flat, sharp = torch.zeros_like(q), torch.zeros_like(q)
    sharp[:, 3, 0] = 1e4
    found = module._statistics(q, flat, 0.5)
    assert float(found["unscaled_entropy"]) == pytest.approx(torch.tensor(64.0).log().item(), rel=1e-6)
    assert float(found["scaled_derivative"]) == pytest.approx(1 / 64 * 63 / 64, rel=1e-6)
    found = module._statistics(q, sharp, 0.5)
    assert float(found["unscaled_entropy"]) == 0.0
    assert float(found["unscaled_derivative_max"]) == 0.0


def test_no_derivative_exceeds_a_quarter_and_none_is_larger_off_the_diagonal(rows):
    assert all(row[f"{name}_derivative_max"] <= 0.25 for row in rows.values() for name in ("unscaled", "scaled"))
    weights = torch.softmax(torch.randn(100, 7, generator=torch.Generator().manual_seed(0)), dim=-1)
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    largest = jacobian.abs().amax(dim=(1, 2))
    torch.testing.assert_close(largest, (weights * (1 - weights)).amax(dim=-1))
