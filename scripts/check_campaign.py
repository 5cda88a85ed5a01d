"""How often `attention-bench check` is wrong: ``python scripts/check_campaign.py [KIND ...]``, resumable.

Each unit is one check of this tree against its own baseline, beside three processes that compute all the time:

* ``unchanged``: nothing was planted, all cells are checked; it must not fail.
* ``slower``: one implementation takes a tenth longer (``planted_regressions.py``), and is checked; it must fail there.
* ``bytes``, ``error``: one cell keeps one byte more, or errs 1.3 times as much; without times.
* ``register``: one kernel of the lock spills one register more.

Observations are appended to results/published/check_campaign.jsonl; what is there is not done again.
``python scripts/generate_docs.py`` makes the table of docs/ci.md of them. The two baselines are made by the command,
on a machine that does nothing else, and stay in results/runs/check_campaign until that folder is removed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.environment import read_environment
from bench.kernel_lock import LOCK, read_lock
from bench.kernel_report import triton_version
from bench.kernel_table import full_rows
from bench.notebook import Note, append, read_notes
from bench.soundness._batches import busy_machine, gate_cells

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "results" / "published" / "check_campaign.jsonl"
SCRATCH = ROOT / "results" / "runs" / "check_campaign"
UNITS = 30
SLOWED = ("naive", "online_softmax", "sdpa_flash")
"""Implementations that are made slower in turns; sdpa_math is the control of the others."""
EXACT = (*SLOWED, "sdpa_math")
REGISTER_BYTES = 4


def command(*words: str, plant: str | None = None) -> tuple[int, str, float]:
    """Exit code, standard output and seconds of a call of attention-bench."""
    variables = os.environ | ({} if plant is None else {"PLANTED_REGRESSION": plant, "PLANTED_TREE": str(ROOT)})
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "bench", *words], cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stdout, time.monotonic() - start


def baseline(exact: bool) -> Path:
    """The baseline of this tree; made once."""
    path = SCRATCH / ("exact.jsonl" if exact else "timed.jsonl")
    if not path.exists():
        words = ["baseline", "--device", "cpu", "--results", str(SCRATCH), "-o", str(path)]
        if command(*words, *(["--exact"] if exact else []))[0]:
            sys.exit("error: there is no baseline to check against.")
    return path


def timed(slowed: str | None) -> dict[str, Any]:
    """A check with times: of all cells, or of those of the implementation that was made slower."""
    words = ["--baseline", str(baseline(exact=False))]
    if slowed is None:
        return judged(*words)
    load = str(ROOT / "scripts" / "planted_regressions.py")
    return judged(*words, "-i", f"^{slowed}$", "--load", load, plant=f"slower {slowed}")


def exact(plant: str, number: int) -> dict[str, Any]:
    """A check of one cell, without times."""
    problem, name = gate_cells(number // len(EXACT) % 5)[0][0], EXACT[number % len(EXACT)]
    only = ("-i", f"^{name}$", "-p", f"^{problem.key}$")
    load = ("--load", str(ROOT / "scripts" / "planted_regressions.py"))
    return judged("--exact", "--baseline", str(baseline(exact=True)), *only, *load, plant=f"{plant} {name}")


def register(number: int) -> dict[str, Any]:
    """A check of the kernels, one of which spills one register more than the lock says."""
    rows = full_rows(list(read_lock(ROOT / LOCK)[triton_version()].values()), flat=False)
    rows[number]["spill_bytes"] += REGISTER_BYTES
    path = SCRATCH / "kernels.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    only = ("-i", "^naive$", "-p", "T128-")
    found = judged("--exact", "--baseline", str(baseline(exact=True)), "--kernels", str(path), *only)
    names = [rows[number][name] for name in ("implementation", "configuration", "kernel")]
    return found | {"planted": f"kernel {'/'.join(names)}"}


def judged(*words: str, plant: str | None = None) -> dict[str, Any]:
    """What a check said, and what was planted where."""
    said = ("--format", "json", "--results", str(SCRATCH))
    code, out, seconds = command("check", "--device", "cpu", *words, *said, plant=plant)
    kept = ("subject", "metric", "name", "severity", "text", "change_percent")
    rows = [{name: row[name] for name in kept} for row in json.loads(out or "[]")]
    where = None if plant is None else plant.split()[1]
    return {"exit_code": code, "seconds": round(seconds, 1), "planted": where, "outcomes": rows}


def observe(kind: str, number: int) -> dict[str, Any]:
    """One unit."""
    if kind == "unchanged":
        return timed(None)
    if kind == "slower":
        return timed(SLOWED[number % len(SLOWED)])
    return register(number) if kind == "register" else exact(kind, number)


METRICS = {
    "slower": ("time",),
    "bytes": ("peak_bytes",),
    "error": ("out_rmse", "out_max_abs"),
    "register": ("spill_bytes",),
}
"""Where each plant has to show."""


def right(kind: str, seen: dict[str, Any]) -> bool:
    """Whether the check said what it had to say."""
    if kind == "unchanged":
        return bool(seen["exit_code"] == 0)
    worse = [one for one in seen["outcomes"] if one["severity"] == "fail"]
    there = [one for one in worse if one["metric"] in METRICS[kind] and one["subject"].startswith(seen["planted"])]
    return bool(seen["exit_code"] == 3 and there)


TITLES = {
    "unchanged": "nothing: it must pass",
    "slower": "one implementation takes 10 % longer",
    "bytes": "one cell keeps one byte more",
    "error": "one cell errs 1.3 times as much",
    "register": "one kernel spills one register more",
}


def table() -> str:
    """The table of docs/ci.md."""
    notes = list(read_notes(NOTEBOOK))
    if not notes:
        return "Nothing has been published yet.\n"
    lines = ["| planted | checks | right | median seconds of a check |", "|---|---|---|---|"]
    for kind, title in TITLES.items():
        seen = [note.content for note in notes if note.experiment == kind]
        if seen:
            answers = sum(right(kind, one) for one in seen)
            lines.append(f"| {title} | {len(seen)} | {answers} | {median(one['seconds'] for one in seen):.0f} |")
    machines = sorted({f"{note.machine['cpu']}, {note.machine['cores']} cores" for note in notes})
    return "\n".join(
        [*lines, "", f"On {' and '.join(machines)}, beside three processes that compute all the time.", ""]
    )


def main(kinds: list[str]) -> int:
    """Observe what is missing; 1 if a check was wrong."""
    known = ("unchanged", *METRICS)
    if set(kinds) - set(known):
        sys.exit(f"a kind must be one of {', '.join(known)}, got {', '.join(kinds)}.")
    done = {(note.experiment, note.unit) for note in read_notes(NOTEBOOK)}
    missing = [(kind, n) for n in range(UNITS) for kind in kinds or known if (kind, f"{n:02d}") not in done]
    SCRATCH.mkdir(parents=True, exist_ok=True)
    environment = read_environment("cpu", "warm", None, None)
    machine = {name: getattr(environment, name) for name in ("cpu", "cores", "git_commit")} | {
        "torch": environment.packages.get("torch")
    }
    for exactly in (True, False):
        if any((kind in ("unchanged", "slower")) != exactly for kind, _ in missing):
            baseline(exactly)  # before anything is made busy
    wrong = 0
    for kind, number in missing:
        start = time.monotonic()
        with busy_machine(loaded=True):
            seen = observe(kind, number)
        at, seconds = datetime.now(UTC).isoformat(timespec="seconds"), round(time.monotonic() - start, 1)
        append(NOTEBOOK, Note("observation", kind, f"{number:02d}", at, machine, seconds, seen))
        answer = "right" if right(kind, seen) else "WRONG"
        wrong += answer == "WRONG"
        print(f"{kind} {number:02d}: {answer}, exit code {seen['exit_code']}, {seconds} s", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
