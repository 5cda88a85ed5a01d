from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import planted
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from bench.analysis import latency_summary
from bench.evidence import Evidence
from bench.plots import Reading
from bench.record import Record, Sampled, TensorError
from bench.report import repeat_command, samples
from bench.report.cells import cell_table
from bench.report.quantities import LINES
from bench.results import Run
from bench.units import format_ms

pytestmark = pytest.mark.browser

Opened = Callable[..., Page]
ROOT = Path(__file__).parents[2]


def rows_of(page: Page, chart: str) -> list[dict[str, Any]]:
    """The rows that a chart draws, out of Vega itself."""
    script = """name => {
      const chart = attentionBench.charts.all.find((one) => one.name === name);
      return (chart.view?.data("cells") ?? []).map((row) => ({ ...row }));
    }"""
    rows: list[dict[str, Any]] = page.evaluate(script, chart)
    return rows


def settled(page: Page) -> None:
    page.evaluate("attentionBench.charts.work")
    page.wait_for_function("document.documentElement.dataset.drawn === 'all'")


def choose(page: Page, select: str, value: str) -> None:
    page.locator(f"#{select}").select_option(label=value)
    settled(page)


def marks(page: Page, chart: str) -> int:
    return page.locator(f"#chart-{chart} .mark-symbol.role-mark path").count()


def opens(page: Page, index: int) -> Any:
    page.evaluate("i => attentionBench.record.open(i)", index)
    page.wait_for_function("i => document.getElementById('record').dataset.cell === String(i)", arg=index)
    return page.locator("#record")


def test_nothing_is_asked_of_a_network_and_nothing_complains(opened: Opened, default_page: Path) -> None:
    page = opened(default_page)  # the fixture looks at requests and at the console
    assert page.locator("figure.chart .plot svg").count() == len(LINES) + 2
    assert page.locator("#broken").is_hidden()


def test_the_policy_names_two_scripts_and_no_other_may_run(default_page: Path) -> None:
    policy = re.findall(r"script-src ([^;]*);", default_page.read_text(encoding="utf-8"))
    assert len(policy) == 1 and re.fullmatch(r"('sha256-[\w+/=]{44}' ){2}'unsafe-eval'", policy[0])


def test_a_script_that_gets_into_the_page_does_not_run(browser: Browser, default_page: Path, tmp_path: Path) -> None:
    text = default_page.read_text(encoding="utf-8")
    for tag in ("<img src=x onerror=\"document.title='run'\">", "<script>document.title='run'</script>"):
        stained = tmp_path / "stained.html"
        stained.write_text(text.replace("<main>", f"<main>{tag}"), encoding="utf-8")
        context = browser.new_context(offline=True)
        page = context.new_page()
        page.goto(stained.as_uri())
        page.locator("html[data-drawn=all]").wait_for(state="attached")
        assert page.title() != "run"
        context.close()


def test_each_chart_draws_the_family_with_the_most_times(opened: Opened, default_page: Path) -> None:
    page, run = opened(default_page), planted.default_run()
    timed = [record for record in run.records if record.status == "ok"]
    for chart in ("latency", "tflops", "ceiling_share", "memory"):
        assert len(rows_of(page, chart)) == len(timed) == marks(page, chart)
    assert len(rows_of(page, "heat_map")) == len({record.problem.key for record in timed})
    drawn = {(row["implementation"], row["panel"], row["x"]): row for row in rows_of(page, "latency")}
    for record in timed:
        assert record.measurement is not None
        found = latency_summary(record.measurement)
        row = drawn[
            record.implementation,
            f"head_dim {record.problem.head_dim}, {record.problem.mask.spec}",
            record.problem.seqlen_k,
        ]
        assert [row["y"], row["lo"], row["hi"]] == pytest.approx([found.median_ms, found.lo_ms, found.hi_ms], rel=1e-6)


