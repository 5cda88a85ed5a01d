from __future__ import annotations

import inspect

import pytest

from bench import errors

CLASSES = [member for _, member in inspect.getmembers(errors, inspect.isclass) if issubclass(member, errors.BenchError)]


@pytest.mark.parametrize("error", CLASSES)
def test_the_tree_in_the_docstring_is_the_tree_in_the_code(error: type[errors.BenchError]) -> None:
    assert errors.__doc__ is not None
    drawn = [line for line in errors.__doc__.splitlines() if error.__name__ in line.split()]
    assert len(drawn) == 1
    if "exit code" in drawn[0]:
        assert f"exit code {error.exit_code}" in drawn[0]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BenchError, 1),
        (errors.RegistryError, 1),
        (errors.UsageError, 2),
        (errors.ProblemError, 2),
        (errors.MaskError, 2),
        (errors.SweepError, 2),
        (errors.OutputError, 2),
        (errors.UnknownNameError, 2),
        (errors.NothingSelectedError, 5),
    ],
)
def test_exit_codes(error: type[errors.BenchError], code: int) -> None:
    assert error.exit_code == code


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("casual", "did you mean causal or causal_top_left or full?"),
        ("ful", "did you mean full or causal?"),
        ("xyz", "known: causal, causal_top_left, full."),
    ],
)
def test_an_unknown_name_comes_with_the_nearest(name: str, hint: str) -> None:
    error = errors.UnknownNameError("mask", name, ["full", "causal_top_left", "causal"])
    assert str(error) == f"mask must be a known name, got '{name}'; {hint}"
