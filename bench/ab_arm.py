"""One side of `attention-bench ab`: a process with the code of one tree, which prepares cells and times blocks.

It is started as a script with that tree first on the path, so that everything it imports comes from there while the
protocol is the one of the side that asks. It answers on a pipe, and never measures unasked: the two sides take turns.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import traceback
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PRELOAD = (
    "torch",
    "bench.calls",
    "bench.certificate",
    "bench.clocks",
    "bench.implementation",
    "bench.inputs",
    "bench.numerics",
    "bench.reference",
)


class Side:
    """The cell at hand."""

    def __init__(self, device: str) -> None:
        from bench.clocks import clocks_for, overhead_ns

        self.device = device
        self.clock, _ = clocks_for(device)
        self.overhead_ns = overhead_ns(self.clock)
        self.step: Any = None

    @cached_property
    def probe(self) -> Any:
        """Reads memory. Only the process that verifies needs it: the profiler behind it takes a second to import."""
        from bench.probes import probe_for

        return probe_for(self.device)[0]

    def prepare(self, fields: dict[str, Any], name: str, verify: bool) -> dict[str, Any]:
        """Make the step; with ``verify`` also judge it against float64 and read its memory."""
        from bench.calls import differentiable, make_step
        from bench.errors import Unavailable, Unsupported
        from bench.implementation import implementations, refusal, untimed
        from bench.inputs import make_inputs, place_inputs
        from bench.problem import Problem

        self.step = None
        gc.collect()
        if name not in implementations.names():
            return {"status": None, "reason": "there is no such implementation"}
        problem, member = Problem(**fields), implementations.get(name)
        try:
            member.version()
            refused = refusal(member, problem, self.device)
            if refused is not None:
                return {"status": refused[0], "reason": refused[1]}
            logical = make_inputs(problem)
            inputs = differentiable(problem, place_inputs(logical, member.layout, self.device))
            call = member.prepare(problem, inputs)
            self.step = make_step(call, problem, inputs, member.layout)
            results = self.step.run().tensors()
        except Unavailable as error:
            return {"status": "unavailable", "reason": str(error)}
        except Unsupported as error:
            return {"status": "unsupported", "reason": str(error)}
        answer: dict[str, Any] = {"status": "ok"}
        if verify:
            answer = self._judged(problem, member, logical, inputs, results)
            answer["row"]["mask_bytes"] = call.mask_bytes
        stand_in = untimed(member, problem, self.device)
        if answer["status"] == "ok" and stand_in is not None:
            answer |= {"status": "verified", "reason": stand_in}
        return answer

    def _judged(self, problem: Any, member: Any, logical: Any, inputs: Any, results: Any) -> dict[str, Any]:
        from bench.certificate import certify
        from bench.numerics import agree, failure_reason
        from bench.probes import read_step
        from bench.reference import naive_yardstick, reference

        certificate = certify(member, problem, self.device)
        agreement = agree(problem, reference(problem, logical), naive_yardstick(problem, logical), results)
        row: dict[str, Any] = {"flop": problem.flop, "attended_pairs": problem.attended_pairs}
        for name, error in agreement.tensors.items():
            row |= {f"{name}_max_abs": error.max_abs, f"{name}_rmse": error.rmse, f"{name}_limit": error.limit}
        ran = None
        if self.probe is not None:
            reading = read_step(self.probe, self.step, problem, inputs)
            names = ("peak_bytes", "output_bytes", "saved_bytes", "backward_peak_bytes")
            row |= {read: getattr(reading, read) for read in names}
            ran = ", ".join(reading.operators) or None
        wrong = certificate.reason or (None if agreement.passed else failure_reason(agreement))
        return {"status": "incorrect" if wrong else "ok", "reason": wrong, "row": row, "ran": ran}

    def block(self, calls: int) -> tuple[int, int | None]:
        """Time a block of calls on negated inputs: nanoseconds, and those of the calling thread's CPU time."""
        self.step.negate()
        found = self.clock.time_block(self.step.run, calls)
        return found.ns, found.cpu_ns


def serve(connection: Connection) -> None:
    """Answer until the other end hangs up or says "end". What is raised becomes an answer."""
    side: Side | None = None
    while True:
        try:
            what, *arguments = connection.recv()
        except EOFError:
            return
        if what == "end":
            return
        try:
            if what == "start":
                device, load = arguments
                from bench.registry import load_file

                for path in load:
                    load_file(Path(path))
                side = Side(device)
                answer: Any = side.overhead_ns
            else:
                answer = getattr(side, what)(*arguments)
        except Exception as error:  # noqa: BLE001  # the side that asks decides what it means
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno}"
            connection.send(("failed", f"{type(error).__name__}: {error} ({place})"))
            continue
        connection.send(("ok", answer))


def fork_servants(connection: Connection) -> None:
    """Import everything once, run nothing, and fork a fresh process on each request, which then answers on the pipe."""
    import bench

    for name in PRELOAD:
        with contextlib.suppress(ImportError):  # of another revision; who needs it says so
            importlib.import_module(name)
    with contextlib.suppress(Exception):  # what cannot be imported here is said by who asks for it
        sys.modules["bench.implementation"].implementations.names()
    gc.freeze()  # searching all of torch would cost each cell's collection 0.1 s and more
    connection.send(str(Path(bench.__file__).resolve().parents[1]))
    while True:
        try:
            connection.recv()
            child = os.fork()
            if child == 0:
                serve(connection)
                sys.stderr.flush()
                os._exit(0)
            connection.send(("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
        except (EOFError, OSError):
            return


if __name__ == "__main__":
    fork_servants(Connection(int(sys.argv[1])))
