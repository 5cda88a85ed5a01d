from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import planted
import pytest

from bench.errors import OutputError
from bench.figure_style import figure_style, printable, slug, styles
from bench.header import Ceilings
from bench.plots import Drawing, Plot, Reading, draw_all, plots, save
from bench.record import Record

NAMES = [
    "λ-попытка−2",
    "$E=mc^2$",
    "_hidden",
    "<b>bold</b>",
    "rocket 🚀",
    "a" * 200,
    "../../etc/passwd",
    "tab\tnew\nline",
]
"""Names that users give and that break figures, legends or file names elsewhere."""


def reading(*records: Record) -> Reading:
    return Reading([planted.run(records)])


def draw(name: str, data: Reading) -> list[Drawing]:
    with figure_style():
        return plots.get(name).draw(data)


def title(drawing: Drawing) -> str:
    return " ".join(drawing.figure.get_suptitle().split())


@pytest.fixture(scope="module")
def default() -> Reading:
    return Reading([planted.default_run()])


@pytest.fixture(scope="module")
def edge_cases() -> dict[str, Reading]:
    """Data that leave some axis without variation, values or members."""
    cell = planted.record
    return {
        "nothing measured": reading(cell(status="unsupported"), cell("b", status="crashed")),
        "one cell": reading(cell()),
        "one length, two implementations": reading(cell("naive"), cell("fast", 1024, 1.0)),
        "two lengths": reading(cell(seqlen=128), cell(seqlen=256)),
        "two widths": reading(cell(head_dim=32), cell(head_dim=64)),
        "two masks": reading(cell(mask="full"), cell(mask="causal")),
        "verified only": reading(*(cell(seqlen=n, status="verified") for n in (128, 256))),
        "no naive": reading(*planted.ladder(lambda t: 1e-5 * t**2, "fast")),
        "impossible": reading(*planted.ladder(lambda t: 1.0, flags=[("impossible", "above the peak")])),
        "decode": reading(*(cell(seqlen=n, seqlen_q=1, seqlen_k=n) for n in (256, 512, 1024))),
        "no memory": reading(*(no_memory(cell(seqlen=n)) for n in (128, 256))),
        "gradients": reading(*(cell(seqlen=n, direction="bwd") for n in (128, 256))),
    }


def no_memory(record: Record) -> Record:
    assert record.measurement is not None
    return record.model_copy(update={"measurement": record.measurement.model_copy(update={"memory": None})})


@pytest.mark.parametrize("name", plots.names())
def test_members_keep_the_contract(name: str) -> None:
    plot = plots.get(name)
    assert isinstance(plot, Plot)
    assert plot.name == name
    assert plot.title and plot.summary.endswith(".")


def test_orders_are_distinct() -> None:
    orders = [plot.order for _, plot in plots.items()]
    assert len(set(orders)) == len(orders)


@pytest.mark.parametrize("name", plots.names())
def test_nothing_is_drawn_exactly_where_something_is_needed(name: str, edge_cases: dict[str, Reading]) -> None:
    for case, data in edge_cases.items():
        drawings = draw(name, data)
        assert (drawings == []) == (plots.get(name).needs(data) is not None), case
        assert all(drawing.figure.axes for drawing in drawings), case


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("latency_by_seqlen", "one cell"),
        ("memory_by_seqlen", "no memory"),
        ("error_by_seqlen", "one cell"),
        ("latency_by_width", "two masks"),
        ("memory_by_width", "two lengths"),
        ("mask_cost", "two widths"),
        ("speedup_heatmap", "one cell"),
        ("time_per_pair", "verified only"),
        ("tflops_by_seqlen", "impossible"),
        ("roofline", "verified only"),
    ],
)
def test_what_is_needed_is_said(name: str, case: str, edge_cases: dict[str, Reading]) -> None:
    need = plots.get(name).needs(edge_cases[case])
    assert need is not None and "at least" in need


@pytest.mark.parametrize("name", plots.names())
def test_default_sweep_is_drawn_with_units_problem_and_texts(name: str, default: Reading) -> None:
    drawings = draw(name, default)
    assert drawings
    for drawing in drawings:
        assert "fwd" in title(drawing) and "B=1, H=4" in title(drawing)
        assert drawing.caption.endswith(".") and len(drawing.alt) > 40
        drawn = [axes for axes in drawing.figure.axes if axes.axison]
        assert drawn
        if name != "speedup_heatmap":
            assert all(axes.get_ylabel() for axes in drawn)
        if name != "mask_cost":
            assert all(axes.get_xlabel() for axes in drawn)


