"""From a sweep file to the list of cases: which problems, which implementations, timed or only verified.

A sweep is a TOML file::

    title = "Sequence length on the CPU"
    prose = "What the sweep is meant to show; the report prints it."
    skip_implementations = ["flex"]        # still run when asked for by name
    seconds_per_problem = 1.0              # rounds are added until a problem's rounds took this long
    protocol = "full"                      # several processes and two looks; without it: "budget", one process
    quick_ceilings = true                  # one second for the machine's ceilings instead of several
    time_budget = "9m"                     # stop cleanly after this, unless --time-budget says otherwise
    [axes]                                 # the product of all axes
    seqlen = { sqrt2 = [128, 4096] }       # or a value, a list, { pow2 = [lo, hi] }
    mask = ["full", "causal"]
    [[include]]                            # one more product; axes it does not name are those of [axes]
    dtype = ["float16", "bfloat16"]
    seqlen = [128, 1024]
    timed = false                          # verified only
    [[exclude]]                            # drops the problems that match every entry
    mask = "causal"
    head_dim = 128
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from bench.case import Case
from bench.errors import NothingSelectedError, ProblemError, SweepError, UnknownNameError, UsageError
from bench.implementation import implementations, untimed
from bench.masks import parse_mask
from bench.problem import Problem, expand_fields
from bench.units import parse_duration

AXES = (*Problem.model_fields, "seqlen", "num_heads")
"""Names that ``[axes]``, ``[[include]]`` and ``--set`` take."""

SQRT2_STEP = 16
"""Lengths of a ``sqrt2`` range are rounded to multiples of this."""


@dataclass(frozen=True)
class Sweep:
    """A named list of problems with what they are meant to show."""

    name: str
    title: str
    prose: str
    problems: tuple[tuple[Problem, bool], ...]
    """Each problem once, with whether it is timed."""
    skip_implementations: tuple[str, ...] = ()
    seconds_per_problem: float = 1.0
    """Rounds of one problem are added until they took this long, or until there are 60."""
    full: bool = False
    """Whether the full protocol is due: several processes, two looks; ``seconds_per_problem`` does not count then."""
    quick_ceilings: bool = False
    """Whether one second is enough to learn what the machine can do at most."""
    time_budget_s: float | None = None
    """Stop cleanly after this long; None measures everything."""
    cases: tuple[Case, ...] | None = None
    """Exactly these cells instead of every problem with every implementation; claims ask for them."""


@dataclass(frozen=True)
class Selection:
    """The filters that every verb takes: regular expressions, searched for; the capital letter excludes."""

    implementation: tuple[str, ...] = ()
    not_implementation: tuple[str, ...] = ()
    problem: tuple[str, ...] = ()
    not_problem: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.implementation, *self.not_implementation, *self.problem, *self.not_problem):
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(
                    f"filter must be a regular expression, got {pattern!r} ({error}). Escape special characters."
                ) from error

    def takes_problem(self, problem: Problem) -> bool:
        """Whether ``-p`` and ``-P`` let a problem through."""
        return _passes(problem.key, self.problem, self.not_problem)

    def takes_implementation(self, name: str) -> bool:
        """Whether ``-i`` and ``-I`` let an implementation through."""
        return _passes(name, self.implementation, self.not_implementation)


def sweep_names() -> list[str]:
    """Names of the sweeps that come with the package."""
    return sorted(
        f.name.removesuffix(".toml") for f in resources.files("bench.sweeps").iterdir() if f.name.endswith(".toml")
    )


def load_sweep(name: str, device: str = "cpu", overrides: Sequence[str] = ()) -> Sweep:
    """Read a sweep by name or path, with ``--set axis=values`` applied to every product in it.

    On a GPU a sweep ``<name>_cuda``, where there is one, takes the place of ``<name>``.

    Raises:
        UnknownNameError: if the name is neither a file nor a known sweep.
        SweepError: if the file cannot be read; the message names file and line.
        ProblemError, MaskError: if a problem in it cannot exist.
    """
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        try:
            text, label, stem = path.read_text(encoding="utf-8"), str(path), path.stem
        except OSError as error:
            raise SweepError(
                f"sweep must be a readable file, got {name!r} ({error.strerror}). Check the path."
            ) from error
    else:
        known = sweep_names()
        if device == "cuda" and f"{name}_cuda" in known:
            name = f"{name}_cuda"
        if name not in known:
            raise UnknownNameError("sweep", name, [k for k in known if not k.endswith("_cuda")])
        text, label, stem = (
            (resources.files("bench.sweeps") / f"{name}.toml").read_text(encoding="utf-8"),
            f"{name}.toml",
            name,
        )
    return parse_sweep(text, label, stem.removesuffix("_cuda"), overrides)


def parse_sweep(text: str, label: str, name: str, overrides: Sequence[str] = ()) -> Sweep:
    """Build a sweep from TOML text; ``label`` names the file in messages."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # its message ends with "(at line L, column C)"
        raise SweepError(f"sweep {label} must be valid TOML, got: {error}. Mend that line.") from error
    known = {
        "title",
        "prose",
        "axes",
        "include",
        "exclude",
        "skip_implementations",
        "seconds_per_problem",
        "protocol",
        "quick_ceilings",
        "time_budget",
    }
    for unknown in sorted(set(data) - known):
        raise SweepError(
            f"sweep {label} must have only {', '.join(sorted(known))}, got {unknown!r}. Check the spelling."
        )
    if not isinstance(data.get("axes"), dict):
        raise SweepError(f"sweep {label} must have a table [axes], got none. Add one with at least seqlen.")
    changes = dict(parse_override(override) for override in overrides)
    products = [(data["axes"], True)]
    for extra in data.get("include", []):
        extra = dict(extra)
        timed = extra.pop("timed", True)
        products.append(({**data["axes"], **extra}, timed))
    problems: dict[Problem, bool] = {}
    for axes, timed in products:
        for problem in _product({**axes, **changes}, label):
            if not _excluded(problem, data.get("exclude", [])):
                problems[problem] = problems.get(problem, False) or timed
    return Sweep(
        name=name,
        title=data.get("title", name),
        prose=data.get("prose", "").strip(),
        problems=tuple(problems.items()),
        skip_implementations=tuple(data.get("skip_implementations", ())),
        seconds_per_problem=float(data.get("seconds_per_problem", 1.0)),
        full=_is_full(data.get("protocol", "budget"), label),
        quick_ceilings=bool(data.get("quick_ceilings", False)),
        time_budget_s=parse_duration(data["time_budget"]) if "time_budget" in data else None,
    )


