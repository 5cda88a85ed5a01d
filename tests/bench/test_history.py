"""Trends over many runs: planted steps are found where they are, noise is none, and page and figure show it."""

from __future__ import annotations

import math
import random

import planted
import pytest

from bench.errors import NothingSelectedError, UnknownNameError
from bench.history import LEAST_RUNS, change_points, trends
from bench.history.page import PANELS, build_page, draw, trend_rows
from bench.policy import Policy

POLICY = Policy()
CELL = "online_softmax B1-H4-T128-d64-float32-fwd-full"


def series(count, step=1.0, at=None, noise=0.01, seed=0):
    rng = random.Random(seed)
    return [math.exp(rng.gauss(0, noise)) * (step if at is not None and i >= at else 1.0) for i in range(count)]


def planted_runs(count=12, step=1.0, at=6, bytes_at=None, **environment):
    """One run a day; online_softmax takes ``step`` times as long from run ``at`` on."""
    found = []
    for day in range(count):
        rng = random.Random(day)
        cells = []
        for name, centre in (("sdpa_math", 1.0), ("naive", 2.0), ("online_softmax", 1.5)):
            slow = step if name == "online_softmax" and day >= at else 1.0
            record = planted.record(name, 128, centre * slow * math.exp(rng.gauss(0, 0.004)), rounds=10)
            if bytes_at is not None and name == "naive" and day >= bytes_at:
                memory = record.measurement.memory.model_copy(update={"peak_bytes": 7})
                record = record.model_copy(
                    update={"measurement": record.measurement.model_copy(update={"memory": memory})}
                )
            cells.append(record)
        header = {"started_at": f"2026-11-{day + 1:02}T12:00:00+00:00"}
        found.append(planted.run(cells, run_id=f"202611{day + 1:02}T120000Z-0001", header=header, **environment))
    return found


def of_cell(found, cell=CELL):
    (one,) = [trend for trend in found if trend.cell == cell]
    return one


@pytest.mark.parametrize("seed", range(30))
def test_a_step_of_ten_percent_is_found_at_its_place(seed):
    (shift,) = change_points(series(20, 1.10, at=12, seed=seed), 0.03)
    assert abs(shift.index - 12) <= 1
    assert 6 < shift.percent < 14
    assert shift.p_value < 0.01


def test_noise_alone_is_hardly_ever_called_a_change():
    alarms = sum(bool(change_points(series(count, seed=seed), 0.03)) for seed in range(100) for count in (8, 20, 40))
    assert alarms == 0


def test_two_steps_are_two_changes_and_a_drop_is_one():
    values = [one * (1.2 if 10 <= i < 20 else 1.0) for i, one in enumerate(series(30))]
    up, down = change_points(values, 0.03)
    assert (abs(up.index - 10) <= 1, abs(down.index - 20) <= 1) == (True, True)
    assert up.percent > 0 > down.percent


def test_a_step_within_the_margin_and_one_outlier_are_no_change():
    assert change_points(series(40, 1.02, at=20, noise=0.001), 0.03) == []
    spike = series(20)
    spike[10] *= 3
    assert change_points(spike, 0.03) == []


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * (2 * LEAST_RUNS - 1), [0.0] * 20, [1.0] * 20])
def test_too_few_runs_zeros_and_constants_have_no_change(values):
    assert change_points(values, 0.03) == []


def test_a_level_of_exact_repeats_is_found():
    (shift,) = change_points([1.0] * 10 + [1.5] * 10, 0.03)
    assert (shift.index, shift.before, shift.after) == (10, 1.0, 1.5)


def test_a_slowdown_shows_with_the_run_from_which_it_lasts():
    found = trends(planted_runs(step=1.12)[::-1], "time", POLICY)
    assert found[0].cell == CELL, "what changed comes first"
    (shift,) = found[0].shifts
    assert found[0].points[shift.index].run_id == "20261107T120000Z-0001"
    assert not any(trend.shifts for trend in found[1:])
    row = trend_rows(found, "time")[0]
    assert (
        row["what"].startswith("slower by 1")
        and "from run 20261107T120000Z-0001 (0123456789ab) on, p = " in row["what"]
    )


def test_times_of_a_day_when_everything_was_slow_are_no_change():
    """The control was slow as well."""
    runs = planted_runs()
    slow = [planted.record(r.implementation, 128, 3 * r.measurement.samples_ns[0] / 1e6) for r in runs[8].records]
    runs[8] = planted.run(slow, run_id=runs[8].run_id, header={"started_at": runs[8].header.started_at})
    found = trends(runs, "time", POLICY)
    assert not any(trend.shifts for trend in found)
    values = [point.value for point in of_cell(found).points]
    assert max(values) / min(values) < 1.1


def test_exact_numbers_change_at_every_difference():
    found = of_cell(trends(planted_runs(bytes_at=4), "peak_bytes", POLICY), CELL.replace("online_softmax", "naive"))
    (shift,) = found.shifts
    assert (shift.index, shift.after, shift.p_value) == (4, 7, None)


def test_machines_never_share_a_series():
    found = trends(planted_runs(6) + planted_runs(6, cpu="Another CPU"), "time", POLICY)
    assert len(found) == 2 * 3
    assert {len(trend.points) for trend in found} == {6}


def test_nothing_to_show_is_an_error_with_the_next_step():
    with pytest.raises(NothingSelectedError, match="time in two runs of one machine, got none in 1 runs"):
        trends(planted_runs(1), "time", POLICY)
    with pytest.raises(NothingSelectedError):
        trends(planted_runs(3), "time", POLICY, takes=lambda name: False)
    with pytest.raises(UnknownNameError, match="did you mean peak_bytes"):
        trends(planted_runs(3), "peek_bytes", POLICY)


def test_page_and_figure_stand_alone_and_escape_names(tmp_path):
    runs = planted_runs(step=1.12)
    odd = [run.records[2].model_copy(update={"implementation": "<script>x</script>"}) for run in runs]
    runs = [
        planted.run([*run.records, extra], run_id=run.run_id, header={"started_at": run.header.started_at})
        for run, extra in zip(runs, odd, strict=True)
    ]
    found = trends(runs, "time", POLICY)
    page = build_page(found, "time", tmp_path / "history")
    html = page.read_text(encoding="utf-8")
    assert "<script>x" not in html and "&lt;script&gt;x" in html
    assert "slower by 1" in html and "http" not in html
    assert html.count('<th scope="row">') == len(found)
    assert (tmp_path / "history" / "history-time.png").stat().st_size > 10_000


def test_the_figure_shows_the_largest_changes_and_says_that_it_is_a_choice():
    found = trends(planted_runs(step=1.12), "time", POLICY)
    many = (found * PANELS)[: PANELS + 3]
    drawing = draw(many, "time")
    assert len([axes for axes in drawing.figure.axes if axes.lines]) == PANELS
    assert "largest changes" in drawing.caption
    assert "largest changes" not in draw(found, "time").caption
