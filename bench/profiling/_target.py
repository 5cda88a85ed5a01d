"""What outside profilers start: ``python _target.py SUBJECT.json CALLS`` warms a call up and repeats it.

Run as a file, so that tools which start their target again by its path find it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.problem import Problem
from bench.profiling import Subject, warmed
from bench.profiling._operators import CALL
from bench.registry import load_file


def write_subject(subject: Subject, path: Path) -> Path:
    """What :func:`read_subject` reads."""
    known = {
        "problem": subject.problem.model_dump(mode="json"),
        "implementation": subject.implementation,
        "device": subject.device,
        "load": [str(file.resolve()) for file in subject.load],
    }
    path.write_text(json.dumps(known))
    return path


def read_subject(path: Path) -> Subject:
    """The subject, its unpackaged implementations loaded."""
    known = json.loads(path.read_text())
    load = tuple(Path(file) for file in known["load"])
    for file in load:
        load_file(file)
    return Subject(Problem(**known["problem"]), known["implementation"], known["device"], load)


def prepared(subject: Subject) -> Callable[[], object]:
    """The warmed-up call, which waits for its end."""
    step = subject.step(subject.inputs())
    warmed(step, subject)

    def call() -> object:
        result = step.run()
        subject.finish()
        return result

    return call


@contextmanager
def marked(device: str) -> Iterator[None]:
    """The range around a call as NVIDIA's tools see it, and valgrind's counting switched on within."""
    import torch

    if device == "cuda":
        torch.cuda.nvtx.range_push(CALL)
    elif supports_valgrind():
        torch._C._valgrind_toggle()
    try:
        yield
    finally:
        if device == "cuda":
            torch.cuda.nvtx.range_pop()
        elif supports_valgrind():
            torch._C._valgrind_toggle()


def supports_valgrind() -> bool:
    """Whether torch was built with valgrind's requests."""
    import torch

    core: Any = torch._C
    return bool(getattr(core, "_valgrind_supported_platform", lambda: False)())


def main(arguments: list[str]) -> None:
    """Call so many times."""
    subject, calls = read_subject(Path(arguments[0])), int(arguments[1])
    call = prepared(subject)
    for _ in range(calls):
        with marked(subject.device):
            call()


if __name__ == "__main__":
    main(sys.argv[1:])
