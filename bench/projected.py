"""Attention with its projections: q = x W_q, k = source W_k and v = source W_v, then attention head by head.

Shapes, all of the problem's dtype; in self-attention ``source`` is ``x``::

    x       (batch_size, seqlen_q, width)           width is D, or D_q beside another source
    source  (batch_size, seqlen_k, source_width)    D_s
    w_q     (width,        num_heads * head_dim)
    w_k     (source_width, num_heads * head_dim)
    w_v     (source_width, num_heads * head_dim_v)
    out     (batch_size, num_heads, seqlen_q, head_dim_v), heads not yet merged

The products with weights cost ``2 T_q D H d_k + 2 T_k D_s H (d_k + d_v)`` FLOP per sequence, which grows as T; the
pairs cost ``2 T_q T_k H (d_k + d_v)``, which grows as T squared. In self-attention with ``H d_k = H d_v = D`` that is
``6 T D^2`` against ``4 T^2 D``, equal at ``T = 1.5 D``; with a projection of the output it is ``8 T D^2``, and 2 D.

Source: Vaswani et al. (2017), sections 3.2.1 and 3.2.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import ProblemError, Unsupported
from bench.implementation import AttentionInputs, dense_mask, implementations
from bench.numerics import agree
from bench.problem import LARGEST_SIZE, Problem
from bench.record import Agreement
from bench.reference import Reference, naive_yardstick, reference

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ProjectedProblem:
    """An attention problem whose queries, keys and values are projected first.

    Raises:
        ProblemError: when built with widths or an attention problem that cannot be projected.
    """

    attention: Problem
    """What is computed from the projected queries, keys and values: a forward pass with a key head per query head."""
    width: int
    """Of the vectors that queries are projected from, D."""
    source_width: int
    """Of the vectors that keys and values are projected from, D_s."""

    def __post_init__(self) -> None:
        for name in ("width", "source_width"):
            size = getattr(self, name)
            if type(size) is not int or not 1 <= size <= LARGEST_SIZE:
                raise ProblemError(
                    f"{name} must be a whole number from 1 to {LARGEST_SIZE}, got {size!r}. Give another size."
                )
        one = self.attention
        required: dict[str, object] = dict(direction="fwd", distribution="normal", num_heads_kv=one.num_heads_q)
        for name, value in required.items():
            if getattr(one, name) != value:
                raise ProblemError(
                    f"{name} of a projected problem must be {value}, got {getattr(one, name)}. "
                    "Measure other attention without its projections."
                )

    @property
    def self_attention(self) -> bool:
        """Whether queries, keys and values come from the same vectors: their widths and lengths agree."""
        return (self.width, self.attention.seqlen_q) == (self.source_width, self.attention.seqlen_k)

    @property
    def projection_flop(self) -> int:
        """FLOP of the three products with weights."""
        one = self.attention
        queries = one.seqlen_q * self.width * one.head_dim
        sources = one.seqlen_k * self.source_width * (one.head_dim + one.head_dim_v)
        return 2 * one.batch_size * one.num_heads_q * (queries + sources)

    @property
    def output_flop(self) -> int:
        """FLOP of a product that turns the outputs of all heads into vectors of ``width`` again."""
        one = self.attention
        return 2 * one.batch_size * one.seqlen_q * one.num_heads_q * one.head_dim_v * self.width

    @property
    def pair_flop(self) -> int:
        """FLOP of the two products over visible pairs: ``2 * pairs * (head_dim + head_dim_v)``."""
        return self.attention.flop

    def crossover_seqlen(self, with_output: bool = False) -> float | None:
        """The ``seqlen_q`` from which on the pairs cost more FLOP than the projections; None if nothing is visible.

        Both lengths grow in proportion, and the visible share of the pairs stays as it is here: exactly so for the
        mask ``full``, nearly for ``causal`` and padding.

        Args:
            with_output: whether the output is projected, too.
        """
        products = self.projection_flop + (self.output_flop if with_output else 0)
        return self.attention.seqlen_q * products / self.pair_flop if self.pair_flop else None


@dataclass(frozen=True)
class ProjectedInputs:
    """Tensors of a projected problem; shapes in the module docstring."""

    x: torch.Tensor
    source: torch.Tensor
    w_q: torch.Tensor
    w_k: torch.Tensor
    w_v: torch.Tensor


@dataclass(frozen=True)
class Prepared:
    """An implementation with its inputs: the whole and the parts that can be run by themselves."""

    whole: Callable[[], torch.Tensor]
    """From ``x`` and ``source`` to out, ``(batch_size, num_heads, seqlen_q, head_dim_v)``."""
    projections: Callable[[], object]
    """Its products with weights alone."""
    pairs: Callable[[], torch.Tensor]
    """Attention on queries, keys and values that are projected already; gives out."""
    projection_flop: int
    """FLOP of ``projections``, which may hold a projection of the output."""


def draw_inputs(problem: ProjectedProblem) -> ProjectedInputs:
    """Normal vectors, and normal weights scaled so that every coordinate of q, k and v has variance one.

    Returns:
        Tensors of the problem's dtype on the CPU; ``source`` is ``x`` itself in self-attention.
    """
    import torch

    one = problem.attention
    generator, dtype = torch.Generator().manual_seed(one.seed), getattr(torch, one.dtype)

    def draw(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * scale).to(dtype)

    x = draw(one.batch_size, one.seqlen_q, problem.width)
    source = x if problem.self_attention else draw(one.batch_size, one.seqlen_k, problem.source_width)
    keys, values = one.num_heads_q * one.head_dim, one.num_heads_q * one.head_dim_v
    return ProjectedInputs(
        x,
        source,
        draw(problem.width, keys, scale=problem.width**-0.5),
        draw(problem.source_width, keys, scale=problem.source_width**-0.5),
        draw(problem.source_width, values, scale=problem.source_width**-0.5),
    )


def expected(problem: ProjectedProblem, inputs: ProjectedInputs) -> tuple[Reference, Reference]:
    """The float64 answer, projections included, and the plain arithmetic in the problem's dtype, as a yardstick."""
    import torch

    exact = reference(problem.attention, _project(problem, inputs, torch.float64))
    return exact, naive_yardstick(problem.attention, _project(problem, inputs, inputs.x.dtype))


