"""What an implementation of attention is, and the semantics that every one of them has to follow.

Shapes, in the logical order (an implementation may declare another memory layout, see ``layout``)::

    q    (batch_size, num_heads_q,  seqlen_q, head_dim)
    k    (batch_size, num_heads_kv, seqlen_k, head_dim)
    v    (batch_size, num_heads_kv, seqlen_k, head_dim_v)
    out  (batch_size, num_heads_q,  seqlen_q, head_dim_v)     dtype of the problem
    lse  (batch_size, num_heads_q,  seqlen_q)                 float32, natural logarithm

Semantics, stated once:

* ``out = softmax(scale * q @ k^T, over visible keys) @ v`` and ``lse = log(sum(exp(scale * q @ k^T)))``.
* Query head ``h`` reads key and value head ``h // (num_heads_q // num_heads_kv)``: groups are blocks, not
  stripes.
* ``causal`` and ``sliding_window`` are aligned bottom-right when ``seqlen_q != seqlen_k``;
  ``causal_top_left`` is PyTorch's ``is_causal``. A window of W keys counts the query's own position. (Drawn
  in ``bench/masks/__init__.py``.)
* A query that may see no key has ``out = 0``, ``lse = -inf`` and zero gradients. That is a declared policy,
  not a distribution.
* ``scale`` is any finite number; an implementation that cannot take zero or a negative one says
  ``unsupported``.
* No dropout. Nothing falls back in silence: what cannot be computed as asked raises ``Unsupported`` with the
  reason.
* Inputs arrive in the declared layout, so a copy inside the call is timed. Mask tensors are built in
  ``prepare``; their bytes are reported as ``mask_bytes``, and what the call converts them to counts as its
  workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from bench.errors import MaskError
from bench.problem import Problem
from bench.registry import Registry

if TYPE_CHECKING:
    import torch

Layout = Literal["bhsd", "bshd"]

implementations: Registry[Implementation] = Registry("implementations", "implementation", "implementations")


@dataclass(frozen=True)
class AttentionInputs:
    """Tensors of one problem in one implementation's layout, on one device.

    For ``bhsd`` the shapes are those of the module docstring; for ``bshd`` the second and third axes are
    exchanged. ``dout`` is the upstream gradient, with the shape of ``out``; None for the direction ``fwd``.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor | None = None


@dataclass(frozen=True)
class AttentionOutput:
    """What a call returns: ``out`` in the implementation's layout, and ``lse`` where it computes one."""

    out: torch.Tensor
    lse: torch.Tensor | None = None


@dataclass(frozen=True)
class Call:
    """A prepared forward call. Only ``run`` is timed; everything else was done in ``prepare``."""

    run: Callable[[], AttentionOutput]
    """Computes the forward pass from the prepared inputs; differentiable where ``backward`` says so."""
    mask_bytes: int = 0
    """Bytes of mask tensors built in ``prepare`` (not part of the measured peak)."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What else the record should hold, for example the block size or what the compiler put in place."""


@runtime_checkable
class Implementation(Protocol):
    """One way to compute attention; ``@register_implementation`` in a file of its own adds it.

    Modules import torch and optional libraries inside functions, so that listing implementations is cheap.
    """

    # Read-only, so that plain class attributes, frozen dataclasses and properties all fulfil the contract.
    @property
    def name(self) -> str:
        """The name in tables, figures and filters."""
        ...

    @property
    def summary(self) -> str:
        """One sentence for ``attention-bench list implementations``."""
        ...

    @property
    def layout(self) -> Layout:
        """Memory layout of the tensors it takes and returns."""
        ...

    @property
    def devices(self) -> tuple[str, ...]:
        """Device types it can run on: ``cpu``, ``cuda``."""
        ...

    @property
    def backward(self) -> bool:
        """Whether autograd can differentiate its forward call."""
        ...

    @property
    def expects(self) -> tuple[str, ...]:
        """Parts of operator names, one of which a call must dispatch; empty if there is nothing to prove."""
        ...

    def version(self) -> str:
        """Version of the library that does the work.

        Raises:
            Unavailable: if the library or hardware is not there; the message is the reason shown to the user.
        """
        ...

    def unsupported(self, problem: Problem, device: str) -> str | None:
        """Why this problem cannot be computed, in the implementation's own words; None if it can.

        Must not import torch.
        """
        ...

    def predicted_peak_bytes(self, problem: Problem, device: str = "cpu") -> int | None:
        """Memory law: peak bytes of one step of the problem's direction; None if it is not known.

        Results are included, inputs and mask tensors are not. For ``bwd``, what the retained forward call
        keeps alive was there before and is not part of it.
        """
        ...

    def prepare(self, problem: Problem, inputs: AttentionInputs) -> Call:
        """Do everything that is not the computation itself: build mask tensors, allocate scratch, compile.

        Raises:
            Unsupported: if the library refuses; the message is its own reason.
        """
        ...


@runtime_checkable
class Untimed(Protocol):
    """What an implementation has besides where on some device something else stands in for it, to show it right there.

    Neither method may import torch.
    """

    def untimed(self, problem: Problem, device: str) -> str | None:
        """Why this problem is verified and never timed on ``device``; None where it is timed."""
        ...

    def unavailable(self, problem: Problem, device: str) -> str | None:
        """Why what stands in is not tried on this problem, which the implementation itself takes; None if it is."""
        ...


def untimed(member: Implementation, problem: Problem, device: str) -> str | None:
    """Why a member's time on ``device`` would be that of something else; None for a member that is timed there."""
    return member.untimed(problem, device) if isinstance(member, Untimed) else None


