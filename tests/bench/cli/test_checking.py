"""The verbs check and baseline on stored runs: exit codes, files, messages. Nothing is measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import planted
import pytest
from planted_states import records

from bench.cli import main
from bench.results import RunWriter

ROOT = Path(__file__).resolve().parents[3]
MACHINE = "Planted-CPU-2.00GHz-2cores"
EXPIRED = """
[[tool.attention-bench.check.override]]
metric = "peak_bytes"
ignore = true
reason = "planted and long over"
expires = 2020-01-01
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.attention-bench.check]\nsweep = "smoke"\n')
    return tmp_path


@pytest.fixture
def command(capsys):
    def call(*words):
        with pytest.raises(SystemExit) as caught:
            main(list(words))
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return call


def store(name, cells=None, **environment):
    run = planted.run(records() if cells is None else cells, run_id=name, **environment)
    with RunWriter(planted.Path("results/runs"), name) as writer:
        for line in (run.header, *run.records, run.end):
            writer.write(line)


def grown(cells, count=1):
    first = cells[0]
    memory = first.measurement.memory.model_copy(update={"peak_bytes": first.measurement.memory.peak_bytes + count})
    return [
        first.model_copy(update={"measurement": first.measurement.model_copy(update={"memory": memory})}),
        *cells[1:],
    ]


def test_a_stored_run_becomes_a_baseline_and_the_same_run_passes(place, command):
    store("one")
    code, out, err = command("baseline", "--run", "one")
    assert (code, out.strip()) == (0, f"results/baselines/{MACHINE}.jsonl"), err
    assert json.loads((place / out.strip()).read_text().splitlines()[0])["sweep"] == "default"
    code, _, err = command("check", "--candidate", "one", "--strict")
    assert code == 0 and "nothing is worse" in err and MACHINE in err


def test_one_byte_more_ends_with_3_and_is_in_every_output(place, command):
    store("one")
    store("two", grown(records()))
    command("baseline", "--run", "one")
    names = ("--summary", "s.md", "--comment", "c.md", "--junit", "j.xml")
    code, out, _ = command("check", "--candidate", "two", "--format", "github", *names)
    assert code == 3
    assert out.startswith(
        "::error title=peak_bytes REGRESSED::naive B1-H4-T128-d64-float32-fwd-full: peak memory: 1 B more"
    )
    assert all("1 B more" in (place / name).read_text(encoding="utf-8") for name in ("s.md", "c.md", "j.xml"))
    assert ElementTree.parse(place / "j.xml").getroot().attrib["failures"] == "1"
    code, out, _ = command("check", "--candidate", "two", "--format", "json")
    assert (code, [row["name"] for row in json.loads(out)]) == (3, ["REGRESSED"])
    code, out, _ = command("check", "--candidate", "two", "--format", "json", "--all")
    assert len(json.loads(out)) > 50


def test_exit_codes_are_those_of_the_design(place, command):
    store("one")
    store("elsewhere", cpu="Another CPU")
    store("other", records(lengths=(512,)))
    store("few", records(processes=1))
    command("baseline", "--run", "one")
    baseline = ("--baseline", f"results/baselines/{MACHINE}.jsonl")
    assert command("check", "--candidate", "elsewhere", *baseline)[0] == 0
    assert command("check", "--candidate", "elsewhere", *baseline, "--strict")[0] == 4
    assert command("check", "--candidate", "elsewhere", *baseline, "--strict", "--exact")[0] == 4, "largest errors"
    assert command("check", "--candidate", "few", "--strict")[0] == 4
    assert command("check", "--candidate", "few", "--strict", "--exact")[0] == 0
    assert command("check", "--candidate", "other")[0] == 5
    assert command("check", "--candidate", "one", "-i", "nothing")[0] == 5
    code, _, err = command("check", "--candidate", "elsewhere")
    assert code == 2 and f"in that folder: {MACHINE}.jsonl" in err
    assert command("check", "--candidate", "none")[0] == 2
    (place / "pyproject.toml").write_text(EXPIRED)
    code, _, err = command("check", "--candidate", "one")
    assert code == 2 and "override must not have expired" in err and "planted and long over" in err