def test_all_figures_have_different_files(default: Reading) -> None:
    drawn, missing = draw_all(default)
    stems = [drawing.stem for _, drawings in drawn for drawing in drawings]
    assert len(stems) == len(set(stems))
    assert missing == {}
    assert [plot.name for plot, _ in drawn][:3] == [
        "latency_by_seqlen",
        "memory_by_seqlen",
        "error_by_seqlen",
    ]


@pytest.mark.parametrize(
    ("law", "verdict"),
    [
        (lambda t: 0.03 + 1e-5 * t**2, "CONFIRMED"),
        (lambda t: 0.02 + 5e-5 * t, "REFUTED"),
        (lambda t: 0.02 + 1e-10 * t**3, "REFUTED"),
        (lambda t: 50 + 1e-7 * t**2, "INCONCLUSIVE"),
    ],
)
def test_latency_title_states_the_verdict_on_the_data(law: Any, verdict: str) -> None:
    data = reading(*planted.ladder(law, noise=0.002))
    (drawing,) = draw("latency_by_seqlen", data)
    fit = data.fit(data.rows[0])
    assert fit is not None and fit.verdict == verdict
    assert f"naive grows as {fit.text}: quadratic growth {verdict}" in title(drawing)
    others = {"CONFIRMED", "REFUTED", "INCONCLUSIVE"} - {verdict}
    assert not any(other in title(drawing) for other in others)
    assert f"quadratic growth {verdict}" in drawing.caption


def test_latency_title_counts_panels_that_differ() -> None:
    data = reading(
        *planted.ladder(lambda t: 1e-5 * t**2, noise=0.002),
        *planted.ladder(lambda t: 1e-2 * t, noise=0.002, mask="causal"),
    )
    (drawing,) = draw("latency_by_seqlen", data)
    assert "CONFIRMED in 1, REFUTED in 1 of 2 panels" in title(drawing)
    titles = [axes.get_title() for axes in drawing.figure.axes]
    assert "CONFIRMED" in titles[0] and "REFUTED" in titles[1]


def test_latency_title_says_when_lengths_are_too_few() -> None:
    (drawing,) = draw("latency_by_seqlen", reading(*planted.ladder(lambda t: 1e-5 * t**2, lengths=(128, 256))))
    assert "INCONCLUSIVE (needs at least 8 lengths, got 2)" in title(drawing)


def test_memory_title_states_equality_to_the_byte() -> None:
    (drawing,) = draw("memory_by_seqlen", reading(*planted.ladder(lambda t: 1.0)))
    assert "naive: measured bytes equal the law 2·B·H·Tq·Tk·bytes + output in all 11 cells" in title(drawing)
    assert "residual 0 bytes" in title(drawing)
    assert "32·T² + 1,024·T" in drawing.caption


def test_memory_title_states_the_residual() -> None:
    cells = planted.ladder(lambda t: 1.0, lengths=(128, 256, 512))
    wrong = planted.memory("naive", cells[0].problem)
    wrong = wrong.model_copy(update={"peak_bytes": wrong.peak_bytes + 1234})
    cells[0] = planted.record("naive", 128, 1.0, peak=wrong)
    (drawing,) = draw("memory_by_seqlen", reading(*cells))
    assert "DIFFER" in title(drawing) and "+1,234 bytes" in title(drawing)
    assert "equal the law" not in title(drawing)


def test_memory_draws_one_matrix_and_the_law() -> None:
    (drawing,) = draw("memory_by_seqlen", reading(*planted.ladder(lambda t: 1.0, lengths=(128, 256))))
    drawn = [list(line.get_ydata()) for line in drawing.figure.axes[0].get_lines()]
    one = [4 * t * t * 4 for t in (128, 256)]
    assert one in drawn
    assert [2 * matrix + 4 * t * 64 * 4 for matrix, t in zip(one, (128, 256), strict=True)] in drawn


def errors(*values: float | None, status: str = "verified") -> Reading:
    return reading(
        *(
            planted.record(seqlen=128 * 2**i, status=status, judged=planted.agreement(value, limit=1e-5))
            for i, value in enumerate(values)
        )
    )


@pytest.mark.parametrize("values", [(0.0, 0.0, 0.0), (0.0, 1e-7, None), (None, None), (1e-7, float("1e-300"))])
def test_zero_and_missing_errors_are_drawn_and_marked(values: tuple[float | None, ...], tmp_path: Path) -> None:
    (drawing,) = draw("error_by_seqlen", errors(*values))
    axes = drawing.figure.axes[0]
    texts = " ".join(text.get_text() for text in axes.texts)
    assert ("exact (0)" in texts) == (0.0 in values)
    assert (f"({values.count(None)} without a finite error)" in axes.get_title()) == (None in values)
    shown = next((list(line.get_ydata()) for line in axes.get_lines() if line.get_marker() == "o"), [])
    assert len(shown) == len([value for value in values if value is not None])
    assert all(y > 0 for y in shown)
    assert save(drawing, tmp_path).stat().st_size > 10_000


