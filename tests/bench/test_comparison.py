from __future__ import annotations

import planted
import pytest

from bench.comparison import allocator_effects, compare, differences, machine_names
from bench.record import Record
from bench.results import Run


def cells(length: int, **milliseconds: float) -> list[Record]:
    return [planted.record(name, length, ms, noise=0) for name, ms in milliseconds.items()]


def test_allocator_effects_are_geometric_means_with_their_range() -> None:
    default = planted.run([*cells(128, naive=2.0, flash=1.0), *cells(256, naive=8.0)], allocator="default")
    warm = planted.run([*cells(128, naive=1.0, flash=1.0), *cells(256, naive=1.0), *cells(512, naive=1.0)])
    naive, flash = allocator_effects(default, warm)
    assert (naive.implementation, naive.ratio, naive.least, naive.most, naive.cells) == ("naive", 4.0, 2.0, 8.0, 2)
    assert (flash.implementation, flash.ratio, flash.cells) == ("flash", 1.0, 1)


def test_allocator_effects_need_runs_that_differ_in_nothing_else() -> None:
    warm = planted.run(cells(128, naive=1.0))
    for changed in ({"cores": 8}, {"torch_threads": 1}, {"packages": {"torch": "2.14"}}):
        default = planted.run(cells(128, naive=2.0), allocator="default", **changed)
        assert allocator_effects(default, warm) == []
    assert allocator_effects(warm, warm) == []
    assert allocator_effects(warm, planted.run(cells(128, naive=2.0), allocator="default")) == []  # the wrong way round


def test_times_of_two_allocators_are_not_compared_cell_by_cell() -> None:
    before, after = planted.run(cells(128, naive=1.0)), planted.run(cells(128, naive=2.0), allocator="default")
    assert differences(before, after) == {"allocator": ("warm", "default")}
    (change,) = compare(before, after)
    assert change.latency_ratio is None and change.peak_bytes_change == 0


def test_changes_come_by_significance_and_one_rule_decides_them() -> None:
    def cell(name: str, ms: float, processes: int = 6, **extra: object) -> Record:
        return planted.record(name, 128, ms, noise=0.001, processes=processes, **extra)  # type: ignore[arg-type]

    before = [
        cell("same", 1),
        cell("slower", 1),
        cell("faster", 1),
        cell("near", 1),
        cell("one", 1, 1),
        cell("gone", 1),
    ]
    after = [
        cell("same", 1),
        cell("slower", 1.2),
        cell("faster", 0.5),
        cell("near", 1.03),
        cell("one", 2.2, 1),
        cell("new", 1),
    ]
    changes = compare(planted.run(before), planted.run(after))
    assert [change.implementation for change in changes] == ["one", "faster", "slower", "near", "same", "gone", "new"]
    told = {change.implementation: change for change in changes}
    assert {name: told[name].verdict for name in ("faster", "slower", "near", "same", "one")} == {
        "faster": "IMPROVED", "slower": "REGRESSED", "near": "UNCLEAR", "same": "UNCHANGED", "one": None,
    }  # fmt: skip
    for change in changes:
        beyond = change.significance is not None and change.significance >= 1
        assert beyond == (change.implementation in ("one", "faster", "slower"))
        assert change.notable == (beyond or change.implementation in ("gone", "new"))
    assert told["slower"].processes == 6 and told["one"].processes == 1 and told["gone"].processes is None


def test_bytes_errors_and_statuses_are_notable_without_any_time() -> None:
    peak = planted.memory("naive", planted.record("naive", 128).problem)
    more = peak.model_copy(update={"peak_bytes": peak.peak_bytes + 8})
    before = planted.run([planted.record("a", 128, peak=peak), planted.record("b", 128), planted.record("c", 128)])
    after = planted.run(
        [
            planted.record("a", 128, peak=more),
            planted.record("b", 128, judged=planted.agreement(1e-5)),
            planted.record("c", 128, status="crashed"),
        ],
        cores=64,
    )
    told = {change.implementation: change for change in compare(before, after)}
    assert all(change.notable and change.latency_ratio is None and change.verdict is None for change in told.values())
    assert told["a"].peak_bytes_change == 8
    assert told["b"].out_max_abs_ratio == pytest.approx(10)


def test_impossible_times_and_zero_are_not_compared() -> None:
    fine = planted.run(cells(128, a=1.0, b=1.0))
    odd = planted.run([planted.record("a", 128, 1.0, flags=[("impossible", "x")]), planted.record("b", 128, 0.0)])
    assert [change.latency_ratio for change in compare(fine, odd)] == [None, None]
    assert [change.latency_ratio for change in compare(odd, fine)] == [None, None]


def test_machines_have_one_name_exactly_if_their_times_may_share_a_figure() -> None:
    def run(run_id: str, **env: object) -> Run:
        return planted.run(cells(128, a=1.0), run_id=run_id, **env)

    new = {"packages": {"torch": "2.14.0"}}
    runs = [
        run("1"),
        run("2"),
        run("3", **new),
        run("4", cores=8, **new),
        run("5", hostname="other", **new),
        run("6", allocator="default"),
    ]
    names = machine_names(runs)
    for one in runs:
        for other in runs:
            alike = one.header.environment.hostname == other.header.environment.hostname and not differences(one, other)
            assert (names[one.run_id] == names[other.run_id]) == alike
    assert names["3"] == "planted-host, warm allocator, cores 2, torch 2.14.0"
    assert names["5"] == "other, warm allocator"
    assert machine_names(runs[:2])["1"] == "planted-host, warm allocator"
    tf32 = run("7", float32_products="high")
    assert differences(runs[0], tf32) == {"float32_products": (None, "high")}
