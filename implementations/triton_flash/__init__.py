"""``triton_flash``: our own flash attention in Triton, forward, backward and split keys for decoding.

Modules: ``tiles`` (device functions), ``forward`` and ``backward`` (kernels), ``tuning`` (which blocks), ``sources``
(what compiling takes), ``masking`` (what a mask is to the kernels), ``launch`` (grids and arguments), ``ops``
(operators of torch), ``autotune``.

On a CPU the kernels run in Triton's interpreter: their results are verified there, and their time says nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bench.errors import Unavailable
from bench.implementation import (
    AttentionInputs,
    AttentionOutput,
    Call,
    KernelConfiguration,
    KernelSource,
    Layout,
    register_implementation,
)
from bench.problem import Problem

if TYPE_CHECKING:
    from implementations.triton_flash.launch import Mask

INTERPRETED = "runs in Triton's interpreter, whose time says nothing"
INTERPRETER_SECONDS = 5
"""A call that would take longer in the interpreter is not tried: verifying a cell takes up to ten calls."""
SECONDS_PER_TILE, SECONDS_PER_PROGRAM = 0.006, 0.003
"""Cost of a block of keys, and of what a program does before and after them: measured on one core, rounded up."""
COMPILED: dict[tuple[object, ...], list[float]] = {}
"""Seconds of each compilation in this process, by what decides the code besides strides; the certificate's included."""
MOST_WIDTH = 256
"""Widest head: its tiles fill the shared memory of a multiprocessor."""


@register_implementation
class TritonFlash:
    """Our kernels, compiled on a GPU and interpreted on a CPU."""

    name = "triton_flash"
    summary = "Our flash attention in Triton: softmax on chip, backward by recomputation, decoding by split keys."
    layout: Layout = "bhsd"
    devices = ("cpu", "cuda")
    backward = True
    expects: tuple[str, ...] = ("triton_attention",)

    def version(self) -> str:
        """Version of triton and a digest of the kernels, so that stored results do not outlive either."""
        try:
            triton = import_module("triton")
        except ImportError as error:
            raise Unavailable(f"needs triton, which ships for Linux ({error})") from None
        from implementations.triton_flash.tiles import INTERPRETED as interpreted
        from implementations.triton_flash.tuning import source_digest

        if not interpreted and not _has_gpu():
            raise Unavailable("torch sees no GPU, and TRITON_INTERPRET=0 forbids Triton's interpreter")
        return f"{triton.__version__}+{source_digest()}"

    def unsupported(self, problem: Problem, device: str) -> str | None:
        """Widths and masks that the kernels do not take."""
        from implementations.triton_flash.masking import visibility

        if max(problem.head_dim, problem.head_dim_v) > MOST_WIDTH:
            return f"heads of {problem.head_dim} and {problem.head_dim_v} are wider than {MOST_WIDTH}"
        found = visibility(problem)
        return found if isinstance(found, str) else None

    def untimed(self, problem: Problem, device: str) -> str | None:
        """On a CPU nothing is ever timed."""
        return INTERPRETED if device == "cpu" else None

    def unavailable(self, problem: Problem, device: str) -> str | None:
        """What would keep the interpreter busy for too long needs the GPU that the kernels are written for."""
        if device != "cpu" or (seconds := interpreter_seconds(problem)) <= INTERPRETER_SECONDS:
            return None
        return (
            f"needs a GPU: Triton's interpreter, which stands in for it on a CPU, would take about {seconds:,.0f} s "
            f"a call, more than {INTERPRETER_SECONDS} s"
        )

    def kernel_configurations(self) -> list[KernelConfiguration]:
        from implementations.triton_flash.sources import described
        from implementations.triton_flash.tuning import CONFIGURATIONS

        return [described(line) for line in CONFIGURATIONS]

    def kernel_sources(self, name: str) -> list[KernelSource]:
        from implementations.triton_flash.sources import kernel_sources
        from implementations.triton_flash.tuning import CONFIGURATIONS

        return kernel_sources(next(line for line in CONFIGURATIONS if line.name == name))

    def predicted_peak_bytes(self, problem: Problem, device: str = "cpu") -> int:
        """Results, float32 statistics per query, and the sums of split keys: linear in the length."""
        line = 4 * problem.batch_size * problem.num_heads_q * problem.seqlen_q
        forward = problem.output_bytes + line + split_bytes(problem)
        gradients = problem.input_bytes + line
        kept = problem.output_bytes + 3 * line
        return {
            "fwd": forward,
            "bwd": gradients,
            "fwd_bwd": max(forward + 2 * line, kept + gradients),
        }[problem.direction]

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        """Build the mask's tables; on a GPU also compile, by calling once in the problem's direction."""
        from implementations.triton_flash.launch import described
        from implementations.triton_flash.ops import attention

        q, k, v = inputs.q, inputs.k, inputs.v
        mask = mask_of(problem, q.device)

        def run() -> AttentionOutput:
            return AttentionOutput(*attention(q, k, v, problem.softmax_scale, mask))

        notes: dict[str, Any] = {"precision": "ieee"} if problem.dtype == "float32" else {}
        if q.device.type == "cuda":
            notes |= _first_call(problem, inputs, mask, run)
        notes |= described(q, k, v, problem.softmax_scale, mask, problem.direction != "fwd")
        return Call(run, mask_bytes=sum(t.nbytes for t in mask[2:] if t is not None), notes=notes)


