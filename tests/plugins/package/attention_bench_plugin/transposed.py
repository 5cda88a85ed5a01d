"""Naive attention that computes the transposed score matrix, so that the softmax runs over its first axis."""

from __future__ import annotations

from importlib.metadata import version

from bench.implementation import AttentionInputs, AttentionOutput, Call, register_implementation
from bench.problem import Problem


@register_implementation
class Transposed:
    """For the full mask and equal head counts; everything else it says it cannot do."""

    name = "plugin_transposed"
    summary = "softmax over the first axis of k @ q^T; from a package of its own"
    layout = "bshd"
    devices = ("cpu", "cuda")
    backward = True
    expects: tuple[str, ...] = ()

    def version(self) -> str:
        return version("attention-bench-plugin")

    def unsupported(self, problem: Problem, device: str) -> str | None:
        if problem.mask.spec != "full":
            return "takes the full mask only"
        return None if problem.num_heads_q == problem.num_heads_kv else "needs as many key heads as query heads"

    def predicted_peak_bytes(self, problem: Problem, device: str = "cpu") -> int | None:
        return None

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        def run() -> AttentionOutput:
            q, k, v = (tensor.transpose(1, 2) for tensor in (inputs.q, inputs.k, inputs.v))
            weights = ((k * problem.softmax_scale) @ q.transpose(-1, -2)).softmax(dim=-2)
            return AttentionOutput((weights.transpose(-1, -2) @ v).transpose(1, 2))

        return Call(run)
