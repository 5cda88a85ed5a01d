"""The file of a baseline, and what never becomes one."""

from __future__ import annotations

import json
from dataclasses import replace

import planted
import pytest
from planted_states import BASE_KEYS, POLICY, records, state

from bench.baseline import read_state, refuse_as_baseline, write_state
from bench.errors import OutputError, UsageError
from bench.policy import Policy
from bench.regression import check
from bench.state import Subject, machine_name, state_of


def test_a_baseline_comes_back_as_it_was_written(tmp_path):
    kernels = [Subject("kernel", "forward sm_90", values={"registers": 168, "spill_bytes": 0})]
    before = state(extra=[*kernels, Subject("claim", "score_memory", "CONFIRMED")])
    write_state(before, tmp_path / "a.jsonl")
    after = read_state(tmp_path / "a.jsonl")
    assert after.subjects == before.subjects
    assert replace(after, subjects={}) == replace(before, subjects={}, margin=round(before.margin, 4), shaky={})
    assert check(after, [before], POLICY).exit_code(strict=True) == 0


def test_it_is_reviewed_as_a_diff(tmp_path):
    """One line per cell in the same order, whatever the order of measuring; a change is a change of one line."""
    cells = records()
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    grown = cells[0].measurement.memory.model_copy(update={"peak_bytes": cells[0].measurement.memory.peak_bytes + 1})
    changed = cells[0].model_copy(update={"measurement": cells[0].measurement.model_copy(update={"memory": grown})})
    for path, of in zip(paths, (cells, cells[::-1], [changed, *cells[1:]]), strict=True):
        write_state(state(of), path)
    first, second, third = (path.read_text().splitlines() for path in paths)
    assert first == second
    assert len(first) == 1 + len(cells)
    assert sum(one != other for one, other in zip(first, third, strict=True)) == 1
    assert [json.loads(line)["name"] for line in first[1:]] == sorted(BASE_KEYS)
    assert not list(tmp_path.glob("*.partial"))


def refused(says, cells=None, *, complete=True, timed=True, **environment):
    run = planted.run(records() if cells is None else cells, **environment)
    with pytest.raises(UsageError, match=says):
        refuse_as_baseline(state_of(run, POLICY, timed=timed), run.header, complete)


def test_a_clean_whole_and_steady_run_is_taken():
    run = planted.run(records())
    refuse_as_baseline(state_of(run, POLICY), run.header, complete=True)


def test_a_dirty_tree_is_refused():
    refused("clean tree, got uncommitted changes", git_dirty=True)


@pytest.mark.parametrize("flag", ["not_steady", "contended", "throttled", "impossible"])
def test_unstable_rows_are_refused_by_name(flag):
    shaky = planted.record("naive", 128, processes=12, rounds=10, flags=[(flag, "planted")])
    refused(rf"steady rows, got naive B1-H4-T128.*\({flag}\)", [shaky, *records()[1:]])


def test_a_row_is_unstable_if_its_ratio_is():
    """Processes 30 % apart, in turns, are; blocks that scatter together with those of the control are not."""
    level = iter([1.0, 1.3] * 6)
    row = planted.record("naive", 128, processes=12, rounds=10)
    samples, processes = row.measurement.samples_ns, row.measurement.processes
    factor = {process: next(level) for process in dict.fromkeys(processes)}
    apart = [round(ns * factor[process]) for ns, process in zip(samples, processes, strict=True)]
    changed = row.measurement.model_copy(update={"samples_ns": tuple(apart)})
    cells = [row.model_copy(update={"measurement": changed}), *records()[1:]]
    refused(
        r"steady rows, got naive B1-H4-T128.*\(unstable: its time over that of sdpa_math is known to \d+ %\)", cells
    )


@pytest.mark.parametrize("flag", ["interference", "unstable"])
def test_flags_that_are_no_fault_of_the_machine_are_no_obstacle(flag):
    cells = records()
    cells[0] = planted.record("naive", 128, processes=12, rounds=10, flags=[(flag, "planted")])
    run = planted.run(cells)
    refuse_as_baseline(state_of(run, POLICY), run.header, complete=True)


def test_few_processes_no_times_and_no_cells_are_refused():
    refused(r"at least 6 processes, got naive B1-H4-T128-d64-float32-fwd-full \(5\)", records(processes=5))
    refused("at least 6 processes, got no time at all", [planted.record("naive", 128, status="verified")])
    refused("whole run, got 0 cells", [])
    refused("which did not end", complete=False)


