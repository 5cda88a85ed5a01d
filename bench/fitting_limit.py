"""Whether a sequence fits into memory, tried: one length per fresh process, under a limit, until the limit is found.

On a CPU the limit is one on the data of the process, set over what a fresh process holds after it has imported
everything and made a small call; whatever it asks for beyond that is refused, touched or not. On a GPU it is a share of
the device. So a limit covers inputs, mask tensors and the call itself.

What became of a length:

* ``fits``: a whole call was completed under the limit.
* ``running``: a call that would take too long was stopped after a while in which it had been refused nothing. Most
  calls ask for all their memory at the start, but this is not proof, and is reported under its own name.
* ``refused``: an allocation failed, or a signal ended the process.
* ``error``: it failed in any other way, which says nothing about memory; the search ends with the reason.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Literal

from bench.calls import differentiable, make_step
from bench.errors import MaskError
from bench.faults import is_out_of_memory
from bench.fresh_process import own_bytes, start
from bench.implementation import AttentionInputs, Layout, implementations
from bench.lifeline import end_worker, has_message
from bench.problem import LARGEST_SIZE, Problem
from bench.registry import load_file
from bench.units import format_seconds

if TYPE_CHECKING:
    import torch

Outcome = Literal["fits", "running", "refused", "error"]
Stage = Literal["starting", "preparing", "calling"]

FIRST_LENGTH = 1024
"""Tried first: it tells how long a call takes, and where a search without a prediction begins."""
WARM_LENGTH = 128
"""Of the call before the limit is set, which starts threads, loads code and lets libraries take scratch."""
OVERRUN = 3
"""A call that promised to end in time is stopped after so many times the time allowed: the machine may be busy."""
WORTHWHILE = 1.5
"""Another call is completed for its time if it is this much longer."""
BRACKET = 0.005
"""The prediction is tried this share below and above."""
PRECISION = 0.011
"""The search ends when the shortest refused length is this close to the longest that was not."""
START_S = 120.0
"""A process that has not set its limit within this time, or not prepared its call within as much again, never will."""
SLACK_BYTES = 64 << 20
"""An allocation this far beyond the limit must fail, or the limit is none."""


@dataclass(frozen=True)
class Trial:
    """What became of one length."""

    outcome: Outcome
    seconds: float = 0.0
    """Duration of the call, where it was completed."""
    reason: str | None = None
    """Why it was refused or failed."""


@dataclass(frozen=True)
class FittingLimit:
    """The longest sequence of one implementation under a limit, as predicted and as tried."""

    implementation: str
    """Name."""
    limit_bytes: int
    """Inputs, mask tensors and call together."""
    predicted_seqlen: int | None
    """What a law said; None where none is known."""
    verified_seqlen: int | None
    """Longest length at which a call was completed."""
    running_seqlen: int | None
    """Longest length at which a call was refused nothing before it was stopped; None if none was stopped."""
    refused_seqlen: int | None
    """Shortest length that was refused."""
    children: int
    """Processes that were started."""
    seconds: float
    """Duration of the search."""
    reason: str | None = None
    """Why there is no answer, or what it rests on where no call of that length was completed."""


@dataclass
class Search:
    """The search itself, which neither starts a process nor knows a clock.

    Args:
        attempt: tries a length for at most so many seconds.
        work: what the duration of a call is proportional to, by length.
        call_s: a call that promises to take longer than this is not completed,
        patience_s: but watched for this long.
    """

    attempt: Callable[[int, float], Trial]
    work: Callable[[int], float]
    call_s: float
    patience_s: float
    trials: dict[int, Trial] = field(default_factory=dict)

    def longest(self, outcome: Outcome) -> int | None:
        """Longest length with this outcome."""
        return max((n for n, trial in self.trials.items() if trial.outcome == outcome), default=None)

    @property
    def refused(self) -> int | None:
        """Shortest refused length."""
        return min((n for n, trial in self.trials.items() if trial.outcome == "refused"), default=None)

    @property
    def passed(self) -> int:
        """Longest length that was not refused; 0 if there is none."""
        return max(self.longest("fits") or 0, self.longest("running") or 0)

    @property
    def error(self) -> str | None:
        """Why the search ended early."""
        return next((trial.reason for trial in self.trials.values() if trial.outcome == "error"), None)

    def seconds_at(self, length: int) -> float | None:
        """How long a call promises to take, from the longest completed one."""
        known = self.longest("fits")
        return None if known is None else self.trials[known].seconds * self.work(length) / self.work(known)

    def run(self, predicted: int | None) -> None:
        """Find the limit, near the prediction if it is right."""
        first = min(predicted or FIRST_LENGTH, FIRST_LENGTH)
        self._try(first)
        if predicted is not None and predicted > first and self.refused is None:
            self._calibrate(predicted)
            self._try(max(first, round(predicted * (1 - BRACKET))))
            self._try(round(predicted * (1 + BRACKET)) + 1)
        while self.error is None and not self._found():
            high = self.refused
            middle = 2 * self.passed if high is None else (self.passed + high) // 2
            self._try(min(middle, LARGEST_SIZE))

    def _found(self) -> bool:
        if self.refused is None:
            return self.passed >= LARGEST_SIZE
        return self.refused - self.passed <= max(1, PRECISION * self.passed)

    def _try(self, length: int) -> None:
        """Try a length unless the answer is known."""
        high = self.refused
        if self.error is not None or length <= self.passed or (high is not None and length >= high):
            return
        expected = self.seconds_at(length)
        short = expected is None or expected <= self.call_s
        self.trials[length] = self.attempt(length, OVERRUN * self.call_s if short else self.patience_s)

    def _calibrate(self, length: int) -> None:
        """While a call of ``length`` promises to take long, complete the longest one that does not.

        The promise of a short call is a poor one, and a completed call is worth having if ``length`` has to be stopped.
        """
        cheap_s = self.call_s / 4
        while self.error is None and (self.seconds_at(length) or 0.0) > cheap_s:
            known = self.longest("fits") or 0
            low, high = known, length
            while high - low > 1:
                middle = (low + high) // 2
                if (self.seconds_at(middle) or 0.0) <= cheap_s:
                    low = middle
                else:
                    high = middle
            if low < WORTHWHILE * known:
                return
            self._try(low)
            if self.longest("fits") == known:
                return


def find_limit(
    implementation: str,
    at_length: Callable[[int], Problem],
    limit_bytes: int,
    predicted: int | None,
    *,
    device: str = "cpu",
    load: tuple[Path, ...] = (),
    call_s: float = 30.0,
    patience_s: float = 10.0,
) -> FittingLimit:
    """The longest sequence of one implementation under ``limit_bytes``, starting from a prediction.

    Args:
        implementation: name.
        at_length: the problem by length.
        limit_bytes: for inputs, mask tensors and the call together.
        predicted: where to look first; None doubles the length until it is refused.
        device: ``cpu`` or ``cuda``.
        load: files of unpackaged implementations.
        call_s: seconds up to which a call is completed.
        patience_s: seconds for which a longer one is watched.
    """
    started = time.monotonic()

    def attempt(length: int, timeout_s: float) -> Trial:
        return try_length(implementation, at_length(length), limit_bytes, timeout_s, device=device, load=load)

    search = Search(attempt, lambda length: at_length(length).flop, call_s, patience_s)
    search.run(predicted)
    return summary(implementation, limit_bytes, predicted, search, time.monotonic() - started)


def summary(
    implementation: str, limit_bytes: int, predicted: int | None, search: Search, seconds: float
) -> FittingLimit:
    """The row of a search that has ended."""
    running, verified = search.longest("running"), search.longest("fits")
    reason = search.error
    if reason is None and running is not None and running > (verified or 0):
        expected = search.seconds_at(running)
        whole = "" if expected is None else f"; all of it would take about {format_seconds(expected)}"
        reason = f"a call at {running} was {search.trials[running].reason}, refused nothing until then{whole}"
    if reason is None and verified is None:
        reason = next((trial.reason for trial in search.trials.values()), None)
    return FittingLimit(
        implementation=implementation,
        limit_bytes=limit_bytes,
        predicted_seqlen=predicted,
        verified_seqlen=verified,
        running_seqlen=running,
        refused_seqlen=search.refused,
        children=len(search.trials),
        seconds=seconds,
        reason=reason,
    )


def try_length(
    implementation: str,
    problem: Problem,
    limit_bytes: int,
    timeout_s: float,
    *,
    device: str = "cpu",
    load: tuple[Path, ...] = (),
) -> Trial:
    """Make the inputs and one call of ``problem`` in a fresh process that may take ``limit_bytes`` for them."""
    process, receiver = start(_call_within, implementation, problem, limit_bytes, device, load)
    stage: Stage = "starting"
    try:
        while has_message(receiver, process, timeout_s if stage == "calling" else START_S):
            message: Trial | Stage = receiver.recv()
            if isinstance(message, Trial):
                return message
            stage = message
    except EOFError:
        process.join()
        return _death(process.exitcode, stage)
    finally:
        end_worker(process)
    if stage == "calling":
        return Trial("running", reason=f"stopped after {timeout_s:g} s")
    return Trial("error", reason=f"the process was still {stage} after {START_S:g} s")


def _death(exitcode: int | None, stage: Stage) -> Trial:
    """What a process that ended without a word says: a signal under the limit means memory, all else is an error."""
    if exitcode is None or exitcode >= 0:
        return Trial("error", reason=f"the process ended with exit code {exitcode}")
    how = f"the process was ended by {Signals(-exitcode).name}"
    if stage == "starting":
        return Trial("error", reason=f"{how} before there was a limit")
    return Trial("refused", reason=how)


def _call_within(
    implementation: str, problem: Problem, limit_bytes: int, device: str, load: tuple[Path, ...], sender: Connection
) -> None:
    """In the fresh process: warm up, set the limit, say so, and try."""
    for path in load:
        load_file(path)
    try:
        _call(implementation, _shortened(problem), device, lambda: None)
        _set_limit(device, limit_bytes)
        sender.send("preparing")
        sender.send(Trial("fits", _call(implementation, problem, device, lambda: sender.send("calling"))))
    except Exception as error:  # noqa: BLE001  # whatever it is, the search is told
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        sender.send(Trial("refused" if is_out_of_memory(error) else "error", reason=reason))


def _shortened(problem: Problem) -> Problem:
    """The same kind of problem, so short that its memory is next to nothing."""
    lengths = {name: min(getattr(problem, name), WARM_LENGTH) for name in ("seqlen_q", "seqlen_k")}
    try:
        return Problem(**(problem.model_dump() | lengths))
    except MaskError:  # its parameters need a longer sequence
        return Problem(**(problem.model_dump() | lengths | {"mask": "full"}))


def _set_limit(device: str, limit_bytes: int) -> None:
    """From now on, refuse what goes beyond ``limit_bytes``.

    Raises:
        OSError: if the system does not refuse it.
    """
    import torch

    if device == "cuda":
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties().total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total))
        return
    held = own_bytes("VmData")
    if held is None:
        raise OSError("this kernel does not say what a process holds (VmData)")
    resource.setrlimit(resource.RLIMIT_DATA, (held + limit_bytes,) * 2)
    try:
        torch.empty(limit_bytes + SLACK_BYTES, dtype=torch.uint8)
    except RuntimeError:
        return
    raise OSError("this system lets a process go beyond its limit on data (RLIMIT_DATA)")


def _call(implementation: str, problem: Problem, device: str, announce: Callable[[], None]) -> float:
    """Seconds of one call of the problem's direction; ``announce`` is told when all is prepared."""
    import torch

    member = implementations.get(implementation)
    inputs = differentiable(problem, _inputs(problem, member.layout, device))
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    announce()
    started = time.monotonic()
    step.run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - started


def _inputs(problem: Problem, layout: Layout, device: str) -> AttentionInputs:
    """Uniform numbers, made in place: drawing them as a measurement does would take their memory twice."""
    import torch

    def make(heads: int, length: int, width: int) -> torch.Tensor:
        axes = (heads, length) if layout == "bhsd" else (length, heads)
        made = torch.empty((problem.batch_size, *axes, width), dtype=getattr(torch, problem.dtype), device=device)
        return made.uniform_(-1.0, 1.0)

    return AttentionInputs(
        make(problem.num_heads_q, problem.seqlen_q, problem.head_dim),
        make(problem.num_heads_kv, problem.seqlen_k, problem.head_dim),
        make(problem.num_heads_kv, problem.seqlen_k, problem.head_dim_v),
        None if problem.direction == "fwd" else make(problem.num_heads_q, problem.seqlen_q, problem.head_dim_v),
    )
