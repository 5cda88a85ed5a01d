"""What was proved of the harness itself: the findings of the soundness notebook, as the report shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.notebook import Note
from bench.report.finding import Finding
from bench.results import Run

COMMAND = "attention-bench soundness"
"""Measures what this section shows."""
FALSE_ALARMS, POWER = "e01_identical_code", "e03_power"
OURS = "this harness"
BEFORE, AFTER = f"{OURS}, before confirmation", f"{OURS}, confirmed by fresh processes"
"""Rows of the finding on identical code."""
OUTCOMES = {True: "met", False: "MISSED", None: "too little observed"}


@dataclass(frozen=True)
class Soundness:
    """The section of the page."""

    rows: list[dict[str, str]]
    """One per experiment: experiment, outcome, found, target, units, machine."""
    rules: tuple[list[str], list[list[str]]]
    """Heads and rows of the table of rules: ours beside those of others, on the same data."""
    details: list[tuple[str, list[str], list[list[str]]]]
    """Title, heads and rows of the table behind each other experiment."""
    command: str = COMMAND


def soundness(notes: Sequence[Note]) -> Soundness:
    """The section; empty tables where there is no notebook."""
    rows = [
        {
            "experiment": f"{note.experiment}: {note.content.get('title', '')}",
            "outcome": OUTCOMES[note.content.get("met")],
            "found": str(note.content.get("found", "")),
            "target": str(note.content.get("target", "")),
            "units": str(note.content.get("units", "-")),
            "machine": f"{_machine(note)}, {note.at[:10]}",
        }
        for note in notes
    ]
    details = [(note.experiment, *_table(note.content.get("rows", ()))) for note in notes if note.content.get("rows")]
    return Soundness(rows, _rules(notes), details)


def false_alarms(notes: Sequence[Note], runs: Sequence[Run]) -> Finding:
    """How often this harness calls identical code changed, beside the rules of others on the same data."""
    row = _by_rule(notes, FALSE_ALARMS).get(BEFORE)
    if row is None:
        return Finding(
            f"How often this harness calls identical code changed was not measured on this machine: `{COMMAND}` does."
        )
    note = next(note for note in notes if note.experiment == FALSE_ALARMS)
    same = all(_same_machine(note, run) for run in runs)
    where = f"on {'a machine like this one' if same else 'another machine than this one'}, {_machine(note)}"
    after = _by_rule(notes, FALSE_ALARMS).get(AFTER)
    confirmed = f" and {after['flagged']} after confirmation" if after else ""
    rivals = [one for rule, one in _by_rule(notes, FALSE_ALARMS).items() if not rule.startswith(OURS)]
    percents = sorted(float(one["percent"]) for one in rivals)
    others = f" Rules of other tools on the same samples: {percents[0]:g} to {percents[-1]:g} %." if percents else ""
    return Finding(
        f"This harness called identical code changed in {row['flagged']} of {row['verdicts']} comparisons (at most "
        f"{row['upper_bound_percent']} % with 95 % confidence){confirmed}; measured {where}.{others}",
        "good" if note.content.get("met") else "plain" if note.content.get("met") is None else "bad",
    )


def _rules(notes: Sequence[Note]) -> tuple[list[str], list[list[str]]]:
    """Every rule with its false alarms on identical code, and the share of real slow-downs that it finds."""
    alarms = _by_rule(notes, FALSE_ALARMS)
    power = [row for note in notes if note.experiment == POWER for row in note.content.get("rows", ())]
    power = [row for row in power if row.get("blocks") == power[0].get("blocks")]
    if not alarms:
        return [], []
    heads = ["rule", "identical code called changed", "at most (95 %)"]
    heads += [f"+{row['injected_percent']:g} % found" for row in power]
    rows = []
    for rule, row in alarms.items():
        found = [
            f"{one['regressed_percent']:g} % of {one['verdicts']}" if rule == BEFORE else str(one.get(rule, "-"))
            for one in power
        ]
        share = f"{row['flagged']} of {row['verdicts']} ({row['percent']:g} %)"
        rows.append([rule, share, f"{row['upper_bound_percent']:g} %", *found])
    return heads, rows


def _by_rule(notes: Sequence[Note], experiment: str) -> dict[str, Mapping[str, Any]]:
    """Rows of an experiment by their rule."""
    return {row["rule"]: row for note in notes if note.experiment == experiment for row in note.content.get("rows", ())}


def _table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and texts of rows that need not have the same keys."""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    return [head.replace("_", " ") for head in heads], [[_text(row.get(head)) for head in heads] for row in rows]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _machine(note: Note) -> str:
    """Processor, cores and torch that a note was made with."""
    machine = note.machine
    return f"{machine.get('cpu', 'unknown')}, {machine.get('cores', '?')} cores, torch {machine.get('torch', '?')}"


def _same_machine(note: Note, run: Run) -> bool:
    """Whether a run was measured on such a machine; a notebook says nothing of a GPU."""
    environment = run.header.environment
    known = {"cpu": environment.cpu, "cores": environment.cores, "torch": environment.packages.get("torch")}
    return environment.device == "cpu" and all(note.machine.get(name) == value for name, value in known.items())