def test_incorrect_cells_are_marked_and_counted() -> None:
    cells = [planted.record(seqlen=n) for n in (128, 256)]
    cells.append(planted.record(seqlen=512, status="incorrect", error=0.5))
    (drawing,) = draw("error_by_seqlen", reading(*cells))
    assert "1 of 3 cells INCORRECT" in title(drawing)
    assert any(line.get_marker() == "x" for line in drawing.figure.axes[0].get_lines())


def test_mask_cost_ratios_are_times_over_full() -> None:
    data = reading(
        planted.record("a", 1024, 10.0, noise=0),
        planted.record("a", 1024, 5.5, noise=0, mask="causal"),
        planted.record("b", 1024, 8.0, noise=0, mask="causal"),  # no full to compare with
    )
    (drawing,) = draw("mask_cost", data)
    axes = drawing.figure.axes[0]
    assert [bar.get_height() for bar in axes.patches] == [pytest.approx(0.55)]
    assert "causal, 0.50 of the pairs" in title(drawing) and "a 0.55" in title(drawing)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["causal\npairs 0.50"]


def test_time_per_pair_says_from_where_it_is_flat() -> None:
    (drawing,) = draw("time_per_pair", reading(*planted.ladder(lambda t: 1.0 + 1e-5 * t**2, noise=0)))
    # 1 ms is a quarter of 1e-5 * T^2 at T = 632; lengths from 720 on stay within it.
    assert "naive T=720" in title(drawing)


def test_heatmap_shows_speedups_and_reasons() -> None:
    data = reading(
        planted.record("naive", 1024, 10.0, noise=0),
        planted.record("fast", 1024, 4.0, noise=0),
        planted.record("refuses", 1024, status="unsupported", reason="needs a GPU"),
        planted.record("wrong", 1024, status="incorrect", error=1.0),
        planted.record("dubious", 1024, 0.001, flags=[("impossible", "above the peak")]),
    )
    (drawing,) = draw("speedup_heatmap", data)
    texts = {text.get_text() for text in drawing.figure.axes[0].texts}
    assert texts == {"1.00", "2.50", "unsup.", "WRONG", "impossible"}
    assert "needs a GPU (1 cells)" in drawing.figure.get_supxlabel()
    assert "fastest of 1 compared problems: fast 1" in title(drawing)


def test_heatmap_without_naive_is_relative_to_the_fastest() -> None:
    data = reading(planted.record("a", 1024, 2.0, noise=0), planted.record("b", 1024, 1.0, noise=0))
    (drawing,) = draw("speedup_heatmap", data)
    assert "Speed relative to the fastest" in title(drawing)
    assert {text.get_text() for text in drawing.figure.axes[0].texts} == {"0.50", "1.00"}


def test_heatmap_shows_times_where_naive_is_missing() -> None:
    data = reading(
        planted.record("naive", 1024, 10.0, noise=0),
        planted.record("fast", 1024, 4.0, noise=0),
        planted.record("naive", 2048, status="out_of_memory"),
        planted.record("fast", 2048, 16.0, noise=0),
    )
    (drawing,) = draw("speedup_heatmap", data)
    assert {text.get_text() for text in drawing.figure.axes[0].texts} == {
        "1.00",
        "2.50",
        "no mem.",
        "16.0 ms",
    }


def test_tflops_panels_state_other_conventions() -> None:
    (drawing,) = draw("tflops_by_seqlen", reading(*planted.ladder(lambda t: 1e-5 * t**2, mask="causal")))
    text = drawing.figure.axes[0].texts[0].get_text()
    assert "dense ×2.000" in text and "halved causal ×1.000" in text and "with softmax ×1.008" in text


def test_length_axis_shows_plain_powers_of_two(default: Reading) -> None:
    (drawing,) = draw("latency_by_seqlen", default)
    labels = [tick.get_text() for tick in drawing.figure.axes[0].get_xticklabels()]
    assert labels == ["128", "256", "512", "1024", "2048", "4096"]


def test_styles_differ_and_are_stable() -> None:
    names = [f"mine_{i}" for i in range(25)] + ["naive", "sdpa_flash"]
    found = styles(names)
    assert len(set(found.values())) == len(names)
    assert found["naive"] == styles(["naive"])["naive"] == styles(["a", "naive", "zzz"])["naive"]