def test_filters_choose_what_is_compared(place, command):
    store("one")
    store("two", grown(records()))
    command("baseline", "--run", "one")
    assert command("check", "--candidate", "two", "-i", "sdpa")[0] == 0
    assert command("check", "--candidate", "two", "-p", "T256")[0] == 0
    assert command("check", "--candidate", "two", "-i", "^naive$", "-p", "T128")[0] == 3


def test_exact_checks_take_filters_and_leave_times_alone(place, command):
    store("one")
    store("two", grown(records(processes=1)))
    command("baseline", "--run", "one")

    def exact(*words):
        code, out, err = command("check", "--candidate", "two", "--exact", "--format", "json", "--all", *words)
        rows = json.loads(out) if code != 5 else []
        return code, {row["subject"] for row in rows}, {row["metric"] for row in rows}, err

    code, subjects, metrics, _ = exact("-i", "^naive$", "-p", "T128-")
    assert code == 3 and subjects == {"naive B1-H4-T128-d64-float32-fwd-full"}
    assert "peak_bytes" in metrics and "time" not in metrics
    code, subjects, _, _ = exact("-I", "^naive$", "-P", "T256")
    assert code == 0 and subjects and not any("T256" in one or one.startswith("naive") for one in subjects)
    code, _, _, err = exact("-p", "T4096")
    assert code == 5 and "check must have something to compare" in err


def test_a_baseline_is_refused_with_exit_code_2_and_what_was_there_stays(place, command):
    store("one")
    store("dirty", git_dirty=True)
    path = place / command("baseline", "--run", "one")[1].strip()
    before = path.read_bytes()
    code, _, err = command("baseline", "--run", "dirty")
    assert code == 2 and "clean tree, got uncommitted changes in the checkout of attention-bench" in err
    assert path.read_bytes() == before


def test_a_dirty_tree_of_whoever_uses_the_package_is_refused_before_anything_is_measured(place, command, monkeypatch):
    monkeypatch.setattr("bench.revisions.has_changes", lambda folder: True)
    monkeypatch.setattr("bench.cli.checking._environment", lambda extras: planted.run([]).header.environment)
    code, _, err = command("baseline", "--device", "cpu")
    assert code == 2 and "clean tree, got uncommitted changes in the folder that it is called in" in err
    assert not (place / "results").exists()


def test_an_exact_baseline_holds_no_times(place, command):
    store("one", records(processes=1))
    assert command("baseline", "--run", "one")[0] == 2
    code, out, err = command("baseline", "--run", "one", "--exact", "--output", "ci.jsonl")
    assert (code, out.strip()) == (0, "ci.jsonl")
    assert "subjects, no times; commit it" in err
    assert "log_ratios" not in (place / "ci.jsonl").read_text()
    assert command("check", "--exact", "--baseline", "ci.jsonl", "--candidate", "one", "--strict")[0] == 0


def test_kernels_are_read_from_a_file_and_gated(place, command):
    store("one")
    plain = {"kernel": "forward sm_90", "registers": 168, "spill_bytes": 0, "shared_bytes": 0, "warps": 4}
    (place / "k.json").write_text(json.dumps([plain]))
    command("baseline", "--run", "one", "--kernels", "k.json")
    assert command("check", "--candidate", "one", "--kernels", "k.json", "--strict")[0] == 0
    (place / "k.json").write_text(json.dumps([plain | {"spill_bytes": 4}]))
    code, out, _ = command("check", "--candidate", "one", "--kernels", "k.json")
    assert code == 3 and "ROSE FROM ZERO" in out
    code, out, _ = command("check", "--candidate", "one", "--strict")
    assert code == 4 and "MISSING" in out
    assert command("check", "--candidate", "one", "--kernels", "k.json", "-i", "^naive$")[0] == 3, "they were asked for"


