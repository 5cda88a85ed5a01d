"""Figures of profiles show the digests' own numbers."""

from __future__ import annotations

import pytest
from planted_profile import digest, memory, overhead, stage

from bench.digest import Lifetime
from bench.errors import NothingSelectedError
from bench.plots import save
from bench.problem import Problem
from bench.profile_figures import LOOKS, draw_memory_timeline, draw_stage_shares, stacked
from bench.profiling._names import STAGES

FLASH = (stage("fused attention", 97.0, roof="compute"), overhead(3.0))


def test_every_stage_has_a_look_of_its_own():
    assert set(LOOKS) == set(STAGES)
    assert len(set(LOOKS.values())) == len(LOOKS)


def test_bars_are_the_shares_of_each_length(tmp_path):
    digests = [digest(n) for n in (256, 512)] + [digest(n, "sdpa_flash", FLASH) for n in (256, 512)]
    drawing = draw_stage_shares(digests)
    naive, flash = (one for one in drawing.figure.axes if one.get_visible())
    assert [text.get_text() for text in naive.get_xticklabels()] == ["256", "512"]
    assert sorted({round(bar.get_height(), 6) for bar in naive.patches}) == [5, 15, 30, 50]
    assert sorted({round(bar.get_height(), 6) for bar in flash.patches}) == [3, 97]
    top = max(bar.get_y() + bar.get_height() for bar in naive.patches)
    assert top == pytest.approx(100)
    assert "softmax 50%" in drawing.caption and "fused attention 97%" in drawing.caption
    assert save(drawing, tmp_path).stat().st_size > 10_000


def test_halves_of_a_stage_are_one_colour():
    both = digest(stages=(stage("softmax", 40.0), stage("softmax", 50.0, half="backward"), overhead(10.0)))
    (axes,) = draw_stage_shares([both]).figure.axes
    assert sorted(round(bar.get_height(), 6) for bar in axes.patches) == [10, 90]


def test_without_times_there_is_no_chart():
    with pytest.raises(NothingSelectedError, match="--tool torch"):
        draw_stage_shares([digest(total_ms=None)])


def test_the_timeline_steps_where_memory_is_made_and_released():
    problem = Problem(seqlen=64)
    matrix, out = problem.all_pairs * 4, problem.output_bytes
    times, layers = stacked(memory(problem))
    assert times == [0, 0, 40, 40, 70, 70, 90, 90, 100, 100]
    assert layers["scores"] == [0] + [matrix] * 6 + [0] * 3
    assert layers["weights"] == [0] * 3 + [matrix] * 4 + [0] * 3
    assert layers["out"] == [0] * 5 + [out] * 5
    highest = max(sum(levels) for levels in zip(*layers.values(), strict=True))
    assert highest == memory(problem).peak_bytes


def test_small_owners_are_drawn_together():
    first = memory(Problem(seqlen=64))
    many = tuple(
        Lifetime(owner=f"tensor {i}", operator="empty", size_bytes=i + 1, start_ms=1, stop_ms=2, at_peak=False)
        for i in range(20)
    )
    _, layers = stacked(first.model_copy(update={"lifetimes": (*first.lifetimes, *many)}))
    assert len(layers) == 9
    assert "others" in layers and "scores" in layers


def test_the_timeline_tells_its_peak_and_owners(tmp_path):
    drawing = draw_memory_timeline(digest(64))
    assert drawing.stem == "memory_timeline"
    assert "scores 33%" in drawing.caption
    assert save(drawing, tmp_path).exists()
    with pytest.raises(NothingSelectedError, match="--tool memory"):
        draw_memory_timeline(digest(memory=None))
