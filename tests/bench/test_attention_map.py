"""The pictures: numbers where there are weights, none where a pair is blocked, and a caution beside each."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench.attention_map import (
    CAUTION,
    Head,
    draw_contributions,
    draw_flow,
    draw_masks,
    draw_scaling,
    draw_steps,
    draw_weights,
    mask_panels,
)
from bench.attention_map._flow import _edge
from bench.attention_map._matrix import number
from bench.masks import Mask, masks
from bench.plots import save
from bench.problem import Problem
from bench.trace import trace_example, trace_problem

ROOT = Path(__file__).resolve().parents[2]
ODD = ("$E=mc^2$", "_hidden", "🚀\n", "a" * 99, "‘", "<b>")


def head_of(trace, number=0):
    return Head(
        title=trace.title,
        tensors=trace.head(0, number),
        query_tokens=trace.query_tokens,
        key_tokens=trace.key_tokens,
    )


@pytest.fixture
def causal():
    return head_of(trace_example("causal_three_tokens"))


def cells(axes):
    """Text by the cell (row, column) it stands in."""
    found = {}
    for text in axes.texts:
        x, y = text.get_position()
        if text.get_ha() == "center":
            found[int(y), int(x)] = text.get_text()
    return found


def everything_said(figure):
    """All free text of a figure as one line."""
    return " ".join(" ".join(text.get_text() for text in figure.texts).split())


def test_a_blocked_pair_bears_no_number_and_a_visible_one_its_weight(causal):
    (axes,) = draw_weights([causal]).figure.axes
    assert cells(axes) == {
        (0, 0): "1",
        (1, 0): "0.500",
        (1, 1): "0.500",
        (2, 0): "0.333",
        (2, 1): "0.333",
        (2, 2): "0.333",
    }
    (hatched,) = [patch for patch in axes.patches if patch.get_hatch()]
    assert hatched.get_bbox().bounds == (0, 0, 3, 3)
    (mesh,) = axes.collections
    assert np.array_equal(np.ma.getmaskarray(mesh.get_array()).reshape(3, 3), ~causal.tensors["mask"])


def test_rows_are_queries_from_the_top_and_columns_are_keys():
    weights = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
    head = Head(
        title="t",
        tensors={"weights": weights, "mask": np.ones((3, 2), dtype=bool)},
        query_tokens=("a", "b", "c"),
        key_tokens=("x", "y"),
    )
    (axes,) = draw_weights([head]).figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "y"]
    assert axes.get_ylim() == (3, 0)
    assert cells(axes)[0, 1] == "0.750" and cells(axes)[1, 0] == "1"
    assert axes.get_ylabel() == "query position" and axes.get_xlabel() == "key position"


def test_an_empty_row_says_so_and_is_not_said_to_sum_to_one():
    head = head_of(trace_problem(Problem(seqlen_q=4, seqlen_k=2, num_heads=1, head_dim=2, mask="causal")))
    drawing = draw_weights([head])
    said = [text.get_text() for text in drawing.figure.axes[0].texts if text.get_ha() != "center"]
    assert said == ["sees no key", "sees no key", "Σ 1", "Σ 1"]
    assert "2 rows see no key and give 0" in drawing.caption


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (1e-9, "<0.001"),
        (-1e-9, ">−0.001"),
        (0.0004999, "<0.001"),
        (0.3333, "0.333"),
        (-2.5, "−2.500"),
        (10000.0, "10000"),
        (123456.7, "1.23e+05"),
        (float("-inf"), "−∞"),
        (float("nan"), "NaN"),
    ],
)
def test_no_positive_number_is_written_as_zero(value, text):
    assert number(value) == text


def test_contributions_stand_beside_the_weights_and_sum_to_the_output():
    head = head_of(trace_example("two_key_row"))
    drawing = draw_contributions(head)
    weights, values, lengths, spelled = drawing.figure.axes
    assert cells(weights) == {(0, 0): "0.670", (0, 1): "0.330"}
    assert cells(values)[0, 0] == "10"
    assert cells(lengths) == {(0, 0): "6.698", (0, 1): "0.660"}
    assert cells(spelled)[2, 0] == "6.698" and cells(spelled)[2, 1] == "0.660"
    assert "weighs 2.03 times key ‘k2’ and adds a vector 10.1 times as long" in drawing.caption


def test_equal_weights_with_unequal_contributions_are_pointed_out(causal):
    assert "weigh the same, yet ‘The’ adds a vector 1.41 times as long" in draw_contributions(causal).caption


def test_values_of_one_length_are_said_to_contribute_in_proportion():
    assert "in proportion" in draw_contributions(head_of(trace_example("padded_query_loss"))).caption


def test_scaled_stands_beside_unscaled_with_both_rows_of_weights():
    unscaled, scaled = (
        head_of(trace_example("unscaled_demonstration", **changes)) for changes in ({}, {"scale": None})
    )
    drawing = draw_scaling(unscaled, scaled)
    _, weights, out = drawing.figure.axes
    assert cells(weights) == {
        (0, 0): "0.665", (0, 1): "0.245", (0, 2): "0.090",
        (1, 0): "0.576", (1, 1): "0.284", (1, 2): "0.140",
    }  # fmt: skip
    assert cells(out)[0, 0] == "1.421" and cells(out)[1, 0] == "1.292"
    assert "k1 takes 0.665 instead of 0.576" in drawing.caption


def test_every_picture_of_weights_bears_the_caution(causal):
    pair = [head_of(trace_example("unscaled_demonstration", **c)) for c in ({}, {"scale": None})]
    for drawing in (draw_weights([causal]), draw_contributions(causal), draw_steps(causal), draw_scaling(*pair)):
        assert CAUTION in everything_said(drawing.figure), drawing.stem
        assert CAUTION in drawing.caption


def test_steps_show_every_matrix_of_the_computation(causal):
    figure = draw_steps(causal).figure
    names = ["q", "k", "v", "scores", "m and l", "weights", "u", "out"]
    assert [axes.get_title() for axes in figure.axes] == names
    assert (1, 2) not in cells(figure.axes[3]) and cells(figure.axes[3])[1, 1] == "0.500"
    assert cells(figure.axes[4])[2, 1] == "3"


def test_wide_vectors_are_cut_and_say_so():
    head = head_of(trace_problem(Problem(seqlen=3, num_heads=1, head_dim=64)))
    titles = [axes.get_title() for axes in draw_steps(head).figure.axes]
    assert titles[0] == "q (first 16 of 64)"
    assert draw_contributions(head).figure.axes[1].get_title() == "values  v (first 16 of 64)"


def test_any_token_can_be_drawn(tmp_path):
    trace = trace_problem(Problem(seqlen=len(ODD), num_heads=1, head_dim=2))
    head = Head(title="".join(ODD), tensors=trace.head(0, 0), query_tokens=ODD, key_tokens=ODD)
    for drawing in (draw_weights([head, head, head]), draw_contributions(head), draw_steps(head)):
        assert save(drawing, tmp_path).stat().st_size > 5_000


def test_the_value_branch_runs_from_v_to_the_product_with_the_weights():
    axes = draw_flow().figure.axes[0]
    arrows = {(text.xyann, text.xy) for text in axes.texts if getattr(text, "arrow_patch", None) is not None}
    assert (_edge("v", 1), _edge("sum", -1)) in arrows
    assert {"$Q$", "$K$", "$V$", "$A$", "$A\\,V$", "$O$"} <= {text.get_text() for text in axes.texts}


# Masks


def test_every_mask_of_the_registry_is_drawn_square_and_otherwise():
    columns = mask_panels()
    for name in masks.names():
        (column,) = [c for c in columns if c[0].expression.split("(")[0] == name]
        square, fewer, more = column
        assert square.keep is not None and square.keep.shape == (12, 12)
        assert all(panel.keep is not None or "seqlen_q equals seqlen_k" in panel.reason for panel in (fewer, more))
    described = draw_masks().alt
    assert all(column[0].expression in described for column in columns)


def test_what_is_drawn_is_the_mask():
    by_name = {column[0].expression: column for column in mask_panels()}
    square, fewer, more = (panel.keep for panel in by_name["causal"])
    assert np.array_equal(square, np.tri(12, dtype=bool))
    assert np.array_equal(fewer, np.tri(8, 12, 4, dtype=bool))
    assert np.array_equal(more, np.tri(12, 8, -4, dtype=bool))
    assert np.array_equal(by_name["causal_top_left"][1].keep, np.tri(8, 12, dtype=bool))


def test_a_new_mask_appears_by_itself(clean_registry):
    clean_registry(masks)

    class Diagonal(Mask):
        name = "diagonal"
        spec = "diagonal"

        def keep(self, batch, head, q_idx, k_idx, shape, tables):
            return k_idx == q_idx

    masks.add("diagonal", Diagonal)
    (column,) = [c for c in mask_panels() if c[0].expression == "diagonal"]
    assert np.array_equal(column[0].keep, np.eye(12, dtype=bool))


# The pictures of the documentation


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("draw_theory", ROOT / "scripts" / "draw_theory.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_of_the_documentation_are_current_and_small():
    command = [sys.executable, str(ROOT / "scripts" / "draw_theory.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0), f"run scripts/draw_theory.py\n{done.stdout}{done.stderr}"
    names = {"flow.png", "masks.png", "weights_worked_example.png", "scaled_unscaled.png", "contributions.png"}
    files = {path.name: path.stat().st_size for path in (ROOT / "docs" / "pictures").glob("*.png")}
    assert names <= set(files)
    assert all(size < 120_000 for size in files.values()), files


def test_a_missing_and_a_changed_picture_are_noticed(script, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "docs" / "pictures"
    folder.mkdir(parents=True)
    drawing = draw_flow()
    monkeypatch.setattr(script, "FOLDER", folder)
    monkeypatch.setattr(script, "pictures", lambda: [drawing])
    assert script.main(["--check"]) == 1
    assert script.main([]) == 0
    assert script.main(["--check"]) == 0
    changed = SimpleNamespace(stem=drawing.stem, figure=drawing.figure, alt=drawing.alt + " And more.")
    monkeypatch.setattr(script, "pictures", lambda: [changed])
    capsys.readouterr()
    assert script.main(["--check"]) == 1
    assert capsys.readouterr().out == "stale: docs/pictures/flow.png\n"
