from __future__ import annotations

import re
from pathlib import Path

import planted
import pytest
from markdown_it import MarkdownIt

from bench.report.material import Material
from bench.report.summary import LIMIT_BYTES, MAX_TEXT, literal, markdown, write_summary
from bench.results import Run

NO_NOTEBOOK = Path("there is no such notebook")
NASTY = (
    "<script>alert(1)</script>",
    "| a | b |",
    "*x* _y_ `z` ~~w~~",
    "[a](https://example.org) ![b](c)",
    "# heading",
    "- item",
    "1. one",
    "line\nbreak\r\n\n# two",
    "a&lt;b &amp; c",
    "back\\slash \\| \\*",
    ":tada: and @octocat or me@example.org",
    "www.example.org https://example.org",
    "λ−🚀 T²",
    "$$x$$ ==y== ++",
    "> quote",
)


def render(text: str) -> str:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)


def plain(html: str) -> str:
    text = re.sub(r"<[^>]+>", "", html)
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        text = text.replace(entity, character)
    return text.strip()


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("frame", ["- {}", "| h |\n|---|\n| {} |", "{}"])
def test_markup_shows_literally_wherever_it_stands(text: str, frame: str) -> None:
    html = render(frame.format(literal(text)))
    tags = set(re.findall(r"<(\w+)", html))
    assert tags <= {"p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}
    assert html.count("<tr>") in (0, 2) and html.count("<td>") == html.count("<tr>") // 2
    assert plain(html).removeprefix("h").strip() == " ".join(text.split())


@pytest.mark.parametrize("text", NASTY)
def test_nothing_is_left_that_a_page_would_link_or_mention(text: str) -> None:
    assert not re.search(r"\w://|(?<!\\)@\w|www\.|(?<!\\):\w+:|<|\n", literal(text))


def test_long_texts_are_cut() -> None:
    assert literal("x" * 1000) == "x" * (MAX_TEXT - 1) + "…"


def material(*runs: Run) -> Material:
    return Material.of(list(runs), NO_NOTEBOOK)


def test_the_summary_holds_verdicts_boards_and_every_cell(tmp_path: Path) -> None:
    run = planted.default_run()
    path = write_summary(material(run), tmp_path)
    text = path.read_text(encoding="utf-8")
    html = render(text)
    assert path.name == "summary.md"
    assert html.count("<tr>") > len(run.records) and "<h1>" in html
    assert "were cut" not in text
    shown = plain(html)
    for words in ("sdpa_flash is fastest", "Leader board: fwd, float32, on cpu", "attention-bench run --sweep default"):
        assert words in shown, words
    rows = [re.findall(r"<td>(.*?)</td>", line) for line in html.split("<tr>")]
    cells = [row for row in rows if len(row) == 8 and row[1].startswith("B1-")]
    assert len(cells) == len(run.records)


def test_failed_cells_come_first_and_reasons_are_listed() -> None:
    run = planted.run([planted.record("a", 128), planted.record("b", 128, status="crashed", reason="signal *11*")])
    text = markdown(material(run))
    table = text[text.index("## Cells\n") :]
    assert table.index("| b |") < table.index("| a |")
    assert r"- b crashed (1): signal \*11\*" in text


def test_markup_in_names_errors_and_host_names_never_becomes_markup() -> None:
    records = [
        planted.record(text, 128 + 8 * place, 1.0, flags=[("unstable", text)]) for place, text in enumerate(NASTY)
    ] + [planted.record(text, 512 + 8 * place, status="crashed", reason=text) for place, text in enumerate(NASTY)]
    html = render(markdown(material(planted.run(records, hostname=NASTY[0], header={"command": "a\n# b <b>"}))))
    tags = set(re.findall(r"<(\w+)", html))
    assert tags <= {
        "h1",
        "h2",
        "h3",
        "p",
        "ul",
        "li",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "pre",
        "code",
        "strong",
    }
    assert html.count("<h1>") == 1
    assert "alert(1)" in plain(html)


def test_the_limit_is_kept_and_what_was_cut_is_said() -> None:
    records = [planted.record("λ" * 90, n, 1.0, status="error", reason="x" * 400) for n in range(16, 3216, 16)]
    whole = markdown(material(planted.run(records)))
    short = markdown(material(planted.run(records)), 20_000)
    assert len(short.encode()) <= 20_000
    cut = re.search(r"\*\*(\d+) lines were cut\*\*", short)
    assert cut is not None and "were cut" not in whole
    kept = short[: cut.start()].rstrip("\n").count("\n") + 1
    assert kept + int(cut[1]) == whole.rstrip("\n").count("\n") + 1
    assert LIMIT_BYTES == 900_000


def test_changes_between_runs_are_part_of_it() -> None:
    runs = [
        planted.run([planted.record("a", 128, ms, processes=6)], run_id=name) for name, ms in (("x", 1.0), ("y", 2.0))
    ]
    text = markdown(material(*runs))
    assert "## Changes between runs" in text and "REGRESSED" in text and "### x to y" in text
    apart = markdown(material(runs[0], planted.run([planted.record("a", 128)], run_id="z", cores=9)))
    assert "are not compared" in apart and "cores differs (2, 9)" in apart