def test_machines_never_share_a_figure() -> None:
    runs = [
        planted.run(planted.ladder(lambda t: 1e-5 * t**2), run_id="a", allocator="warm"),
        planted.run(planted.ladder(lambda t: 2e-5 * t**2), run_id="b", allocator="default"),
    ]
    drawings = draw("latency_by_seqlen", Reading(runs))
    assert len(drawings) == 2
    assert "warm allocator" in title(drawings[0]) and "default allocator" in title(drawings[1])


def test_a_later_run_replaces_a_cell() -> None:
    runs = [
        planted.run([planted.record(latency_ms=5.0, noise=0)], run_id="a"),
        planted.run([planted.record(latency_ms=7.0, noise=0)], run_id="b"),
    ]
    (row,) = Reading(runs).rows
    assert row["latency_ms"] == 7.0


def test_pages_are_limited_and_the_rest_is_mentioned() -> None:
    cells = [planted.record(seqlen=n, batch_size=b) for b in range(1, 8) for n in (64, 128)]
    drawings = draw("latency_by_seqlen", reading(*cells))
    assert len(drawings) == 4
    assert all("3 further figures were left out" in drawing.caption for drawing in drawings)


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_drawn_and_saved(name: str, tmp_path: Path) -> None:
    cells = [planted.record(who, n, reason=None) for n in (64, 128) for who in ("naive", name)]
    cells.append(planted.record(name, 256, status="unsupported", reason=f"{name}: no"))
    for plot in ("latency_by_seqlen", "speedup_heatmap"):
        (drawing,) = draw(plot, reading(*cells))
        path = save(drawing, tmp_path)  # warnings are errors here: a missing glyph would fail
        assert path.parent == tmp_path and path.stat().st_size > 5_000
    (drawing,) = draw("latency_by_seqlen", reading(*cells))
    legend = drawing.figure.axes[0].get_legend()
    assert legend is not None and len(legend.get_texts()) == 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [("λ−²", "λ−²"), ("🚀", "U+1F680"), ("a\tb\n", "a b "), ("_x", " _x"), ("abcdef", "abc…")],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text, 4 if text == "abcdef" else 0) == shown


@pytest.mark.parametrize("name", NAMES)
def test_file_names_are_plain(name: str) -> None:
    stem = slug(name)
    assert stem and stem.isascii() and len(stem) <= 100
    assert not set(stem) & set("/\\ $<>:\"'\n\t") and not stem.startswith(".")


def test_unwritable_folder_is_said(tmp_path: Path) -> None:
    (drawing,) = draw("latency_by_seqlen", reading(*planted.ladder(lambda t: 1.0, lengths=(128, 256))))
    with pytest.raises(OutputError, match="figure must be written into a writable folder"):
        save(drawing, tmp_path / "missing")


FULL = {
    "flop_per_s": {"float32": 2e11},
    "bytes_per_s": 1e11,
    "flop_per_s_one_thread": {"float32": 1e11},
    "memory_bytes_per_s": 4e10,
}
"""Ceilings whose memory roof meets the products at 5 FLOP per byte, and the cache roof at 2."""


def with_ceilings(**fields: Any) -> Reading:
    run = planted.run(planted.ladder(lambda t: 1e-5 * t**2, "naive"))
    return Reading([replace(run, header=run.header.model_copy(update={"ceilings": Ceilings(**fields)}))])


def test_roofs_are_the_measured_ones() -> None:
    (drawing,) = draw("roofline", with_ceilings(**FULL))
    (axes,) = drawing.figure.axes
    cache, memory, single = (line.get_xydata() for line in axes.lines[:3])
    assert cache[1] == pytest.approx([2.0, 0.2])
    assert memory[1] == pytest.approx([5.0, 0.2]) and memory[2][1] == pytest.approx(0.2)
    assert memory[0][1] == pytest.approx(memory[0][0] * 0.04)
    assert set(single[:, 1]) == {0.1}
    said = " ".join(text.get_text() for text in drawing.figure.legends[0].get_texts())
    assert "40.0 GB/s" in said and "0.200 TFLOP/s" in said and "one thread" in said


def test_a_quick_measurement_draws_the_one_roof_it_has() -> None:
    (drawing,) = draw("roofline", with_ceilings(flop_per_s={"float32": 2e11}, bytes_per_s=1e11))
    (axes,) = drawing.figure.axes
    assert len(axes.lines) == 2  # the roof and naive
    assert "best copy 100 GB/s" in drawing.figure.legends[0].get_texts()[1].get_text()


def test_no_roofline_without_a_rate_in_the_dtype() -> None:
    assert draw("roofline", with_ceilings(flop_per_s={"bfloat16": 2e11}, bytes_per_s=1e11)) == []