def test_drop_downs_offer_what_was_measured_and_change_every_chart(opened: Opened, default_page: Path) -> None:
    page = opened(default_page)
    assert page.locator("#filter-dtype option").all_inner_texts() == ["bfloat16", "float16", "float32"]
    before = {chart: rows_of(page, chart) for chart in ("error", "heat_map")}
    choose(page, "filter-dtype", "float16")
    run = planted.default_run()
    halves = [record for record in run.records if record.problem.dtype == "float16"]
    assert len(rows_of(page, "error")) == len(halves) != len(before["error"])
    assert page.locator("#chart-latency .undrawn summary").inner_text().startswith(f"{len(halves)} cells are not drawn")
    assert "low precision is not timed" in page.locator("#chart-latency .undrawn li").first.text_content()
    assert page.locator("#chart-latency .family").inner_text().startswith("fwd, float16, B=1, H=4")
    assert all(row["label"] == "not timed" for row in rows_of(page, "heat_map"))
    choose(page, "filter-dtype", "float32")
    choose(page, "panel-mask", "causal")
    choose(page, "panel-width", "64")
    assert {row["panel"] for row in rows_of(page, "latency")} == {"head_dim 64, causal"}


def test_the_legend_makes_what_is_chosen_stand_out(opened: Opened, default_page: Path) -> None:
    page = opened(default_page)

    def pale() -> int:
        script = "paths => paths.filter((path) => Number(path.getAttribute('opacity') ?? 1) < 0.5).length"
        return int(page.locator("#chart-latency .mark-symbol.role-mark path").evaluate_all(script))

    assert pale() == 0
    page.locator("#legend").get_by_role("button", name="naive").click()
    page.wait_for_function("attentionBench.charts.all[1].view.signal('chosen').length === 1")
    names = [row["implementation"] for row in rows_of(page, "latency")]
    assert pale() == sum(name != "naive" for name in names) > 0
    assert page.locator("#legend").get_by_role("button", name="naive").get_attribute("aria-pressed") == "true"
    page.locator("#legend").get_by_role("button", name="naive").press("Enter")
    page.wait_for_function("attentionBench.charts.all[1].view.signal('chosen').length === 0")
    assert pale() == 0


def test_conventions_restate_the_same_time(opened: Opened, default_page: Path) -> None:
    page = opened(default_page)
    exact = {(row["i"]): row["y"] for row in rows_of(page, "tflops")}
    page.locator("#chart-tflops .choice").select_option(label="TFLOP/s, dense")
    settled(page)
    dense = {(row["i"]): row for row in rows_of(page, "tflops")}
    assert "TFLOP/s, dense" in page.locator("#chart-tflops svg").first.text_content()
    assert all(
        row["y"] == pytest.approx(exact[i]) if "full" in row["panel"] else row["y"] > 1.2 * exact[i]
        for i, row in dense.items()
    )


def two_by_two() -> Run:
    """bfloat16 exists for batch 2 alone, outliers for backward alone."""
    return planted.run(
        [
            *(
                planted.record("a", n, direction=d, batch_size=b)
                for n in (64, 128)
                for d in ("fwd", "bwd")
                for b in (1, 2)
            ),
            *(planted.record("a", n, dtype="bfloat16", batch_size=2) for n in (64, 128)),
            *(planted.record("a", n, direction="bwd", distribution="outlier") for n in (64, 128)),
        ]
    )


