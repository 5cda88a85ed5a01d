from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import planted
import pytest
from pages import NO_NOTEBOOK, Page, own_text, page, titled, unpacked

from bench.claims import hear
from bench.errors import NothingSelectedError, OutputError
from bench.header import Bandwidth, Ceilings, Diagnosis, RunHeader
from bench.notebook import Note, append
from bench.plots import Reading, draw_all
from bench.record import CheckResult, Energy, Record, Sampled, Telemetry, TensorError
from bench.report import PAGE_BYTES, build_report, repeat_command, summary_text
from bench.report.cells import cell_table
from bench.report.field import Field
from bench.report.findings import findings
from bench.report.kernels import kernel_section
from bench.report.soundness import COMMAND
from bench.results import read_run


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Page]:
    path = build_report(
        [planted.default_run()], tmp_path_factory.mktemp("a folder with blanks") / "new" / "ü", NO_NOTEBOOK
    )
    return path, Page(path.read_text(encoding="utf-8"))


def test_page_is_one_file_with_the_figures_beside_it(default: tuple[Path, Page]) -> None:
    path, html = default
    assert path.name == "index.html"
    assert path.stat().st_size < PAGE_BYTES
    pictures = {file.name for file in path.parent.glob("*.png")}
    prints = {name for name in pictures if not name.endswith("@2x.png")}
    assert len(prints) == len(html.images) >= 9
    sources = [str(image["src"]) for image in html.images]
    assert all(source.startswith("data:image/png;base64,") or source in pictures for source in sources)
    assert sum(source.startswith("data:") for source in sources) >= 5
    assert all(len(str(image["alt"])) > 40 for image in html.images)
    assert prints <= set(html.references)


def test_page_asks_nothing_of_a_network(default: tuple[Path, Page]) -> None:
    path, html = default
    assert not [
        ref
        for ref in html.references
        if not ref.startswith(("#", "data:image/png")) and not (path.parent / ref).is_file()
    ]
    text = own_text(path.read_text(encoding="utf-8"))
    assert "vegaEmbed(" in text and len(text) < 500_000  # our own script is in it, and the library is not
    strangers = set(re.findall(r"https?:[^\"' ]*|url\(|@import|fetch\(|XMLHttp", text))
    assert strangers <= {"http://www.w3.org/2000/svg", "https://vega.github.io/schema/vega-lite/v6.4.1.json"}
    assert "default-src 'none'" in text


def test_page_adapts_to_dark_light_and_paper(default: tuple[Path, Page]) -> None:
    text = default[0].read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text and "@media print" in text
    assert 'lang="en"' in text and '<meta charset="utf-8">' in text


def test_page_shows_machine_command_and_prose(default: tuple[Path, Page]) -> None:
    text = default[1].text
    for words in (
        "planted-host",
        "Planted CPU @ 2.00GHz, 2 cores usable",
        "16.0 GB",
        "none (no NVIDIA driver)",
        "not installed",
        "0123456789abcdef0123456789abcdef01234567",
        "warm: freed memory stays with the process",
        "MALLOC_MMAP_MAX_",
        "attention-bench run --sweep default",
        "Naive attention stores all scores",
        "glibc's default",
        "ceiling float32 99.1 GFLOP/s in matrix products",
        "ceiling bfloat16 212 GFLOP/s",
        "71.2 GB/s at best",
        "not planned: flex not part of the sweep default",
        "2.47 to 2.57",
    ):
        assert words in text


def test_every_cell_is_in_the_dataset_with_the_command_that_repeats_it(default: tuple[Path, Page]) -> None:
    run, found = planted.default_run(), default[1].dataset
    cells = found["cells"]
    names, places = unpacked(cells["implementation"]), unpacked(cells["problem"])
    assert len(names) == len(run.records) == 296
    for record, name, place in zip(run.records, names, places, strict=True):
        assert (name, found["problems"]["key"][place]) == (record.implementation, record.problem.key)
        said = f"{found['runs'][0]['command']} -i {found['quoted'][name]} -p {found['problems']['quoted'][place]}"
        assert said == repeat_command(record, run.header)
        words = shlex.split(said)
        assert words[:3] == ["attention-bench", "run", "--sweep"]
        options = dict(zip(words[2::2], words[3::2], strict=True))
        assert {key for key in found["problems"]["key"] if re.search(options["-p"], key)} == {record.problem.key}
        assert {other for other in found["names"] if re.search(options["-i"], other)} == {record.implementation}