def verify(problem: ProjectedProblem, out: torch.Tensor, answer: tuple[Reference, Reference]) -> Agreement:
    """Judge ``out`` of :attr:`Prepared.whole` by what :func:`expected` gave.

    The limit is that of :mod:`bench.numerics`. Its yardstick projects in the same dtype, so what rounding of q, k and v
    does to the output is in it: twice the yardstick's largest error allows for products summed in another order.
    """
    return agree(problem.attention, *answer, {"out": out})


def blocking(keep: torch.Tensor) -> torch.Tensor:
    """A mask in the polarity of ``torch.nn.MultiheadAttention``, where True blocks; here True attends."""
    return ~keep


def _project(problem: ProjectedProblem, inputs: ProjectedInputs, dtype: torch.dtype) -> AttentionInputs:
    """q, k and v in the logical order, ``(batch_size, num_heads, seqlen, width of a head)``."""
    heads = (problem.attention.num_heads_q, -1)

    def by_head(vectors: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        product = vectors.to(dtype) @ weights.to(dtype)
        split: torch.Tensor = product.unflatten(-1, heads).transpose(1, 2)
        return split

    return AttentionInputs(
        by_head(inputs.x, inputs.w_q), by_head(inputs.source, inputs.w_k), by_head(inputs.source, inputs.w_v)
    )


def _composed(name: str, problem: ProjectedProblem, inputs: ProjectedInputs) -> Prepared:
    """Three products, then the registered implementation ``name``.

    It is prepared once on tensors that the products are written into. These lie as one product gives them, all heads of
    a position together; an implementation that wants another order gets views, and what it makes of them is its own.
    """
    import torch

    member, attention = implementations.get(name), problem.attention
    refused = member.unsupported(attention, inputs.x.device.type)
    if refused is not None:
        raise Unsupported(refused)
    factors = [(inputs.x, inputs.w_q), (inputs.source, inputs.w_k), (inputs.source, inputs.w_v)]
    flat = [(vectors.flatten(0, 1), weights) for vectors, weights in factors]
    projected = [torch.mm(*pair) for pair in flat]
    views = [
        out.view(*vectors.shape[:2], attention.num_heads_q, -1)
        for (vectors, _), out in zip(factors, projected, strict=True)
    ]
    turned = member.layout == "bhsd"
    call = member.prepare(attention, AttentionInputs(*(v.transpose(1, 2) if turned else v for v in views)))

    def projections() -> None:
        for (vectors, weights), out in zip(flat, projected, strict=True):
            torch.mm(vectors, weights, out=out)

    def pairs() -> torch.Tensor:
        out = call.run().out
        return out if turned else out.transpose(1, 2)

    def whole() -> torch.Tensor:
        projections()
        return pairs()

    inference = torch.inference_mode()
    return Prepared(inference(whole), inference(projections), inference(pairs), problem.projection_flop)


def _naive(problem: ProjectedProblem, inputs: ProjectedInputs) -> Prepared:
    return _composed("naive", problem, inputs)


def _sdpa(problem: ProjectedProblem, inputs: ProjectedInputs) -> Prepared:
    return _composed("sdpa_flash", problem, inputs)


def _multihead(problem: ProjectedProblem, inputs: ProjectedInputs) -> Prepared:
    """``torch.nn.MultiheadAttention`` without biases and without returning weights.

    Its output projection cannot be left out. It is the identity here, which changes no number and costs what any matrix
    of its size costs; its FLOP count among the projections, and its product is timed with theirs. The parts cannot be
    taken out of the module: they are the same products, and the kernel that it calls. What the whole takes beyond both
    is its copying between layouts.
    """
    import torch

    attention = problem.attention
    embedding = attention.num_heads_q * attention.head_dim
    if problem.width != embedding or attention.head_dim_v != attention.head_dim:
        raise Unsupported(
            f"it needs width == num_heads * head_dim and head_dim_v == head_dim, got width {problem.width}, "
            f"{attention.num_heads_q} heads, head_dim {attention.head_dim} and head_dim_v {attention.head_dim_v}"
        )
    if attention.scale is not None:
        raise Unsupported(f"it scales by head_dim ** -0.5, got scale {attention.scale}")
    options: dict[str, Any] = {"device": inputs.x.device, "dtype": inputs.x.dtype}
    source_width, identity = problem.source_width, torch.eye(embedding, **options)
    module = torch.nn.MultiheadAttention(
        *(embedding, attention.num_heads_q),
        bias=False,
        batch_first=True,
        kdim=source_width,
        vdim=source_width,
        **options,
    ).eval()
    weights = [inputs.w_q.T, inputs.w_k.T, inputs.w_v.T]
    state = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), weights, strict=True))
    if source_width == embedding:
        state = {"in_proj_weight": torch.cat(weights)}
    module.load_state_dict(state | {"out_proj.weight": identity})
    masks = _blocking_masks(attention, inputs.x.device)
    parts = _composed("sdpa_flash", problem, inputs)
    context = torch.ones_like(inputs.x.flatten(0, 1))

    def whole() -> torch.Tensor:
        out = module(inputs.x, inputs.source, inputs.source, need_weights=False, **masks)[0]
        heads: torch.Tensor = out.unflatten(-1, (attention.num_heads_q, -1)).transpose(1, 2)
        return heads

    def projections() -> None:
        parts.projections()
        torch.mm(context, identity)

    inference = torch.inference_mode()
    flop = problem.projection_flop + problem.output_flop
    return Prepared(inference(whole), inference(projections), parts.pairs, flop)


def _blocking_masks(attention: Problem, device: torch.device) -> dict[str, torch.Tensor]:
    """The mask as ``MultiheadAttention`` takes it: by key where every query sees the same keys, else by pair."""
    if attention.attended_pairs == attention.all_pairs:
        return {}
    keep = dense_mask(attention, device)
    if keep.shape[1] == 1 and bool((keep == keep[:, :, :1]).all()):
        return {"key_padding_mask": blocking(keep[:, 0, 0].expand(attention.batch_size, -1))}
    if keep.shape[:2] == (1, 1):
        return {"attn_mask": blocking(keep[0, 0])}
    by_head = keep.expand(attention.batch_size, attention.num_heads_q, -1, -1)
    return {"attn_mask": blocking(by_head).flatten(0, 1)}


PROJECTED: dict[str, Callable[[ProjectedProblem, ProjectedInputs], Prepared]] = {
    "projected_naive": _naive,
    "projected_sdpa": _sdpa,
    "multihead": _multihead,
}
"""Implementations by name; they raise ``Unsupported`` with the reason for what they cannot compute."""
