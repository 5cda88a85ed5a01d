"""The lock of the kernels: what counts as worse, planted into the committed facts one at a time, and how it is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bench.errors import OutputError
from bench.kernel_lock import KernelFacts, read_lock, regressions, write_lock
from bench.kernel_table import NOTES, explanations, full_rows, long_rows, short_rows
from bench.machine_code import Mix
from bench.occupancy import LIMITS
from bench.report.kernels import kernel_section

LOCK = Path(__file__).resolve().parents[2] / "kernels.lock.json"
LOCKED = read_lock(LOCK)["3.7.1"]
MULTIPLYING = [one for one in LOCKED.values() if one.mix.matrix]


def rules(now: list[KernelFacts], locked: Mapping[str, KernelFacts] = LOCKED) -> list[tuple[str, str]]:
    """Key and rule of what is worse."""
    return [(one.key, one.rule) for one in regressions(now, locked)]


def planted(change: Callable[[KernelFacts], KernelFacts], one: KernelFacts) -> list[tuple[str, str]]:
    """What is found when ``one`` is changed and all others stay as they are."""
    return rules([change(fact) if fact is one else fact for fact in LOCKED.values()])


def test_what_is_in_the_lock_is_not_worse_than_itself() -> None:
    assert len(LOCKED) >= 30 and rules(list(LOCKED.values())) == []


def spilling(one: KernelFacts) -> KernelFacts:
    return replace(one, stack_bytes=one.stack_bytes + 4)


def spilling_in_the_loop(one: KernelFacts) -> KernelFacts:
    loop = one.loop or Mix(1)
    return replace(one, loop=replace(loop, loads={**loop.loads, "local 4 B": loop.local_accesses + 1}))


def larger(one: KernelFacts) -> KernelFacts:
    return replace(one, registers=one.registers + 8)


def too_large(one: KernelFacts) -> KernelFacts:
    return replace(one, shared_bytes=LIMITS[one.target].shared_bytes_per_block + 1)


def fewer(one: KernelFacts) -> KernelFacts:
    return replace(one, blocks_per_sm=one.blocks_per_sm - 1)


def without_matrix(one: KernelFacts) -> KernelFacts:
    return replace(one, mix=replace(one.mix, matrix={}))


def other_matrix(one: KernelFacts) -> KernelFacts:
    return replace(one, mix=replace(one.mix, matrix={"FMMA.16816": 64}))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (spilling, "spills"),
        (spilling_in_the_loop, "spills in the loop"),
        (larger, "registers"),
        (too_large, "shared memory"),
    ],
)
def test_what_is_worse_is_found_in_each_kernel_and_nowhere_else(
    change: Callable[[KernelFacts], KernelFacts], rule: str
) -> None:
    assert [planted(change, one) for one in LOCKED.values()] == [[(one.key, rule)] for one in LOCKED.values()]


def test_lost_occupancy_is_found_in_each_kernel() -> None:
    for one in LOCKED.values():
        lost = [(one.key, "does not fit")] if one.blocks_per_sm == 1 else []
        assert planted(fewer, one) == [*lost, (one.key, "occupancy")]


@pytest.mark.parametrize("change", [without_matrix, other_matrix])
def test_missing_matrix_instructions_are_found_in_each_kernel_that_has_them(
    change: Callable[[KernelFacts], KernelFacts],
) -> None:
    assert len(MULTIPLYING) >= 30
    assert [planted(change, one) for one in MULTIPLYING] == [[(one.key, "matrix instructions")] for one in MULTIPLYING]


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, registers=one.registers + 7),
        lambda one: replace(one, registers=16, stack_bytes=0, blocks_per_sm=one.blocks_per_sm + 1),
        lambda one: replace(one, shared_bytes=one.shared_bytes + 16),
        lambda one: replace(one, code_bytes=2 * one.code_bytes, compile_s=99.0),
        lambda one: replace(one, mix=replace(one.mix, matrix=dict.fromkeys(one.mix.matrix, 1))),
    ],
)
def test_what_is_no_worse_is_not_reported(change: Callable[[KernelFacts], KernelFacts]) -> None:
    assert rules([change(one) for one in LOCKED.values()]) == []


def test_kernels_that_only_one_side_knows_are_found() -> None:
    first = next(iter(LOCKED.values()))
    others = [one for one in LOCKED.values() if one is not first]
    assert rules(others) == [(first.key, "not compiled")]
    assert rules(list(LOCKED.values()), {one.key: one for one in others}) == [(first.key, "not in the lock")]
    spilled = replace(first, stack_bytes=8)
    assert rules([spilled], {}) == [(first.key, "not in the lock"), (first.key, "spills")]


def test_a_finding_says_where_what_and_how_much() -> None:
    one = next(iter(LOCKED.values()))
    (found,) = regressions([spilling(one)], {one.key: one})
    assert str(found) == f"{one.key}: spills: {one.stack_bytes + 4} bytes of a thread's stack instead of 0"


# What is shipped: the targets of the kernels, read off the committed lock.


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_no_register_is_spilled_at_widths_64_and_128(target: str) -> None:
    chosen = [one for one in LOCKED.values() if one.target == target and one.head_dim <= 128]
    assert {one.direction for one in chosen} == {"fwd", "bwd"} and {one.head_dim for one in chosen} == {64, 128}
    assert [one.key for one in chosen if one.stack_bytes or one.mix.local_accesses] == []


def test_nothing_at_all_spills_and_everything_fits() -> None:
    assert [one.key for one in LOCKED.values() if one.stack_bytes or not one.blocks_per_sm] == []
    assert len({one.configuration for one in LOCKED.values()}) <= 60


@pytest.mark.parametrize(
    ("target", "kind"), [("sm_80", "HMMA"), ("sm_90", "HGMMA"), ("sm_100", "UTCHMMA"), ("gfx942", "MFMA")]
)
def test_half_precision_uses_the_largest_matrix_instruction_of_the_target(target: str, kind: str) -> None:
    chosen = [one for one in MULTIPLYING if one.target == target and one.head_dim <= 128]
    assert {one.direction for one in chosen} == {"fwd", "bwd"}
    assert [one.key for one in chosen if one.mix.kinds != {kind} or one.dtype != "half"] == []


def test_hoppers_key_block_loop_at_width_128_stays_in_registers_and_loads_16_bytes_at_once() -> None:
    one = LOCKED["triton_flash/sm_90-fwd-half-128/attention_forward"]
    assert one.loop is not None and one.loop.local_accesses == 0
    assert {name for name in one.loop.loads if not name.startswith("shared")} <= {"async 16 B", "descriptor"}


def test_gradients_are_added_up_without_atomics() -> None:
    assert [one.key for one in LOCKED.values() if "atomic" in one.mix.stores] == []


# The file.


def test_the_same_facts_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    write_lock(path, {"3.9.0": {}, "3.7.1": dict(reversed(LOCKED.items()))})
    first = path.read_bytes()
    write_lock(path, {"3.7.1": LOCKED, "3.9.0": {}})
    assert path.read_bytes() == first
    assert read_lock(path) == {"3.7.1": LOCKED, "3.9.0": {}}
    write_lock(path, read_lock(LOCK))
    assert path.read_bytes() == LOCK.read_bytes(), "the committed lock is as the verb writes it"


def test_a_changed_figure_changes_one_line(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    write_lock(before, {"3.7.1": LOCKED})
    key = next(iter(LOCKED))
    write_lock(after, {"3.7.1": LOCKED | {key: replace(LOCKED[key], registers=1, compile_s=3.0)}})
    lines = zip(before.read_text().splitlines(), after.read_text().splitlines(), strict=True)
    assert sum(old != new for old, new in lines) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"triton": {"3.7.1": {"a": {}}}}', '{"triton": []}'])
def test_what_is_no_lock_is_refused_with_what_to_do(content: str, tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    path.write_text(content)
    with pytest.raises(OutputError, match="--update"):
        read_lock(path)
    with pytest.raises(OutputError, match="kernels --update"):
        read_lock(tmp_path / "missing.json")
    with pytest.raises(OutputError, match="--lock"):
        write_lock(tmp_path / "missing" / "lock.json", {})


# Rows and the page.


def test_rows_for_people_are_uniform_and_those_for_programs_hold_everything() -> None:
    facts = list(LOCKED.values())
    for rows in (short_rows(facts), long_rows(facts), full_rows(facts, flat=True)):
        assert len(rows) == len(facts) and {tuple(row) for row in rows} == {tuple(rows[0])}
        assert not any(isinstance(value, dict) for row in rows for value in row.values())
    full = full_rows(facts, flat=False)
    assert json.loads(json.dumps(full)) == full
    row = next(row for row in full if row["configuration"] == "sm_90-fwd-half-128")
    assert row["matrix"] and row["loop_loads"]["async 16 B"] and row["shared_limit_bytes"] == 227 * 1024
    assert row["loop_matrix_per_exponential"] == sum(row["loop_matrix"].values()) / row["loop_exponentials"]
    without = next(row for row in full if row["kernel"] == "attention_delta")
    assert without["loop_matrix"] is None and without["loop_local_accesses"] is None, "no loop is not an empty loop"


def test_limits_of_the_targets_shown_are_explained() -> None:
    told = explanations(["sm_90", "gfx942"])
    assert told[:-2] == list(NOTES)
    assert told[-2].startswith("sm_90: 65,536 registers") and "228 KB" in told[-2] and "Programming Guide" in told[-2]
    assert told[-1].startswith("gfx942: ") and "CDNA3" in told[-1]


def test_the_section_of_the_page_shows_each_kernel_under_its_target() -> None:
    section = kernel_section(LOCK)
    assert section is not None and section.release == "3.7.1"
    assert [name for name, _, _ in section.targets] == list(LIMITS)
    tables = [table for _, _, found in section.targets for table in found]
    assert sum(len(table.rows) for table in tables) == 2 * len(LOCKED)
    assert all(len(row) == len(table.heads) for table in tables for row in table.rows)
    dashes = [field for table in tables for row in table.rows for field in row if field.text == "-"]
    assert dashes and all(field.reason for field in dashes)
    first = [row[0].text for row in tables[0].rows]
    assert first[:3] == [f"sm_80-fwd-half-{width}" for width in (64, 128, 256)], "narrow heads first"
    assert section.spills == f"None of {len(LOCKED)} kernels spills a register."


def test_the_section_takes_the_newest_version_and_says_what_spills(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    assert kernel_section(path) is None
    write_lock(path, {})
    assert kernel_section(path) is None
    key, one = next(iter(LOCKED.items()))
    write_lock(path, {"3.9.0": LOCKED, "3.10.0": {key: spilling(one)}, "3.11.0": {}})
    section = kernel_section(path)
    assert section is not None and section.release == "3.10.0"
    assert section.spills == f"1 of 1 kernels spill registers: {one.configuration}."