def header(command: str) -> RunHeader:
    return planted.run([planted.record()]).header.model_copy(update={"command": command})


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("attention-bench run", "attention-bench run"),
        ("attention-bench run -i flash -p causal --resume auto --time-budget 5m", "attention-bench run"),
        ("attention-bench run --implementation=flash --format json -I x -P y", "attention-bench run"),
        (
            "attention-bench measure --sweep 'my sweep.toml' --set seqlen=64 --allocator default",
            "attention-bench measure --sweep 'my sweep.toml' --set seqlen=64 --allocator default",
        ),
    ],
)
def test_repeat_keeps_what_was_measured_and_replaces_the_choice(command: str, kept: str) -> None:
    record = planted.record("naive", 128, mask="padding(0.5)")
    expected = r"-i '^naive$' -p '^B1-H4-T128-d64-float32-fwd-padding\(0\.5\)$'"
    assert repeat_command(record, header(command)) == f"{kept} {expected}"


def test_repeat_is_safe_to_paste() -> None:
    name = "x'; rm -rf ~; echo $(id) `id`"
    words = shlex.split(repeat_command(planted.record(name, 128, 1.0), header("attention-bench run")))
    assert len(words) == 6
    assert re.search(words[3], name)


def test_missing_numbers_are_dashes_with_reasons_never_zero() -> None:
    records = [
        planted.record("naive", 128),
        planted.record("naive", 256, status="unsupported", reason="head_dim is too wide"),
        planted.record("naive", 512, status="verified", reason="not timed"),
        planted.record("naive", 1024, status="out_of_memory", reason="predicted 9 GB"),
    ]
    rows = [row.fields for row in cell_table(Reading([planted.run(records)])).rows]
    assert [field.reason for field in rows[0][3:] if field.text in ("", "-")] == [
        "nothing else was timed on this problem",
        "no padded queries",
    ]
    for row, reason in zip(rows[1:], ("head_dim is too wide", "not timed", "predicted 9 GB"), strict=True):
        assert not [field for field in row[3:] if re.fullmatch(r"0(\.0*)?( \w+)?", field.text)]
        dashes = [field.reason for field in row if field.text == "-"]
        assert len(dashes) >= 12
        assert all(dashes) and any(reason in dash for dash in dashes)
        assert reason in row[2].text


def test_the_table_shows_what_the_gate_saw(tmp_path: Path) -> None:
    rows_apart = {
        name: TensorError(max_abs=error, rmse=None, rel_rmse=None, nonfinite=0, limit=None)
        for name, error in (("valid", 1e-6), ("padded", 3e-6))
    }
    failing = {
        "needle": CheckResult(passed=True, error=0.0, limit=1.0),
        "row_sums": CheckResult(passed=False, error=2.0, limit=1.0),
    }
    records = [
        planted.record("a", mask="padding(0.5)", judged=planted.agreement(rows=rows_apart, ran=("aten::_flash",))),
        planted.record("b", judged=planted.agreement(deterministic=False, batch_invariant=False)),
        planted.record("c", status="incorrect", judged=planted.agreement(passed=False, checks=failing)),
        planted.record("d", status="unsupported", reason="too wide"),
        planted.record(
            "e", judged=planted.agreement(checks={}, deterministic=None, batch_invariant=None, certificate=None)
        ),
    ]
    table = cell_table(Reading([planted.run(records)]))
    titles = [head.title for head in table.heads]
    shown = [dict(zip(titles, row.fields, strict=True)) for row in table.rows]
    columns = ("valid, padded", "checks", "same bits", "ran")
    assert [shown[0][name].text for name in columns] == [
        "valid 1e-06, padded 3e-06",
        "1 of 1",
        "again, alone",
        "aten::_flash",
    ]
    assert "certified on B2-H4-T160-d64-float32-fwd-full" in shown[0]["checks"].reason
    assert shown[1]["same bits"].text == "not again, not alone"
    assert shown[2]["checks"].text == "1 of 2 (failed: row_sums)"
    assert all(shown[3][name].text == "-" and "too wide" in shown[3][name].reason for name in columns)
    assert shown[4]["checks"].text == shown[4]["same bits"].text == "-"
    assert "no certificate" in shown[4]["checks"].reason


