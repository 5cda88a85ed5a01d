"""Implementations that fail in every way there is, for tests of the runner. Loaded with ``--load``."""

import ctypes
import os
import signal
import sys
import threading
import time
import weakref

from bench.errors import Unavailable, Unsupported
from bench.implementation import AttentionInputs, AttentionOutput, Call, register_implementation
from bench.problem import Problem
from bench.rung import DeviceBrokenError, Rung


class _Faulty:
    """A plain, right attention for masks that are full; subclasses spoil one thing."""

    summary = "fails on purpose"
    layout = "bhsd"
    devices = ("cpu",)
    backward = True
    expects: tuple[str, ...] = ()
    at_length = 256
    """The one length at which it fails."""

    def version(self) -> str:
        return "1"

    def unsupported(self, problem: Problem, device: str) -> str | None:
        return None if problem.mask.spec == "full" else "takes the full mask only"

    def predicted_peak_bytes(self, problem: Problem, device: str) -> int | None:
        return None

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        self.calls = 0

        def run() -> AttentionOutput:
            self.calls += 1
            scores = (inputs.q * problem.softmax_scale) @ inputs.k.transpose(-1, -2)
            out = scores.softmax(-1) @ inputs.v
            return self.spoil(out) if problem.seqlen_q == self.at_length else AttentionOutput(out)

        return Call(run)

    def spoil(self, out):
        return AttentionOutput(out)


@register_implementation
class StandsIn(_Faulty):
    """Something slow in its place shows that it is right; its time would be that of something else."""

    name = "stands_in"

    def untimed(self, problem: Problem, device: str) -> str | None:
        return "runs in an emulator" if device == "cpu" else None

    def unavailable(self, problem: Problem, device: str) -> str | None:
        return "needs its device: the emulator would take an hour" if problem.seqlen_q > self.at_length else None


@register_implementation
class Wrong(_Faulty):
    name = "wrong"

    def spoil(self, out):
        return AttentionOutput(out * 1.01)


@register_implementation
class NotFinite(_Faulty):
    name = "not_finite"

    def spoil(self, out):
        out = out.clone()
        out[..., 0, 0] = float("nan")
        return AttentionOutput(out)


@register_implementation
class Raises(_Faulty):
    name = "raises"

    def spoil(self, out):
        raise RuntimeError("planted failure <b>with markup</b>")


@register_implementation
class RaisesWhenTimed(_Faulty):
    name = "raises_when_timed"

    def spoil(self, out):
        if self.calls > 3:  # verified and profiled, then timed
            raise RuntimeError("planted failure in a timed call")
        return AttentionOutput(out)


@register_implementation
class OutOfMemory(_Faulty):
    name = "out_of_memory"

    def spoil(self, out):
        out.new_empty(1 << 50)
        return AttentionOutput(out)


@register_implementation
class Dies(_Faulty):
    name = "dies"

    def spoil(self, out):
        os.kill(os.getpid(), signal.SIGKILL)


@register_implementation
class Exits(_Faulty):
    name = "exits"

    def spoil(self, out):
        os.write(2, b"last words\n")
        os._exit(7)


@register_implementation
class ExitsQuietly(_Faulty):
    """Ends the process with exit code 0, as if all were well."""

    name = "exits_quietly"

    def spoil(self, out):
        os._exit(0)


@register_implementation
class AsksToExit(_Faulty):
    name = "asks_to_exit"

    def spoil(self, out):
        sys.exit(0)


@register_implementation
class Segfaults(_Faulty):
    name = "segfaults"

    def spoil(self, out):
        ctypes.string_at(0)


@register_implementation
class Aborts(_Faulty):
    name = "aborts"

    def spoil(self, out):
        os.abort()


@register_implementation
class LeavesAChild(_Faulty):
    """Dies, while a process that it forked lives on and holds all that it had open."""

    name = "leaves_a_child"

    def spoil(self, out):
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(7)


