"""What a check prints: words, annotations, Markdown, JUnit."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from planted_states import POLICY, state, with_subject

from bench.between_runs import decide_shift
from bench.check_output import headline, rows
from bench.check_output.github import MOST, command, workflow_commands
from bench.check_output.junit import junit
from bench.check_output.markdown import COMMENT_ROWS, MARK, SUMMARY_BYTES, comment, summary
from bench.metrics import metrics
from bench.outcome import Outcome, number_text, time_text
from bench.regression import Check, check

BASE = state()
CELL = "online_softmax B1-H4-T128-d64-float32-fwd-full"


def slower(percent, key=CELL, of=BASE):
    return with_subject(of, key, log_ratios=tuple(v + math.log1p(percent / 100) for v in of.subjects[key].log_ratios))


def many(count, text="planted"):
    outcomes = tuple(Outcome(f"cell {i}", "peak_bytes", "REGRESSED", text, severity="fail") for i in range(count))
    return Check(outcomes)


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (1.12, "slower by 12 % (11 to 13)"),
        (1 / 1.12, "faster by 11 % (9.6 to 12)"),
        (1.004, "unchanged: 0.4 % slower (0.8 faster to 1.6 slower)"),
        (2.3, "slower by 130 % (127 to 133)"),
    ],
)
def test_a_change_of_time_is_said_as_people_say_it(factor, words):
    """12 % slower, never 112 %."""
    noise = [0.004 * (i - 2.5) for i in range(6)]
    assert time_text(decide_shift(noise, [math.log(factor) + v for v in noise])) == words


@pytest.mark.parametrize(
    ("metric", "before", "after", "words"),
    [
        ("peak_bytes", 4_194_304, 4_194_305, "1 B more: 4,194,305 B, was 4,194,304 B"),
        ("peak_bytes", 1000, 500, "500 B less (50 %): 500 B, was 1,000 B"),
        ("registers", 160, 168, "8 more (5.0 %): 168, was 160"),
        ("spill_bytes", 0, 4, "4 B more: 4 B, was 0 B"),
        ("out_rmse", 3e-7, 3.9e-7, "1.30 times: 3.9e-07, was 3e-07"),
        ("out_rmse", 0.0, 3.9e-7, "3.9e-07, was 0"),
    ],
)
def test_numbers_are_said_with_both_sides_and_the_unit(metric, before, after, words):
    assert number_text(metrics.get(metric), before, after) == words


def test_the_table_shows_noise_and_significance_beside_each_change():
    done = check(BASE, [slower(12)] * 2, POLICY)
    (row,) = rows(done.severe("fail"), "table")
    assert row["noise"].startswith("±") and row["significance"].endswith("x the margin")
    assert "slower by 12 %" in row["found"] and row["p"] is not None
    peak = BASE.subjects[CELL].values["peak_bytes"]
    (row,) = rows(
        check(BASE, [with_subject(BASE, CELL, values={"peak_bytes": peak + 1})], POLICY).severe("fail"), "table"
    )
    assert (row["noise"], row["significance"]) == ("exact", "none tolerated")


def test_rows_for_programs_are_json():
    import json

    done = check(BASE, [with_subject(BASE, CELL, values={"peak_bytes": math.nan})], POLICY)
    text = json.dumps(rows(done.outcomes, "json"), allow_nan=False)
    assert '"nan"' in text and '"inf"' in text


def test_annotations_are_escaped_as_workflow_commands_are():
    line = command("error", "time, a: b%\n", "50 % slower\r\nthan: before, really")
    assert line == "::error title=time%2C a%3A b%25%0A::50 %25 slower%0D%0Athan: before, really"


def test_annotations_are_no_more_than_a_step_shows_and_say_how_many_are_left_out():
    lines = list(workflow_commands(many(25)))
    assert len(lines) == MOST
    assert lines[-1].endswith("and 16 more; see the summary of this job")
    assert len(list(workflow_commands(many(MOST)))) == MOST
    assert list(workflow_commands(check(BASE, [BASE], POLICY))) == []


def test_levels_follow_severity():
    done = check(BASE, [with_subject(slower(-20), CELL, ran="other")], POLICY)
    assert [line.partition(" ")[0] for line in workflow_commands(done)] == ["::warning", "::notice"]


def test_the_summary_names_what_is_worse_and_escapes_what_names_may_hold():
    odd = Outcome("naive | <b>`x`", "peak_bytes", "REGRESSED", "1 < 2 | & \n3", severity="fail")
    text = summary(Check((odd,)), BASE, BASE)
    (row,) = [line for line in text.splitlines() if "REGRESSED" in line and line.startswith("|")]
    assert row.count(" | ") == 6, row
    assert "1 &lt; 2 \\| &amp;  3" in row and "<b>" not in row.replace("`naive \\| <b>'x'`", "")
    assert "1 worse, changed or gone; 1 numbers were compared" in text


def test_a_summary_is_cut_before_github_refuses_it():
    text = summary(many(9000, "x" * 200), BASE, BASE)
    assert SUMMARY_BYTES - 1000 < len(text.encode()) < SUMMARY_BYTES + 200
    assert "the log has" in text
    assert "the log has" not in summary(many(5), BASE, BASE)


def test_a_comment_holds_the_few_cells_that_matter_and_a_mark_to_find_it_by():
    text = comment(many(25), BASE, BASE)
    assert text.startswith(MARK)
    assert sum(line.startswith("| ❌") for line in text.splitlines()) == COMMENT_ROWS
    assert "and 15 more" in text
    fine = comment(check(BASE, [BASE], POLICY), BASE, BASE)
    assert "nothing is worse" in fine and "|" not in fine
    better = comment(check(BASE, [slower(-20)], POLICY), BASE, BASE)
    assert f"Better: `{CELL} time`" in better


def test_junit_lists_every_subject_with_its_failures_and_doubts():
    done = check(BASE, [with_subject(slower(12), "naive B1-H4-T128-d64-float32-fwd-full", ran="other")] * 2, POLICY)
    for strict, failures, skipped in ((False, 1, 1), (True, 2, 0)):
        root = ElementTree.fromstring(junit(done, strict).encode())
        (suite,) = root
        assert root.tag == "testsuites" and suite.tag == "testsuite"
        assert suite.attrib["tests"] == str(len(BASE.subjects)) == str(len(suite.findall("testcase")))
        assert (suite.attrib["failures"], suite.attrib["skipped"]) == (str(failures), str(skipped))
        (failure,) = suite.findall(f"testcase[@name='{CELL}']/failure")
        assert "slower by 12 %" in (failure.text or "") and failure.attrib["type"] == "REGRESSED"


def test_junit_survives_what_xml_cannot_hold_and_fails_where_nothing_was_compared():
    odd = Outcome("a\x00b\x1b<&>\ud800", "time", "REGRESSED", "c\x07", severity="fail")
    root = ElementTree.fromstring(junit(Check((odd,)), strict=False).encode())
    assert root[0][0].attrib["name"] == "a\ufffdb\ufffd<&>\ufffd"
    nothing = ElementTree.fromstring(junit(Check(()), strict=False).encode())
    assert nothing.attrib["failures"] == "1"


def test_the_headline_never_calls_an_empty_check_fine():
    assert headline(Check(())) == "nothing was compared"
    assert headline(check(BASE, [BASE], POLICY)).startswith("nothing is worse")
    gone = Check((Outcome("a", "", "MISSING", "gone", severity="fail"),))
    assert headline(gone) == "1 worse, changed or gone; 0 numbers were compared"
    assert headline(many(3)) == "3 worse, changed or gone; 3 numbers were compared"
