"""Each format by the rules that its reader publishes, with the values and units put in by hand."""

from __future__ import annotations

import json
import subprocess
import sys

import jsonschema
import planted
import pytest

from bench.errors import UsageError
from bench.exports import exports

NS = (2_000_000, 2_200_000, 2_400_000, 2_600_000, 2_800_000, 3_000_000, 3_200_000)
"""Blocks of two calls: the median call takes 1.3 ms; the 95 % interval of seven values is their whole range."""
CELL = "naive/B1-H4-T128-d64-float32-fwd-causal&padding(0.5)"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cell(implementation="naive", seqlen=128, **fields):
    measured = {"samples_ns": NS, "calls_per_sample": 2, "processes": (0,) * 7}
    fields = {"mask": "causal & padding(0.5)", "error": 2.5e-6} | fields
    return planted.record(implementation, seqlen, measured=measured, **fields)


def one(name, *records, **header):
    """The content of the single file that an export makes of one run."""
    ((_, content),) = exports.get(name).files([planted.run(records or [cell()], **header)]).items()
    return json.loads(content)


# Bencher: https://bencher.dev/docs/reference/bencher-metric-format, its schema and its limits in our own words
METRIC = {
    "type": "object",
    "required": ["value"],
    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
    "additionalProperties": False,
}
BENCHER = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"minLength": 1, "maxLength": 1024, "not": {"pattern": "-bencher-ignore$"}},
    "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": "^[a-z0-9-]+$", "maxLength": 64},  # slugs
        "additionalProperties": METRIC,
    },
}


def test_bencher_metrics_fit_the_published_schema_and_latency_is_in_nanoseconds():
    content = one("bencher", cell(), planted.record("sdpa_flash", 128, rounds=1))
    jsonschema.validate(content, BENCHER)
    assert content[CELL]["latency"] == {"value": 1_300_000, "lower_value": 1_000_000, "upper_value": 1_600_000}
    assert content[CELL]["peak-bytes"] == {"value": cell().measurement.memory.peak_bytes}
    assert content[CELL]["max-abs-error"] == {"value": 2.5e-6}
    assert set(content["sdpa_flash/B1-H4-T128-d64-float32-fwd-full"]["latency"]) == {"value"}


# github-action-benchmark: README, "Custom benchmarks"
ENTRIES = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["name", "unit", "value"],
        "properties": {
            "value": {"type": "number"},
            **{name: {"type": "string"} for name in ("name", "unit", "range", "extra")},
        },
        "additionalProperties": False,
    },
}


def test_github_action_benchmark_has_one_entry_for_each_number_under_names_of_their_own():
    content = one("github-action-benchmark", cell(), cell("sdpa_flash"), cell(seqlen=144))
    jsonschema.validate(content, ENTRIES)
    assert len({entry["name"] for entry in content}) == len(content) == 9
    latency, peak, error = content[:3]
    assert latency["name"] == f"{CELL} latency"
    assert (latency["value"], latency["unit"], latency["range"]) == (1.3, "ms", "1.00 to 1.60")
    assert "samples: 7\ncalls_per_sample: 2\nprocesses: 1\nclock: perf_counter" in latency["extra"]
    assert (peak["value"], peak["unit"], "range" in peak) == (cell().measurement.memory.peak_bytes, "B", False)
    assert (error["value"], error["unit"]) == (2.5e-6, "")


# PyTorch OSS benchmark: wiki "PyTorch OSS benchmark infra"; extra_info is a map of texts in the database
TEXTS = {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}
PYTORCH = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["benchmark", "model", "metric"],
        "properties": {
            "benchmark": {
                "required": ["name"],
                "properties": {
                    "name": {"const": "attention-bench"},
                    "mode": {"enum": ["inference", "training"]},
                    "dtype": {"type": "string"},
                    "extra_info": TEXTS,
                },
                "additionalProperties": False,
            },
            "model": {
                "required": ["name"],
                "properties": {name: {"type": "string"} for name in ("name", "type", "backend")},
                "additionalProperties": False,
            },
            "metric": {
                "required": ["name", "benchmark_values"],
                "properties": {
                    "name": {"type": "string"},
                    "benchmark_values": {"type": "array", "items": {"type": "number"}, "minItems": 1},
                    "extra_info": TEXTS,
                },
                "additionalProperties": False,
            },
            "dependencies": {"type": "object"},
        },
        "additionalProperties": False,
    },
}


def test_pytorch_records_have_the_fields_of_schema_v3():
    content = one("pytorch-oss-benchmark", cell(), cell(direction="fwd_bwd", rounds=1))
    jsonschema.validate(content, PYTORCH)
    assert [record["metric"]["name"] for record in content[:3]] == ["latency_ms", "peak_bytes", "out_max_abs"]
    latency = content[0]
    assert latency["benchmark"]["mode"] == "inference"
    assert content[3]["benchmark"]["mode"] == "training"
    assert f"{latency['model']['backend']}/{latency['model']['name']}" == CELL
    assert latency["metric"]["benchmark_values"] == [1.3]
    assert latency["metric"]["extra_info"] == {"unit": "ms", "lower": "1.0", "upper": "1.6"}
    assert latency["benchmark"]["extra_info"]["device"] == "cpu"
    assert latency["dependencies"] == {"torch": {"version": "2.13.0"}}


