"""docs/theory.md: formula, code, claim and test stand together, and every number is computed again.

That links lead to existing files is checked for all pages in ``test_docs.py``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bench.claims import claims
from bench.problem import Problem

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "theory.md").read_text(encoding="utf-8")
(CODE,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
TEXT = re.sub(r"^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE)

LINKS = [(re.sub(r"\s+", " ", text), target) for text, target in re.findall(r"(?<!!)\[([^]]*)\]\(([^)]+)\)", TEXT)]
"""Text and target of every link that is no picture."""
NAMES = [(text.strip("`"), target) for text, target in LINKS if re.fullmatch(r"`\w+`", text)]
"""Links whose text is the name of something in the file."""
TABLES = re.findall(r"^\|.* \| computed by \| value \|\n.*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
NUMBERS = [row.strip("| ").split(" | ") for table in TABLES for row in table.splitlines()]
"""Lines of the tables of worked numbers: of what, the expression, the value."""
LISTED = {int(number): name for number, name in re.findall(r"^\| (\d+) \| \[`(\w+)`\]", TEXT, re.MULTILINE)}
"""Claims of the table of claims."""
SECTIONS = dict(re.findall(r"^##+ (.*)\n((?:(?!##).*\n)*)", TEXT, re.MULTILINE))
FORMULAS = {heading: body for heading, body in SECTIONS.items() if "$$" in body or "\nCode: " in body}
"""Sections with mathematics."""


def section_link(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_the_page_was_read_as_it_is_written() -> None:
    """What the tests below go through is not empty because a pattern no longer fits."""
    assert len(TABLES) == PAGE.count(" computed by ") >= 9
    assert len(FORMULAS) >= 12
    assert sum(name.startswith("test_") for name, _ in NAMES) == TEXT.count("[`test_") >= 30


@pytest.mark.parametrize(("name", "target"), NAMES, ids=[name for name, _ in NAMES])
def test_what_a_link_names_is_defined_where_it_leads(name: str, target: str) -> None:
    if target.startswith("../bench/claims/"):
        assert target == f"../bench/claims/{name}.py"
        return
    source = (DOCS / target).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(def|class) {name}\b|^{name}\b.* = ", source, re.MULTILINE), f"{target} has no {name}"


def test_a_link_that_shows_a_path_leads_there() -> None:
    paths = [(text.strip("`"), target) for text, target in LINKS if text.endswith(".py`")]
    assert paths
    for text, target in paths:
        assert target == f"../{text}"


def test_anchors_are_headings() -> None:
    anchors = [target for _, target in LINKS if "#" in target]
    assert anchors
    for target in anchors:
        file, _, anchor = target.partition("#")
        page = (DOCS / file).read_text(encoding="utf-8") if file else PAGE
        assert anchor in {section_link(heading) for heading in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}, target


@pytest.mark.parametrize("heading", FORMULAS)
def test_formulas_stand_beside_their_code_claim_and_tests(heading: str) -> None:
    (beside,) = re.findall(r"^Code: (.*) · tests: (.*)$", FORMULAS[heading], re.MULTILINE)
    assert re.search(r"\]\(\.\./(implementations|bench/(?!claims))", beside[0])
    assert re.search(r"\[claim \d+\]\(\.\./bench/claims/", beside[0])
    assert re.search(r"\[`test_\w+`\]\(\.\./tests/", beside[1])


def test_every_claim_has_its_line() -> None:
    assert {claim.order: name for name, claim in claims.items()} == LISTED


def test_every_claim_stands_beside_its_mathematics_under_its_number() -> None:
    mentioned = [(text, target) for text, target in LINKS if text.startswith("claim ")]
    assert {text for text, _ in mentioned} == {f"claim {number}" for number in LISTED}
    for text, target in mentioned:
        assert target == f"../bench/claims/{LISTED[int(text.removeprefix('claim '))]}.py"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the page's own block of code defines."""
    defined: dict[str, Any] = {}
    exec(CODE, defined)
    return defined


@pytest.mark.parametrize(("expression", "value"), [numbers[1:] for numbers in NUMBERS])
def test_worked_numbers_are_what_their_expressions_give(expression: str, value: str, names: dict[str, Any]) -> None:
    digits = len(value.partition(".")[2])
    assert f"{eval(expression.strip('`'), names):,.{digits}f}" == value


def test_a_number_that_can_be_computed_stands_in_a_table() -> None:
    prose = re.sub(r"^\|.*$|\]\([^)]*\)|`[^`]*`", "", TEXT, flags=re.MULTILINE)
    long = re.findall(r"\d+(?:,\d{3})+|\d+\.\d{3,}", prose)
    assert set(long) <= {value for _, _, value in NUMBERS}


def test_symbols_are_tied_to_fields_of_a_problem() -> None:
    rows = re.findall(r"^\| \$.*?\| (`.*?`) \|", SECTIONS["Symbols"], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(Problem.model_fields) - {"direction", "distribution", "seed"}


def test_pictures_say_in_words_what_they_show() -> None:
    alternatives = re.findall(r"!\[([^]]*)\]\(pictures/", TEXT)
    assert len(alternatives) == len(set(alternatives)) == 5
    assert all(len(words.split()) >= 10 for words in alternatives)