def test_failures_are_refused_and_gaps_are_not():
    for status in ("incorrect", "crashed", "error", "timeout"):
        refused("must not hold failures, got flex", [*records(), planted.record("flex", 128, status=status)])
    run = planted.run([*records(), planted.record("flex", 128, status="unsupported")])
    refuse_as_baseline(state_of(run, POLICY), run.header, complete=True)


def test_without_times_one_busy_process_is_enough():
    run = planted.run(records(processes=1, flags=[("contended", "planted")]), git_dirty=False)
    refuse_as_baseline(state_of(run, POLICY, timed=False), run.header, complete=True)


def test_a_noisy_machine_asks_for_a_wider_margin_and_the_file_keeps_it(tmp_path):
    cells = records(noise=0.5)
    noisy = state(cells)
    assert noisy.margin > 0.03
    write_state(noisy, tmp_path / "noisy.jsonl")
    assert read_state(tmp_path / "noisy.jsonl").margin == pytest.approx(noisy.margin, abs=1e-4)
    assert state(records(noise=0.0)).margin == POLICY.margin


def test_a_machine_too_noisy_to_see_a_tenth_is_refused_unless_the_policy_says_that_it_is_enough():
    run = planted.run(records())
    noisy = replace(state_of(run, POLICY), margin=0.12)
    with pytest.raises(UsageError, match=r"changes of 10 % from noise, got a margin of 12 %"):
        refuse_as_baseline(noisy, run.header, complete=True)
    refuse_as_baseline(noisy, run.header, complete=True, margin=0.12)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: lines[:-1], "must hold 8 different subjects, got 7 lines of 7"),
        (lambda lines: [*lines, lines[-1]], "must hold 8 different subjects, got 9 lines of 8"),
        (lambda lines: [*lines[:-1], lines[-1][:-20]], "a JSON object per line"),
        (lambda lines: ["<<<<<<< HEAD", *lines], "a JSON object per line"),
    ],
)
def test_a_file_that_was_cut_or_merged_is_refused(tmp_path, change, says):
    path = tmp_path / "a b.jsonl"
    write_state(state(), path)
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(OutputError, match=says):
        read_state(path)


@pytest.mark.parametrize(
    ("line", "before", "after", "says"),
    [
        (0, '"margin": ', '"margin": -', "margin -"),
        (0, '"margin": ', '"margin": null, "was": ', "must hold known fields"),
        (-1, '"flop": ', '"flop": "1", "x": ', "'1' for a number of sdpa_math"),
        (-1, '"flop": ', '"flop": true, "x": ', "True for a number of sdpa_math"),
        (-1, '"log_ratios": [', '"log_ratios": [null, ', "None for a number of sdpa_math"),
    ],
)
def test_what_is_no_number_is_refused(tmp_path, line, before, after, says):
    path = tmp_path / "a.jsonl"
    write_state(state(), path)
    lines = path.read_text().splitlines()
    assert before in lines[line]
    lines[line] = lines[line].replace(before, after)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(OutputError, match=says):
        read_state(path)


def test_claims_of_the_policy_are_part_of_it():
    naive = [planted.record("naive", length, processes=6, rounds=6) for length in planted.LENGTHS]
    known = state(naive, Policy(exact_claims=("score_memory", "scaled_scores"))).subjects
    assert known["claim score_memory"].status == "CONFIRMED"
    assert "claim scaled_scores" not in known, "the run has no rows for it"
    with pytest.raises(UsageError, match="did you mean score_memory"):
        state(naive, Policy(exact_claims=("score_memry",)))


def test_the_file_is_named_after_the_machine():
    assert machine_name(planted.environment()) == "Planted-CPU-2.00GHz-2cores"
    assert machine_name(planted.environment(device="NVIDIA H200")) == "Planted-CPU-2.00GHz-2cores-NVIDIA-H200"


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="baseline must be writable"):
        write_state(state(), tmp_path / "file" / "a.jsonl")


def test_a_field_that_nobody_knows_is_refused(tmp_path):
    write_state(state(), tmp_path / "a.jsonl")
    text = (tmp_path / "a.jsonl").read_text().replace('"control"', '"controll"')
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(OutputError, match="must hold known fields"):
        read_state(tmp_path / "a.jsonl")
