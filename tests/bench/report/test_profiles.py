"""Profiles on the page: which belong to it, what its charts draw, and what is said under them."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import planted
import pytest
import vl_convert
from pages import Page, own_text
from planted_profile import digest, overhead, stage

from bench.cli._shared import build_in
from bench.digest import Digest, KernelRow, Lifetime, MemoryTimeline, Tensor, Tool, save_digest
from bench.plots import Reading
from bench.problem import Problem
from bench.report import Material, build_report
from bench.report.profile_charts import colours, profile_specifications, share_rows, timeline_rows
from bench.report.profile_sentences import held_sentence, roof_sentence, stage_sentence
from bench.report.profiles import command, drawings, section
from bench.report.redaction import redacted, redacted_profiles
from bench.report.stored_profiles import Profile, Profiles, find_profiles
from bench.results import Run

FUSED = (stage("fused attention", 97.0, roof="compute"), overhead(3.0))
HOSTILE = "</script><img src=x onerror=alert(1)>"


def run(**env: Any) -> Run:
    """naive and sdpa_flash at three lengths, on the machine of the planted digests."""
    cells = [planted.record(name, n) for n in (256, 512, 1024) for name in ("naive", "sdpa_flash")]
    version = digest().implementation_version
    made = planted.run(cells, **({"torch_threads": 2, "device": "cpu"} | env))
    return replace(made, records=[one.model_copy(update={"implementation_version": version}) for one in made.records])


def here(digest: Digest, of: Run) -> Digest:
    """The digest as if it were made in the state of the run, with a call as fast as there."""
    env = of.header.environment
    latency = planted.TIME_LAWS[digest.implementation](digest.problem.seqlen_k)
    state = {"cpu": env.cpu, "git_commit": env.git_commit, "git_dirty": env.git_dirty}
    return digest.model_copy(update=state | {"unprofiled_ms": latency, "total_ms": latency})


def stored(folder: Path, name: str, one: Digest, age_s: int = 0) -> Path:
    (folder / name).mkdir(parents=True)
    path = save_digest(one, folder / name)
    os.utime(path, (1_700_000_000 - age_s,) * 2)
    return path


def material(*digests: Digest) -> Material:
    profiles = Profiles(tuple(Profile(one, "folder") for one in digests))
    return Material(Reading([run()]), [], profiles=profiles)


def data(shown: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(shown["packed"])))
    return content


def test_the_newest_profile_of_each_cell_belongs_to_the_report(tmp_path: Path) -> None:
    of = run()
    stored(tmp_path, "old", here(digest(512), of).model_copy(update={"steps": 7}), age_s=60)
    stored(tmp_path / "deep" / "down", "new", here(digest(512), of))
    stored(tmp_path, "flash", here(digest(256, "sdpa_flash", FUSED), of))
    stored(tmp_path, "of no cell", here(digest(300), of))
    stored(tmp_path, "of nobody", digest(512, "another"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "digest.json").write_text("{}")
    found = find_profiles([of], tmp_path)
    assert [(one.digest.implementation, one.digest.problem.seqlen_k, one.digest.steps) for one in found.found] == [
        ("sdpa_flash", 256, 3),
        ("naive", 512, 3),
    ]
    assert found.found[1].folder.endswith("deep/down/new")
    assert not found.refused and not [doubt for one in found.found for doubt in one.doubts]


@pytest.mark.parametrize(
    ("field", "value"),
    [("threads", 64), ("device_name", "another"), ("implementation_version", "1.0"), ("cpu", "another processor")],
)
def test_a_profile_of_another_machine_is_refused_with_the_reason(tmp_path: Path, field: str, value: Any) -> None:
    of = run()
    stored(tmp_path, "one", here(digest(512), of).model_copy(update={field: value}))
    found = find_profiles([of], tmp_path)
    assert not found.found and len(found.refused) == 1
    assert (
        found.refused[0].startswith("naive on B1-H4-T512-d64-float32-fwd-full in ") and str(value) in found.refused[0]
    )
    stored(tmp_path, "older and fitting", here(digest(512), of), age_s=60)
    found = find_profiles([of], tmp_path)
    assert len(found.found) == 1 and not found.refused


def test_another_state_of_the_code_is_said(tmp_path: Path) -> None:
    of = run(git_commit="a" * 40, git_dirty=False)
    other = {"git_commit": "b" * 40, "git_dirty": True}
    stored(tmp_path, "one", here(digest(512), of).model_copy(update=other))
    (one,) = find_profiles([of], tmp_path).found
    assert one.doubts == ("profiled at commit bbbbbbbbbb with uncommitted changes, measured at commit aaaaaaaaaa",)


def test_a_profile_that_stretched_its_call_is_doubted(tmp_path: Path) -> None:
    of = run()
    one = here(digest(512), of)
    stored(tmp_path, "one", one.model_copy(update={"total_ms": 2 * (one.unprofiled_ms or 0)}))
    (found,) = find_profiles([of], tmp_path).found
    assert len(found.doubts) == 1 and "under the profiler" in found.doubts[0]


def test_bars_are_the_shares_and_end_where_the_next_begins() -> None:
    both = digest(256, stages=(stage("softmax", 40.0), stage("softmax", 50.0, half="backward"), overhead(10.0)))
    rows = share_rows([both, digest(512)], "stage")
    parts = [(row["x"], row["name"], row["lo"], row["hi"]) for row in rows if "name" in row]
    assert parts == [
        (256, "softmax", 0, 90),
        (256, "overhead", 90, 100),
        (512, "score product", 0, 30),
        (512, "softmax", 30, 80),
        (512, "value product", 80, 95),
        (512, "overhead", 95, 100),
    ]
    assert [(row["total"], row["hi"]) for row in rows if "total" in row] == [("100 ms", 100)] * 2
    assert [row["value"] for row in rows if row.get("name") == "softmax"] == ["90.0 ms", "50.0 ms"]


def test_roofs_are_summed_over_stages_and_one_that_is_not_known_is_named() -> None:
    stages = (
        stage("score product", 30.0, roof="compute"),
        stage("softmax", 25.0),
        stage("value product", 20.0, roof="compute"),
        stage("other", 20.0, roof=None, roof_fraction=None, reason="no shapes"),
        overhead(5.0),
    )
    rows = share_rows([digest(256, stages=stages)], "roof")
    shares = {row["name"]: row["said"] for row in rows if "name" in row}
    assert shares == {"overhead": "5.0%", "compute": "50.0%", "bandwidth": "25.0%", "roof not known": "20.0%"}
    assert roof_sentence([digest(256, stages=stages)]) == (
        "Time by the roof that stages are nearest to. At T=256, naive (100 ms): compute 50%, bandwidth 25%, "
        "roof not known 20%."
    )


def test_the_sentence_of_stages_follows_from_the_digests() -> None:
    early = (stage("softmax", 20.0), stage("score product", 20.0), overhead(60.0))
    digests = [digest(256, stages=early), digest(1024), digest(1024, "sdpa_flash", FUSED, total_ms=20.0)]
    assert stage_sentence(digests) == (
        "At T=1024, naive (100 ms): softmax 50%, score product 30%, value product 15%; sdpa_flash (20.0 ms): fused "
        "attention 97%, overhead 3%. From T=256 to 1024, overhead goes from 60% to 5% in naive. In sdpa_flash softmax, "
        "scale and mask are within the fused kernel."
    )


def test_lengths_that_differ_are_each_named_and_small_changes_are_not_said() -> None:
    later = (stage("softmax", 52.0), stage("score product", 28.0), stage("value product", 15.0), overhead(5.0))
    said = stage_sentence([digest(256), digest(512, stages=later), digest(256, "sdpa_flash", FUSED)])
    assert said.startswith("naive at T=512 (100 ms): softmax 52%") and "; sdpa_flash at T=256 (100 ms): fused" in said
    assert "goes from" not in said


def test_a_fused_kernel_beside_a_softmax_of_its_own_is_not_said_to_hold_it() -> None:
    mixed = (stage("fused attention", 60.0), stage("scale and mask", 35.0), overhead(5.0))
    assert "within the fused kernel" not in stage_sentence([digest(256, "mixed", mixed)])
    assert "within the fused kernel" not in stage_sentence([digest(256)])


def test_memory_rows_are_the_live_bytes_and_the_sentence_names_the_owners() -> None:
    problem = Problem(seqlen=128)
    matrix, out = problem.all_pairs * 4, problem.output_bytes
    rows, looks = timeline_rows(digest(128))
    levels = {(row["name"], row["x"]): (row["lo"], row["hi"]) for row in rows if "name" in row}
    assert levels["scores", 0] == (0, matrix) and levels["weights", 0] == (matrix, matrix)
    assert levels["weights", 40] == (matrix, 2 * matrix) and levels["out", 70] == (2 * matrix, 2 * matrix + out)
    assert levels["out", 90] == (0, out)
    (peak,) = [row for row in rows if "peak" in row]
    assert (peak["x"], peak["hi"]) == (70, 2 * matrix + out)
    assert looks["domain"] == ["scores", "weights", "out"] and len(set(looks["range"])) == 3
    assert held_sentence(digest(128)) == (
        "At most 655 kB are held at once beyond the inputs, first 70.0 ms after the begin of a call of 100 ms: scores "
        "40%, weights 40%, out 20%; 131 kB outlive the call."
    )


def many_owners() -> MemoryTimeline:
    sizes = (500, 300, 100, 60, 40)
    return MemoryTimeline(
        method="allocator_events",
        peak_bytes=1000,
        peak_ms=1.0,
        end_ms=2.0,
        output_bytes=0,
        owners=tuple(Tensor(name=f"t{i}", peak_bytes=size, count=1) for i, size in enumerate(sizes)),
        lifetimes=tuple(
            Lifetime(owner=f"t{i}", operator="o", size_bytes=size, start_ms=1.0, stop_ms=2.0, at_peak=True)
            for i, size in enumerate(sizes)
        ),
        omitted=4,
    )


def test_the_rest_of_the_peak_is_said_and_nothing_is_said_of_nothing() -> None:
    said = held_sentence(digest(64, memory=many_owners()))
    assert "t0 50%, t1 30%, t2 10%, 2 others 10%; 0 B outlive" in said and "4 small allocations are not drawn" in said
    empty = many_owners().model_copy(update={"peak_bytes": 0, "owners": (), "lifetimes": (), "omitted": 0})
    assert held_sentence(digest(64, memory=empty)) == "The call allocates nothing."


def drawn(name: str, rows: list[dict[str, Any]], looks: dict[str, list[str]]) -> str:
    chart = profile_specifications()[name]
    chart.get("spec", chart)["layer"][0]["encoding"]["color"]["scale"] |= looks
    return vl_convert.vegalite_to_svg(chart | {"datasets": {"cells": rows}})


def test_charts_draw_every_part_in_the_colour_of_its_name() -> None:
    rows = share_rows([digest(256), digest(512), digest(256, "sdpa_flash", FUSED)], "stage")
    looks = colours(rows)
    svg = drawn("stages", rows, looks)
    bars = re.findall(r'<path aria-label="[^"]*"[^>]*aria-roledescription="bar"[^>]*fill="([^"]+)"', svg)
    assert sorted(bars) == sorted(
        dict(zip(looks["domain"], looks["range"], strict=True))[row["name"]] for row in rows if "name" in row
    )
    rows, looks = timeline_rows(digest(64))
    svg = drawn("timeline", rows, looks)
    assert all(f'fill="{colour}"' in svg for colour in looks["range"]) and "peak 197 kB" in svg


def test_charts_hold_no_data_and_names_are_no_expressions() -> None:
    assert not re.findall(r"'url'|'values': \[\{", str(profile_specifications()))
    rows = share_rows([digest(256, HOSTILE, (stage(HOSTILE, 95.0), overhead(5.0)))], "stage")
    svg = drawn("stages", rows, colours(rows))
    assert "<img" not in svg and "&lt;img" in svg


def test_drop_downs_offer_the_families_and_kinds_that_exist() -> None:
    bare = (stage("other", 95.0, roof=None, roof_fraction=None, reason="no shapes"), overhead(5.0))
    causal = digest(problem=Problem(seqlen=256, mask="causal"), stages=bare)
    content = data(section(material(causal, digest(256), digest(512), digest(512, memory=None, total_ms=None))))
    assert [one["title"] for one in content["families"]] == [
        "B1-H4-d64-float32-fwd-full on cpu",
        "B1-H4-d64-float32-fwd-causal on cpu",
    ]
    assert [list(one["kinds"]) for one in content["families"]] == [["stage", "roof"], ["stage"]]
    assert {row["x"] for row in content["families"][0]["kinds"]["stage"]["rows"]} == {256, 512}
    assert [one["title"] for one in content["timelines"]] == [
        "naive on B1-H4-T512-d64-float32-fwd-full (cpu)",
        "naive on B1-H4-T256-d64-float32-fwd-full (cpu)",
        "naive on B1-H4-T256-d64-float32-fwd-causal (cpu)",
    ]


def test_profiles_of_one_problem_stand_side_by_side() -> None:
    shown = section(material(digest(256), digest(512), digest(512, "sdpa_flash", FUSED)))
    first, second = shown["problems"]
    assert first["title"].startswith("B1-H4-T512-") and second["title"].startswith("B1-H4-T256-")
    heads, rows = first["beside"]
    assert heads == ["stage", "naive", "sdpa_flash"]
    assert ["softmax", "50.0 ms (50.0%)", "-"] in rows and ["fused attention", "-", "97.0 ms (97.0%)"] in rows
    details = first["details"][0]
    assert details["tables"][0][1][0] == [
        "softmax", "50.0 ms", "50.0%", "2", "1.00e+06", "500 kB", "2.00", "bandwidth", "50%",
    ]  # fmt: skip
    assert details["tables"][1][1][0] == ["scores", "4.19 MB", "47.1%", "1"]
    assert details["absent"] == ["ncu (unavailable): no program ncu is found on PATH"]


def test_figures_for_print_show_each_family_and_its_longest_problem() -> None:
    causal = digest(problem=Problem(seqlen=128, mask="causal"))
    ((title, found),) = drawings(material(causal, digest(256), digest(512), digest(512, "sdpa_flash", FUSED)))
    assert title == "Profiles"
    assert [one.stem for one in found] == [
        "stage_shares-B1-H4-d64-float32-fwd-full-on-cpu",
        "memory_timeline-naive-B1-H4-T512-d64-float32-fwd-full",
        "memory_timeline-sdpa_flash-B1-H4-T512-d64-float32-fwd-full",
        "stage_shares-B1-H4-d64-float32-fwd-causal-on-cpu",
        "memory_timeline-naive-B1-H4-T128-d64-float32-fwd-causal",
    ]
    assert drawings(material()) == []


def test_without_profiles_the_section_says_how_to_get_them(tmp_path: Path) -> None:
    text = Page(build_report([run()], tmp_path, figures=False).read_text(encoding="utf-8")).words
    told = command(material())
    assert told is not None and f"{told} makes some; then build the report again." in text
    from bench.cli.profiling import _at_lengths
    from bench.problem_key import parse_problem

    words = shlex.split(told)
    assert words[:6] == ["attention-bench", "profile", "-i", "naive", "-i", "sdpa_flash"]
    problems = _at_lengths(parse_problem(words[words.index("-p") + 1]), words[words.index("--across-seqlen") + 1])
    assert {one.key for one in problems} == {record.problem.key for record in run().records}


def test_no_command_is_told_where_nothing_was_timed(tmp_path: Path) -> None:
    crashed = planted.run([planted.record("naive", 256, status="crashed", reason="it ended")])
    text = Page(build_report([crashed], tmp_path, figures=False).read_text(encoding="utf-8")).words
    assert "attention-bench profile makes them, of cells that have a time" in text


def test_markup_in_names_is_shown_as_it_is(tmp_path: Path) -> None:
    hostile = digest(
        512,
        "naive",
        (stage(HOSTILE, 95.0, operators=(HOSTILE,)), overhead(5.0)),
        kernels=(KernelRow(tool="proton", name=HOSTILE, figures={HOSTILE: HOSTILE, "time_ms": 0.5}),),
        tools=(
            Tool(name=HOSTILE, status="failed", reason=HOSTILE),
            Tool(name="t", status="done", files={HOSTILE: HOSTILE}),
        ),
        memory=many_owners().model_copy(update={"owners": (Tensor(name=HOSTILE, peak_bytes=1000, count=1),)}),
    )
    page = build_report([run()], tmp_path, material=material(hostile), figures=False)
    html = page.read_text(encoding="utf-8")
    assert HOSTILE not in own_text(html) and "<img" not in own_text(html)
    assert Page(html).text.count(HOSTILE) >= 7


SECRETS = ("node17x", "alice7f", "vault9k")


def test_redaction_leaves_no_secret_of_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    of = run(hostname="node17x.cluster.example")
    said = "on node17x.cluster.example: /home/alice7f/vault9k/kernel.py(12) by alice7f"
    secret = here(
        digest(
            512,
            stages=(stage("other", 95.0, operators=(said,), reason=said), overhead(5.0)),
            kernels=(KernelRow(tool="ncu", name=said, figures={"where": said}),),
            tools=(Tool(name="ncu", status="failed", reason=said, files={said: said}),),
            memory=many_owners().model_copy(update={"owners": (Tensor(name=said, peak_bytes=1000, count=1),)}),
            notes={said: said},
        ),
        of,
    )
    stored(tmp_path / "home" / "alice7f" / "vault9k", "one", secret)
    stored(tmp_path / "vault9k", "two", here(digest(256, threads=99), of))
    found = find_profiles([of], tmp_path)
    assert len(found.found) == len(found.refused) == 1
    (clean,), _ = redacted([of])
    cleaned = redacted_profiles(found, [of])
    text = str(cleaned) + str(data(section(Material(Reading([clean]), [], profiles=cleaned))))
    assert not [one for one in SECRETS if one in text]
    page, _ = build_in([of], tmp_path / "report", redact=True, figures=False, profiles=tmp_path)
    html = page.read_text(encoding="utf-8")
    assert "stages side by side" in html and not [one for one in SECRETS if one in html]


def test_a_doubt_is_said_once_with_its_cells() -> None:
    first, second = (Profile(digest(n), "folder", ("profiled at x, measured at y",)) for n in (256, 512))
    known = Profiles((first, replace(second, doubts=(*second.doubts, "a call took long"))))
    shown = section(Material(Reading([run()]), [], profiles=known))
    assert list(shown["doubts"].items()) == [
        (
            "profiled at x, measured at y",
            "naive on B1-H4-T256-d64-float32-fwd-full, naive on B1-H4-T512-d64-float32-fwd-full",
        ),
        ("a call took long", "naive on B1-H4-T512-d64-float32-fwd-full"),
    ]