def drawn_data(records: list[Record]) -> tuple[dict[str, tuple[list[list[float]], str]], dict[str, list[str]]]:
    """By file stem: data of all lines with the caption, and the texts within the axes."""
    lines, texts = {}, {}
    for _, drawings in draw_all(Reading([planted.run(records)]))[0]:
        for drawing in drawings:
            panels = drawing.figure.axes
            data = [np.asarray(line.get_xydata()).ravel().tolist() for panel in panels for line in panel.lines]
            lines[drawing.stem] = (data, drawing.caption)
            texts[drawing.stem] = [text.get_text() for panel in panels for text in panel.texts]
    return lines, texts


def test_impossible_rows_are_struck_out_and_leave_the_figures_as_they_are(tmp_path: Path) -> None:
    honest = [
        cell
        for name in ("naive", "sdpa_flash")
        for width in (64, 128)
        for mask in ("full", "causal")
        for cell in planted.ladder(planted.TIME_LAWS[name], name, head_dim=width, mask=mask)
    ]
    magic = [
        planted.record("sdpa_math", length, 1e-4, head_dim=width, mask=mask, flags=[("impossible", "above the peak")])
        for length in planted.LENGTHS
        for width in (64, 128)
        for mask in ("full", "causal")
    ]
    found = page([planted.run([*honest, *magic])], tmp_path).dataset
    sound, flags = unpacked(found["cells"]["sound"]), unpacked(found["cells"]["flags"])
    assert sound.count(False) == flags.count([["impossible", "above the peak"]]) == len(magic) == 44

    timed = {"latency_by_seqlen", "tflops_by_seqlen", "time_per_pair", "latency_by_width", "mask_cost"}
    lines, _ = drawn_data(honest)
    also, texts = drawn_data([*honest, *magic])
    drawn = {stem: data for stem, data in lines.items() if stem.split("-")[0] in timed}
    assert {stem.split("-")[0] for stem in drawn} == timed
    assert {stem: also[stem] for stem in drawn} == drawn
    shown = [text for stem, found in texts.items() if stem.startswith("speedup_heatmap") for text in found]
    assert shown.count("impossible") == 44
    (noted,) = [found for stem, found in texts.items() if stem.startswith("latency_by_seqlen")]
    assert "sdpa_math: impossible" in noted

    kept_out = "sdpa_math (44); kept out of every comparison."
    without, found = (summary_text([planted.run(cells)], NO_NOTEBOOK) for cells in (honest, [*honest, *magic]))
    assert kept_out in found
    for line in without.splitlines():
        if "is fastest" in line or "grows as" in line:
            assert line in found


def test_markup_in_names_and_reasons_shows_literally(tmp_path: Path) -> None:
    name, reason = "<script>alert(1)</script>", '"><img src=x onerror=alert(2)>{{ 7*7 }}'
    records = [
        planted.record(name, 128, 1.0),
        planted.record(name, 256, 1.0, flags=[("unstable", "<b>spread</b>")]),
        planted.record(name, 512, status="crashed", reason=reason),
        planted.record("naive", 128),
    ]
    html = page([planted.run(records, hostname="<i>host</i>")], tmp_path)
    assert html.tags.count("script") == 6  # specifications, choices, dataset, details, library, our own
    assert "i" not in html.tags and "x" not in [image["src"] for image in html.images]
    assert [["unstable", "<b>spread</b>"]] in unpacked(html.dataset["cells"]["flags"])
    assert set(titled(html.dataset, "implementation")) >= {f"{name} 2.13.0"}
    for shown in (name, reason, "<i>host</i>"):
        assert shown in html.text


