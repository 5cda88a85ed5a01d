"""The file of a baseline: ``results/baselines/<machine>.jsonl``, committed and reviewed as a diff.

A first line says where and how it was made; then comes one line per subject (a cell, a claim, a kernel, the mutants),
sorted, with only what is compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import OutputError, UsageError
from bench.header import RunHeader
from bench.results import uncollected
from bench.state import SCHEMA, State, Subject
from bench.verdicts import LOOKS, MARGIN

FOLDER = Path("results/baselines")
SUITE = "the checkout of attention-bench that measures"
FAILED = ("incorrect", "timeout", "crashed", "error")
"""Statuses that no baseline holds."""
MOST_MARGIN = 0.10
"""A baseline whose own halves ask for more sees no slowdown worth seeing; the policy may say that it is enough."""


def refuse_dirty(dirty: bool | None, where: str) -> None:
    """Stop before anything is measured where the tree has uncommitted changes.

    Args:
        dirty: None if nobody knows.
        where: whose tree it is, for the message.

    Raises:
        UsageError: if it has.
    """
    if dirty:
        raise UsageError(
            f"baseline must be made from a clean tree, got uncommitted changes in {where}. Commit or stash them and "
            "measure again."
        )


def refuse_as_baseline(state: State, header: RunHeader, complete: bool, margin: float = MARGIN) -> None:
    """A baseline is what everything is held against for weeks: only a clean, whole and steady run becomes one.

    Args:
        state: what would be stored.
        header: of its run.
        complete: whether the run ended by itself.
        margin: what the policy asks for.

    Raises:
        UsageError: with what is wrong and what to do.
    """
    cells = [one for one in state.subjects.values() if one.kind == "cell"]
    refuse_dirty(header.environment.git_dirty, SUITE)
    if not complete or not cells:
        raise UsageError(
            f"baseline must be made from a whole run, got {len(cells)} cells of run {header.run_id}"
            f"{'' if complete else ', which did not end'}. Measure again, or go on with --resume."
        )
    failed = [one.key for one in cells if one.status in FAILED]
    if failed:
        raise UsageError(f"baseline must not hold failures, got {_some(failed)}. Mend these cells first.")
    if not state.timed:
        return
    timed = [one for one in cells if one.log_ratios]
    few = [f"{one.key} ({len(one.log_ratios)})" for one in timed if len(one.log_ratios) < LOOKS[0]]
    if few or not timed:
        raise UsageError(
            f"baseline must come from at least {LOOKS[0]} processes, got {_some(few) or 'no time at all'}. "
            "Measure with `attention-bench baseline`, or leave times out with --exact."
        )
    if state.shaky:
        shaky = [f"{key} ({flags})" for key, flags in state.shaky.items()]
        raise UsageError(
            f"baseline must have steady rows, got {_some(shaky)}. "
            "See `attention-bench doctor`, wait until the machine is quiet, and measure again."
        )
    if state.margin > max(MOST_MARGIN, margin):
        raise UsageError(
            f"baseline must tell changes of {100 * max(MOST_MARGIN, margin):.0f} % from noise, got a margin of "
            f"{100 * state.margin:.0f} % from the halves of its own processes. Wait until the machine is quiet and "
            "measure again, or leave times out with --exact."
        )


def write_state(state: State, path: Path) -> None:
    """Write the file, sorted; what was there is replaced as a whole.

    Raises:
        OutputError: if it cannot be written.
    """
    plain = ("sweep", "commit", "timed", "controls", "toolchain", "machine", "metrics", "command", "device")
    first = {"type": "baseline", "schema_version": SCHEMA} | {name: getattr(state, name) for name in plain}
    first |= {"allocator": state.allocator, "margin": round(state.margin, 4), "subjects": len(state.subjects)}
    lines = [_text(first)] + [_text(_line(one)) for _, one in sorted(state.subjects.items())]
    scratch = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text("\n".join(lines) + "\n", encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        raise OutputError(
            f"baseline must be writable, got {str(path)!r} ({error.strerror}). Choose another with --output."
        ) from error


@uncollected()
def read_state(path: Path) -> State:
    """Read a baseline; NaN is read as what it is, for the check to refuse.

    Raises:
        OutputError: if it is missing or no baseline.
        UsageError: if its schema is another one.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        known = ", ".join(sorted(file.name for file in path.parent.glob("*.jsonl"))) or "none"
        raise OutputError(
            f"baseline must be there before anything is measured, got no {str(path)!r} ({error.strerror}); in that "
            f"folder: {known}. `attention-bench baseline` (make baseline) records one."
        ) from error
    except ValueError as error:
        raise OutputError(f"baseline must hold a JSON object per line, got {str(path)!r} ({error}).") from error
    first = lines[0] if lines else None
    if not isinstance(first, dict) or first.get("type") != "baseline":
        raise OutputError(f"baseline must begin with a baseline line, got {str(path)!r}. Is it a results file?")
    if first.get("schema_version") != SCHEMA:
        raise UsageError(
            f"baseline must have schema {SCHEMA}, got {first.get('schema_version')!r} in {str(path)!r}. "
            "Make it anew with this version of attention-bench."
        )
    try:
        subjects = [_subject(one) for one in lines[1:]]
        state = State(**_tuples(first, drop=("type", "subjects")) | {"subjects": {one.key: one for one in subjects}})
        counts = (first["subjects"], len(subjects), len(state.subjects))
        if not (_is_number(state.margin) and 0 < state.margin < math.inf):
            raise TypeError(f"margin {state.margin!r}")
    except (TypeError, KeyError, AttributeError) as error:
        raise OutputError(f"baseline must hold known fields, got {str(path)!r} ({error}). Make it anew.") from error
    if len(set(counts)) > 1:
        raise OutputError(
            f"baseline must hold {counts[0]} different subjects, got {counts[1]} lines of {counts[2]} in "
            f"{str(path)!r}. Was it cut, or merged by hand? Make it anew."
        )
    return state


def _subject(fields: dict[str, Any]) -> Subject:
    """A line as it was written. Numbers may be NaN or null, which the check names, but nothing else."""
    one = Subject(**{"kind": fields.pop("type"), **_tuples(fields)})
    odd = [value for value in one.values.values() if value is not None and not _is_number(value)]
    odd += [value for value in one.log_ratios if not _is_number(value)]
    if odd:
        raise TypeError(f"{odd[0]!r} for a number of {one.key}")
    return one


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _line(one: Subject) -> dict[str, Any]:
    known = {name: value for name, value in vars(one).items() if value not in (None, (), {})}
    return {"type": one.kind} | {name: value for name, value in known.items() if name not in ("kind", "reason")}


def _text(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(", ", ": "), sort_keys=False)


def _tuples(fields: Mapping[str, Any], drop: Sequence[str] = ()) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items() if name not in drop}


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