def refusal(
    member: Implementation, problem: Problem, device: str
) -> tuple[Literal["unsupported", "unavailable"], str] | None:
    """Why a member is not tried on a problem, as status and reason; None if it is. Imports no torch."""
    if device not in member.devices:
        return "unavailable", f"runs on {' and '.join(member.devices)} only"
    if problem.direction != "fwd" and not member.backward:
        return "unsupported", "has no backward pass"
    reason = member.unsupported(problem, device)
    if reason is not None:
        return "unsupported", reason
    missing = member.unavailable(problem, device) if isinstance(member, Untimed) else None
    return None if missing is None else ("unavailable", missing)


@dataclass(frozen=True)
class KernelConfiguration:
    """One of the ways in which an implementation ships its kernels."""

    name: str
    """As in tables and filters, unique within the implementation."""
    target: str
    """Key of :data:`bench.occupancy.LIMITS`."""
    direction: Literal["fwd", "bwd"]
    dtype: str
    head_dim: int
    """Widest head that it is for."""
    digest: str
    """Changes with everything of the implementation that the compiled code depends on."""


@dataclass(frozen=True)
class KernelSource:
    """All that ``triton.compile`` takes for one kernel of a configuration."""

    function: Any
    """The ``JITFunction``."""
    signature: Mapping[str, str]
    """Type of each argument by name; ``constexpr`` where :attr:`constexprs` holds the value."""
    constexprs: Mapping[tuple[int], object]
    """Compile-time values by position of the argument."""
    attrs: Mapping[tuple[int], list[list[object]]]
    """What is known of arguments: alignment to 16, as in a launch on tensors from PyTorch's allocator."""
    options: Mapping[str, int]
    """``num_warps`` and ``num_stages``."""
    device: tuple[str, int | str, int]
    """Backend, architecture and lanes of a warp, as Triton's ``GPUTarget`` takes them."""
    blocks: str
    """What one program works on, in a word: ``128x64``."""


@runtime_checkable
class Precompiled(Protocol):
    """What an implementation has besides whose Triton kernels can be compiled for a target with no device at hand."""

    def kernel_configurations(self) -> Sequence[KernelConfiguration]:
        """Everything that is shipped. Must not import torch or triton."""
        ...

    def kernel_sources(self, name: str) -> Sequence[KernelSource]:
        """The kernels that a configuration launches."""
        ...


def register_implementation(cls: type[Any]) -> type[Any]:
    """Class decorator: build the implementation once and add it to the registry under its ``name``."""
    implementations.add(cls.name, cls())
    return cls


def mask_tables(problem: Problem, device: str | torch.device) -> dict[str, torch.Tensor]:
    """The mask's integer tables as int64 tensors, for :func:`mask_block`."""
    import torch

    return {name: torch.tensor(table, device=device) for name, table in problem.mask.tables(problem.mask_shape).items()}


def mask_block(
    problem: Problem,
    tables: Mapping[str, torch.Tensor],
    batch: int,
    head: int,
    rows: slice,
    keys: slice,
    device: str | torch.device = "cpu",
) -> torch.Tensor:
    """``keep`` for a block of one batch item and query head: bool ``(rows, keys)``, True = attend."""
    import torch

    q_idx = torch.arange(rows.start, rows.stop, device=device)[:, None]
    k_idx = torch.arange(keys.start, keys.stop, device=device)[None, :]
    kept: torch.Tensor = problem.mask.keep(batch, head, q_idx, k_idx, problem.mask_shape, tables)
    return _booleans(problem, torch.broadcast_to(kept, (q_idx.shape[0], k_idx.shape[1])))


def mask_differs(problem: Problem) -> tuple[bool, bool]:
    """Whether the mask may differ between batch items, and between query heads.

    Where visible keys are contiguous in each row, the row ranges say everything: they know no head, and items
    whose ranges are equal have the same mask. Where they are not, nothing is known.
    """
    ranges = [problem.mask.row_range(item, problem.mask_shape) for item in range(problem.batch_size)]
    first = ranges[0]
    if first is None:
        return problem.batch_size > 1, problem.num_heads_q > 1
    same = all(r is not None and (r[0] == first[0]).all() and (r[1] == first[1]).all() for r in ranges)
    return not same, False


def dense_mask(problem: Problem, device: str | torch.device) -> torch.Tensor:
    """The whole mask, bool ``(batch_size or 1, num_heads_q or 1, seqlen_q, seqlen_k)``, True = attend.

    An axis has size 1 where the mask is the same for all batch items or all heads, so that a mask takes no
    more memory than it needs.
    """
    import torch

    shape, (per_item, per_head) = problem.mask_shape, mask_differs(problem)
    sizes = (
        shape.batch_size if per_item else 1,
        shape.num_heads if per_head else 1,
        shape.seqlen_q,
        shape.seqlen_k,
    )
    index = [
        torch.arange(size, device=device).view([-1 if axis == own else 1 for axis in range(4)])
        for own, size in enumerate(sizes)
    ]
    kept: torch.Tensor = problem.mask.keep(*index, shape, mask_tables(problem, device))
    return _booleans(problem, torch.broadcast_to(kept, sizes)).contiguous()


def _booleans(problem: Problem, kept: torch.Tensor) -> torch.Tensor:
    """``kept`` as booleans: 0 and 1 are never added to scores, and numbers to be added are not taken for a mask."""
    import torch

    if kept.is_floating_point():
        raise MaskError(
            f"mask {problem.mask.spec} must answer with booleans, True for a key that may be seen, got {kept.dtype}. "
            "Compare, for example `k_idx <= q_idx`, instead of returning what is to be added to scores."
        )
    return kept.to(torch.bool)