def test_pytorch_records_of_a_gpu_name_it():
    about = one("pytorch-oss-benchmark", cell().model_copy(update={"device": "NVIDIA H200"}))[0]["benchmark"][
        "extra_info"
    ]
    assert (about["device"], about["arch"]) == ("cuda", "NVIDIA H200")


# asv: asv/results.py, asv/benchmarks.py, asv/machine.py of 0.6


def asv(*runs):
    return {name: json.loads(content) for name, content in exports.get("asv").files(runs).items()}


def test_asv_results_are_a_matrix_in_seconds_with_null_where_there_is_no_number():
    run = planted.run([cell(), planted.record("sdpa_flash", 128, 0.5, noise=0.0)], git_commit=COMMIT)
    files = asv(run)
    name = "planted-host/01234567-py3.11.7-torch2.13.0-cpu-warm.json"
    assert set(files) == {"benchmarks.json", "planted-host/machine.json", name}
    held, listed = files[name], files["benchmarks.json"]
    assert (held["version"], listed["version"], files["planted-host/machine.json"]["version"]) == (2, 2, 1)
    assert held["commit_hash"] == COMMIT
    assert held["date"] == 1_796_040_000_000  # 2026-11-30T12:00:00Z in milliseconds
    row = dict(zip(held["result_columns"], held["results"]["attention.time_latency"], strict=True))
    assert (
        row["params"]
        == listed["attention.time_latency"]["params"]
        == [
            ["'naive'", "'sdpa_flash'"],
            [repr(CELL.removeprefix("naive/")), "'B1-H4-T128-d64-float32-fwd-full'"],
        ]
    )
    assert row["result"] == [0.0013, None, None, 0.0005]
    assert row["samples"] == [[ns / 2e9 for ns in NS], None, None, [0.0005] * 7]
    assert (listed["attention.time_latency"]["unit"], row["version"]) == ("seconds", "1")
    assert held["params"]["torch"] == held["requirements"]["torch"] == "2.13.0"


def test_asv_puts_runs_of_several_commits_into_one_tree_that_knows_all_parameters():
    first = planted.run([cell()], run_id="a", git_commit="a" * 40)
    other = planted.run([cell("sdpa_flash", mask="full")], run_id="b", git_commit="b" * 40)
    again = planted.run(
        [planted.record("naive", 128, 4.0, noise=0.0, mask="causal & padding(0.5)")],
        run_id="c",
        git_commit="a" * 40,
        header={"started_at": "2026-12-01T12:00:00+00:00"},
    )
    files = asv(again, first, other)
    assert len(files) == 4  # benchmarks.json, machine.json, one for each commit
    assert [len(axis) for axis in files["benchmarks.json"]["attention.time_latency"]["params"]] == [2, 2]
    (held,) = (content for name, content in files.items() if "/aaaaaaaa-" in name)
    assert held["results"]["attention.time_latency"][0] == [0.004]  # the later run of the commit


@pytest.mark.parametrize(
    ("state", "says"),
    [({"git_commit": None}, "no commit"), ({"git_dirty": True}, "uncommitted"), ({"git_dirty": None}, "")],
)
def test_asv_refuses_a_run_that_belongs_to_no_clean_commit(state, says):
    with pytest.raises(UsageError, match=f"clean commit, got .*{says}"):
        asv(planted.run([cell()], **state))


def test_asv_publishes_it(tmp_path):
    """The tool itself, on three commits of which the last is twice as slow."""

    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *identity, *words], cwd=tmp_path / "repo", check=True, capture_output=True, text=True
        )
        return done.stdout.split()

    (tmp_path / "repo").mkdir()
    git("init", "-q", "-b", "main")
    for number in range(3):
        git("commit", "-q", "--allow-empty", "-m", str(number))
    runs = [
        planted.run([planted.record("naive", 128, ms, noise=0.0)], run_id=commit, git_commit=commit)
        for commit, ms in zip(git("log", "--reverse", "--format=%H"), (1.0, 1.0, 2.0), strict=True)
    ]
    for name, content in exports.get("asv").files(runs).items():
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    settings = {"version": 1, "project": "x", "repo": "repo", "branches": ["main"], "environment_type": "virtualenv"}
    (tmp_path / "asv.conf.json").write_text(json.dumps(settings | {"results_dir": "results", "html_dir": "html"}))
    done = subprocess.run(
        [sys.executable, "-m", "asv", "publish"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (graph,) = (tmp_path / "html" / "graphs").glob("allocator-*/**/attention.time_latency.json")
    assert json.loads(graph.read_text()) == [[0, [0.001]], [1, [0.001]], [2, [0.002]]]