@pytest.mark.parametrize(
    ("kernels", "says"),
    [
        (None, "--kernels must name a file of text"),
        ("{}", "must hold kernels of different names, got none"),
        ("[]", "must hold kernels of different names, got none"),
        ("[1]", "must be a JSON array of kernels"),
        ('[{"kernel": "a"', "must be a JSON array of kernels"),
        ([{"kernel": "a", "registers": 1, "shared_bytes": 0}], "got no 'spill_bytes'"),
        ([{"kernel": "a", "registers": None, "spill_bytes": 0, "shared_bytes": 0}], "None where a count is needed"),
        ([{"kernel": "a", "registers": 1.5, "spill_bytes": 0, "shared_bytes": 0}], "1.5 where a count is needed"),
        ([{"kernel": "a", "registers": 1, "spill_bytes": 0, "shared_bytes": 0}] * 2, "got 'a' twice"),
    ],
)
def test_kernels_that_cannot_be_compared_are_refused(place, command, kernels, says):
    store("one")
    command("baseline", "--run", "one")
    if kernels is not None:
        (place / "k.json").write_text(kernels if isinstance(kernels, str) else json.dumps(kernels))
    code, _, err = command("check", "--candidate", "one", "--kernels", "k.json")
    assert code == 2 and says in err, err


def test_without_kernels_in_the_baseline_those_of_the_lock_count(place, command, monkeypatch):
    """What `kernels --format json` writes of the shipped kernels, each of which is held against its own line."""
    from bench import kernel_table
    from bench.kernel_lock import read_lock

    store("one", packages={"torch": "2.13.0+cpu", "triton": "3.7.1"})
    command("baseline", "--run", "one")
    plain = command("check", "--candidate", "one")[2]
    facts = list(read_lock(ROOT / "kernels.lock.json")["3.7.1"].values())
    rows = kernel_table.full_rows(facts, flat=False)
    names = ("kernel", "implementation", "configuration", "arch", "registers", "spill_bytes", "shared_bytes")
    assert tuple(rows[0])[: len(names)] == names

    def judged(rows):
        (place / "k.json").write_text(json.dumps(rows))
        return command("check", "--candidate", "one", "--kernels", "k.json", "--format", "json", "--strict")

    code, _, err = judged(rows)
    assert code == 2 and "no kernels.lock.json here" in err
    (place / "kernels.lock.json").write_bytes((ROOT / "kernels.lock.json").read_bytes())
    code, _, err = judged(rows)
    assert code == 0, err
    same = [int(re.findall(r"SAME ([\d,]+)", said)[0].replace(",", "")) for said in (plain, err)]
    assert same[1] - same[0] == 3 * len(rows), "each kernel's three numbers"
    for index in range(30):
        worse = [row | ({"spill_bytes": row["spill_bytes"] + 4} if at == index else {}) for at, row in enumerate(rows)]
        code, out, _ = judged(worse)
        (found,) = json.loads(out)
        assert (code, found["subject"]) == (3, f"kernel {facts[index].key}")
    code, out, _ = judged(rows[1:])
    assert code == 4 and [one["name"] for one in json.loads(out)] == ["MISSING"]
    store("other", packages={"torch": "2.13.0+cpu", "triton": "9.9"})
    command("baseline", "--run", "other")
    code, _, err = judged(rows)
    assert code == 5 and "lock must hold the triton of the baseline, got 3.7.1" in err


def test_reading_and_deciding_imports_no_torch(place, command):
    store("one")
    command("baseline", "--run", "one")
    code = (
        "import sys\nfrom bench.cli import main\n"
        "try: main(['check', '--candidate', 'one'])\nexcept SystemExit as e: assert not e.code, e.code\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_history_reads_all_runs_of_the_folder_and_leaves_out_what_is_none(place, command):
    for day in range(3):
        store(f"2026110{day + 1}T120000Z-0001")
    (place / "results/runs/20261109T120000Z-0001.jsonl").write_text("no run\n")
    code, out, err = command("history", "--format", "json")
    assert code == 0, err
    assert "left out: results file must hold valid lines" in err
    assert {row["runs"] for row in json.loads(out)} == {3}
    assert (place / "reports" / "history" / "index.html").is_file()
    code, out, _ = command("history", "--metric", "peak_bytes", "-i", "^naive$", "-p", "T128", "--format", "json")
    assert (code, len(json.loads(out))) == (0, 1)
    assert command("history", "-i", "nothing")[0] == 5
    assert command("history", "20261109")[0] == 2
    assert command("history", "--metric", "speed")[0] == 2