def parse_override(text: str) -> tuple[str, Any]:
    """Read ``axis=values``: a TOML value (``seqlen=[128, 256]``) or plain words (``mask=full,causal``).

    Raises:
        SweepError: if there is no ``=`` or the axis is unknown.
    """
    axis, equals, value = text.partition("=")
    axis = axis.strip()
    if not equals or not value.strip():
        raise SweepError(f"--set must be axis=values, got {text!r}. Write for example --set seqlen=128,256.")
    if axis not in AXES:
        raise UnknownNameError("axis", axis, AXES)
    try:
        return axis, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        # Commas inside brackets belong to a mask's parameters, the others separate values.
        return axis, [_scalar(part) for part in re.split(r",(?![^(\[]*[)\]])", value)]


def plan(sweep: Sweep, selection: Selection, device: str) -> tuple[list[Case], dict[str, str]]:
    """The cases to run, and the implementations that were left out with the reason.

    An implementation that the sweep skips, or that does not run on ``device``, is planned only if ``-i`` asks for it,
    and one that is never timed there, only on problems that are no larger than the smallest square one: more would
    take long and add to no curve.

    Raises:
        NothingSelectedError: if the filters leave nothing.
    """
    left_out: dict[str, str] = {}
    if sweep.cases is not None:
        return _exactly(sweep.cases, selection), left_out
    chosen = planned_implementations(selection, device, sweep.skip_implementations, left_out)
    problems = [(problem, timed) for problem, timed in sweep.problems if selection.takes_problem(problem)]
    if not problems:
        example = sweep.problems[0][0].key if sweep.problems else "no problem at all"
        raise NothingSelectedError(
            f"problem filter must leave at least one of {len(sweep.problems)} problems, got none; "
            f"keys look like {example}. Change -p or -P."
        )
    cases = []
    least = _smallest_pairs([problem for problem, _ in sweep.problems])
    for problem, timed in problems:
        for name in chosen:
            why = untimed(implementations.get(name), problem, device)
            if why is not None and not selection.implementation and problem.all_pairs > least:
                left_out[name] = f"on all but the smallest problems: it {why}; ask for them with -i {name}"
            else:
                cases.append(Case(problem, name, timed and why is None))
    return cases, left_out


def _smallest_pairs(problems: Sequence[Problem]) -> int:
    """Pairs of the smallest problem with as many queries as keys; of the smallest at all where there is no such one."""
    square = [problem for problem in problems if problem.seqlen_q == problem.seqlen_k]
    return min(problem.all_pairs for problem in square or problems)


def _exactly(cases: Sequence[Case], selection: Selection) -> list[Case]:
    """Those of the cases that the filters take: none is no mistake, as evidence of another kind may be asked for."""
    return [
        case
        for case in cases
        if selection.takes_problem(case.problem) and selection.takes_implementation(case.implementation)
    ]


def planned_implementations(
    selection: Selection, device: str, skip: Sequence[str] = (), left_out: dict[str, str] | None = None
) -> list[str]:
    """Names that the filters take and that run on ``device``; those of ``skip`` only if ``-i`` asks for them.

    Args:
        selection: the filters.
        device: device type.
        skip: names that are not taken by themselves.
        left_out: is filled with the names that were not taken, and why.

    Raises:
        NothingSelectedError: if none is left.
    """
    left_out = {} if left_out is None else left_out
    chosen = []
    for name, member in implementations.items():
        if not selection.takes_implementation(name):
            continue
        if not selection.implementation:
            if device not in member.devices:
                left_out[name] = f"runs on {' and '.join(member.devices)} only"
                continue
            if name in skip:
                left_out[name] = f"not part of this by default; ask for it with -i {name}"
                continue
        chosen.append(name)
    if not chosen:
        raise NothingSelectedError(
            f"implementation filter must leave at least one, got none of {', '.join(implementations.names())}. "
            "Change -i or -I."
        )
    return chosen