@register_implementation
class LeavesAThread(_Faulty):
    """Is right, and starts a thread for which the end of the process would wait for ever."""

    name = "leaves_a_thread"

    def spoil(self, out):
        if self.calls == 1:
            threading.Thread(target=time.sleep, args=(3600,)).start()
        return AttentionOutput(out)


@register_implementation
class MemoryErrorOfPython(_Faulty):
    name = "memory_error"

    def spoil(self, out):
        raise MemoryError


@register_implementation
class OutOfDeviceMemory(_Faulty):
    """As torch says it on a GPU."""

    name = "out_of_device_memory"

    def spoil(self, out):
        import torch

        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@register_implementation
class FailsWithTensors(_Faulty):
    """Fails with a large tensor in its frame and another in that of the exception before; the next call looks for them.

    Fails at the first length and at the second, in other ways; at the third it says what it found.
    """

    name = "fails_with_tensors"

    def __init__(self):
        self.held = []

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        alive = [reference for reference in self.held if reference() is not None]
        if alive:
            raise RuntimeError(f"{len(alive)} of {len(self.held)} tensors of an earlier failure are alive")
        call = super().prepare(problem, inputs)

        def run() -> AttentionOutput:
            output = call.run()
            if problem.seqlen_q in (128, self.at_length) and inputs.q.shape[0] == 1:  # not the certificate
                self.fail(output.out.new_ones(1 << 20), "first" if problem.seqlen_q == 128 else "second")
            return output

        return Call(run)

    def fail(self, large, words):
        self.held.append(weakref.ref(large))
        try:
            raise RuntimeError(f"{words} failure")
        except RuntimeError as error:
            other = large.clone()
            self.held.append(weakref.ref(other))
            if words == "second":
                raise MemoryError("from another one") from error
            raise


def _attempt_or_break(self, cell, action, attempt=Rung._attempt):
    """What fails in :class:`BreaksTheDevice` leaves the device unusable, as a fault of a GPU kernel does."""
    failed = attempt(self, cell, action)
    if failed is not None and cell.case.implementation == BreaksTheDevice.name:
        raise DeviceBrokenError(*self._finish(cell, *failed))
    return failed


Rung._attempt = _attempt_or_break


@register_implementation
class BreaksTheDevice(_Faulty):
    name = "breaks_the_device"

    def spoil(self, out):
        raise RuntimeError("an illegal memory access was encountered")


@register_implementation
class Hangs(_Faulty):
    name = "hangs"

    def spoil(self, out):
        time.sleep(3600)


@register_implementation
class Refuses(_Faulty):
    name = "refuses"

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        if problem.seqlen_q == self.at_length:
            raise Unsupported("the library's own words")
        return super().prepare(problem, inputs)


@register_implementation
class Missing(_Faulty):
    name = "missing"

    def version(self) -> str:
        raise Unavailable("the library is not installed")


@register_implementation
class OtherBackend(_Faulty):
    name = "other_backend"
    expects = ("_flash_attention",)


@register_implementation
class Stored(_Faulty):
    """Computes once and returns what it stored from then on."""

    name = "stored"

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        call, kept = super().prepare(problem, inputs), []

        def run() -> AttentionOutput:
            if not kept or problem.seqlen_q != self.at_length:
                kept.append(call.run())
            return kept[-1] if problem.seqlen_q != self.at_length else kept[0]

        return Call(run)


@register_implementation
class ReadsPastTheEnd(_Faulty):
    """Takes in what lies behind its values."""

    name = "reads_past_the_end"

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        call = super().prepare(problem, inputs)

        def run() -> AttentionOutput:
            behind = inputs.v.as_strided((1,), (1,), inputs.v.numel())
            out = call.run().out
            return AttentionOutput(out + behind if problem.seqlen_q == self.at_length else out)

        return Call(run)


@register_implementation
class LeavesRowsUnwritten(_Faulty):
    """Returns memory of which it wrote only a part."""

    name = "leaves_rows_unwritten"

    def spoil(self, out):
        result = out.new_empty(out.shape)
        result[:, :, 1:] = out[:, :, 1:]
        return AttentionOutput(result)


@register_implementation
class Sound(_Faulty):
    name = "sound"
