from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from bench.errors import OutputError, UsageError
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


def test_no_file_and_no_table_are_the_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_policy(Path("pyproject.toml")) == policy_of(tmp_path, "[tool.ruff]\n") == Policy()


def test_a_policy_that_was_named_has_to_be_there(tmp_path):
    with pytest.raises(OutputError, match=r"policy must be a readable file, got .*none\.toml"):
        read_policy(tmp_path / "none.toml")


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
        ("margin = 0.05", "controls = []", "controls: Tuple should have at least 1 item"),
        ("tolerance = 0.02", "", "an override must have a tolerance, a floor, or ignore"),
        ('metric = "peak_bytes"', 'metric = "time"\nfloor = 1', "a time has no floor"),
        (TABLE.splitlines()[0], "[tool.attention-bench.gate]", "must hold the table check and nothing else, got gate"),
        (TABLE + OVERRIDE, '[tool]\nattention-bench = "x"\n', "must hold the table check and nothing else, got 'x'"),
    ],
)
def test_mistakes_are_named(tmp_path, before, after, says):
    assert before in TABLE + OVERRIDE
    with pytest.raises(UsageError, match=says):
        policy_of(tmp_path, (TABLE + OVERRIDE).replace(before, after))


def test_a_floor_for_all_metrics_and_an_override_of_time_go_together(tmp_path):
    """The first one's floor means nothing to a time, and is no mistake."""
    floor = OVERRIDE.replace('metric = "peak_bytes"\n', "").replace("tolerance = 0.02", "floor = 5")
    policy = policy_of(tmp_path, TABLE + floor + OVERRIDE.replace("peak_bytes", "time"))
    found = policy.overriding("time", "naive x-T4096")
    assert found is not None and found.tolerance == 0.02


def test_overrides_that_nothing_needs_are_found(tmp_path):
    policy = policy_of(tmp_path, TABLE + OVERRIDE)
    assert policy.idle([("peak_bytes", "naive x-T4096")]) == []
    assert len(policy.idle([("peak_bytes", "naive x-T2048"), ("time", "naive x-T4096")])) == 1


def test_the_project_has_a_policy_that_is_valid():
    policy = read_policy(Path(__file__).resolve().parents[2] / "pyproject.toml")
    assert policy != Policy(), "the project eats its own food"
