from __future__ import annotations

from typing import Any

import planted
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.break_even import LEAST_MS, BreakEven, break_even
from bench.record import Record


def cell(name: str, ms: float, setup_ms: float | None = 0.0, prepare_ms: float = 0.0, **options: Any) -> Record:
    measured = {
        "setup_ns": None if setup_ms is None else round(setup_ms * 1e6),
        "prepare_ns": round(prepare_ms * 1e6),
        **options.pop("measured", {}),
    }
    return planted.record(name, 1024, ms, measured=measured, **({"noise": 0.0} | options))


def only(*cells: Record) -> BreakEven:
    (found,) = break_even(cells)
    return found


def test_it_pays_after_the_extra_cost_over_what_a_call_saves() -> None:
    found = only(cell("plain", 10.0), cell("compiled", 6.0, setup_ms=900.0, prepare_ms=100.0))
    assert (found.implementation, found.versus, found.extra_ms) == ("compiled", "plain", 1000.0)
    assert found.saved_ms == pytest.approx(4.0)
    assert (found.calls, found.calls_least, found.calls_most) == (250, 250, 250)


@pytest.mark.parametrize("ms", [10.0, 12.0])
def test_what_is_no_faster_never_pays(ms: float) -> None:
    found = only(cell("plain", 10.0), cell("compiled", ms, setup_ms=1000.0))
    assert found.calls is found.calls_least is found.calls_most is None
    assert found.saved_ms <= 0


def test_an_interval_that_holds_one_has_no_upper_end() -> None:
    slow = cell("plain", 10.0, measured={"samples_ns": (9, 11, 12, 12, 13, 14, 15), "processes": (0,) * 7})
    mine = cell("compiled", 10.0, 1000.0, measured={"samples_ns": (10,) * 7, "processes": (0,) * 7})
    found = only(slow, mine)
    assert found.calls_most is None and found.calls is not None and found.calls_least is not None
    assert found.calls_least < found.calls


def test_masks_that_are_built_first_count_as_compilation_does() -> None:
    found = only(cell("masks", 5.0, prepare_ms=150.0), cell("none", 10.0, prepare_ms=1.0))
    assert (found.implementation, found.extra_ms, found.calls) == ("masks", 149.0, 30)


def test_the_rival_is_the_fastest_of_those_that_spend_less() -> None:
    cells = [cell("slow", 20.0), cell("fast", 10.0), cell("dear", 1.0, setup_ms=5000.0)]
    found = break_even([*cells, cell("mine", 5.0, setup_ms=500.0)])
    assert [(one.implementation, one.versus) for one in found] == [("dear", "mine"), ("mine", "fast")]


def test_small_differences_are_no_set_up_cost() -> None:
    assert break_even([cell("a", 1.0), cell("b", 2.0, setup_ms=LEAST_MS - 0.1)]) == []
    assert break_even([cell("a", 1.0)]) == []


def test_set_up_counts_where_it_is_known_of_both() -> None:
    assert break_even([cell("a", 2.0, None), cell("b", 1.0, setup_ms=5000.0)]) == []
    assert only(cell("a", 2.0, None), cell("b", 1.0, setup_ms=5000.0, prepare_ms=130.0)).extra_ms == 130.0


def test_problems_and_times_that_cannot_be_set_against_each_other_are_left_out() -> None:
    dear = cell("b", 1.0, setup_ms=100.0)
    other_problem = planted.record("a", 2048, 2.0)
    assert break_even([dear, other_problem, planted.record("a", status="unsupported")]) == []
    assert break_even([dear, cell("a", 2.0, flags=[("impossible", "planted")])]) == []
    assert break_even([dear, cell("a", 2.0, rounds=8)]) == []  # no round timed both


@given(
    extra=st.floats(LEAST_MS, 1e6),
    mine=st.floats(0.01, 1e3),
    other=st.floats(0.01, 1e3),
)
def test_after_that_many_calls_and_not_before_the_total_is_no_larger(extra: float, mine: float, other: float) -> None:
    found = break_even([cell("mine", mine, setup_ms=extra), cell("other", other)])
    (one,) = [row for row in found if row.implementation == "mine"] or [None]
    if one is None or one.calls is None:
        assert one is None or one.saved_ms <= 0
        return
    assert one.calls * one.saved_ms >= one.extra_ms * (1 - 1e-9)
    assert (one.calls - 1) * one.saved_ms <= one.extra_ms * (1 + 1e-9)