def test_no_combination_that_does_not_exist_can_be_chosen(opened: Opened, build: Callable[..., Path]) -> None:
    page = opened(build("two_by_two", two_by_two()))
    known = {
        (r.problem.direction, r.problem.batch_size, r.problem.dtype, r.problem.distribution)
        for r in two_by_two().records
    }
    names = ("direction", "batch_size", "dtype", "distribution")
    reached = set()
    for name in names:
        for value in page.locator(f"#filter-{name} option").evaluate_all("options => options.map((one) => one.value)"):
            page.locator(f"#filter-{name}").select_option(value)
            settled(page)
            now = tuple(json.loads(page.locator(f"#filter-{other}").input_value()) for other in names)
            assert now in known
            assert json.loads(value) in now and len(rows_of(page, "latency")) == 2
            reached.add(now)
            here = page.locator(f"#filter-{name} > option").evaluate_all("options => options.map((one) => one.value)")
            others = {one for one in known if all(one[k] == now[k] for k in range(4) if names[k] != name)}
            assert {json.loads(one) for one in here} == {one[names.index(name)] for one in others}
    assert reached >= {("fwd", 2, "bfloat16", "normal"), ("bwd", 1, "float32", "outlier")}


def planted_record() -> Record:
    rows = {"valid": TensorError(max_abs=3e-7, rmse=None, rel_rmse=None, nonfinite=0, limit=None)}
    return planted.record(
        "b",
        256,
        2.0,
        processes=6,
        flags=[("contended", "others held the cores")],
        judged=planted.agreement(4e-6, rows=rows, ran=("aten::_planted_kernel",)),
    )


def one_of_three() -> Run:
    return planted.run(
        [
            planted.record("a", 256, 1.0, processes=6),
            planted_record(),
            planted.record("c", 256, status="timeout", reason="longer than 60 s"),
        ]
    )


def test_the_record_of_a_cell_has_its_numbers(opened: Opened, build: Callable[..., Path]) -> None:
    page, record = opened(build("one_of_three", one_of_three())), planted_record()
    dialog = opens(page, 1)
    assert record.measurement is not None
    text = dialog.inner_text()
    summary = latency_summary(record.measurement)
    assert dialog.locator("h2").inner_text() == f"b on {record.problem.key}"
    assert dialog.locator(".median").inner_text() == format_ms(summary.median_ms)
    assert "across processes" in text and "flagged contended: others held the cores" in text
    assert dialog.locator(".verdict").inner_text().endswith("SLOWER")
    assert "6 processes" in text
    assert dialog.locator(".receipt").inner_text() == "aten::_planted_kernel"
    for said in ("4e-06", "2e-05", "valid rows", "3e-07", "needle", "Certified on B2-H4-T160-d64-float32-fwd-full"):
        assert said in text, said
    assert dialog.locator("pre.raw").text_content() == ", ".join(map(str, record.measurement.samples_ns))
    points = page.evaluate("attentionBench.record.view.data('cells').map((row) => row.y)")
    assert points[:-1] == pytest.approx([ns / 1e6 for ns in record.measurement.samples_ns])
    assert points[-1] == pytest.approx(median(points[:-1]), rel=0.01)
    dialog.locator("summary", has_text="Environment").click()
    assert "planted-host" in dialog.inner_text() and "Planted CPU @ 2.00GHz" in dialog.inner_text()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_a_record_without_a_time_says_why(opened: Opened, build: Callable[..., Path]) -> None:
    dialog = opens(opened(build("one_of_three", one_of_three())), 2)
    assert "timeout: longer than 60 s" in dialog.inner_text()
    assert dialog.locator("#samples").count() == 0


def test_points_rows_links_and_the_keyboard_open_the_record(opened: Opened, build: Callable[..., Path]) -> None:
    path, run = build("one_of_three", one_of_three()), one_of_three()
    page = opened(path)
    dialog = page.locator("#record")
    at = "i => document.getElementById('record').open && document.getElementById('record').dataset.cell === String(i)"
    page.locator("#chart-latency .mark-symbol.role-mark path").nth(1).click()
    page.wait_for_function(at, arg=1)
    page.keyboard.press("Escape")
    page.locator("#table tbody tr").nth(2).click()
    page.wait_for_function(at, arg=2)
    page.keyboard.press("Escape")
    page.locator("#table tbody tr button").nth(1).focus()
    page.keyboard.press("Enter")
    page.wait_for_function(at, arg=1)
    linked = page.evaluate("location.hash")
    assert linked == f"#record={run.run_id}/{run.records[1].cell_key}"
    page.locator("#record button", has_text="Close").click()
    assert not dialog.is_visible() and page.evaluate("location.hash") == ""
    other = opened(path, fragment=linked)
    other.wait_for_function(at, arg=1)
    page.locator("#chart-heat_map .mark-text.role-mark text").first.click()
    page.wait_for_function(at, arg=0)