def test_names_outside_ascii_survive_a_c_locale_without_torch(tmp_path: Path) -> None:
    code = r"""
import sys
sys.path.insert(0, sys.argv[1])
import planted
from pathlib import Path
from bench.report import build_report
cells = [planted.record("\u03bb\u2212\U0001f680", n, 1.0) for n in (64, 128)]
build_report([planted.run(cells)], Path(sys.argv[2]))
names = "worker runner numerics timing probes inputs reference calls".split()
measuring = {f"bench.{name}" for name in names}
loaded = ({"torch", "triton", "implementations"} | measuring) & set(sys.modules)
assert not loaded, loaded
"""
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    arguments = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path)]
    subprocess.run(arguments, env=env, check=True, cwd=Path(__file__).parents[2])
    assert "\u03bb\u2212\U0001f680" in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_five_thousand_cells_of_two_hundred_samples_stay_small_and_say_what_is_left_out(tmp_path: Path) -> None:
    records = [
        planted.record("naive", n, 1.0 + n / 100, batch_size=b, rounds=200)
        for b in range(1, 51)
        for n in range(16, 1616, 16)
    ]
    records[-1] = planted.record("naive", 1600, batch_size=50, status="crashed")
    run = planted.run(records)
    path = build_report([run], tmp_path, NO_NOTEBOOK)
    assert len(records) == 5000
    assert path.stat().st_size < PAGE_BYTES
    html = Page(path.read_text(encoding="utf-8"))
    assert len(html.dataset["cells"]["cell_key"]) == 5000
    assert html.dataset["samples"]["kind"] == "quantiles"
    assert "32 quantiles of the samples of each cell" in html.words and "further figures were left out" in html.text
    lines = (tmp_path / f"{run.run_id}.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 5002
    assert read_run(tmp_path / f"{run.run_id}.jsonl").records == records


def test_figures_that_are_not_drawn_say_why(tmp_path: Path) -> None:
    text = page([planted.run([planted.record()], header={"ceilings": None})], tmp_path).text
    assert "Latency by head width: needs at least two head widths at one sequence length." in text
    assert not list(tmp_path.glob("*.png"))


def test_two_runs_show_both_machines_and_what_differs(tmp_path: Path) -> None:
    runs = [
        planted.run(planted.ladder(lambda t: 1e-5 * t**2, lengths=(64, 128)), run_id="first", allocator="warm"),
        planted.run(planted.ladder(lambda t: 2e-5 * t**2, lengths=(64, 128)), run_id="second", allocator="default"),
    ]
    text = page(runs, tmp_path).text
    assert "first" in text and "second" in text
    assert "allocator (differs: times are not comparable)" in text and "host (differs" not in text
    table = cell_table(Reading(runs))
    assert table.heads[-1].title == "run"
    assert [row.fields[-1].text for row in table.rows] == ["first", "first", "second", "second"]
    assert cell_table(Reading(runs[:1])).heads[-1].title != "run"


def test_statuses_are_counted_and_reasons_listed(default: tuple[Path, Page]) -> None:
    assert "sdpa_flash unsupported (11): planted unsupported" in " ".join(default[1].text.split())


def test_nothing_to_report_is_an_error_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(NothingSelectedError, match="report must have at least one cell"):
        build_report([planted.run([])], tmp_path)


def test_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="report folder must be writable"):
        build_report([planted.run([planted.record()])], tmp_path / "file")


def test_summary_is_the_findings(default: tuple[Path, Page]) -> None:
    run = planted.default_run()
    lines = summary_text([run], NO_NOTEBOOK).splitlines()
    assert lines == [f"- {finding.text}" for finding in findings(Reading([run]), judged=hear([run]))]
    assert 8 < len(lines) < 25
    assert all(line.removeprefix("- ") in default[1].text for line in lines)


def test_table_names_every_column_once() -> None:
    table = cell_table(Reading([planted.run([planted.record()])]))
    titles = [head.title for head in table.heads]
    assert len(titles) == len(set(titles)) == len(table.rows[0].fields)


def shown_columns(*records: Record) -> list[dict[str, Field]]:
    table = cell_table(Reading([planted.run(records)]))
    return [dict(zip([head.title for head in table.heads], row.fields, strict=True)) for row in table.rows]


def test_every_row_is_set_against_the_fastest_with_a_verdict_where_processes_allow_one() -> None:
    milliseconds = {"a": 1.0, "b": 1.2, "c": 1.01}
    several = shown_columns(
        *(planted.record(name, 128, ms, processes=6, noise=0.001) for name, ms in milliseconds.items()),
        planted.record("magic", 128, 1e-6, flags=[("impossible", "planted")]),
    )
    assert [row["against fastest"].text for row in several] == [
        "fastest",
        "1.20x [1.20, 1.20] SLOWER",
        "1.01x [1.01, 1.01] SAME within 3%",
        "-",
    ]
    assert "6 processes, coverage of the interval 96.9%" in several[1]["against fastest"].reason
    assert [row["processes"].text for row in several] == ["6", "6", "6", "1"]
    single = shown_columns(*(planted.record(name, 128, ms, noise=0) for name, ms in milliseconds.items()))
    assert single[1]["against fastest"].text == "1.20x [1.20, 1.20]"
    assert "no verdict" in single[1]["against fastest"].reason
    unpaired = shown_columns(planted.record("a", 128, 1.0, noise=0), planted.record("b", 128, 2.0, noise=0, rounds=8))
    assert unpaired[1]["against fastest"].text == "~2.00x"
    assert "no round timed both" in unpaired[1]["against fastest"].reason


