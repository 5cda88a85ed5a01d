from __future__ import annotations

from pathlib import Path

import planted

from bench.comparison import COMPARABLE, COMPARABLE_PACKAGES
from bench.record import Record
from bench.report import environment
from bench.report.compare import refusals, section
from bench.report.material import Material
from bench.results import Run

NO_NOTEBOOK = Path("there is no such notebook")


def cells(processes: int = 6, **times: float) -> list[Record]:
    return [planted.record(n, 128, ms, noise=0.001, processes=processes) for n, ms in times.items()]


def compared(*runs: Run) -> dict:  # type: ignore[type-arg]  # what a template sees
    found = section(Material.of(list(runs), NO_NOTEBOOK))
    assert found is not None
    return found


def test_one_run_is_compared_with_nothing() -> None:
    assert section(Material.of([planted.run(cells(a=1.0))], NO_NOTEBOOK)) is None


def test_significant_changes_are_shown_and_others_folded() -> None:
    found = compared(
        planted.run(cells(a=1.0, b=1.0, c=1.0, d=1.0), run_id="old"),
        planted.run(cells(a=1.0, b=1.5, c=0.5, d=1.01), run_id="new"),
    )
    (pair,) = found["pairs"]
    assert pair["title"] == "old to new" and found["refusals"] == []
    assert [row["texts"][0] for row in pair["shown"]] == ["c", "b"]
    assert [row["texts"][6] for row in pair["shown"]] == ["IMPROVED", "REGRESSED"]
    assert [row["texts"][0] for row in pair["folded"]] == ["d", "a"]
    assert "Of 4 times, 1 are slower and 1 faster" in pair["said"]
    assert all(row["texts"][4].endswith("%") and float(row["texts"][4][:-1]) > 3 for row in pair["folded"])
    assert all(len(row["texts"]) == len(found["heads"]) for row in pair["shown"])


def test_single_processes_are_said_to_give_no_verdict() -> None:
    found = compared(planted.run(cells(1, a=1.0), run_id="old"), planted.run(cells(1, a=2.0), run_id="new"))
    (pair,) = found["pairs"]
    assert pair["shown"][0]["texts"][6] == "no verdict"
    texts, sorts = pair["shown"][0]["texts"], pair["shown"][0]["sorts"]
    assert len(texts) == len(sorts)
    assert abs(sorts[2] - float(texts[2][:-1])) < 0.01 and abs(sorts[5] / float(texts[5]) - 1) < 0.05
    assert "Fewer than 6 processes give no verdict" in pair["said"]


def test_times_of_different_machines_are_refused_with_every_differing_field() -> None:
    old = planted.run(cells(a=1.0), run_id="old")
    new = planted.run(cells(a=9.0), run_id="new", cores=64, packages={"torch": "2.14.0"})
    (refusal,) = refusals([old, new])
    assert refusal == (
        "Times of old and new are not compared and share no chart: "
        "cores differs (2, 64), torch differs (2.13.0, 2.14.0)."
    )
    found = compared(old, new)
    assert found["refusals"] == [refusal]
    (pair,) = found["pairs"]
    assert pair["folded"][0]["texts"][2:7] == ["-", "-", "-", "-", ""]
    assert "Times are not compared: cores differs (2, 64)" in pair["said"]


def test_runs_without_a_common_cell_say_so() -> None:
    found = compared(planted.run(cells(a=1.0), run_id="old"), planted.run(cells(b=1.0), run_id="new"))
    assert found["pairs"][0]["said"] == "They share no cell."


def test_many_runs_are_cut_and_the_rest_counted() -> None:
    found = compared(*(planted.run(cells(a=1.0), run_id=str(n)) for n in range(5)))
    assert len(found["pairs"]) == 6 and found["left_out"] == 4


def test_bytes_and_statuses_that_moved_are_marked() -> None:
    peak = planted.memory("a", planted.record("a", 128).problem)
    more = peak.model_copy(update={"peak_bytes": peak.peak_bytes + 1024})
    found = compared(
        planted.run([planted.record("a", 128, peak=peak), planted.record("b", 128)], run_id="old"),
        planted.run([planted.record("a", 128, peak=more), planted.record("b", 128, status="crashed")], run_id="new"),
    )
    shown = {row["texts"][0]: row for row in found["pairs"][0]["shown"]}
    assert shown["a"]["moved"] and shown["a"]["texts"][7] == "+1,024 B"
    assert shown["b"]["moved"] and shown["b"]["texts"][6] == "ok to crashed"


def test_differences_come_first_and_those_that_forbid_comparing_are_marked() -> None:
    runs = [
        planted.run(cells(a=1.0), run_id="1"),
        planted.run(cells(a=1.0), run_id="2", hostname="other", torch_threads=8, variables={"CI": "1", "TOKEN": "s"}),
    ]
    shown = environment.section(Material.of(runs, NO_NOTEBOOK))
    assert [line["name"] for line in shown["lines"][:2]] == ["torch threads", "host"]
    assert [line["decides"] for line in shown["lines"][:2]] == [True, False]
    assert shown["differing"] == sum(line["differs"] for line in shown["lines"]) == 4
    assert not any("TOKEN" in line["name"] for line in shown["lines"])
    assert len(shown["refusals"]) == 1


def test_every_field_that_decides_has_a_line_that_says_so() -> None:
    assert set(environment.DECIDING.values()) | {"cores"} == {*COMPARABLE, *COMPARABLE_PACKAGES}
    shown = environment.section(
        Material.of([planted.run(cells(a=1.0), packages={"torch": "2", "triton": "3"})], NO_NOTEBOOK)
    )
    assert set(environment.DECIDING) <= {line["name"] for line in shown["lines"]}
    many_cores = [planted.run(cells(a=1.0), run_id=str(n), cores=n) for n in (2, 4)]
    (line, *_) = environment.section(Material.of(many_cores, NO_NOTEBOOK))["lines"]
    assert line["name"] == "processor" and line["decides"]
