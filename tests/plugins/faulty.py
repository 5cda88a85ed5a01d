"""Implementations that fail in every way there is, for tests of the runner. Loaded with ``--load``."""

import os
import signal
import time

from bench.errors import Unavailable, Unsupported
from bench.implementation import AttentionInputs, AttentionOutput, Call, register_implementation
from bench.problem import Problem


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