def test_what_stands_beside_the_samples_is_shown_where_some_cell_has_it() -> None:
    beside = {
        "cpu_ns": (5 * 10**8,) * 7,
        "isolated_ns": (10**9,),
        "discarded_rounds": 2,
        "setup_ns": 3_000_000,
        "others": (
            Sampled(clock="cuda_graph", samples_ns=(7_000_000,), processes=(0,)),
            Sampled(clock="my_clock", reason="the call synchronises"),
        ),
        "energy": Energy(joules_per_call=None, method="none", reason="no meter here"),
    }
    full = planted.record("a", 128, 1000.0, noise=0, measured=beside)
    rows = shown_columns(full, planted.record("b", 128, 1.0), planted.record("c", 128, status="timeout", reason="long"))
    names = ("discarded", "wall/CPU", "alone/interleaved", "set-up", "cuda_graph", "my_clock", "energy")
    assert [rows[0][name].text for name in names] == ["2", "2.00", "1.00", "3.00 ms", "7.00 ms", "-", "-"]
    assert rows[0]["my_clock"].reason == "the call synchronises" and rows[0]["energy"].reason == "no meter here"
    assert [rows[1][name].text for name in names] == ["0", "-", "-", "-", "-", "-", "-"]
    assert all(rows[1][name].reason for name in names[1:])
    assert all(rows[2][name].text == "-" and "long" in rows[2][name].reason for name in names)
    bare = shown_columns(planted.record("b", 128, 1.0))[0]
    assert not set(names) - {"discarded"} & bare.keys()


def test_memory_beyond_the_peak_has_columns_where_it_was_read() -> None:
    problem = planted.record("a", 128).problem
    saved = planted.memory("naive", problem).model_copy(update={"saved_bytes": 1000, "reserved_bytes": 2_000_000})
    row, other = shown_columns(planted.record("a", 128, peak=saved), planted.record("b", 128))
    assert (row["kept"].text, row["reserved"].text) == ("1.00 kB", "2.00 MB")
    assert other["kept"].text == "-" and "VmHWM" not in row


def test_a_clock_never_enters_the_series_of_another() -> None:
    """Figures and latencies are those of the main clock, whatever stands beside it."""
    others = (Sampled(clock="cuda_graph", samples_ns=(1,), processes=(0,)),)
    plain = [planted.record("naive", n, noise=0) for n in (64, 128)]
    beside = [planted.record("naive", n, noise=0, measured={"others": others}) for n in (64, 128)]
    assert drawn_data(beside)[0] == drawn_data(plain)[0]
    assert [r["latency"].text for r in shown_columns(*beside)] == [r["latency"].text for r in shown_columns(*plain)]


def notebook_of(folder: Path, notes: list[Note]) -> Path:
    path = folder / "soundness.jsonl"
    for note in notes:
        append(path, note)
    return path


def test_soundness_shows_experiments_rules_and_the_machine(tmp_path: Path) -> None:
    path = notebook_of(tmp_path, [*planted.notes(flagged=30, met=False), *planted.notes(flagged=1)])
    text = " ".join(page([planted.run([planted.record()])], tmp_path / "page", path).text.split())
    assert "in 1 of 600 comparisons (at most 0.79 %" in text  # the last finding counts
    assert "30 of 600" not in text
    for words in (
        "e02_whole_suite: Whole suites?",
        "0 of 30 failed",
        "Planted CPU @ 2.00GHz, 2 cores, torch 2.13.0, 2026-11-30",
        "this harness, before confirmation 1 of 600 (0.17 %) 0.79 % 93.3 % of 60 100 % of 60",
        "pytest-benchmark mean:5% 240 of 600 (40 %) 43.4 % 55 % 55 %",
        "+5 % found",
    ):
        assert words in text, words


def test_without_a_notebook_the_page_says_so(default: tuple[Path, Page]) -> None:
    assert f"was not measured on this machine. {COMMAND} does." in " ".join(default[1].text.split())


def test_kernels_are_shown_by_target_as_the_lock_of_the_checkout_has_them(default: tuple[Path, Page]) -> None:
    text = " ".join(default[1].text.split())
    section = kernel_section()
    assert section is not None and f"{section.spills} Compiled by Triton {section.release}" in text
    for name, limits, tables in section.targets:
        assert f"{name} {limits}" in text
        for one in tables:
            assert f"{one.title}: {len(one.rows)} kernels" in text
            assert " ".join(field.text for field in one.rows[0]) in text


