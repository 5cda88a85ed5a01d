"""Callgrind: instructions by function, exact, on one thread of a CPU that valgrind imitates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from bench.digest import KernelRow
from bench.errors import Unavailable
from bench.profiling import Absence, Found, Subject, Tool, register_tool
from bench.profiling._outside import program, target, told
from bench.profiling._target import write_subject

OUTPUT = "callgrind.out"
LIMIT_S = 900.0
FUNCTIONS = 12
"""That execute most instructions; the file has all."""
LARGEST_PAIRS = 1 << 21
"""Valgrind runs fifty times as slow; more scores take minutes."""
_AROUND = re.compile(r"^(\?\?\?|[^\s:]+):(?!:)| \[\S+\]$")
"""File before a function, and library behind it."""
_LINE = re.compile(r"^\s*([\d,]+)\s+\(\s*[\d.]+%\)\s+(?P<name>\S.*)$")


@register_tool
class Callgrind(Tool):
    """Instruction counts of one call by function."""

    name: ClassVar[str] = "callgrind"
    summary: ClassVar[str] = "instructions by function under valgrind, exact, CPU only"
    default: ClassVar[bool] = False

    def absence(self, subject: Subject) -> Absence | None:
        """It needs valgrind, a cell on the CPU, and not too long a problem."""
        if subject.device != "cpu":
            return Absence("callgrind counts instructions of the CPU, and the cell runs on a GPU", applicable=False)
        if found := super().absence(subject):
            return found
        pairs = subject.problem.all_pairs
        if pairs > LARGEST_PAIRS:
            reason = f"valgrind runs fifty times as slow, and {pairs} scores are more than {LARGEST_PAIRS}"
            return Absence(reason, "profile a shorter problem, such as T512", applicable=False)
        return program("valgrind", "install it: `apt install valgrind`")

    def look(self, subject: Subject, folder: Path) -> Found:
        """Count one call; what comes before it is not counted."""
        options = ["--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={OUTPUT}"]
        file = write_subject(subject, folder / "subject.json")
        # What is counted is the calling thread alone, so it has to do all the work.
        command = ["valgrind", *options, *target(file.absolute(), 1)]
        told("callgrind", command, folder, LIMIT_S, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
        rows = read_annotated(told("callgrind_annotate", ["callgrind_annotate", OUTPUT], folder))
        if not rows:
            raise Unavailable("callgrind counted nothing: this build of torch does not tell valgrind where to begin")
        return Found(
            files={OUTPUT: "open with `kcachegrind callgrind.out`, or `callgrind_annotate callgrind.out`"},
            parts={"kernels": rows},
        )


def read_annotated(text: str) -> tuple[KernelRow, ...]:
    """Functions and their instructions, as ``callgrind_annotate`` lists them, the largest first."""
    rows = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if found and "PROGRAM TOTALS" not in line:
            count = float(found[1].replace(",", ""))
            name = _AROUND.sub("", found["name"])
            rows.append(KernelRow(tool="callgrind", name=name, figures={"instructions": count}))
    return tuple(rows[:FUNCTIONS])
