"""What attention-bench has to know of the kernel. The entry point in pyproject.toml names this module."""

from __future__ import annotations

from importlib.metadata import version

from bench.implementation import AttentionInputs, AttentionOutput, Call, register_implementation
from bench.problem import Problem


@register_implementation
class OwnKernel:
    """Says what the kernel takes, and calls it."""

    name = "own_kernel"
    summary = "one head after the other; holds the scores of a single head"
    layout = "bhsd"
    devices = ("cpu", "cuda")
    backward = False
    expects: tuple[str, ...] = ()

    def version(self) -> str:
        """Version of the package."""
        return version("own-kernel")

    def unsupported(self, problem: Problem, device: str) -> str | None:
        """Why a problem cannot be computed; None if it can."""
        if problem.mask.spec not in ("full", "causal"):
            return "takes the masks full and causal only"
        if problem.seqlen_q != problem.seqlen_k or problem.num_heads_q != problem.num_heads_kv:
            return "takes self-attention with as many key heads as query heads only"
        return None

    def predicted_peak_bytes(self, problem: Problem, device: str = "cpu") -> int | None:
        """No memory law is stated."""
        return None

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        """Nothing to prepare."""
        from own_kernel import attention

        causal = problem.mask.spec == "causal"
        return Call(
            lambda: AttentionOutput(attention(inputs.q, inputs.k, inputs.v, problem.softmax_scale, causal=causal))
        )
