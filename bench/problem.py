"""One attention problem: sizes, dtype, mask, scale, direction, input distribution and seed."""

from __future__ import annotations

import hashlib
import math
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from bench.errors import ProblemError
from bench.masks import Mask, MaskShape, attended_pairs, empty_rows, parse_mask

Dtype = Literal["float32", "float16", "bfloat16"]
Direction = Literal["fwd", "bwd", "fwd_bwd"]
Distribution = Literal["normal", "uniform", "outlier", "peaked", "padded_dout_zero"]

DTYPE_BYTES: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes per element."""

SIZES = ("batch_size", "num_heads_q", "num_heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v")
"""Fields that count something and are at least 1."""

LARGEST_SIZE = 1 << 26
"""No axis is longer: beyond this, counting the pairs alone would not fit in memory."""

MaskField = Annotated[
    Any,  # a Mask; pydantic is told how to read and write it below
    # Asking a text first: whether it is a Mask takes as long as all the rest of a problem that is read.
    BeforeValidator(
        lambda value: value if not isinstance(value, str) and isinstance(value, Mask) else parse_mask(str(value))
    ),
    PlainSerializer(lambda mask: getattr(mask, "spec", mask), return_type=str),
    WithJsonSchema({"type": "string", "description": "a mask expression such as 'causal & padding(0.5)'"}),
]


class Problem(BaseModel):
    """What is computed: ``out = softmax(scale * q @ k^T restricted to the mask) @ v``, and its gradients.

    Raises:
        ProblemError: when built with sizes, dtype, mask or scale that do not fit together.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)

    batch_size: int = 1
    """Independent sequences, B."""
    num_heads_q: int = 4
    """Query heads, H_q."""
    num_heads_kv: int = 4
    """Key and value heads, H_kv; query head ``h`` reads key head ``h // (num_heads_q // num_heads_kv)``."""
    seqlen_q: int
    """Query positions, T_q."""
    seqlen_k: int
    """Key positions, T_k."""
    head_dim: int = 64
    """Width of q and k per head, d_k."""
    head_dim_v: int = 64
    """Width of v per head, d_v."""
    dtype: Dtype = "float32"
    """Element type of q, k, v and out."""
    mask: MaskField = "full"
    """Which query may see which key, as a mask expression."""
    scale: float | None = None
    """Factor before softmax; null means ``head_dim ** -0.5``. Zero and negative are legal."""
    direction: Direction = "fwd"
    """``fwd``, ``bwd`` (gradient of a retained forward) or ``fwd_bwd``."""
    distribution: Distribution = "normal"
    """How q, k, v and dout are drawn."""
    seed: int = 0
    """Seed of the draw."""

    def __init__(self, **fields: Any) -> None:
        # `seqlen`, `num_heads` and defaults that follow another field are resolved here, for every caller.
        fields = expand_fields(fields)
        try:
            super().__init__(**fields)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"]) or "problem"
            raise ProblemError(_requirement(name, first)) from None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for name in SIZES:
            size = getattr(self, name)
            if size < 1:
                raise ProblemError(f"{name} must be at least 1, got {size}. Give a positive size.")
            if getattr(self, name) > LARGEST_SIZE:
                raise ProblemError(
                    f"{name} must be at most {LARGEST_SIZE}, got {getattr(self, name)}. Give a smaller size."
                )
        if self.num_heads_q % self.num_heads_kv:
            raise ProblemError(
                f"num_heads_q must be a multiple of num_heads_kv, got {self.num_heads_q} and "
                f"{self.num_heads_kv}. Change one of them."
            )
        if self.scale is not None and not math.isfinite(self.scale):
            raise ProblemError(f"scale must be a finite number, got {self.scale}. Leave it out for head_dim ** -0.5.")
        if not 0 <= self.seed < 2**63:
            raise ProblemError(f"seed must be from 0 to 2**63 - 1, got {self.seed}. Choose another seed.")
        self.mask.check(self.mask_shape)
        return self

    @property
    def softmax_scale(self) -> float:
        """The factor that is applied: ``scale``, or ``head_dim ** -0.5`` (Vaswani 2017, section 3.2.1)."""
        return self.head_dim**-0.5 if self.scale is None else self.scale

    @property
    def mask_shape(self) -> MaskShape:
        """The sizes that the mask is evaluated for."""
        return MaskShape(
            batch_size=self.batch_size,
            num_heads=self.num_heads_q,
            seqlen_q=self.seqlen_q,
            seqlen_k=self.seqlen_k,
        )

    @property
    def element_bytes(self) -> int:
        """Bytes per element of q, k, v and out."""
        return DTYPE_BYTES[self.dtype]

    @cached_property
    def attended_pairs(self) -> int:
        """Exact visible (query, key) pairs over batch and query heads."""
        return attended_pairs(self.mask, self.mask_shape)

    @cached_property
    def empty_rows(self) -> int:
        """Query rows over batch and query heads that may see no key: ``out = 0``, ``lse = -inf``."""
        return empty_rows(self.mask, self.mask_shape)

    @property
    def all_pairs(self) -> int:
        """Entries of the whole score matrix: ``batch_size * num_heads_q * seqlen_q * seqlen_k``."""
        return self.batch_size * self.num_heads_q * self.seqlen_q * self.seqlen_k

    @property
    def flop(self) -> int:
        """FLOP of the two (forward) or five (backward with recomputation) products over the visible pairs.

        Source: forward ``2 * pairs * (d_k + d_v)``, backward ``2 * pairs * (3 d_k + 2 d_v)``.
        """
        forward = 2 * self.attended_pairs * (self.head_dim + self.head_dim_v)
        backward = 2 * self.attended_pairs * (3 * self.head_dim + 2 * self.head_dim_v)
        return {"fwd": forward, "bwd": backward, "fwd_bwd": forward + backward}[self.direction]

    @property
    def input_bytes(self) -> int:
        """Bytes of q, k and v."""
        q = self.num_heads_q * self.seqlen_q * self.head_dim
        kv = self.num_heads_kv * self.seqlen_k * (self.head_dim + self.head_dim_v)
        return self.batch_size * (q + kv) * self.element_bytes

    @property
    def least_bytes(self) -> int:
        """Bytes that any implementation moves: inputs read and results written once, for the gradients as well."""
        forward = self.input_bytes + self.output_bytes
        backward = 2 * self.input_bytes + self.output_bytes
        return {"fwd": forward, "bwd": backward, "fwd_bwd": forward + backward}[self.direction]

    @property
    def output_bytes(self) -> int:
        """Bytes of out."""
        return self.batch_size * self.num_heads_q * self.seqlen_q * self.head_dim_v * self.element_bytes

    @cached_property
    def key(self) -> str:
        """A readable name that no other problem has: ``B1-H4-T1024-d64-float32-fwd-causal``.

        It is what ``-p`` and ``-P`` match.
        """
        heads = _pair(self.num_heads_q, self.num_heads_kv)
        length = _pair(self.seqlen_q, self.seqlen_k)
        width = _pair(self.head_dim, self.head_dim_v)
        parts = [f"B{self.batch_size}", f"H{heads}", f"T{length}", f"d{width}", self.dtype, self.direction]
        parts.append(self.mask.spec.replace(" ", ""))
        if self.scale is not None:
            parts.append(f"scale{self.scale!r}")
        if self.distribution != "normal":
            parts.append(self.distribution)
        if self.seed:
            parts.append(f"seed{self.seed}")
        return "-".join(parts)

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that follow from :attr:`key` alone."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:12]