def test_numbers_of_a_chart_are_a_table_whose_rows_open_records(opened: Opened, build: Callable[..., Path]) -> None:
    page = opened(build("one_of_three", one_of_three()))
    details = page.locator("#chart-latency .numbers")
    details.locator("summary").click()
    details.locator("tbody tr").first.wait_for()
    assert details.locator("tbody tr").count() == 2
    assert "2.00 ms" in details.locator("tbody tr").nth(1).inner_text()
    details.locator("button.record").nth(1).click()
    page.wait_for_function("document.getElementById('record').dataset.cell === '1'")


def test_the_command_of_a_record_runs(opened: Opened, tmp_path: Path) -> None:
    bench = [sys.executable, "-m", "bench"]
    where = ["-o", str(tmp_path / "runs"), "--reports", str(tmp_path / "reports")]
    words = ["run", "--sweep", "smoke", "-i", "naive", "-i", "sdpa_math", *where]
    subprocess.run([*bench, *words], check=True, cwd=ROOT, capture_output=True)
    (built,) = (tmp_path / "reports").glob("*/index.html")
    dialog = opens(opened(built), 0)
    command = shlex.split(dialog.locator(".copyable code").inner_text())
    assert command[0] == "attention-bench"
    again = subprocess.run([*bench, *command[1:]], check=False, cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    newest = max((tmp_path / "runs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    cells = [json.loads(line) for line in newest.read_text().splitlines() if '"type":"cell"' in line]
    assert len(cells) == 1


def test_the_table_shows_every_field_as_python_writes_it(opened: Opened, build: Callable[..., Path]) -> None:
    beside = {"setup_ns": 1_234_567_890, "others": (Sampled(clock="my_clock", samples_ns=(25_000,), processes=(0,)),)}
    awkward = [0.0125, 0.1025, 1.025, 10.25, 102.5, 1025.0, 999.4, 999.5, 9.995, 1e-7, 123456.0]
    run = planted.run(
        [
            *(
                planted.record("a", 64 + n, ms, noise=0, judged=planted.agreement(ms * 1e-6))
                for n, ms in enumerate(awkward)
            ),
            planted.record("b", 64, 1.0, measured=beside),
            planted.record("b", 65, status="unsupported", reason="too wide"),
        ]
    )
    page, table = opened(build("awkward", run)), cell_table(Reading([run]))
    shown = page.locator("#table tbody tr").evaluate_all(
        "rows => rows.map((row) => Array.from(row.cells, (cell) => [cell.textContent, cell.title]))"
    )
    wanted = [[[field.text, field.reason] for field in row.fields] for row in table.rows]
    assert len(shown) == len(wanted)
    for told, row in zip(shown, wanted, strict=True):
        for (text, reason), (field, why), head in zip(told, row, table.heads, strict=True):
            assert text == field, head.title
            assert head.title == "implementation" or reason == why, head.title


def test_the_table_sorts_and_filters(opened: Opened, default_page: Path) -> None:
    page, run = opened(default_page), planted.default_run()
    times = sorted(row["latency_ms"] for row in Reading([run]).rows if row["latency_ms"] is not None)
    head = page.locator("#table thead th[data-column='latency']")
    column = 4

    def first() -> str:
        return page.locator(f"#table tbody tr:first-child > :nth-child({column})").inner_text()

    head.get_by_role("button").click()
    assert (first(), head.get_attribute("aria-sort")) == (format_ms(times[0]), "ascending")
    head.get_by_role("button").click()
    assert (first(), head.get_attribute("aria-sort")) == (format_ms(times[-1]), "descending")
    page.locator("#filter").fill("Unsupported SDPA_FLASH")
    assert page.locator("#shown").inner_text() == "11 of 296 rows."
    assert page.locator("#table tbody tr").count() == 11
    page.locator("#filter").fill("")
    assert page.locator("#shown").inner_text() == "296 of 296 rows, the first 100 shown."
    page.locator("#more").click()
    assert page.locator("#table tbody tr").count() == 296 and page.locator("#more").is_hidden()


def test_which_one_answers_with_the_nearest_measured_problem(opened: Opened, default_page: Path) -> None:
    page = opened(default_page)
    form = page.locator("#problem")
    for name, value in {"seqlen_q": "1000", "seqlen_k": "1000", "head_dim": "64"}.items():
        form.locator(f"[name={name}]").fill(value)
    form.locator("[name=mask]").select_option("causal")
    form.get_by_role("button").click()
    answer = page.locator("#answer")
    assert answer.locator("h3").first.inner_text() == "Nearest measured: B1-H4-T1024-d64-float32-fwd-causal"
    text = answer.inner_text()
    assert "seqlen_q 1024 instead of 1000" in text and "is_causal=True" in text
    run = planted.default_run()
    reading = Reading([run])
    rows = [row for row in reading.rows if row["problem"] == "B1-H4-T1024-d64-float32-fwd-causal"]
    best, clear = reading.fastest(rows)
    assert clear and f"{best['implementation']} is fastest: {format_ms(best['latency_ms'])}" in text
    assert answer.locator("table").first.locator("tbody tr").count() == 4
    answer.locator("button.record").first.click()
    page.wait_for_function("document.getElementById('record').open")


def three_rivals() -> Run:
    """b is next and clearly slower; c has the larger median and may be as fast."""
    noise = {"a": 0.0, "b": 0.0, "c": 0.9}
    times = {"a": 1.0, "b": 1.1, "c": 1.2}
    return planted.run(
        [planted.record(name, 256, ms, noise=noise[name], processes=6, rounds=5) for name, ms in times.items()]
    )


def test_which_one_and_the_heat_map_name_who_may_be_as_fast(opened: Opened, build: Callable[..., Path]) -> None:
    page = opened(build("rivals", three_rivals()))
    page.locator("#problem button").click()
    assert "Which of a and c is faster by more than 3% is UNCLEAR: a 1.00 ms" in page.locator("#answer").inner_text()
    (tile,) = rows_of(page, "heat_map")
    assert (tile["who"], tile["clear"]) == ("a or c", False)


def test_which_one_says_the_same_and_names_the_run(opened: Opened, build: Callable[..., Path]) -> None:
    def run(name: str, **env: Any) -> Run:
        cells = [planted.record(n, 256, ms, noise=0.001, processes=6) for n, ms in (("a", 1.0), ("b", 1.01))]
        odd = [planted.record(n, 256, ms, noise=0, distribution="outlier") for n, ms in (("a", 9.0), ("b", 1.0))]
        return planted.run([*cells, *odd], run_id=name, **env)

    page = opened(build("same", run("first"), run("second", cores=64)))
    form = page.locator("#problem")
    form.locator("[name=seqlen_q]").fill("256")
    form.locator("[name=seqlen_k]").fill("256")
    form.get_by_role("button").click()
    answer = page.locator("#answer").inner_text()
    assert answer.startswith("Measured: B1-H4-T256-d64-float32-fwd-full\n")  # the usual inputs, not the outliers
    assert "a and b are the SAME within 3%: a 1.00 ms [" in answer
    assert "Run second, planted-host, warm allocator, cores 64." in answer
    assert "There is no ready call for a" in answer


def test_a_sentence_says_when_it_speaks_of_more_than_is_shown(opened: Opened, default_page: Path) -> None:
    page = opened(default_page)
    said = page.locator("#chart-latency .said")
    whole = said.inner_text()
    assert whole.startswith("Clearly fastest of 66 problems")
    choose(page, "panel-mask", "causal")
    assert said.inner_text() == f"Speaks of all head widths and masks here. {whole}"
    page.locator("#chart-tflops .choice").select_option(label="TFLOP/s, dense")
    settled(page)
    assert page.locator("#chart-tflops .said").inner_text().startswith("Speaks of TFLOP/s, exact pairs, of all head")


def test_a_band_that_reaches_zero_is_said_and_not_called_exact(opened: Opened, build: Callable[..., Path]) -> None:
    zero = planted.record("a", 128, measured={"samples_ns": (0, 9, 9, 9, 9, 9, 9), "processes": (0,) * 7})
    page = opened(build("reaches", planted.run([zero, planted.record("a", 256)])))
    said = {row["x"]: row["said"] for row in rows_of(page, "latency")}
    assert said[128] == "not drawn: the latency's is [0, 9.00e-06] ms" and said[256].startswith("[")
    assert {row["said"] for row in rows_of(page, "memory")} == {"exact"}
    assert {row["said"] for row in rows_of(page, "error")} == {"one number"}


def test_two_runs_of_parts_of_a_problem_do_not_make_one_of_them_alone(
    opened: Opened, build: Callable[..., Path]
) -> None:
    first = planted.run([planted.record(n, 256, ms, noise=0) for n, ms in (("a", 1.0), ("b", 2.0))], run_id="1")
    second = planted.run([planted.record("c", 256, 9.0)], run_id="2")
    page = opened(build("parts", first, second))
    assert [row["label"] for row in rows_of(page, "heat_map")] == ["a\n2.00x"]


def test_a_roof_of_another_run_does_not_hide_the_points(opened: Opened, build: Callable[..., Path]) -> None:
    first = planted.run([planted.record("a", 256)], run_id="1")
    second = planted.run([planted.record("a", 512)], run_id="2", header={"ceilings": None})
    page = opened(build("roofs", first, second))
    points = {row["x"] for row in rows_of(page, "roofline") if "roof" not in row}
    assert len(points) == 2 and page.locator("#chart-roofline .undrawn").is_hidden()


def test_an_impossible_tile_says_what_its_flag_says(opened: Opened, build: Callable[..., Path]) -> None:
    magic = planted.record("a", 256, 1e-6, flags=[("impossible", "beats the ceiling")])
    page = opened(build("magic", planted.run([magic, planted.record("b", 512)])))
    tile = next(row for row in rows_of(page, "heat_map") if row["x"] == 256)
    assert (tile["label"], tile["said"]) == ("impossible", "impossible, beats the ceiling")


def test_blocks_on_their_own_are_in_the_record(opened: Opened, build: Callable[..., Path]) -> None:
    run = planted.run([planted.record("a", 256, measured={"isolated_ns": (100, 90, 120)})])
    dialog = opens(opened(build("alone", run)), 0)
    assert "3 blocks on their own" in dialog.inner_text()
    assert dialog.locator("pre.raw").last.text_content() == "100, 90, 120"


def test_the_table_of_changes_sorts_by_numbers(opened: Opened, build: Callable[..., Path]) -> None:
    lengths = {64: 1.02, 128: 1.1, 256: 12.0, 512: 2.5}
    runs = [
        planted.run(
            [planted.record("a", n, ratio**which, noise=0.001, processes=6) for n, ratio in lengths.items()],
            run_id=name,
        )
        for which, name in enumerate(("old", "new"))
    ]
    page = opened(build("changes", *runs))
    page.locator("#compare details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    table = page.locator("#compare table.sortable").first
    table.locator("thead button", has_text="time").click()
    assert table.locator("tbody tr td:nth-child(3)").all_inner_texts() == ["1.10x", "2.50x", "12.0x"]


def test_which_one_does_not_decide_what_the_samples_do_not(opened: Opened, build: Callable[..., Path]) -> None:
    tie = planted.run([planted.record(name, 256, 1.0, noise=0.2) for name in ("a", "b")])
    page = opened(build("tie", tie))
    page.locator("#problem button").click()
    assert "a and b cannot be told apart" in page.locator("#answer").inner_text() or (
        "b and a cannot be told apart" in page.locator("#answer").inner_text()
    )
    assert rows_of(page, "heat_map")[0]["label"].endswith("unclear")


def test_zero_missing_and_not_finite_are_listed_with_what_they_are(opened: Opened, build: Callable[..., Path]) -> None:
    run = planted.run(
        [
            planted.record("a", 64, 0.0, noise=0),
            planted.record("a", 128, 1.0, judged=planted.agreement(0.0)),
            planted.record(
                "a", 256, status="incorrect", reason="NaN", judged=planted.agreement(None, nonfinite=9, passed=False)
            ),
            planted.record("a", 512, 4.0),
            planted.record("b", 512, 5.0),
        ]
    )
    page = opened(build("zero", run))
    latency = page.locator("#chart-latency .undrawn li").all_text_contents()
    assert any("length 64: is 0, which a logarithmic axis cannot show" in text for text in latency)
    assert any("length 256: not measured: NaN" in text for text in latency)
    error = page.locator("#chart-error .undrawn li").all_text_contents()
    assert any("length 128: is 0," in text for text in error) and any(
        "length 256: no finite error" in text for text in error
    )
    assert [row["x"] for row in rows_of(page, "error")] == [64, 512, 512]
    assert any(row["label"] == "WRONG" and row["said"] == "NaN" for row in rows_of(page, "heat_map"))


def test_one_point_and_none_at_all_give_a_page(opened: Opened, build: Callable[..., Path]) -> None:
    page = opened(build("one", planted.run([planted.record("a", 128)], header={"ceilings": None})))
    assert len(rows_of(page, "latency")) == 1
    assert page.locator("#chart-roofline .plot").is_hidden()
    assert "no ceiling" in str(page.locator("#chart-roofline .undrawn li").text_content())
    page = opened(build("none", planted.run([planted.record("a", 128, status="crashed", reason="<b>boom</b>")])))
    page.locator("#chart-latency .undrawn summary").click()
    assert "<b>boom</b>" in page.locator("#chart-latency").inner_text()
    page.locator("#problem button").click()
    assert "Nothing was timed" in page.locator("#answer").inner_text()


def test_a_run_of_demonstrations_alone_gives_a_page(opened: Opened, build: Callable[..., Path]) -> None:
    evidence = Evidence(kind="demonstration", name="n", rows=({"k": "a", "x": 1},), seconds=0.1)
    page = opened(build("evidence", replace(planted.run([]), evidence=[evidence])))
    assert page.locator("#broken").is_hidden() and page.locator("#cells").is_hidden()
    assert page.locator("#claims").is_visible() and not page.locator("figure.chart:visible").count()


def test_markup_in_names_shows_literally_everywhere(opened: Opened, build: Callable[..., Path]) -> None:
    name, reason = "</script><img src=x onerror=alert(1)>'];x=1//", "<script>alert(2)</script>"
    records = [planted.record(name, n, float(n), flags=[("unstable", reason)]) for n in (64, 128)]
    records += [planted.record("b", 64), planted.record("b", 128, status="crashed", reason=reason)]
    page = opened(build("markup", planted.run(records, hostname="<i>host</i>")))
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    assert page.locator("#legend button").first.inner_text() == name
    page.locator("#chart-latency .mark-symbol.role-mark path").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert name in page.locator("#vg-tooltip-element").inner_text()
    dialog = opens(page, 0)
    assert name in dialog.inner_text() and reason in dialog.inner_text()
    page.keyboard.press("Escape")
    page.locator("#problem button").click()
    assert page.locator("img").count() == 0 and not dialogs


def test_a_large_page_shows_quantiles_and_links_the_samples(
    opened: Opened, build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = planted.run([planted.record("a", n, n / 100, rounds=64) for n in (128, 256)])
    monkeypatch.setattr(samples, "MAX_RECORDS", 1)
    page = opened(build("large", run))
    dialog = opens(page, 1)
    assert dialog.locator("a").get_attribute("href") == f"{run.run_id}.jsonl"
    points = page.evaluate("attentionBench.record.view.data('cells').map((row) => row.y)")
    measurement = run.records[1].measurement
    assert measurement is not None and len(points) == samples.QUANTILES + 1
    assert [points[0], points[-2]] == pytest.approx(
        [min(measurement.samples_ns) / 1e6, max(measurement.samples_ns) / 1e6], rel=2e-4
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opened: Opened, illustrated: Path, scheme: str) -> None:
    page = opened(illustrated, color_scheme=scheme)
    page.locator("#problem button").click()
    page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    opens(page, 3)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_colours_follow_the_system_or_the_switch(opened: Opened, default_page: Path) -> None:
    page = opened(default_page, color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) == "rgb(22, 24, 28)"
    page.locator("#theme").select_option("light")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    axis = "getComputedStyle(document.querySelector('#chart-latency .role-axis-label text')).fill"
    assert page.evaluate(axis) == "rgb(28, 30, 33)"
    page.locator("#theme").select_option("dark")
    assert page.evaluate(axis) == "rgb(231, 233, 236)"


@pytest.mark.parametrize("width", [1280, 420])
def test_the_page_never_scrolls_sideways(opened: Opened, default_page: Path, width: int) -> None:
    page = opened(default_page, viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1280, 700])
def test_paper_shows_whole_charts_and_no_controls(
    opened: Opened, illustrated: Path, tmp_path: Path, width: int
) -> None:
    page = opened(illustrated, viewport={"width": width, "height": 1000})
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 between margins of 10 mm
    outside = page.locator("figure.chart svg").evaluate_all(
        "all => all.filter((svg) => { const box = svg.getBoundingClientRect(); "
        "return box.right > document.documentElement.clientWidth + 1 || box.width < 100; }).length"
    )
    assert outside == 0
    heights = page.locator("figure.chart").evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)")
    assert max(heights) < 1040  # no chart is taller than a sheet, and none breaks within
    assert page.locator("#problem").is_hidden() and page.locator("nav").is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    pdf = page.pdf(format="A4", path=tmp_path / "page.pdf")
    assert pdf.startswith(b"%PDF") and pdf.count(b"/Type /Page\n") > 5


def test_two_machines_never_share_a_chart(opened: Opened, build: Callable[..., Path]) -> None:
    runs = [
        planted.run([planted.record("a", n, float(n)) for n in (64, 128)], run_id="first"),
        planted.run(
            [planted.record("a", n, n / 2) for n in (64, 128)], run_id="second", cpu="Other CPU", hostname="other"
        ),
    ]
    page = opened(build("machines", *runs))
    drawn = []
    for value in page.locator("#filter-machine option").evaluate_all("options => options.map((one) => one.value)"):
        page.locator("#filter-machine").select_option(value)
        settled(page)
        drawn.append(sorted(row["y"] for row in rows_of(page, "latency")))
    assert [len(ys) for ys in drawn] == [2, 2] and drawn[0] != drawn[1]


def test_the_command_on_the_page_is_that_of_python(opened: Opened, default_page: Path) -> None:
    run, page = planted.default_run(), opened(default_page)
    told = page.evaluate("Array.from({ length: attentionBench.data.count }, (_, i) => attentionBench.data.command(i))")
    assert told == [repeat_command(record, run.header) for record in run.records]