def test_a_notebook_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("{}\n")
    with pytest.raises(OutputError, match="notebook must hold valid lines"):
        build_report([planted.run([planted.record()])], tmp_path / "page", tmp_path / "notes")


def test_what_doctor_found_is_shown_with_the_fix(tmp_path: Path) -> None:
    found = (
        Diagnosis(name="allocator", level="note", seen="warm", fix="none needed"),
        Diagnosis(name="governor", level="warning", seen="powersave", fix="cpupower frequency-set -g performance"),
    )
    text = " ".join(page([planted.run([planted.record()], header={"diagnoses": found})], tmp_path).text.split())
    assert "governor warning powersave cpupower frequency-set -g performance" in text
    assert text.index("governor warning") < text.index("allocator note")


def test_sensors_are_folded_by_device_with_the_reasons_of_missing_readings(tmp_path: Path) -> None:
    windows = tuple(
        Telemetry(
            device="cpu",
            window_s=1.0,
            readings={"load_1min": load, "governor": "powersave", "mhz": None},
            reasons={"mhz": "the kernel shows none"},
        )
        for load in (1.0, 3.0, 2.0)
    )
    html = page([planted.run([planted.record(measured={"telemetry": windows})])], tmp_path)
    text = " ".join(html.text.split())
    assert "cpu: 3 windows" in text and "details" in html.tags
    assert "load_1min 1.000 2.000 3.000" in text
    assert "governor - powersave (3) -" in text
    assert "mhz - - - the kernel shows none (3 of 3)" in text


def test_ceilings_are_shown_in_full_with_the_curve_folded(tmp_path: Path) -> None:
    curve = tuple(
        Bandwidth(kind=kind, working_set_bytes=size, threads=threads, bytes_per_s=rate * 1e9)
        for kind, size, threads, rate in (
            ("copy", 1_000_000, 2, 50.0),
            ("copy", 64_000_000, 2, 20.0),
            ("copy", 64_000_000, 1, 10.0),
            ("triad", 64_000_000, 2, 18.0),
        )
    )
    ceilings = Ceilings(
        flop_per_s={"float32": 2e11},
        bytes_per_s=5e10,
        flop_per_s_one_thread={"float32": 1e11},
        memory_bytes_per_s=2e10,
        bandwidth=curve,
        cache_bytes=32_000_000,
    )
    text = " ".join(page([planted.run([planted.record()], header={"ceilings": ceilings})], tmp_path).text.split())
    assert "working set copy, 2 threads, GB/s triad, 2 threads, GB/s copy, 1 thread, GB/s" in text
    assert "1.00 MB 50.0 - - 64.0 MB 20.0 18.0 10.0" in text
    for words in ("one thread 100 GFLOP/s", "ceiling out of cache 20.0 GB/s", "last cache 32.0 MB"):
        assert words in text, words


def test_the_protocol_of_each_run_is_stated(tmp_path: Path) -> None:
    runs = [
        planted.run([planted.record("a", 128, 2.0, processes=6, noise=0)], run_id="gate"),
        planted.run([planted.record("a", n, 1.0, noise=0) for n in (256, 512)], run_id="default"),
    ]
    text = " ".join(page(runs, tmp_path).text.split())
    assert "gate 1 6 42 1 2.00 ms 0 0 perf_counter none" in text
    assert "default 2 1 7 1 1.00 ms 0 0 perf_counter none" in text


def test_set_up_has_a_table_only_where_there_is_any(tmp_path: Path, default: tuple[Path, Page]) -> None:
    cells = [
        planted.record("plain", 128, 10.0, noise=0, measured={"setup_ns": 0}),
        planted.record("compiled", 128, 6.0, noise=0, measured={"setup_ns": 10**9}),
    ]
    text = " ".join(page([planted.run(cells)], tmp_path).text.split())
    assert "1.00 s 4.00 ms 250 calls [250, 250]" in text
    assert "When set-up pays" not in default[1].text


def test_flags_are_listed_with_what_they_doubt_and_why(tmp_path: Path) -> None:
    cells = [planted.record("a", n, flags=[("contended", "wall time was 3.0x")]) for n in (128, 256)]
    text = " ".join(page([planted.run(cells)], tmp_path).text.split())
    assert "contended others held the cores a (2) wall time was 3.0x" in text
