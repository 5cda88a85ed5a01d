from __future__ import annotations

from datetime import date

import pytest

from bench.errors import UsageError
from bench.policy import Policy, read_policy

TABLE = '[tool.attention-bench.check]\nsweep = "smoke"\nmargin = 0.05\nmissing = "fail"\n'
OVERRIDE = """
[[tool.attention-bench.check.override]]
metric = "peak_bytes"
cell = "^naive .*T4096"
tolerance = 0.02
reason = "the mask is float32 until torch takes a boolean one"
expires = 2027-03-01
"""
TODAY = date(2026, 11, 30)


def policy_of(tmp_path, text):
    path = tmp_path / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    return read_policy(path, TODAY)


def test_no_file_and_no_table_are_the_default(tmp_path):
    assert read_policy(tmp_path / "none.toml") == policy_of(tmp_path, "[tool.ruff]\n") == Policy()


def test_a_table_is_read_with_its_overrides(tmp_path):
    policy = policy_of(tmp_path, TABLE + OVERRIDE)
    assert (policy.sweep, policy.margin, policy.missing, policy.new) == ("smoke", 0.05, "fail", "note")
    found = policy.overriding("peak_bytes", "naive B1-H4-T4096-d64-float32-fwd-full")
    assert found is not None and found.tolerance == 0.02
    assert policy.overriding("peak_bytes", "naive B1-H4-T2048-d64-float32-fwd-full") is None
    assert policy.overriding("out_rmse", "naive B1-H4-T4096-d64-float32-fwd-full") is None


def test_of_two_overrides_the_later_one_replaces_what_it_says_and_zero_is_a_value(tmp_path):
    strict = OVERRIDE.replace("tolerance = 0.02", "tolerance = 0.0").replace('cell = "^naive .*T4096"\n', "")
    policy = policy_of(tmp_path, TABLE + OVERRIDE + strict)
    found = policy.overriding("peak_bytes", "naive x-T4096")
    assert found is not None and found.tolerance == 0.0


@pytest.mark.parametrize("day", ["2026-11-30", "2020-01-01"])
def test_an_expired_override_is_an_error_that_names_it(tmp_path, day):
    with pytest.raises(UsageError, match=rf"peak_bytes of \^naive .*boolean one\) of {day}"):
        policy_of(tmp_path, TABLE + OVERRIDE.replace("2027-03-01", day))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('reason = "the mask is float32 until torch takes a boolean one"\n', "", "override.0.reason: Field required"),
        ("expires = 2027-03-01\n", "", "override.0.expires: Field required"),
        ('reason = "the mask is float32 until torch takes a boolean one"', 'reason = "ok"', "at least 8 characters"),
        ("^naive .*T4096", "(", "cell must be a regular expression"),
        ("tolerance = 0.02", "tolerance = nan", "finite number"),
        ("tolerance = 0.02", "tolerence = 0.02", "override.0.tolerence: Extra inputs"),
        ('missing = "fail"', 'missing = "maybe"', "missing: Input should be"),
        ("margin = 0.05", "margin = 0", "margin: Input should be greater than 0"),
        ("margin = 0.05", "margin = ", "must be valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path, before, after, says):
    assert before in TABLE + OVERRIDE
    with pytest.raises(UsageError, match=says):
        policy_of(tmp_path, (TABLE + OVERRIDE).replace(before, after))


def test_overrides_that_nothing_needs_are_found(tmp_path):
    policy = policy_of(tmp_path, TABLE + OVERRIDE)
    assert policy.idle([("peak_bytes", "naive x-T4096")]) == []
    assert len(policy.idle([("peak_bytes", "naive x-T2048"), ("time", "naive x-T4096")])) == 1


def test_the_project_has_a_policy_that_is_valid():
    from pathlib import Path

    policy = read_policy(Path(__file__).resolve().parents[2] / "pyproject.toml")
    assert policy != Policy(), "the project eats its own food"