def mask_of(problem: Problem, device: Any) -> Mask:
    """The problem's mask as arguments of the kernels, its tables on ``device``.

    Raises:
        Unsupported: where the kernels cannot take it.
    """
    import torch

    from bench.errors import Unsupported
    from implementations.triton_flash.launch import Mask
    from implementations.triton_flash.masking import visibility

    found = visibility(problem)
    if isinstance(found, str):
        raise Unsupported(found)
    tables: list[Any] = []
    for array in (found.keys, found.key_ranges, found.query_ranges):
        # Documents have one table for both sides.
        shared = array is not None and array is found.key_ranges and len(tables) == 2
        tables.append(tables[1] if shared else None if array is None else torch.from_numpy(array).to(device))
    return Mask(found.left, found.right, *tables)


def split_bytes(problem: Problem) -> int:
    """Bytes of the sums that programs leave which share the keys of a head; 0 where none do."""
    from implementations.triton_flash.tuning import num_splits

    group = problem.num_heads_q // problem.num_heads_kv
    splits = num_splits(problem.seqlen_q, problem.seqlen_k, group, problem.dtype)
    rows = problem.batch_size * problem.num_heads_q * problem.seqlen_q
    return 0 if splits == 1 else 4 * splits * rows * (problem.head_dim_v + 2)


def interpreter_seconds(problem: Problem) -> float:
    """About how long the interpreter takes for one step."""
    from implementations.triton_flash.tuning import interpreter_blocks

    queries, keys = problem.seqlen_q, problem.seqlen_k
    blocks = interpreter_blocks(queries, keys)
    programs = problem.batch_size * problem.num_heads_q * -(-queries // blocks.block_m)
    tiles = problem.attended_pairs / (min(blocks.block_m, queries) * min(blocks.block_n, keys)) + programs
    passes = {"fwd": 1, "bwd": 2, "fwd_bwd": 3}[problem.direction]
    return passes * (tiles * SECONDS_PER_TILE + programs * SECONDS_PER_PROGRAM)


def _first_call(problem: Problem, inputs: AttentionInputs, mask: Mask, run: Any) -> dict[str, Any]:
    """Call once, with gradients where the direction has them.

    Returns:
        For a record's notes: how many kernels were compiled for this kind of problem since the process began, and for
        how long; and where there was a search for blocks, how long it took, which is apart from all of that.
    """
    import torch

    from implementations.triton_flash.autotune import SEARCHES
    from implementations.triton_flash.tuning import compilations

    searched = len(SEARCHES)
    with compilations() as seconds:
        if problem.direction == "fwd":
            with torch.inference_mode():
                run()
        else:
            with torch.enable_grad():
                torch.autograd.grad(run().out, (inputs.q, inputs.k, inputs.v), inputs.dout)
        torch.cuda.synchronize(inputs.q.device)
    found = SEARCHES[searched:]
    if found:  # what was tried was compiled as well
        return {"autotune_s": round(sum(found), 3)}
    widths, absent = (problem.head_dim, problem.head_dim_v), tuple(part is None for part in mask)
    kind = (problem.dtype, problem.direction, *widths, *absent, problem.softmax_scale > 0)
    whole = COMPILED.setdefault(kind, [])
    whole += seconds
    return {"compiled_kernels": len(whole), "compile_s": round(sum(whole), 3)}


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
