from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from bench.problem import Problem
from bench.record import Line, Record, Status, cell_key, json_schema

STATUSES = get_args(Status)
RULES = {  # agreement, measurement, reason; as docs and issue state them
    "ok": ("required", "required", "forbidden"),
    "verified": ("required", "forbidden", "required"),
    "incorrect": ("required", "forbidden", "required"),
    "unsupported": ("forbidden", "forbidden", "required"),
    "unavailable": ("forbidden", "forbidden", "required"),
    "out_of_memory": ("optional", "forbidden", "required"),
    "timeout": ("optional", "forbidden", "required"),
    "crashed": ("optional", "forbidden", "required"),
    "error": ("optional", "forbidden", "required"),
}


@pytest.mark.parametrize("present", list(itertools.product([True, False], repeat=3)))
@pytest.mark.parametrize("status", STATUSES)
def test_a_status_decides_what_a_record_holds(
    make_record: Callable[..., Record], status: str, present: tuple[bool, bool, bool]
) -> None:
    full = make_record("ok")
    values = {"agreement": full.agreement, "measurement": full.measurement, "reason": "why"}
    if status == "incorrect":
        values["agreement"] = make_record("incorrect").agreement
    fields = {name: value if there else None for (name, value), there in zip(values.items(), present, strict=True)}
    allowed = all(
        rule == "optional" or (rule == "required") == there for rule, there in zip(RULES[status], present, strict=True)
    )
    if allowed:
        record = make_record(status, **fields)
        assert Record.model_validate(record.model_dump(mode="json")) == record
    else:
        with pytest.raises(ValidationError, match=f"where status is '{status}', but it is (present|absent)"):
            make_record(status, **fields)
        as_read = full.model_dump(mode="json") | {"status": status}
        as_read |= {name: values[name] if there else None for name, there in zip(values, present, strict=True)}
        with pytest.raises(ValidationError):
            Record.model_validate(as_read)


@pytest.mark.parametrize("reason", ["", None])
def test_an_empty_reason_is_none(make_record: Callable[..., Record], reason: str | None) -> None:
    with pytest.raises(ValidationError, match="reason is required where status is 'unsupported'"):
        make_record("unsupported", reason=reason)


@pytest.mark.parametrize("status", ["ok", "verified"])
def test_a_wrong_result_is_not_right(make_record: Callable[..., Record], status: str) -> None:
    wrong = make_record("incorrect").agreement
    with pytest.raises(ValidationError, match=f"status must not be '{status}' where the agreement failed"):
        make_record(status, agreement=wrong)


def test_the_wrong_back_end_is_incorrect_even_if_its_numbers_are_right(
    make_record: Callable[..., Record],
) -> None:
    right = make_record("ok").agreement
    assert make_record("incorrect", agreement=right, reason="backend").status == "incorrect"


@pytest.mark.parametrize("status", [s for s in STATUSES if s != "out_of_memory"])
def test_only_memory_is_predicted(make_record: Callable[..., Record], status: str) -> None:
    assert make_record("out_of_memory", predicted=True).predicted
    with pytest.raises(ValidationError, match="predicted belongs to status 'out_of_memory' alone"):
        make_record(status, predicted=True)


PATHS: list[tuple[str | int, ...]] = [
    ("agreement", "tensors", "out", "max_abs"),
    ("agreement", "tensors", "out", "rmse_over_naive"),
    ("verify_s",),
    ("measure_s",),
    ("notes", "block_size"),
    ("notes", "nested", 0, "x"),
]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("path", PATHS)
def test_nothing_that_is_no_number_enters_a_record(
    make_record: Callable[..., Record], path: tuple[str | int, ...], number: float
) -> None:
    data: Any = make_record("ok", notes={"block_size": 64, "nested": [{"x": 1}]}).model_dump(mode="json")
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = number
    with pytest.raises(ValidationError, match="finite"):
        Record.model_validate(data)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("measurement", "samples_ns"), []),
        (("measurement", "samples_ns", 0), -1),
        (("measurement", "processes"), [0, 0]),
        (("measurement", "calls_per_sample"), 0),
        (("measurement", "memory", "peak_bytes"), -1),
        (("attended_pairs",), -1),
        (("flags",), [{"name": "odd", "reason": "x"}]),
        (("status",), "fine"),
        (("surprise",), 1),
        (("notes",), {"set": {1, 2}}),
    ],
)
def test_impossible_values_are_refused(
    make_record: Callable[..., Record], path: tuple[str | int, ...], value: Any
) -> None:
    data: Any = make_record("ok").model_dump(mode="json")
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ValidationError):
        Record.model_validate(data)


def test_the_cell_key_changes_with_everything_that_makes_another_cell() -> None:
    problem = Problem(seqlen=8)
    keys = [
        cell_key(problem, "naive", "2.13.0", "cpu"),
        cell_key(Problem(seqlen=8, seed=1), "naive", "2.13.0", "cpu"),
        cell_key(problem, "sdpa_math", "2.13.0", "cpu"),
        cell_key(problem, "naive", "2.14.0", "cpu"),
        cell_key(problem, "naive", None, "cpu"),
        cell_key(problem, "naive", "2.13.0", "NVIDIA H200"),
    ]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 12 for key in keys)


def test_a_record_knows_its_key(make_record: Callable[..., Record]) -> None:
    record = make_record("ok")
    assert record.cell_key == cell_key(record.problem, "naive", "2.13.0", "cpu")


def test_lines_are_told_apart_by_their_type(
    make_record: Callable[..., Record], make_header: Callable[..., Any]
) -> None:
    adapter: TypeAdapter[Line] = TypeAdapter(Line)
    for line in (make_record("ok"), make_record("error"), make_header()):
        again = adapter.validate_python(json.loads(json.dumps(line.model_dump(mode="json"), allow_nan=False)))
        assert type(again) is type(line)
        assert again == line


def test_every_field_is_documented() -> None:
    schema = json_schema()
    undocumented = [
        f"{name}.{field}"
        for name, model in schema["$defs"].items()
        for field, about in model.get("properties", {}).items()
        if not about.get("description")
    ]
    assert undocumented == []
    assert len(schema["$defs"]) > 8