def ladders(cases: Iterable[Case], coarse_first: bool = False) -> list[list[Case]]:
    """Group cases so that one worker takes all lengths of one mask, width, dtype and direction, shortest first.

    Cases that name a ladder form one of their own.

    Args:
        cases: in any order.
        coarse_first: split each ladder by value for a time budget: first every fourth length of every ladder,
            then every second, then the rest, so that stopping at any moment leaves a complete, coarser
            picture.
    """
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in cases:
        fields = case.problem.model_dump(exclude={"seqlen_q", "seqlen_k"})
        groups.setdefault((case.timed, *((case.ladder,) if case.ladder else fields.values())), []).append(case)
    whole = [
        sorted(group, key=lambda case: (case.problem.seqlen_q * case.problem.seqlen_k, case.problem.key))
        for group in groups.values()
    ]
    if not coarse_first:
        return whole
    levels: dict[int, list[list[Case]]] = {0: [], 1: [], 2: []}
    for ladder in whole:
        lengths = list(dict.fromkeys(case.problem for case in ladder))
        level = {problem: 0 if i % 4 == 0 else 1 if i % 2 == 0 else 2 for i, problem in enumerate(lengths)}
        for number, parts in levels.items():
            part = [case for case in ladder if level[case.problem] == number]
            if part:
                parts.append(part)
    return levels[0] + levels[1] + levels[2]


def _is_full(protocol: Any, label: str) -> bool:
    if protocol not in ("budget", "full"):
        raise SweepError(f"sweep {label} protocol must be 'budget' or 'full', got {protocol!r}. Check the spelling.")
    return bool(protocol == "full")


def _product(axes: Mapping[str, Any], label: str) -> Iterator[Problem]:
    for axis in axes:
        if axis not in AXES:
            raise SweepError(
                f"sweep {label} must name known axes, got {axis!r}; known: {', '.join(AXES)}. Check the spelling."
            )
    names = list(axes)
    for values in itertools.product(*(_values(axes[name], name, label) for name in names)):
        try:
            yield Problem(**expand_fields(dict(zip(names, values, strict=True))))
        except UsageError as error:
            raise (
                type(error)(f"sweep {label}: {error}") if not isinstance(error, UnknownNameError) else error
            ) from error


def _values(value: Any, axis: str, label: str) -> list[Any]:
    if isinstance(value, list):
        if not value:
            raise SweepError(f"sweep {label} axis {axis} must have at least one value, got []. Add one.")
        return list(
            itertools.chain.from_iterable(_values(v, axis, label) if isinstance(v, dict) else [v] for v in value)
        )
    if not isinstance(value, dict):
        return [value]
    ((kind, bounds),) = value.items() if len(value) == 1 else (("", None),)
    steps = {"pow2": 2.0, "sqrt2": math.sqrt(2)}
    if kind not in steps or not (
        isinstance(bounds, list)
        and len(bounds) == 2
        and all(type(b) is int for b in bounds)
        and 0 < bounds[0] <= bounds[1]
    ):
        raise SweepError(
            f"sweep {label} axis {axis} must be a value, a list or a range, got {value!r}. "
            "Write { pow2 = [128, 4096] } or { sqrt2 = [128, 4096] }."
        )
    count = math.floor(math.log(bounds[1] / bounds[0], steps[kind]) + 1e-9)
    exact = [bounds[0] * steps[kind] ** i for i in range(count + 1)]
    multiple = SQRT2_STEP if kind == "sqrt2" else 1
    return list(dict.fromkeys(max(1, round(x / multiple) * multiple) for x in exact))


def _excluded(problem: Problem, rules: Iterable[Mapping[str, Any]]) -> bool:
    fields = problem.model_dump()
    for rule in rules:
        wanted = {
            name: value if isinstance(value, list) else [value] for name, value in expand_fields(dict(rule)).items()
        }
        if "mask" in wanted:  # compare masks as masks: the order and spacing of an expression do not matter
            wanted["mask"] = [parse_mask(text).spec for text in wanted["mask"]]
        unknown = set(wanted) - set(fields)
        if unknown:
            raise ProblemError(f"[[exclude]] must name problem fields, got {sorted(unknown)[0]!r}. Check the spelling.")
        if all(fields[name] in values for name, values in wanted.items()):
            return True
    return False


def _passes(text: str, wanted: Sequence[str], unwanted: Sequence[str]) -> bool:
    return (not wanted or any(re.search(p, text) for p in wanted)) and not any(re.search(p, text) for p in unwanted)


def _scalar(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()