_SHORTHANDS = {"seqlen": ("seqlen_q", "seqlen_k"), "num_heads": ("num_heads_q", "num_heads_kv")}
_FOLLOWERS = {"seqlen_k": "seqlen_q", "num_heads_kv": "num_heads_q", "head_dim_v": "head_dim"}


def expand_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Resolve the shorthands ``seqlen`` and ``num_heads``, and the fields that default to another field."""
    fields = dict(fields)
    for short, names in _SHORTHANDS.items():
        if short in fields:
            value = fields.pop(short)
            for name in names:
                fields.setdefault(name, value)
    for follower, leader in _FOLLOWERS.items():
        if leader in fields:
            fields.setdefault(follower, fields[leader])
    return fields


def _requirement(name: str, error: Any) -> str:
    """One of pydantic's findings as ``<subject> must <requirement>, got <value>`` with a next step."""
    kind, got = error["type"], error.get("input")
    if kind == "missing":
        return f"{name} must be given, got nothing. Set it on the command line or in the sweep file."
    if kind == "literal_error":
        return f"{name} must be {error['ctx']['expected']}, got {got!r}. Choose one of them."
    if kind == "extra_forbidden":
        known = ", ".join(Problem.model_fields)
        return f"problem field must be one of {known}, got {name!r}. Check the spelling."
    if kind.startswith("int"):
        return f"{name} must be a whole number, got {got!r}. Check the value."
    if kind.startswith("float"):
        return f"{name} must be a number, got {got!r}. Check the value."
    return f"{name} must be valid ({error['msg']}), got {got!r}. Check the value."


def _pair(first: int, second: int) -> str:
    """Two sizes of a key: ``4``, or ``4:2`` where they differ."""
    return str(first) if first == second else f"{first}:{second}"
